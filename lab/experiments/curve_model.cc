#include "lab/experiments/curve_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <string>

#include "core/random.h"
#include "lab/experiments/curve_process.h"

namespace flash {
namespace {

using curves::apply;
using curves::condition_on;
using curves::Conditional;
using curves::Curve;
using curves::Kernel;
using curves::kLevel;
using curves::Point;
using curves::Process;
using dense::Matrix;
using Vector = std::vector<double>;

constexpr std::size_t kMostKnown = 3;  // numbers of known runs that a mixture of their own is chosen for

double log_sum(const Vector& v) {
  const double top = *std::max_element(v.begin(), v.end());
  double sum = 0;
  for (double x : v) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

struct CurveModel::Impl {
  CurveOptions options;
  PerformanceSet set;  // copies of the training instances: points look into them
  std::vector<Curve> curves;
  int applications = 0;
  std::map<std::string, int> application_ids;
  Vector context_mean, context_scale;
  Vector least;  // of each entry of the configuration in training
  std::optional<Process> process;
  CurveMixture mixtures[kMostKnown];

  Vector context_of(const PerformanceInstance& i, std::span<const std::size_t> known) const {
    Vector c(1 + set.context.size() + set.metrics.size(), 0);
    const auto n = static_cast<double>(known.size());
    for (std::size_t k : known) {
      c[0] += std::log(i.runs[k].time) / n;
      for (std::size_t m = 0; m < set.metrics.size(); ++m)
        c[1 + set.context.size() + m] += i.runs[k].metrics[m] / n;
    }
    std::copy(i.context.begin(), i.context.end(), c.begin() + 1);
    for (std::size_t d = 0; d < c.size() && !context_mean.empty(); ++d)
      c[d] = std::clamp((c[d] - context_mean[d]) / context_scale[d], -10.0, 10.0);
    return c;
  }

  /// -1: none of training's.
  int application_of(const PerformanceInstance& i) const {
    const auto it = application_ids.find(i.application);
    return it == application_ids.end() ? -1 : it->second;
  }

  Curve curve_of(const PerformanceInstance& i, std::span<const std::size_t> known) const {
    Curve c;
    for (const PerformanceRun& run : i.runs) c.configurations.push_back(run.configuration.data());
    c.context = context_of(i, known);
    c.ln_time.assign(i.runs.size(), 0);
    for (std::size_t k : known) c.ln_time[k] = std::log(i.runs[k].time);
    return c;
  }

  void prepare(Random& random);
  Process make_process(const Kernel& kernel, int without, Random random) const;
  void choose(Random& random);
  std::vector<std::size_t> worth_knowing(const Curve& c, std::size_t count) const;

  /// Curves of known shape at the runs of `c`: flat, and for each resource Amdahl's law, of which a share p
  /// of the work is divided by the resource (in units of the least that training has) up to a cap.
  std::vector<Vector> known_shapes(const Curve& c) const {
    std::vector<Vector> shapes{Vector(c.configurations.size(), 0)};
    for (std::size_t d = 0; d < set.everywhere.size(); ++d) {
      if (!set.everywhere[d]) continue;
      for (double p : {0.5, 0.8, 0.95})
        for (double cap : {1.0, 2.0, 8.0}) {
          Vector shape;
          for (const double* x : c.configurations)
            shape.push_back(std::log(1 - p + p * std::exp2(-std::min(x[d] - least[d], cap))));
          shapes.push_back(std::move(shape));
        }
    }
    return shapes;
  }

  /// What is the same for all mixtures: component curves at the runs of interest, known ones first.
  struct Components {
    std::vector<Vector> learned, known;
    Vector learned_share;   // 1 / instances of its application: applications count alike
    Vector distance;        // squared, between contexts
    std::size_t count = 0;  // of runs of interest
    Vector process_mean;
    Matrix process_covariance, configurations;
    int applications = 0;
  };
  /// `without`: the application that `p` does not know. `process`: with the process's own joint posterior.
  Components components(Process& p, const Curve& c, const std::vector<std::size_t>& runs, int without,
                        bool process) const;
  Vector answer(const Process& p, const Components& components, const Vector& ln_known,
                const CurveMixture& mixture) const;
};

namespace {

double normal_below(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

/// The ln p that minimises E|T - p| / T of a mixture of log-normals: the median of the mixture with its
/// density divided by T, in which component k has mean mu - s^2 and weight w exp(-mu + s^2 / 2).
double least_percentage_error(const Vector& log_weight, const Vector& mean, const Vector& deviation) {
  Vector w(mean.size());
  double low = std::numeric_limits<double>::infinity(), high = -low, top = -low;
  for (std::size_t k = 0; k < mean.size(); ++k) {
    w[k] = log_weight[k] - mean[k] + deviation[k] * deviation[k] / 2;
    top = std::max(top, w[k]);
  }
  double total = 0;
  for (std::size_t k = 0; k < mean.size(); ++k) {
    w[k] = std::exp(w[k] - top);
    total += w[k];
    const double centre = mean[k] - deviation[k] * deviation[k];
    low = std::min(low, centre - 4 * deviation[k]);
    high = std::max(high, centre + 4 * deviation[k]);
  }
  while (high - low > 1e-3) {
    const double middle = (low + high) / 2;
    double below = 0;
    for (std::size_t k = 0; k < mean.size(); ++k)
      if (w[k] > 1e-9 * total) below += w[k] * normal_below((middle - mean[k]) / deviation[k] + deviation[k]);
    (below < total / 2 ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

void CurveModel::Impl::prepare(Random&) {
  std::map<std::string, int>& ids = application_ids;
  context_mean.assign(1 + set.context.size() + set.metrics.size(), 0);
  context_scale.assign(context_mean.size(), 0);
  std::vector<Vector> raw;
  for (const PerformanceInstance& i : set.instances) {
    std::vector<std::size_t> all(i.runs.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = r;
    const Vector mean = std::exchange(context_mean, {});  // unscaled
    raw.push_back(context_of(i, all));
    context_mean = mean;
    for (const PerformanceRun& run : i.runs)
      for (std::size_t d = 0; d < run.configuration.size(); ++d) {
        if (least.size() <= d) least.push_back(run.configuration[d]);
        least[d] = std::min(least[d], run.configuration[d]);
      }
  }
  const auto n = static_cast<double>(raw.size());
  for (const Vector& r : raw)
    for (std::size_t d = 0; d < r.size(); ++d) context_mean[d] += r[d] / n;
  for (const Vector& r : raw)
    for (std::size_t d = 0; d < r.size(); ++d)
      context_scale[d] += (r[d] - context_mean[d]) * (r[d] - context_mean[d]) / n;
  for (double& s : context_scale) s = s > 1e-12 ? std::sqrt(s) : 1;
  for (std::size_t k = 0; k < set.instances.size(); ++k) {
    const PerformanceInstance& i = set.instances[k];
    std::vector<std::size_t> all(i.runs.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = r;
    Curve c = curve_of(i, all);
    c.instance = static_cast<int>(k);
    c.application = ids.try_emplace(i.application, static_cast<int>(ids.size())).first->second;
    curves.push_back(std::move(c));
  }
  applications = static_cast<int>(ids.size());
}

/// Of every training instance (but those of application `without`) as many runs as the bound allows, drawn.
Process CurveModel::Impl::make_process(const Kernel& kernel, int without, Random random) const {
  const auto each = std::max<std::size_t>(4, static_cast<std::size_t>(options.rows) / curves.size());
  std::vector<Point> points;
  Vector y;
  for (const Curve& c : curves) {
    std::vector<std::size_t> order(c.configurations.size());
    for (std::size_t r = 0; r < order.size(); ++r) order[r] = r;
    for (std::size_t r = 0; r + 1 < order.size(); ++r)
      std::swap(order[r], order[r + random.below(order.size() - r)]);
    if (c.application == without) continue;
    for (std::size_t r = 0;
         r < std::min(each, order.size()) && points.size() < static_cast<std::size_t>(options.rows); ++r) {
      points.push_back(c.point(order[r]));
      y.push_back(c.ln_time[order[r]]);
    }
  }
  return {kernel, std::move(points), std::move(y)};
}

CurveModel::Impl::Components CurveModel::Impl::components(Process& p, const Curve& c,
                                                          const std::vector<std::size_t>& runs, int without,
                                                          bool with_process) const {
  Components out;
  Curve at;  // the runs of interest alone
  for (std::size_t r : runs) at.configurations.push_back(c.configurations[r]);
  at.context = c.context;
  at.application = c.application;
  std::vector<Point> points;
  for (std::size_t r = 0; r < runs.size(); ++r) points.push_back(at.point(r));
  out.count = runs.size();
  if (with_process) p.joint(points, out.process_mean, out.process_covariance);
  std::map<int, int> members;
  for (const Curve& other : curves)
    if (other.application != without) ++members[other.application];
  out.applications = static_cast<int>(members.size());
  for (std::size_t o = 0; o < curves.size(); ++o) {
    const Curve& other = curves[o];
    if (other.application == without) continue;
    Vector shape;
    for (const Point& point : points) shape.push_back(p.learned(curves, point.configuration)[o]);
    out.learned.push_back(std::move(shape));
    // An application that is known from elsewhere is as much like itself as like all others together.
    const bool itself = c.application >= 0 && other.application == c.application;
    out.learned_share.push_back((itself ? out.applications : 1.0) / members[other.application]);
    double squares = 0;
    for (std::size_t d = 1; d < c.context.size(); ++d) {  // the level: answer(), in the known configurations
      const double off = c.context[d] - other.context[d];
      squares += off * off / static_cast<double>(c.context.size() - 1);
    }
    out.distance.push_back(squares);
  }
  out.known = known_shapes(at);
  out.configurations = Matrix(runs.size(), runs.size());
  const Kernel kernel{set.everywhere, 0, {}};
  for (std::size_t a = 0; a < runs.size(); ++a)
    for (std::size_t b = a; b < runs.size(); ++b) {
      bool same = false;
      out.configurations(a, b) =
          kernel.configurations(p.values(), points[a].configuration, points[b].configuration, &same);
    }
  return out;
}

Vector CurveModel::Impl::answer(const Process& p, const Components& c, const Vector& ln_known,
                                const CurveMixture& mixture) const {
  const std::size_t m = ln_known.size(), n = c.count;
  std::vector<Vector> means;
  std::vector<Vector> deviations;
  Vector log_weight;
  const auto add = [&](const Conditional& on, const Vector& curve, double weight) {
    Vector residual, mean(curve.begin() + static_cast<std::ptrdiff_t>(m), curve.end());
    for (std::size_t i = 0; i < m; ++i) residual.push_back(ln_known[i] - curve[i]);
    log_weight.push_back(std::log(weight) + apply(on, residual, mean));
    means.push_back(std::move(mean));
    Vector deviation;
    for (double v : on.variance) deviation.push_back(std::sqrt(v));
    deviations.push_back(std::move(deviation));
  };
  if (mixture.process != 0)
    if (const auto on = condition_on(c.process_covariance, m, p.values().noise))
      add(*on, c.process_mean, std::abs(mixture.process));
  if (mixture.process >= 0) {
    const double width = mixture.deviation;
    Matrix k = c.configurations;
    for (double& v : k.values) v = v * width * width + kLevel * kLevel;
    if (const auto on = condition_on(k, m, std::max(p.values().noise, 1e-3) + p.values().configuration)) {
      // A component's own level says nothing: it is moved to the mean of the known runs first.
      const auto moved = [&](Vector curve) {
        double off = 0;
        for (std::size_t i = 0; i < m; ++i) off += (ln_known[i] - curve[i]) / static_cast<double>(m);
        for (double& v : curve) v += off;
        return curve;
      };
      Vector share;
      for (std::size_t j = 0; j < c.learned.size(); ++j) {
        double level = 0;
        for (std::size_t i = 0; i < m; ++i) level += (ln_known[i] - c.learned[j][i]) / static_cast<double>(m);
        level /= context_scale[0];
        share.push_back(std::log(c.learned_share[j]) -
                        0.5 * (c.distance[j] + level * level) * mixture.nearness * mixture.nearness);
      }
      if (!share.empty()) {
        const double all = log_sum(share);
        for (std::size_t j = 0; j < c.learned.size(); ++j)
          add(*on, moved(c.learned[j]), c.applications * std::exp(share[j] - all) + 1e-300);
      }
      if (mixture.known_shapes > 0)
        for (const Vector& shape : c.known)
          add(*on, moved(shape), mixture.known_shapes / static_cast<double>(c.known.size()));
    }
  }
  Vector out;
  for (std::size_t j = 0; j + m < n; ++j) {
    Vector mean, deviation;
    for (std::size_t k = 0; k < means.size(); ++k) {
      mean.push_back(means[k][j]);
      deviation.push_back(deviations[k][j]);
    }
    out.push_back(mean.empty() ? ln_known[0] : least_percentage_error(log_weight, mean, deviation));
  }
  return out;
}

/// Every training application is left out once; the mixture with the least percentage error on it is taken,
/// for each number of known runs.
void CurveModel::Impl::choose(Random& random) {
  std::vector<CurveMixture> candidates{{0, 0, 0, -1}};
  for (double deviation : {0.05, 0.15})
    for (double nearness : {0.0, 1.0, 2.0})
      for (double known : {0.0, 0.5, 2.0, 4.0})
        for (double process_weight : {0.0, 1.0})
          candidates.push_back({deviation, nearness, known, process_weight});
  if (applications < 2) {
    for (CurveMixture& m : mixtures) m = {0.15, 0, 1, 1};
    return;
  }
  std::vector<Vector> error(kMostKnown, Vector(candidates.size(), 0));
  for (int left = 0; left < applications; ++left) {
    Process rest = make_process(process->kernel(), left, random.fork(100 + static_cast<std::uint64_t>(left)));
    if (!std::isfinite(rest.condition())) continue;
    double members = 0;
    for (const Curve& c : curves) members += c.application == left ? 1 : 0;
    for (const Curve& mine : curves) {
      if (mine.application != left) continue;
      const PerformanceInstance& instance = set.instances[static_cast<std::size_t>(mine.instance)];
      for (int draw = 0; draw < options.inner_draws; ++draw)
        for (std::size_t m = 1; m <= kMostKnown; ++m) {
          std::vector<std::size_t> order(instance.runs.size());
          for (std::size_t r = 0; r < order.size(); ++r) order[r] = r;
          const std::size_t wanted =
              std::min(order.size(), m + static_cast<std::size_t>(options.inner_targets));
          if (wanted <= m) continue;
          for (std::size_t r = 0; r < wanted; ++r)
            std::swap(order[r], order[r + random.below(order.size() - r)]);
          order.resize(wanted);
          const Curve c = curve_of(instance, std::span(order).first(m));
          const Components parts = components(rest, c, order, left, true);
          Vector ln_known;
          for (std::size_t i = 0; i < m; ++i) ln_known.push_back(c.ln_time[order[i]]);
          for (std::size_t k = 0; k < candidates.size(); ++k) {
            const Vector got = answer(rest, parts, ln_known, candidates[k]);
            double sum = 0;
            for (std::size_t j = 0; j < got.size(); ++j) {
              const double truth = instance.runs[order[m + j]].time;
              sum += std::abs(std::exp(got[j]) - truth) / truth;
            }
            error[m - 1][k] += sum / static_cast<double>(got.size()) / members / options.inner_draws;
          }
        }
    }
  }
  for (std::size_t m = 0; m < kMostKnown; ++m) {
    const Vector& e = error[m];
    const auto best = static_cast<std::size_t>(std::min_element(e.begin(), e.end()) - e.begin());
    mixtures[m] = candidates[best];
    mixtures[m].inner_error = e[best] / applications;
  }
}

/// Greedy. The posterior's covariance does not depend on the times that will be seen.
std::vector<std::size_t> CurveModel::Impl::worth_knowing(const Curve& c, std::size_t count) const {
  constexpr std::size_t kMostCandidates = 200;  // the covariance of all is as wide
  std::vector<std::size_t> runs;
  const std::size_t n = c.configurations.size();
  const std::size_t every = (n + kMostCandidates - 1) / kMostCandidates;
  for (std::size_t r = 0; r < n; r += every) runs.push_back(r);
  std::vector<Point> points;
  for (std::size_t r : runs) points.push_back(c.point(r));
  Vector mean;
  Matrix left;
  process->joint(points, mean, left);
  const double noise = process->values().noise;
  for (std::size_t a = 0; a < runs.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) left(a, b) = left(b, a);
  std::vector<std::size_t> chosen;
  while (chosen.size() < std::min(count, runs.size())) {
    std::size_t best = runs.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < runs.size(); ++k) {
      if (std::find(chosen.begin(), chosen.end(), runs[k]) != chosen.end()) continue;
      double sum = 0;
      for (std::size_t j = 0; j < runs.size(); ++j)
        sum += std::sqrt(std::max(0.0, left(j, j) - left(j, k) * left(j, k) / (left(k, k) + noise)));
      if (sum < least) least = sum, best = k;
    }
    chosen.push_back(runs[best]);
    const Vector row(left.row(best), left.row(best) + runs.size());
    for (std::size_t a = 0; a < runs.size(); ++a)
      for (std::size_t b = 0; b < runs.size(); ++b) left(a, b) -= row[a] * row[b] / (row[best] + noise);
  }
  return chosen;
}

CurveModel::CurveModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CurveModel::~CurveModel() = default;
CurveModel::CurveModel(CurveModel&&) noexcept = default;
CurveModel& CurveModel::operator=(CurveModel&&) noexcept = default;

Result<CurveModel> CurveModel::fit(const PerformanceSet& set, std::span<const std::size_t> instances,
                                   const CurveOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->set = set;
  impl->set.instances.clear();
  for (std::size_t i : instances) {
    if (i >= set.instances.size() || set.instances[i].runs.empty())
      return Error(std::errc::invalid_argument,
                   "instance " + std::to_string(i) + " is not there or has no runs");
    impl->set.instances.push_back(set.instances[i]);
  }
  if (impl->set.instances.empty()) return Error(std::errc::invalid_argument, "no instance to learn from");
  Random random(options.seed);
  impl->prepare(random);
  impl->process =
      impl->make_process(Kernel{set.everywhere, impl->context_mean.size(), {}}, -1, random.fork(1));
  impl->process->search(options.search, random);
  impl->choose(random);
  return CurveModel(std::move(impl));
}

const CurveMixture& CurveModel::mixture(std::size_t known) const {
  return impl_->mixtures[std::clamp<std::size_t>(known, 1, kMostKnown) - 1];
}

std::vector<std::size_t> CurveModel::worth_knowing(const PerformanceInstance& instance,
                                                   std::size_t count) const {
  Curve c = impl_->curve_of(instance, {});
  c.application = impl_->application_of(instance);
  // Of its level and metrics nothing is known yet: they count as what they are in training.
  c.context[0] = 0;
  for (std::size_t d = 1 + impl_->set.context.size(); d < c.context.size(); ++d) c.context[d] = 0;
  return impl_->worth_knowing(c, count);
}

std::vector<double> CurveModel::predict(const PerformanceInstance& instance,
                                        std::span<const std::size_t> known,
                                        std::span<const std::size_t> targets) const {
  Curve c = impl_->curve_of(instance, known);
  c.application = impl_->application_of(instance);
  std::vector<std::size_t> runs(known.begin(), known.end());
  runs.insert(runs.end(), targets.begin(), targets.end());
  Vector ln_known;
  for (std::size_t k : known) ln_known.push_back(c.ln_time[k]);
  const CurveMixture& chosen = mixture(known.size());
  const auto parts = impl_->components(*impl_->process, c, runs, -1, chosen.process != 0);
  Vector out = impl_->answer(*impl_->process, parts, ln_known, chosen);
  for (double& v : out) v = std::exp(v);
  return out;
}

}  // namespace flash
