#include "collectors/bpf/schedule.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "collectors/bpf/load.h"
#include "host/file_io.h"
#include "host/host_root.h"
#include "host/topology.h"
#include "schedule.skel.h"

namespace flash {
namespace {

constexpr std::uint32_t kBatch = 64;

constexpr std::string_view kCapabilities = "CAP_BPF and CAP_PERFMON";

std::uint32_t hierarchy_of(CgroupController controller, CgroupVersion version) {
  if (version != CgroupVersion::V1) return FLASH_HIERARCHY_UNIFIED;
  switch (controller) {
    case CgroupController::CpuAcct:
      return FLASH_HIERARCHY_CPUACCT;
    case CgroupController::Memory:
      return FLASH_HIERARCHY_MEMORY;
    default:
      return FLASH_HIERARCHY_CPU;
  }
}

/// Pinned: counted all the time or, if others have the counters, not at all; enabled and running tell. The
/// second event of a CPU is in the group of the first, so that their ratio means something.
Result<Fd> open_counter(const CounterEvent& event, int cpu, int leader) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = event.type;
  attr.config = event.config;
  attr.pinned = leader < 0;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  Fd fd(static_cast<int>(::syscall(SYS_perf_event_open, &attr, -1, cpu, leader, PERF_FLAG_FD_CLOEXEC)));
  if (!fd) return Error::from_errno(errno, "perf event of CPU " + std::to_string(cpu));
  return fd;
}

std::string why_no_counters(const Error& error) {
  if (error.is(std::errc::no_such_file_or_directory) || error.is(std::errc::operation_not_supported))
    return "no hardware PMU";
  if (error.is(std::errc::permission_denied) || error.is(std::errc::operation_not_permitted))
    return "hardware events are not permitted (CAP_PERFMON, kernel.perf_event_paranoid)";
  return error.message();
}

using Counters = std::array<std::vector<Fd>, FLASH_COUNTERS>;

Result<Counters> open_counters(const std::array<CounterEvent, FLASH_COUNTERS>& events,
                               const std::vector<int>& online) {
  Counters all;
  for (std::size_t i = 0; i < events.size(); ++i)
    for (std::size_t k = 0; k < online.size(); ++k) {
      FLASH_TRY(Fd fd, open_counter(events[i], online[k], i == 0 ? -1 : all[0][k].get()));
      all[i].push_back(std::move(fd));
    }
  return all;
}

void add(CgroupCounts& sum, const flash_counts& part) {
  sum.oncpu_ns += part.oncpu_ns;
  sum.switches += part.switches;
  sum.waited_ns += part.waited_ns;
  for (std::size_t i = 0; i < FLASH_COUNTERS; ++i) {
    sum.counters[i].count += part.counters[i].count;
    sum.counters[i].enabled_ns += part.counters[i].enabled_ns;
    sum.counters[i].running_ns += part.counters[i].running_ns;
  }
  for (std::size_t i = 0; i < FLASH_WAIT_SLOTS; ++i) sum.waits[i] += part.waits[i];
}

}  // namespace

ScheduleProbeOptions::ScheduleProbeOptions()
    : counters{{{PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}}} {}

std::uint64_t wait_slot_begin(std::size_t slot) {
  if (slot < 4) return slot << FLASH_WAIT_SHIFT;
  const std::size_t octave = slot / 4 - 1;  // of 4 << octave, in quarters
  return ((4 + slot % 4) << octave) << FLASH_WAIT_SHIFT;
}

double wait_quantile(const std::array<std::uint64_t, FLASH_WAIT_SLOTS>& waits, double q) {
  std::uint64_t total = 0;
  for (const auto n : waits) total += n;
  if (total == 0) return 0;
  const double rank = q * static_cast<double>(total);
  double below = 0;
  for (std::size_t slot = 0; slot < FLASH_WAIT_SLOTS; ++slot) {
    const auto n = static_cast<double>(waits[slot]);
    if (n > 0 && below + n >= rank) {
      const auto begin = static_cast<double>(wait_slot_begin(slot));
      const auto end = static_cast<double>(wait_slot_begin(slot + 1));
      return begin + (end - begin) * (rank - below) / n;
    }
    below += n;
  }
  return static_cast<double>(wait_slot_begin(FLASH_WAIT_SLOTS - 1));
}

struct ScheduleProbe::Impl {
  ~Impl() {
    if (cpus) ::munmap(cpus, cpus_size());
    schedule_bpf::destroy(skeleton);
  }
  Result<void> load(std::uint32_t hierarchy, std::vector<int> online_now);
  std::size_t cpus_size() const { return cpu_slots * sizeof(flash_cpu); }
  int cgroups_fd() const { return bpf_map__fd(skeleton->maps.cgroups); }
  Result<void> attach_counters();
  Result<void> flush_cpu(int cpu);
  Result<void> flush_busy();
  bpf_prog_info info() const;

  ScheduleProbeOptions options;
  schedule_bpf* skeleton = nullptr;
  std::size_t possible = 0;   // CPUs: parts of each value of `cgroups`
  std::size_t cpu_slots = 0;  // of `cpus`, by CPU number
  std::vector<int> online;    // when it was loaded
  Counters counters;
  std::string no_counters;
  flash_cpu* cpus = nullptr;  // the kernel's, read-only
  std::size_t watched = 0;
  std::vector<flash_counts> zeros;
  std::vector<std::uint64_t> ids;
  std::vector<flash_counts> values;  // kBatch times the possible CPUs
};

Result<void> ScheduleProbe::Impl::load(std::uint32_t hierarchy, std::vector<int> online_now) {
  const int n = libbpf_num_possible_cpus();
  if (n < 0) return Error::from_errno(-n, "possible CPUs");
  possible = static_cast<std::size_t>(n);
  online = std::move(online_now);
  cpu_slots = std::max(possible, static_cast<std::size_t>(online.back()) + 1);
  skeleton = schedule_bpf::open();
  if (!skeleton) return why_not_loaded(errno, kCapabilities);
  if (auto opened = open_counters(options.counters, online))
    counters = *std::move(opened);
  else
    no_counters = why_no_counters(opened.error());
  skeleton->rodata->hierarchy = hierarchy;
  skeleton->rodata->has_counters = no_counters.empty();
  bpf_map__set_max_entries(skeleton->maps.cpus, static_cast<std::uint32_t>(cpu_slots));
  bpf_map__set_max_entries(skeleton->maps.cgroups, static_cast<std::uint32_t>(options.max_cgroups));
  if (const int r = schedule_bpf::load(skeleton); r != 0) return why_not_loaded(-r, kCapabilities);
  FLASH_CHECK(attach_counters());
  void* mapped = ::mmap(nullptr, cpus_size(), PROT_READ, MAP_SHARED, bpf_map__fd(skeleton->maps.cpus), 0);
  if (mapped == MAP_FAILED) return Error::from_errno(errno, "mapping the CPUs' state");
  cpus = static_cast<flash_cpu*>(mapped);
  skeleton->links.on_switch = bpf_program__attach(skeleton->progs.on_switch);
  if (!skeleton->links.on_switch) return why_not_loaded(errno, kCapabilities);
  zeros.resize(possible);
  ids.resize(kBatch);
  values.resize(kBatch * possible);
  // From here on every CPU knows since when it counts.
  for (const int cpu : online) FLASH_CHECK(flush_cpu(cpu));
  return {};
}

Result<void> ScheduleProbe::Impl::attach_counters() {
  if (!no_counters.empty()) return {};
  const int maps[] = {bpf_map__fd(skeleton->maps.instructions), bpf_map__fd(skeleton->maps.cycles)};
  for (std::size_t i = 0; i < FLASH_COUNTERS; ++i)
    for (std::size_t k = 0; k < online.size(); ++k) {
      const int fd = counters[i][k].get();
      if (bpf_map_update_elem(maps[i], &online[k], &fd, BPF_ANY) != 0)
        return Error::from_errno(errno, "giving the program the perf events");
    }
  return {};
}

Result<void> ScheduleProbe::Impl::flush_cpu(int cpu) {
  LIBBPF_OPTS(bpf_test_run_opts, run);
  run.flags = BPF_F_TEST_RUN_ON_CPU;
  run.cpu = static_cast<std::uint32_t>(cpu);
  const int r = bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.flush), &run);
  if (r != 0 && r != -ENXIO) return Error::from_errno(-r, "bringing counts up to date");  // ENXIO: offline
  return {};
}

Result<void> ScheduleProbe::Impl::flush_busy() {
  // Idle CPUs are not woken for it: all of theirs is accounted.
  for (std::size_t cpu = 0; cpu < cpu_slots; ++cpu)
    if (cpus[cpu].busy != 0) FLASH_CHECK(flush_cpu(static_cast<int>(cpu)));
  return {};
}

ScheduleProbe::ScheduleProbe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScheduleProbe::~ScheduleProbe() = default;

Result<std::unique_ptr<ScheduleProbe>> ScheduleProbe::open(CgroupController controller, CgroupVersion version,
                                                           ScheduleProbeOptions options) {
  note_bpf_complaints();
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  std::vector<int> online = {0};
  if (auto found = online_cpus(HostRoot())) online = *std::move(found);
  FLASH_CHECK(impl->load(hierarchy_of(controller, version), std::move(online)));
  return std::unique_ptr<ScheduleProbe>(new ScheduleProbe(std::move(impl)));
}

Result<void> ScheduleProbe::watch(std::uint64_t id) {
  if (bpf_map_update_elem(impl_->cgroups_fd(), &id, impl_->zeros.data(), BPF_NOEXIST) != 0)
    return Error::from_errno(errno, "watching a cgroup");
  ++impl_->watched;
  return {};
}

void ScheduleProbe::forget(std::uint64_t id) {
  if (bpf_map_delete_elem(impl_->cgroups_fd(), &id) == 0) --impl_->watched;
}

std::size_t ScheduleProbe::watched() const {
  return impl_->watched;
}

Result<void> ScheduleProbe::read(
    const std::function<void(std::uint64_t id, const CgroupCounts& counts)>& take) {
  FLASH_CHECK(impl_->flush_busy());
  std::uint32_t position = 0;
  for (bool more = impl_->watched > 0, first = true; more; first = false) {
    std::uint32_t n = kBatch;
    const int r = bpf_map_lookup_batch(impl_->cgroups_fd(), first ? nullptr : &position, &position,
                                       impl_->ids.data(), impl_->values.data(), &n, nullptr);
    if (r != 0 && r != -ENOENT) return Error::from_errno(-r, "reading the counts");
    more = r == 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      CgroupCounts sum;
      for (std::size_t cpu = 0; cpu < impl_->possible; ++cpu)
        add(sum, impl_->values[i * impl_->possible + cpu]);
      take(impl_->ids[i], sum);
    }
  }
  return {};
}

const std::string& ScheduleProbe::no_counters() const {
  return impl_->no_counters;
}

std::uint64_t ScheduleProbe::counter_errors() const {
  std::uint64_t errors = 0;
  for (std::size_t cpu = 0; cpu < impl_->cpu_slots; ++cpu) errors += impl_->cpus[cpu].counter_errors;
  return errors;
}

bpf_prog_info ScheduleProbe::Impl::info() const {
  bpf_prog_info info{};
  std::uint32_t size = sizeof info;
  if (bpf_obj_get_info_by_fd(bpf_program__fd(skeleton->progs.on_switch), &info, &size) != 0) return {};
  return info;
}

ProbeCost ScheduleProbe::cost() const {
  ProbeCost cost;
  for (std::size_t cpu = 0; cpu < impl_->cpu_slots; ++cpu) cost.add(impl_->cpus[cpu].cost);
  return cost;
}

std::uint64_t ScheduleProbe::missed() const {
  std::uint64_t missed = impl_->info().recursion_misses;
  for (std::size_t cpu = 0; cpu < impl_->cpu_slots; ++cpu) missed += impl_->cpus[cpu].unseen;
  return missed;
}

}  // namespace flash
