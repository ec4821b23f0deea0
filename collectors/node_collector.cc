#include "collectors/node_collector.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace flash {
namespace {

/// CPU seconds that one CPU can give per second, with room for a reading that came a whole tick late.
constexpr double kMostPerCpu = 2;
constexpr const char* kCannotBeOpened = "cannot be opened";

/// What to say while it lasts: an error of what the file holds names the file itself or the row.
Sample failed(const KeptFile& file, const Error& error, std::string& trouble) {
  trouble = file.is_open() ? error.message() : kCannotBeOpened;
  return sample_of(error);
}

std::string rows_left_out(std::string_view file, const SkippedRows& skipped) {
  return std::string(file) + ": rows that cannot be read are left out (row " + std::to_string(skipped.first) +
         ")";
}

}  // namespace

NodeCollector::NodeCollector(const HostRoot& root)
    : stat_(root.proc("stat")),
      meminfo_(root.proc("meminfo")),
      ticks_per_second_(static_cast<double>(::sysconf(_SC_CLK_TCK))) {
  if (!stat_.ensure_open()) stat_trouble_ = kCannotBeOpened;
  if (!meminfo_.ensure_open()) meminfo_trouble_ = kCannotBeOpened;
}

void NodeCollector::track(const Target& target) {
  if (target.id.kind != TargetKind::CpuSet || target.cpus.empty()) return;
  cpu_sets_[target.id] = target.cpus;
  const auto needed = static_cast<std::size_t>(target.cpus.back()) + 1;
  if (needed <= ticks_.size()) return;
  ticks_.resize(needed);
  counters_.resize(needed);
  usage_.resize(needed);
}

void NodeCollector::untrack(TargetId id) {
  cpu_sets_.erase(id);
}

Sample NodeCollector::CpuCounters::usage(const CpuTicks& ticks, Duration at, double tick_s) {
  const double interval_s = busy.known() ? seconds(at - busy.read_at()) : 0;
  const Sample by_clock = busy.rate(ticks.busy, at, tick_s, kMostPerCpu);
  const Sample idle_share = idle.rate(ticks.idle, at, tick_s, kMostPerCpu);
  // Idle time may step back a little (iowait), or far ahead (a guest that was moved).
  if (!by_clock.usable() || !idle_share.usable()) return by_clock;
  const double all = (by_clock.value + idle_share.value) * interval_s;
  return all > 0 ? Sample::good(by_clock.value * interval_s / all) : by_clock;
}

void NodeCollector::count_cpus(std::string_view text) {
  std::size_t n = 0, at = 0;
  while (at < text.size() && text.substr(at).starts_with("cpu")) {
    n += at + 3 < text.size() && text[at + 3] >= '0' && text[at + 3] <= '9' ? 1 : 0;
    const std::size_t end = text.find('\n', at);
    at = end == text.npos ? text.size() : end + 1;
  }
  online_ = {n, online_[0]};
}

Sample NodeCollector::read_total(Duration at) {
  std::array<char, 8192> buffer;
  const auto text = stat_.read(buffer);
  std::fill(usage_.begin(), usage_.end(), Sample::missing());
  count_cpus(text ? *text : std::string_view());
  stat_skipped_ = {};
  CpuTicks total;
  const auto parsed =
      text ? parse_proc_stat(*text, total, ticks_, &stat_skipped_) : Result<void>(text.error());
  if (!parsed) {
    const auto sample = failed(stat_, parsed.error(), stat_trouble_);
    std::fill(usage_.begin(), usage_.end(), sample);
    return sample;
  }
  stat_trouble_.clear();
  for (std::size_t cpu = 0; cpu < ticks_.size(); ++cpu) {
    if (ticks_[cpu].present)
      usage_[cpu] = counters_[cpu].usage(ticks_[cpu], at, 1 / ticks_per_second_);
    else
      counters_[cpu] = {};
  }
  return busy_.rate(total.busy, at, 1 / ticks_per_second_);
}

Sample NodeCollector::read_available() {
  std::array<char, 4096> buffer;
  const auto text = meminfo_.read(buffer);
  meminfo_skipped_ = {};
  memory_bytes_ = 0;
  if (!text) return failed(meminfo_, text.error(), meminfo_trouble_);
  const auto info = parse_meminfo(*text, &meminfo_skipped_);
  if (!info) return failed(meminfo_, info.error(), meminfo_trouble_);
  meminfo_trouble_.clear();
  memory_bytes_ = static_cast<double>(info->total_bytes.value_or(0));
  if (info->available_bytes) return Sample::good(static_cast<double>(*info->available_bytes));
  return meminfo_skipped_.count > 0 ? Sample::invalid() : Sample::missing();
}

Sample NodeCollector::usage_of(const std::vector<int>& cpus) const {
  Sample sum = Sample::missing();
  double online = 0;
  for (const int cpu : cpus) {
    const Sample& one = usage_[static_cast<std::size_t>(cpu)];
    if (one.validity == Validity::Missing) continue;  // offline, or back in this tick: adds nothing
    if (!one.usable()) return one;
    sum = Sample::good((sum.usable() ? sum.value : 0) + one.value);
    ++online;
  }
  // USER_HZ ticks and our interval end at different moments: a busy CPU can seem to give more than it has.
  if (sum.usable()) sum.value = std::min(sum.value, online);
  return sum;
}

void NodeCollector::collect(Now now, ObservationTable& table) {
  const Sample usage = read_total(now.mono);
  const Sample available = read_available();
  for (auto& [id, out] : table) {
    out[Signal::NodeCpuUsage] = usage;
    out[Signal::NodeMemoryAvailable] = available;
  }
  for (const auto& [id, cpus] : cpu_sets_) {
    const auto found = table.find(id);
    if (found == table.end()) continue;
    found->second[Signal::CpuUsage] = usage_of(cpus);
    const auto online = static_cast<std::size_t>(std::count_if(
        cpus.begin(), cpus.end(), [this](int cpu) { return ticks_[static_cast<std::size_t>(cpu)].present; }));
    // A full half is all that a set can do of which half is offline.
    found->second[Signal::CpuCeiling] =
        online > 0 && online < cpus.size() ? Sample::good(static_cast<double>(online)) : Sample::missing();
  }
}

void NodeCollector::measure(MachineSize& machine) const {
  // A CPU that went offline in this tick may have worked in it.
  if (online_[0] > 0 && online_[1] > 0) machine.cores = static_cast<double>(std::max(online_[0], online_[1]));
  if (memory_bytes_ > 0) machine.memory_bytes = memory_bytes_;
}

std::vector<Degraded> NodeCollector::degraded() const {
  std::vector<Degraded> list;
  if (!stat_trouble_.empty()) list.push_back({"node", "/proc/stat: " + stat_trouble_});
  if (!meminfo_trouble_.empty()) list.push_back({"node", "/proc/meminfo: " + meminfo_trouble_});
  if (stat_skipped_.count > 0) list.push_back({"node", rows_left_out("/proc/stat", stat_skipped_)});
  if (meminfo_skipped_.count > 0) list.push_back({"node", rows_left_out("/proc/meminfo", meminfo_skipped_)});
  return list;
}

}  // namespace flash
