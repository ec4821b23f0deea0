#include "lab/workloads/request_work.h"

#include <sys/mman.h>

#include <cmath>
#include <utility>

namespace flash {

namespace {

bool is_divisible(const SegmentUse& use) {
  constexpr double kFixedShareMax = 0.2;
  const UnitCost unit = unit_cost(*use.segment, use.payload);
  const SegmentProfile& profile = use.segment->profile;
  return profile.cpu_us + profile.off_cpu_us <= kFixedShareMax * (unit.cpu_us + unit.off_cpu_us);
}

}  // namespace

RequestWork::RequestWork(const Application& application, const WorkingSet& memory, std::uint64_t seed)
    : random_(seed), varies_(application.service_cv > 0) {
  for (const auto& use : application.segments) {
    auto& part = parts_.emplace_back();
    part.use = &use;
    part.scratch.seed = seed + parts_.size();
    part.scratch.memory = memory.hot();
    part.divisible = is_divisible(use);
  }
  const double variance = std::log1p(application.service_cv * application.service_cv);
  factor_ = std::lognormal_distribution<double>(-variance / 2, std::sqrt(variance));
}

std::uint64_t RequestWork::run(const std::atomic<bool>& stop) {
  const double factor = varies_ ? factor_(random_) : 1.0;
  std::uint64_t checksum = 0;
  for (auto& part : parts_) {
    const double wanted = part.use->count * factor;
    double units = std::floor(wanted);
    const double rest = wanted - units;
    const Segment& segment = *part.use->segment;
    if (!part.divisible && rest > 0) {
      units += std::uniform_real_distribution<double>()(random_) < rest;
    }
    checksum = checksum * 31 + run_units(segment, static_cast<std::uint64_t>(part.use->payload),
                                         static_cast<std::uint64_t>(units), part.scratch, stop);
    const auto payload = static_cast<std::uint64_t>(part.use->payload * std::pow(rest, 1 / segment.exponent));
    if (part.divisible && payload > 0) {
      checksum = checksum * 31 + run_units(segment, payload, 1, part.scratch, stop);
    }
  }
  return checksum;
}

RequestMemory::RequestMemory(std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  // Filled by the kernel at once: a page fault each costs several times as much.
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return;  // the request is answered all the same
  }
  memory_ = memory;
  size_ = bytes;
}

RequestMemory::RequestMemory(RequestMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}

RequestMemory& RequestMemory::operator=(RequestMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

RequestMemory::~RequestMemory() {
  if (memory_ != nullptr) {
    ::munmap(memory_, size_);
  }
}

}  // namespace flash
