#include "meta/similarity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/json.h"

namespace flash {
namespace {

constexpr std::size_t kLeastOutcomes = 4, kLeastPool = 8;
constexpr std::int64_t kMostPool = 4096;  // of a file: comparing all with all takes its square
constexpr std::size_t kTerms = 3;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

/// Least squares of `terms` powers by the normal equations; a little ridge where x hardly varies.
std::vector<double> polynomial(std::span<const double> x, std::span<const double> y, std::size_t terms,
                               std::size_t left_out) {
  std::array<std::array<double, kTerms + 1>, kTerms> a{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == left_out) continue;
    const std::array<double, kTerms> powers{1, x[i], x[i] * x[i]};
    for (std::size_t r = 0; r < terms; ++r) {
      for (std::size_t c = 0; c < terms; ++c) a[r][c] += powers[r] * powers[c];
      a[r][terms] += powers[r] * y[i];
    }
  }
  for (std::size_t r = 1; r < terms; ++r) a[r][r] += 1e-9 * (1 + a[0][0]);
  for (std::size_t p = 0; p < terms; ++p) {  // positive definite: no pivoting needed
    for (std::size_t r = 0; r < terms; ++r) {
      if (r == p) continue;
      const double factor = a[r][p] / a[p][p];
      for (std::size_t c = p; c <= terms; ++c) a[r][c] -= factor * a[p][c];
    }
  }
  std::vector<double> w;
  for (std::size_t r = 0; r < terms; ++r) w.push_back(a[r][terms] / a[r][r]);
  return w;
}

double value(std::span<const double> w, double x) {
  double v = 0;
  for (std::size_t i = w.size(); i-- > 0;) v = v * x + w[i];
  return v;
}

}  // namespace

Prediction AdaptationPredictor::Curve::at(double s) const {
  const double v = flash::value(coefficients, s);
  return {v, error, v - 1.96 * error, v + 1.96 * error};
}

AdaptationPredictor::Curve AdaptationPredictor::fit(std::span<const double> x, std::span<const double> y) {
  Curve best;
  best.error = std::numeric_limits<double>::infinity();
  for (std::size_t terms = 1; terms <= kTerms && terms + 1 < x.size(); ++terms) {
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double off = y[i] - flash::value(polynomial(x, y, terms, i), x[i]);
      squares += off * off;
    }
    const double error = std::sqrt(squares / static_cast<double>(x.size()));
    if (error < best.error) best = {polynomial(x, y, terms, x.size()), error};
  }
  return best;
}

Result<AdaptationPredictor> AdaptationPredictor::fit(std::span<const KnownOutcome> outcomes) {
  if (outcomes.size() < kLeastOutcomes) return invalid("fewer than 4 known outcomes");
  std::vector<double> s, drop, cost;
  for (const KnownOutcome& o : outcomes) {
    if (!std::isfinite(o.similarity) || !std::isfinite(o.reward_drop_pct) ||
        !std::isfinite(o.retraining_episodes))
      return invalid("known outcome " + std::to_string(s.size()) + " has a number that is not finite");
    s.push_back(o.similarity);
    drop.push_back(o.reward_drop_pct);
    cost.push_back(o.retraining_episodes);
  }
  AdaptationPredictor p;
  p.drop_ = fit(s, drop);
  p.cost_ = fit(s, cost);
  return p;
}

Result<SeenEmbeddings> SeenEmbeddings::create(std::vector<std::vector<float>> pool, double quantile,
                                              std::size_t neighbours) {
  if (pool.size() < kLeastPool) return invalid("fewer than 8 embeddings were seen");
  if (!(quantile > 0 && quantile <= 1)) return invalid("quantile is not within (0, 1]");
  if (neighbours < 1 || neighbours >= pool.size()) return invalid("neighbours is not within the pool");
  for (const auto& e : pool) {
    if (e.empty() || e.size() != pool[0].size()) return invalid("embeddings of different sizes");
    for (float v : e)
      if (!std::isfinite(v)) return invalid("an embedding that is not finite");
  }
  SeenEmbeddings s;
  s.quantile_ = quantile;
  s.neighbours_ = neighbours;
  const auto n = static_cast<double>(pool.size());
  double widest = 0;
  for (std::size_t d = 0; d < pool[0].size(); ++d) {
    double mean = 0, squares = 0;
    for (const auto& e : pool) mean += e[d] / n;
    for (const auto& e : pool) squares += (e[d] - mean) * (e[d] - mean) / n;
    s.scale_.push_back(std::sqrt(squares));
    widest = std::max(widest, s.scale_.back());
  }
  // A dimension that the pool does not use says nothing in units of its own noise.
  for (double& scale : s.scale_) scale = std::max(scale, widest > 0 ? 0.05 * widest : 1);
  s.pool_ = std::move(pool);
  std::vector<double> own;
  for (std::size_t i = 0; i < s.pool_.size(); ++i) own.push_back(s.distance(s.pool_[i], i, nullptr));
  std::sort(own.begin(), own.end());
  s.threshold_ = own[std::min(own.size() - 1, static_cast<std::size_t>(std::ceil(quantile * n)) - 1)];
  return s;
}

double SeenEmbeddings::apart(std::span<const float> a, std::span<const float> b) const {
  double squares = 0;
  for (std::size_t d = 0; d < scale_.size(); ++d) {
    const double off = (double{a[d]} - b[d]) / scale_[d];
    squares += off * off;
  }
  return std::sqrt(squares);
}

double SeenEmbeddings::distance(std::span<const float> e, std::size_t except, std::size_t* nearest) const {
  std::vector<double> distances;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    if (i == except) continue;
    distances.push_back(apart(e, pool_[i]));
    if (distances.back() < least) {
      least = distances.back();
      if (nearest != nullptr) *nearest = i;
    }
  }
  std::partial_sort(distances.begin(), distances.begin() + static_cast<std::ptrdiff_t>(neighbours_),
                    distances.end());
  double mean = 0;
  for (std::size_t i = 0; i < neighbours_; ++i) mean += distances[i] / static_cast<double>(neighbours_);
  return mean;
}

SeenEmbeddings::Nearest SeenEmbeddings::nearest(std::span<const float> e) const {
  Nearest n;
  n.threshold = threshold_;
  n.distance = distance(e, pool_.size(), &n.nearest);
  n.out_of_distribution = !(n.distance <= threshold_);
  n.similarity = flash::similarity(e, pool_[n.nearest]);
  return n;
}

void SeenEmbeddings::put(TensorFile& file) const {
  Tensor t{"seen", {static_cast<std::int64_t>(pool_.size()), static_cast<std::int64_t>(scale_.size())}, {}};
  for (const auto& e : pool_) t.values.insert(t.values.end(), e.begin(), e.end());
  file.tensors.push_back(std::move(t));
  file.meta["seen"] = {{"quantile", quantile_}, {"neighbours", neighbours_}};
}

Result<SeenEmbeddings> SeenEmbeddings::get(const TensorFile& file) {
  const Tensor* t = file.find("seen");
  if (t == nullptr || t->shape.size() != 2) return invalid("array 'seen' is missing or not a matrix");
  if (t->shape[0] > kMostPool) return invalid("array 'seen' has more than 4096 rows");
  const nlohmann::json meta = file.meta->is_object() ? file.meta->value("seen", nlohmann::json()) : nullptr;
  if (!meta.is_object() || !meta.contains("quantile") || !meta["quantile"].is_number() ||
      !meta.contains("neighbours") || !meta["neighbours"].is_number_unsigned())
    return invalid("meta 'seen' has no quantile or no neighbours");
  std::vector<std::vector<float>> pool;
  const auto width = static_cast<std::ptrdiff_t>(t->shape[1]);
  for (std::ptrdiff_t i = 0; i < t->shape[0]; ++i)
    pool.emplace_back(t->values.begin() + i * width, t->values.begin() + (i + 1) * width);
  return create(std::move(pool), meta["quantile"].get<double>(), meta["neighbours"].get<std::size_t>());
}

}  // namespace flash
