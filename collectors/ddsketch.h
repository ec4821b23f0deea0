// Purpose: quantiles of a stream with a guaranteed relative error and bounded memory: DDSketch (Masson, Rim,
// Lee: "DDSketch: A fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019).
// Ownership: a value of fixed size; never allocates.
// Thread rule: none needed; one writer.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace flash {

/// Buckets grow by gamma = (1 + a) / (1 - a), bucket i holds (gamma^(i-1), gamma^i], so its midpoint
/// 2 gamma^i / (gamma + 1) is within a of every value in it (paper, section 2.1). When values span more than
/// kBuckets buckets (a factor of 28,000 at a = 1 %) the lowest are collapsed (section 2.2, Algorithm 3): the
/// high quantiles, which are what an SLO speaks of, keep the guarantee.
class DDSketch {
 public:
  static constexpr double kRelativeError = 0.01;
  static constexpr int kBuckets = 512;
  /// Smaller values (and negative ones) count as zero.
  static constexpr double kMinValue = 1e-9;

  /// `weight` is what a sampled value stands for (1 / sample rate). Both finite, weight > 0; others are
  /// ignored.
  void add(double value, double weight = 1) {
    if (!std::isfinite(value) || !std::isfinite(weight) || weight <= 0) return;
    total_ += weight;
    if (value < kMinValue) {
      zero_ += weight;
      return;
    }
    bucket(reserve(key_of(value))) += weight;
  }

  /// Takes `weight` of what add(value) has put there away again.
  void lighten(double value, double weight) {
    if (!std::isfinite(value) || !(weight > 0)) return;
    double& there = value < kMinValue ? zero_ : bucket(std::max(key_of(value), low_));
    weight = std::min(weight, there);
    there -= weight;
    total_ -= weight;
  }

  /// q in [0, 1]. Requires !empty().
  double quantile(double q) const {
    const double rank = std::clamp(q, 0.0, 1.0) * std::max(total_ - 1, 0.0);
    double below = zero_;
    if (below > rank || low_ > high_) return 0;
    for (int key = low_; key < high_; ++key) {
      below += buckets_[slot(key)];
      if (below > rank) return midpoint(key);
    }
    return midpoint(high_);
  }

  bool empty() const { return total_ == 0; }
  /// The sum of the weights.
  double count() const { return total_; }

  void clear() {
    for (int key = low_; key <= high_; ++key) bucket(key) = 0;
    total_ = zero_ = 0;
    low_ = 0;
    high_ = -1;
  }

 private:
  static constexpr double kGamma = (1 + kRelativeError) / (1 - kRelativeError);

  static int key_of(double value) {
    static const double inverse_log_gamma = 1 / std::log(kGamma);
    return static_cast<int>(std::ceil(std::log(value) * inverse_log_gamma));
  }
  static double midpoint(int key) { return 2 * std::pow(kGamma, key) / (kGamma + 1); }
  // Keys in use span fewer than kBuckets, so a key's place modulo kBuckets is its own (a ring: nothing is
  // moved when the window moves).
  static std::size_t slot(int key) { return static_cast<std::size_t>(key & (kBuckets - 1)); }
  static_assert((kBuckets & (kBuckets - 1)) == 0);
  double& bucket(int key) { return buckets_[slot(key)]; }

  /// Makes room for the key and returns the key that stands for it after collapsing.
  int reserve(int key) {
    if (low_ > high_) {
      low_ = high_ = key;
    } else if (key > high_) {
      const int lowest = key - kBuckets + 1;
      if (lowest > low_) {
        double collapsed = 0;
        for (int k = low_; k <= std::min(high_, lowest); ++k) {
          collapsed += bucket(k);
          bucket(k) = 0;
        }
        bucket(lowest) += collapsed;
        low_ = lowest;
      }
      high_ = key;
    } else if (key < low_) {
      key = std::max(key, high_ - kBuckets + 1);
      low_ = std::min(low_, key);
    }
    return key;
  }

  std::array<double, kBuckets> buckets_{};
  double zero_ = 0;
  double total_ = 0;
  int low_ = 0, high_ = -1;  // keys in use; low_ > high_: none
};

}  // namespace flash
