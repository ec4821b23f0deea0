// Purpose: randomness as a parameter: a small, seedable, copyable generator whose stream is the same on every
// machine (std::normal_distribution's is not).
// Ownership: value.
// Thread rule: one thread per value.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace flash {

/// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed = 1) : state_(seed) {}
  /// An independent stream for part `index` of what this seed stands for.
  Random fork(std::uint64_t index) const { return Random(mix(state_ ^ mix(index + 0x632be59bd9b4e019ULL))); }

  /// Random(state()) goes on where this one is.
  std::uint64_t state() const { return state_; }

  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  /// [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// [0, n). REQUIRES: n > 0.
  std::uint64_t below(std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }
  /// Standard normal (Box-Muller; the second of each pair is thrown away).
  double normal() {
    const double u = 1.0 - uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace flash
