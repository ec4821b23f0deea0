// Purpose: the request probe: latency and number of requests per cgroup, from the first byte that a server's
// TCP connection receives to the first byte of its answer, measured by the kernel (requests.bpf.c).
// Descendants are included. Nothing is pinned: programs, their attachments and maps end with the object, an
// attachment also with its cgroup.
// Ownership: owns its programs, attachments and maps.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectors/bpf/cost.h"
#include "collectors/bpf/requests.bpf.h"
#include "core/result.h"

namespace flash {

using LatencySlots = std::array<std::uint32_t, FLASH_LATENCY_SLOTS>;

/// Milliseconds at which a slot of flash_requests::latencies begins.
double latency_slot_begin_ms(std::size_t slot);
/// The slot in which the q-quantile (0..1) lies; 0 without requests.
std::size_t latency_quantile_slot(const LatencySlots& requests, double q);
/// The q-quantile in ms, interpolated within its slot; 0 without requests.
double latency_quantile_ms(const LatencySlots& requests, double q);

struct RequestProbeOptions {
  /// Most cgroups at a time; memory is taken only for those that are watched (1.6 KiB each).
  std::size_t max_cgroups = 4096;
};

class RequestProbe {
 public:
  /// Loads; nothing runs before watch(). ENOENT: the kernel has no BTF; EPERM: not permitted; else what the
  /// kernel did not accept. The message says it for people.
  static Result<std::unique_ptr<RequestProbe>> open(RequestProbeOptions options = {});
  ~RequestProbe();
  RequestProbe(const RequestProbe&) = delete;
  RequestProbe& operator=(const RequestProbe&) = delete;

  /// `directory`: of a cgroup v2, whose inode is returned. From here on its connections are slower by about a
  /// microsecond per request. E2BIG: max_cgroups are watched. EEXIST: it is watched. ENOENT.
  Result<std::uint64_t> watch(const std::string& directory);
  void forget(std::uint64_t id);
  std::size_t watched() const;

  /// Gives the counts of every watched cgroup, in any order. Allocates nothing.
  Result<void> read(const std::function<void(std::uint64_t id, const flash_requests& counts)>& take);

  /// Of the programs that see packets; those at new connections are rare beside them. Allocates nothing.
  ProbeCost cost() const;

 private:
  struct Impl;
  explicit RequestProbe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
