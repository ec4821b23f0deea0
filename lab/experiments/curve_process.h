// Purpose: the Gaussian process over (application, configuration) in ln time that lab/experiments/curve_model
// takes its curves from. Private to this room.
// Ownership: points look into the model's data, which outlives them.
// Thread rule: const functions are pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "core/random.h"
#include "lab/experiments/dense.h"

namespace flash::curves {

using dense::Matrix;
using Vector = std::vector<double>;

constexpr double kLevel = 5;  // standard deviation of an instance's level, ln time: nearly free
constexpr double kJitter = 1e-6;

/// What an observation is known by.
struct Point {
  const double* configuration = nullptr;
  int instance = 0, application = 0;  // -1: none of the training ones
  const double* context = nullptr;    // standardised
};

/// Log parameters of the kernel: length scales of the configuration's entries that mean the same everywhere,
/// of all others together, of the level and of the other context; then deviations.
struct Kernel {
  std::vector<bool> everywhere;
  std::size_t contexts = 0;
  Vector p;

  std::size_t entries() const;
  bool categories() const { return entries() < everywhere.size(); }
  /// Where a search begins.
  Vector start() const;

  struct Values {
    Vector inverse;  // 1 / length scale per entry of the configuration
    double category = 0, level = 0, context = 0;
    double mean = 0, near = 0, application = 0, instance = 0, configuration = 0, noise = 0;  // variances
  };
  Values values() const;

  /// Matern 3/2 over the configuration; where environments differ, half of it over what is the same
  /// everywhere, so that what is known of one says something of the others.
  double configurations(const Values& v, const double* a, const double* b, bool* same) const;
  double operator()(const Values& v, const Point& a, const Point& b) const;
};

/// Everything about one instance that the model reads, in its own terms.
struct Curve {
  std::vector<const double*> configurations;
  Vector context;
  Vector ln_time;
  int instance = -1, application = -1;

  Point point(std::size_t run) const { return {configurations[run], instance, application, context.data()}; }
};

/// The process, conditioned on some training instances.
class Process {
 public:
  Process(const Kernel& kernel, std::vector<Point> points, Vector y);

  /// Negative log marginal likelihood; infinite where the matrix has no factor. Conditions the process.
  double condition();
  /// Looks for kernel parameters by a random walk of `steps` that keeps what is better, on the marginal
  /// likelihood with a wide prior around the start; conditions the process with the best.
  void search(int steps, Random& random);

  double mean_at(const Point& p) const;
  /// Joint posterior of `at`, without the noise of observation.
  void joint(const std::vector<Point>& at, Vector& mean, Matrix& covariance) const;
  /// Posterior means of `curves` (training instances) in a configuration, kept: the grids of instances are
  /// alike.
  const Vector& learned(const std::vector<Curve>& curves, const double* configuration);

  const Kernel& kernel() const { return kernel_; }
  const Kernel::Values& values() const { return values_; }

 private:
  Kernel kernel_;
  Kernel::Values values_;
  std::vector<Point> points_;
  Vector y_;
  double mean_ = 0;
  Matrix u_, alpha_, weights_;
  std::map<Vector, Vector> learned_;
};

/// Posterior of the entries m and up given the first m, under a joint Gaussian with the noise added.
struct Conditional {
  Matrix u, w;  // factor of the known block; U^-T K(known, targets)
  Vector variance;
};
/// Nothing where the matrix has no factor.
std::optional<Conditional> condition_on(const Matrix& covariance, std::size_t m, double noise);
/// Moves `mean` by what the first m were off by. Returns the log likelihood of the first m.
double apply(const Conditional& c, const Vector& residual, Vector& mean);

}  // namespace flash::curves
