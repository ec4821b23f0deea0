#include "coordinator/embedding_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace flash::coordinator {
namespace {

constexpr std::size_t kSample = 2000;  // embeddings that the axes are of
constexpr int kSweeps = 30;            // Jacobi converges quadratically: ten are enough for 256 dimensions

struct Matrix {
  std::size_t n;
  std::vector<double> values;
  double& at(std::size_t i, std::size_t j) { return values[i * n + j]; }
};

std::vector<double> mean_of(std::span<const std::vector<float>* const> all) {
  std::vector<double> mean(all.front()->size());
  for (const auto* e : all)
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += (*e)[i];
  for (double& m : mean) m /= static_cast<double>(all.size());
  return mean;
}

Matrix covariance_of(std::span<const std::vector<float>* const> all, const std::vector<double>& mean) {
  const std::size_t n = mean.size(), stride = (all.size() + kSample - 1) / kSample;
  Matrix c{n, std::vector<double>(n * n)};
  std::vector<double> x(n);
  for (std::size_t k = 0; k < all.size(); k += stride) {
    for (std::size_t i = 0; i < n; ++i) x[i] = (*all[k])[i] - mean[i];
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i; j < n; ++j) c.at(i, j) += x[i] * x[j];
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) c.at(i, j) = c.at(j, i);
  return c;
}

/// One rotation that makes c(p,q) zero; columns of `v` become eigenvectors. Golub & Van Loan, 8.5.
void rotate(Matrix& c, Matrix& v, std::size_t p, std::size_t q) {
  const double theta = (c.at(q, q) - c.at(p, p)) / (2 * c.at(p, q));
  const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double cosine = 1 / std::sqrt(t * t + 1), sine = t * cosine;
  for (std::size_t k = 0; k < c.n; ++k) {
    const double a = c.at(k, p), b = c.at(k, q);
    c.at(k, p) = cosine * a - sine * b;
    c.at(k, q) = sine * a + cosine * b;
  }
  for (std::size_t k = 0; k < c.n; ++k) {
    const double a = c.at(p, k), b = c.at(q, k);
    c.at(p, k) = cosine * a - sine * b;
    c.at(q, k) = sine * a + cosine * b;
  }
  for (std::size_t k = 0; k < c.n; ++k) {
    const double a = v.at(k, p), b = v.at(k, q);
    v.at(k, p) = cosine * a - sine * b;
    v.at(k, q) = sine * a + cosine * b;
  }
}

/// Cyclic Jacobi: `c` becomes diagonal.
Matrix eigenvectors_of(Matrix& c) {
  Matrix v{c.n, std::vector<double>(c.n * c.n)};
  for (std::size_t i = 0; i < c.n; ++i) v.at(i, i) = 1;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double rest = 0, whole = 0;
    for (std::size_t i = 0; i < c.n; ++i)
      for (std::size_t j = 0; j < c.n; ++j) (i == j ? whole : rest) += c.at(i, j) * c.at(i, j);
    if (rest <= 1e-24 * whole) break;
    for (std::size_t p = 0; p + 1 < c.n; ++p)
      for (std::size_t q = p + 1; q < c.n; ++q)
        if (c.at(p, q) != 0) rotate(c, v, p, q);
  }
  return v;
}

std::vector<double> axis_of(Matrix& v, std::size_t column) {
  std::vector<double> axis(v.n);
  for (std::size_t i = 0; i < v.n; ++i) axis[i] = v.at(i, column);
  const auto largest =
      std::ranges::max_element(axis, [](double a, double b) { return std::abs(a) < std::abs(b); });
  if (*largest < 0)
    for (double& a : axis) a = -a;
  return axis;
}

}  // namespace

EmbeddingMap map_of(std::span<const std::vector<float>* const> embeddings) {
  EmbeddingMap map;
  map.points.resize(embeddings.size());
  if (embeddings.empty() || embeddings.front()->empty()) return map;
  const std::vector<double> mean = mean_of(embeddings);
  Matrix c = covariance_of(embeddings, mean);
  Matrix v = eigenvectors_of(c);
  std::vector<std::size_t> order(c.n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return c.at(a, a) > c.at(b, b); });
  double whole = 0;
  for (std::size_t i = 0; i < c.n; ++i) whole += c.at(i, i);
  for (std::size_t k = 0; k < 2 && k < c.n; ++k) {
    const std::vector<double> axis = axis_of(v, order[k]);
    map.explained[k] = whole > 0 ? std::max(0.0, c.at(order[k], order[k]) / whole) : 0;
    for (std::size_t e = 0; e < embeddings.size(); ++e)
      for (std::size_t i = 0; i < c.n; ++i) map.points[e][k] += axis[i] * ((*embeddings[e])[i] - mean[i]);
  }
  return map;
}

}  // namespace flash::coordinator
