// Purpose: chance and elementary functions at the simulator's pace, the same on every machine: a draw is one
// 64-bit word of core/random.h, so that streams stay aligned whatever the settings (common random numbers).
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace flash {

/// [0, 1).
inline double unit(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

/// (0, 1).
inline double unit_open(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1.0p-52;
}

/// About standard normal from one draw: four uniforms of 16 bits (Irwin-Hall), within 3.5 standard
/// deviations.
inline double bell(std::uint64_t bits) {
  const auto sum =
      static_cast<int>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  return (sum - 2.0 * 65535) * (1.7320508 / 65536);
}

/// Between the two, evenly on a log scale.
inline double log_uniform(Random& random, double low, double high) {
  return low * std::exp(random.uniform() * std::log(high / low));
}

/// Four at once; gcc and clang make of it what the machine has.
using Four = float __attribute__((vector_size(16)));
using FourInts = std::int32_t __attribute__((vector_size(16)));

/// Upper tail of the standard normal (Page's logistic form, error below 2e-4).
inline Four normal_tail(Four z) {
  z = z < -6.0F ? Four{} - 6.0F : z;
  z = z > 6.0F ? Four{} + 6.0F : z;
  // 2^y with y's whole part in the exponent and a polynomial for the rest (error below 1e-5).
  const Four y = z * (2.30487F + 0.101806F * z * z) + 127.0F;
  const FourInts whole = __builtin_convertvector(y, FourInts);
  const Four f = y - __builtin_convertvector(whole, Four);
  const Four p = 1 + f * (0.693147F + f * (0.240227F + f * (0.0555042F + f * (0.0096139F + f * 0.0013411F))));
  return 1 / (1 + p * std::bit_cast<Four>(whole << 23));
}

/// z with normal_tail(z) = q (Abramowitz and Stegun 26.2.23, error below 5e-4).
inline double normal_quantile_of_tail(double q) {
  const bool lower = q > 0.5;
  if (lower) q = 1 - q;
  const double t = std::sqrt(-2 * std::log(q > 1e-12 ? q : 1e-12));
  const double z =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  return lower ? -z : z;
}

}  // namespace flash
