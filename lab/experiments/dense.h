// Purpose: the little linear algebra that a Gaussian process of some hundred points needs.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace flash::dense {

/// Row-major, double.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c, 0) {}
  double* row(std::size_t r) { return values.data() + r * columns; }
  const double* row(std::size_t r) const { return values.data() + r * columns; }
  double& operator()(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double operator()(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
};

/// Upper factor U of a symmetric matrix, A = U^T U, in place (of A only the upper half is read).
/// False: not positive definite. Inner loops run along rows, so that they are vectors.
inline bool cholesky(Matrix& a) {
  const std::size_t n = a.rows;
  for (std::size_t k = 0; k < n; ++k) {
    double* u = a.row(k);
    if (!(u[k] > 0)) return false;
    const double inverse = 1 / std::sqrt(u[k]);
    for (std::size_t j = k; j < n; ++j) u[j] *= inverse;
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = u[i];
      double* to = a.row(i);
      for (std::size_t j = i; j < n; ++j) to[j] -= factor * u[j];
    }
  }
  return true;
}

/// B <- U^-T B: forward substitution for all columns of B at once.
inline void solve_lower(const Matrix& u, Matrix& b) {
  for (std::size_t k = 0; k < u.rows; ++k) {
    double* mine = b.row(k);
    const double inverse = 1 / u(k, k);
    for (std::size_t c = 0; c < b.columns; ++c) mine[c] *= inverse;
    for (std::size_t i = k + 1; i < u.rows; ++i) {
      const double factor = u(k, i);
      double* to = b.row(i);
      for (std::size_t c = 0; c < b.columns; ++c) to[c] -= factor * mine[c];
    }
  }
}

/// B <- U^-1 B: back substitution.
inline void solve_upper(const Matrix& u, Matrix& b) {
  for (std::size_t k = u.rows; k-- > 0;) {
    double* mine = b.row(k);
    for (std::size_t i = k + 1; i < u.rows; ++i) {
      const double factor = u(k, i);
      const double* from = b.row(i);
      for (std::size_t c = 0; c < b.columns; ++c) mine[c] -= factor * from[c];
    }
    const double inverse = 1 / u(k, k);
    for (std::size_t c = 0; c < b.columns; ++c) mine[c] *= inverse;
  }
}

}  // namespace flash::dense
