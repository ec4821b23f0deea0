// Purpose: latency histogram with a bounded relative error and constant memory.
// Ownership: a value type of about 10 KB.
// Thread rule: one writer; callers lock when several record.
//
// Log-linear: values below 64 ns have a bucket each; above, every octave [2^e, 2^(e+1)) is cut into 32 equal
// buckets. A bucket is therefore at most 1/32 of its lower edge wide and its midpoint at most 1/64 (1.6 %)
// away from any value in it. 16 buckets per octave would double that and show as steps in a p99 curve.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash {

class LatencyHistogram {
 public:
  static constexpr int kSubBucketBits = 5;
  static constexpr std::uint64_t kBucketsPerOctave = std::uint64_t{1} << kSubBucketBits;
  static constexpr int kLargestExponent = 42;  // 2^43 ns is 2.4 hours; longer counts as that

  void record(std::chrono::nanoseconds value);
  void merge(const LatencyHistogram& other);
  void clear();

  std::uint64_t count() const { return count_; }
  /// Nearest-rank percentile, percent in (0, 100]; zero when empty. Exact at the smallest and largest value.
  std::chrono::nanoseconds percentile(double percent) const;
  std::chrono::nanoseconds max() const { return std::chrono::nanoseconds(max_); }
  double mean_ms() const;
  struct Bucket {
    std::chrono::nanoseconds middle;
    std::uint64_t count;
  };
  /// Those with values in them, ascending.
  std::vector<Bucket> buckets() const;

 private:
  static constexpr std::size_t kBuckets =
      (static_cast<std::size_t>(kLargestExponent - kSubBucketBits) + 2) * kBucketsPerOctave;

  static std::size_t bucket_of(std::uint64_t ns);
  static std::uint64_t midpoint_of(std::size_t bucket);

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

inline double to_ms(std::chrono::nanoseconds value) {
  return std::chrono::duration<double, std::milli>(value).count();
}

}  // namespace flash
