// Purpose: performance of an application in all configurations from one to a few runs: a Gaussian process
// over (application, configuration) in log time whose posterior curves, with curves of known shape, are the
// components of a mixture that the known runs weigh. The answer minimises the expected absolute percentage
// error. docs/agents/flash.md, "The supervised agent".
// Ownership: a CurveModel owns what it learned.
// Thread rule: const functions are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "lab/experiments/performance.h"

namespace flash {

struct CurveOptions {
  int rows = 400;          // of training, at most: what a Cholesky factor is taken of
  int search = 100;        // steps of the search for kernel parameters
  int inner_draws = 3;     // sets of known runs per left-out instance, by which the mixture is chosen
  int inner_targets = 24;  // configurations predicted for each
  std::uint64_t seed = 1;
};

/// How the components are weighted; chosen for each number of known runs by leaving out one training
/// application after the other.
struct CurveMixture {
  double deviation = 0.15;  // of an application from the component that it is most like, ln time
  double nearness = 0;  // how much more a component counts whose context is near: 1 / length scale; 0: not
  double known_shapes = 0;  // weight of all curves of known shape, in training applications
  double process = 1;       // weight of the process itself; < 0: it alone
  double inner_error = 0;   // mean absolute percentage error on the applications that were left out
};

class CurveModel {
 public:
  /// EINVAL: no instance, or one without runs. `instances` of the set are learned from.
  static Result<CurveModel> fit(const PerformanceSet& set, std::span<const std::size_t> instances,
                                const CurveOptions& options);
  ~CurveModel();
  CurveModel(CurveModel&&) noexcept;
  CurveModel& operator=(CurveModel&&) noexcept;

  /// Predicts the times of an instance's runs `targets` from the times of its runs `known`. Of all other runs
  /// only the configuration is read. An application with the name of a training instance counts as the same
  /// application in another environment. REQUIRES: known is not empty; configurations as the set's.
  std::vector<double> predict(const PerformanceInstance& instance, std::span<const std::size_t> known,
                              std::span<const std::size_t> targets) const;
  /// The runs of an instance to know first, best first: each is the one that leaves the least to guess about
  /// all other runs, mean standard deviation of ln time by the process. No time is read, and what is chosen
  /// of one more run begins with what was chosen without it.
  std::vector<std::size_t> worth_knowing(const PerformanceInstance& instance, std::size_t count) const;
  /// What was chosen for this many known runs.
  const CurveMixture& mixture(std::size_t known) const;

 private:
  struct Impl;
  explicit CurveModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
