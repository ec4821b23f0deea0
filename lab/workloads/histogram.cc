#include "lab/workloads/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace flash {

namespace {
constexpr std::uint64_t kLargestValue = (std::uint64_t{1} << (LatencyHistogram::kLargestExponent + 1)) - 1;
}

std::size_t LatencyHistogram::bucket_of(std::uint64_t ns) {
  if (ns < 2 * kBucketsPerOctave) {
    return ns;
  }
  const int shift = std::bit_width(ns) - 1 - kSubBucketBits;
  // ns >> shift lies in [32, 64): the octave's number is the shift, its 32 buckets follow those of the last
  // one.
  return static_cast<std::size_t>(shift) * kBucketsPerOctave + (ns >> shift);
}

std::uint64_t LatencyHistogram::midpoint_of(std::size_t bucket) {
  if (bucket < 2 * kBucketsPerOctave) {
    return bucket;
  }
  const std::size_t shift = bucket / kBucketsPerOctave - 1;
  const std::uint64_t lower = (bucket % kBucketsPerOctave + kBucketsPerOctave) << shift;
  return lower + (std::uint64_t{1} << shift) / 2;
}

void LatencyHistogram::record(std::chrono::nanoseconds value) {
  const auto ns =
      std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 0)), kLargestValue);
  ++counts_[bucket_of(ns)];
  ++count_;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
}

void LatencyHistogram::merge(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) {
    counts_[i] += other.counts_[i];
  }
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

void LatencyHistogram::clear() {
  *this = LatencyHistogram();
}

std::chrono::nanoseconds LatencyHistogram::percentile(double percent) const {
  if (count_ == 0) {
    return std::chrono::nanoseconds(0);
  }
  const double wanted = std::ceil(percent / 100.0 * static_cast<double>(count_));
  const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= rank) {
      return std::chrono::nanoseconds(std::clamp(midpoint_of(i), min_, max_));
    }
  }
  return max();
}

double LatencyHistogram::mean_ms() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_) / 1e6;
}

std::vector<LatencyHistogram::Bucket> LatencyHistogram::buckets() const {
  std::vector<Bucket> result;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] > 0) {
      result.push_back({std::chrono::nanoseconds(midpoint_of(i)), counts_[i]});
    }
  }
  return result;
}

}  // namespace flash
