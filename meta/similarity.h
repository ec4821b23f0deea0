// Purpose: what embeddings tell before anything is deployed (FLASH 5.5): how like two pairs are, what reward
// drop and retraining cost to expect and with what error, and whether a pair is far from everything seen.
// Ownership: values.
// Thread rule: const functions are pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/similarity.h"
#include "core/tensor_file.h"

namespace flash {

/// A pair of pairs whose outcome is known: a policy of one was served or retrained on the other.
struct KnownOutcome {
  double similarity = 0;
  double reward_drop_pct = 0;      // without retraining
  double retraining_episodes = 0;  // until converged
};

struct Prediction {
  double value = 0;
  double error = 0;             // root mean square of the leave-one-out residuals
  double lower = 0, upper = 0;  // value -+ 1.96 error
};

/// Least squares on S, constant, linear or quadratic: whichever predicts left out outcomes best.
class AdaptationPredictor {
 public:
  /// EINVAL: fewer than 4 outcomes, or a number that is not finite.
  static Result<AdaptationPredictor> fit(std::span<const KnownOutcome> outcomes);
  Prediction reward_drop_pct(double similarity) const { return drop_.at(similarity); }
  Prediction retraining_episodes(double similarity) const { return cost_.at(similarity); }

 private:
  struct Curve {
    std::vector<double> coefficients;  // of 1, S, S^2
    double error = 0;
    Prediction at(double similarity) const;
  };
  static Curve fit(std::span<const double> x, std::span<const double> y);
  Curve drop_, cost_;
};

/// The embeddings of the pretraining pool. Distance: Euclidean in units of each dimension's deviation over
/// the pool, mean of the `neighbours` nearest.
class SeenEmbeddings {
 public:
  /// EINVAL: fewer than 8 embeddings, of different sizes, or not finite. `quantile`: the share of the pool
  /// itself that its own threshold, taken leave-one-out, lets pass.
  static Result<SeenEmbeddings> create(std::vector<std::vector<float>> pool, double quantile = 0.95,
                                       std::size_t neighbours = 3);

  struct Nearest {
    double distance = 0;  // to the nearest few
    double threshold = 0;
    bool out_of_distribution = false;  // distance > threshold, or an embedding that is not finite
    std::size_t nearest = 0;           // index in the pool
    double similarity = 0;             // S to it
  };
  /// REQUIRES: of the pool's size.
  Nearest nearest(std::span<const float> embedding) const;

  /// Of two embeddings, in the same units as Nearest's. REQUIRES: of the pool's size.
  double apart(std::span<const float> a, std::span<const float> b) const;

  std::size_t size() const { return pool_.size(); }
  std::size_t width() const { return scale_.size(); }  // of an embedding
  /// "seen" [n, d] with its meta, and back.
  void put(TensorFile& file) const;
  static Result<SeenEmbeddings> get(const TensorFile& file);

 private:
  double distance(std::span<const float> e, std::size_t except, std::size_t* nearest) const;
  std::vector<std::vector<float>> pool_;
  std::vector<double> scale_;
  double quantile_ = 0, threshold_ = 0;
  std::size_t neighbours_ = 0;
};

}  // namespace flash
