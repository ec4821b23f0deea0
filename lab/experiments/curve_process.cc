#include "lab/experiments/curve_process.h"

#include <limits>
#include <numbers>

namespace flash::curves {

std::size_t Kernel::entries() const {
  return static_cast<std::size_t>(std::count(everywhere.begin(), everywhere.end(), true));
}

Vector Kernel::start() const {
  Vector s(entries(), std::log(1.5));
  s.insert(s.end(), {std::log(1.0), std::log(2.0), std::log(2.0)});           // categories, level, context
  for (double d : {0.3, 0.3, 0.2, 0.2, 0.1, 0.05}) s.push_back(std::log(d));  // as in Values
  return s;
}

Kernel::Values Kernel::values() const {
  Values v;
  std::size_t i = 0;
  const auto next = [&] { return std::exp(p[i++]); };
  v.inverse.assign(everywhere.size(), 0);
  for (std::size_t d = 0; d < everywhere.size(); ++d)
    if (everywhere[d]) v.inverse[d] = 1 / next();
  v.category = 1 / next();
  v.level = 1 / next();
  v.context = 1 / next();
  for (double* variance : {&v.mean, &v.near, &v.application, &v.instance, &v.configuration, &v.noise}) {
    *variance = next();
    *variance *= *variance;
  }
  return v;
}

double Kernel::configurations(const Values& v, const double* a, const double* b, bool* same) const {
  double shared = 0, other = 0;
  for (std::size_t d = 0; d < everywhere.size(); ++d) {
    const double off = a[d] - b[d];
    if (everywhere[d]) {
      shared += off * off * v.inverse[d] * v.inverse[d];
    } else {
      other += off * off;
    }
  }
  *same = shared == 0 && other == 0;
  const auto matern = [](double squares) {
    const double r = std::numbers::sqrt3 * std::sqrt(squares);
    return (1 + r) * std::exp(-r);
  };
  if (!categories()) return matern(shared);
  return 0.5 * matern(shared) + 0.5 * matern(shared + other * v.category * v.category);
}

double Kernel::operator()(const Values& v, const Point& a, const Point& b) const {
  bool same = false;
  const double k = configurations(v, a.configuration, b.configuration, &same);
  double off = 0;
  for (std::size_t c = 0; c < contexts; ++c) {
    const double d = (a.context[c] - b.context[c]) * (c == 0 ? v.level : v.context);
    off += c == 0 ? d * d : d * d / static_cast<double>(contexts - 1);
  }
  double weight = v.mean + v.near * std::exp(-0.5 * off);
  if (a.application == b.application) weight += v.application;
  double sum = 0;
  if (a.instance == b.instance) {
    weight += v.instance;
    sum = kLevel * kLevel;
  }
  return sum + weight * k + (same ? v.configuration : 0);
}

Process::Process(const Kernel& kernel, std::vector<Point> points, Vector y)
    : kernel_(kernel), points_(std::move(points)), y_(std::move(y)) {
  for (double v : y_) mean_ += v / static_cast<double>(y_.size());
}

double Process::condition() {
  values_ = kernel_.values();
  const std::size_t n = points_.size();
  u_ = Matrix(n, n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j)
      u_(i, j) = kernel_(values_, points_[i], points_[j]) + (i == j ? values_.noise + kJitter : 0);
  if (!cholesky(u_)) return std::numeric_limits<double>::infinity();
  alpha_ = Matrix(n, 1);
  for (std::size_t i = 0; i < n; ++i) alpha_(i, 0) = y_[i] - mean_;
  solve_lower(u_, alpha_);
  double nll = 0;
  for (std::size_t i = 0; i < n; ++i) nll += 0.5 * alpha_(i, 0) * alpha_(i, 0) + std::log(u_(i, i));
  weights_ = alpha_;
  solve_upper(u_, weights_);
  return nll;
}

void Process::search(int steps, Random& random) {
  const Vector start = kernel_.p = kernel_.start();
  const auto cost = [&] {
    double prior = 0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double off = (kernel_.p[i] - start[i]) / 1.5;
      prior += 0.5 * off * off;
    }
    return condition() + prior;
  };
  double best = cost();
  Vector best_p = start, step(start.size(), 0.5);
  for (int i = 0; i < steps; ++i) {
    Vector p = best_p;
    std::vector<std::size_t> moved{random.below(p.size())};
    for (std::size_t d = 0; d < p.size(); ++d)
      if (random.uniform() < 0.2) moved.push_back(d);
    for (std::size_t d : moved) p[d] += step[d] * random.normal();
    kernel_.p = p;
    const double c = cost();
    for (std::size_t d : moved) step[d] *= c < best ? 1.3 : 0.93;
    if (c < best) {
      best = c;
      best_p = p;
    }
  }
  kernel_.p = best_p;
  condition();
}

double Process::mean_at(const Point& p) const {
  double m = mean_;
  for (std::size_t i = 0; i < points_.size(); ++i) m += kernel_(values_, points_[i], p) * weights_(i, 0);
  return m;
}

void Process::joint(const std::vector<Point>& at, Vector& mean, Matrix& covariance) const {
  Matrix k(points_.size(), at.size());
  for (std::size_t i = 0; i < points_.size(); ++i)
    for (std::size_t j = 0; j < at.size(); ++j) k(i, j) = kernel_(values_, points_[i], at[j]);
  solve_lower(u_, k);
  mean.assign(at.size(), mean_);
  covariance = Matrix(at.size(), at.size());
  for (std::size_t a = 0; a < at.size(); ++a)
    for (std::size_t b = a; b < at.size(); ++b) covariance(a, b) = kernel_(values_, at[a], at[b]);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double* row = k.row(i);
    for (std::size_t a = 0; a < at.size(); ++a) {
      mean[a] += row[a] * alpha_(i, 0);
      for (std::size_t b = a; b < at.size(); ++b) covariance(a, b) -= row[a] * row[b];
    }
  }
}

const Vector& Process::learned(const std::vector<Curve>& curves, const double* configuration) {
  const Vector key(configuration, configuration + kernel_.everywhere.size());
  const auto [it, fresh] = learned_.try_emplace(key);
  if (fresh)
    for (const Curve& c : curves)
      it->second.push_back(mean_at({configuration, c.instance, c.application, c.context.data()}));
  return it->second;
}

std::optional<Conditional> condition_on(const Matrix& covariance, std::size_t m, double noise) {
  Conditional c;
  const std::size_t n = covariance.rows;
  c.u = Matrix(m, m);
  c.w = Matrix(m, n - m);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = i; j < m; ++j) c.u(i, j) = covariance(i, j) + (i == j ? noise + kJitter : 0);
    for (std::size_t j = m; j < n; ++j) c.w(i, j - m) = covariance(i, j);
  }
  if (!cholesky(c.u)) return std::nullopt;
  solve_lower(c.u, c.w);
  for (std::size_t j = m; j < n; ++j) {
    double v = covariance(j, j) + noise;
    for (std::size_t i = 0; i < m; ++i) v -= c.w(i, j - m) * c.w(i, j - m);
    c.variance.push_back(std::max(v, 1e-6));
  }
  return c;
}
double apply(const Conditional& c, const Vector& residual, Vector& mean) {
  Matrix r(residual.size(), 1);
  for (std::size_t i = 0; i < residual.size(); ++i) r(i, 0) = residual[i];
  solve_lower(c.u, r);
  double ll = 0;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    ll -= 0.5 * r(i, 0) * r(i, 0) + std::log(c.u(i, i));
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += c.w(i, j) * r(i, 0);
  }
  return ll;
}

}  // namespace flash::curves
