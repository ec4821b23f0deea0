#include "collectors/node_collector.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace flash {
namespace {

KeptFile open_if_there(const HostRoot& root, std::string_view name) {
  auto file = KeptFile::open(root.proc(name));
  return file ? std::move(*file) : KeptFile();
}

}  // namespace

NodeCollector::NodeCollector(const HostRoot& root)
    : stat_(open_if_there(root, "stat")),
      meminfo_(open_if_there(root, "meminfo")),
      buffer_(8192),
      ticks_per_second_(static_cast<double>(::sysconf(_SC_CLK_TCK))) {}

void NodeCollector::track(const Target& target) {
  if (target.id.kind != TargetKind::CpuSet || target.cpus.empty()) return;
  cpu_sets_[target.id] = target.cpus;
  const auto needed = static_cast<std::size_t>(target.cpus.back()) + 1;
  if (needed <= ticks_.size()) return;
  ticks_.resize(needed);
  counters_.resize(needed);
  usage_.resize(needed);
  // CPU lines come first in /proc/stat and have at most about 200 characters.
  buffer_.resize(8192 + needed * 256);
}

void NodeCollector::untrack(TargetId id) {
  cpu_sets_.erase(id);
}

Sample NodeCollector::CpuCounters::usage(const CpuTicks& ticks, double interval_s, double tick_s) {
  const Sample by_clock = busy.rate(ticks.busy, interval_s, tick_s);
  const Sample idle_ticks = idle.growth(ticks.idle);
  if (!by_clock.usable() || !idle_ticks.usable()) return by_clock;  // idle may step back a little (iowait)
  const double busy_ticks = by_clock.value * interval_s / tick_s;
  const double all = busy_ticks + idle_ticks.value;
  return all > 0 ? Sample::good(busy_ticks / all) : by_clock;
}

Sample NodeCollector::read_total(double interval_s) {
  const auto text = stat_.read(buffer_);
  std::fill(usage_.begin(), usage_.end(), Sample::missing());
  if (!text) return sample_of(text.error());
  CpuTicks total;
  const auto parsed = parse_proc_stat(*text, total, ticks_);
  if (!parsed) {
    const auto failed = sample_of(parsed.error());
    std::fill(usage_.begin(), usage_.end(), failed);
    return failed;
  }
  for (std::size_t cpu = 0; cpu < ticks_.size(); ++cpu) {
    if (ticks_[cpu].present)
      usage_[cpu] = counters_[cpu].usage(ticks_[cpu], interval_s, 1 / ticks_per_second_);
    else
      counters_[cpu] = {};
  }
  return busy_.rate(total.busy, interval_s, 1 / ticks_per_second_);
}

Sample NodeCollector::read_available() {
  std::array<char, 1024> buffer;  // both lines are among the first three
  const auto text = meminfo_.read(buffer);
  if (!text) return sample_of(text.error());
  const auto info = parse_meminfo(*text);
  return info ? Sample::good(static_cast<double>(info->available_bytes)) : sample_of(info.error());
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
  const double interval_s = first_ ? 0 : seconds(now.mono - last_);
  first_ = false;
  last_ = now.mono;
  const Sample usage = read_total(interval_s);
  const Sample available = read_available();
  for (auto& [id, out] : table) {
    out[Signal::NodeCpuUsage] = usage;
    out[Signal::NodeMemoryAvailable] = available;
  }
  for (const auto& [id, cpus] : cpu_sets_) {
    const auto found = table.find(id);
    if (found != table.end()) found->second[Signal::CpuUsage] = usage_of(cpus);
  }
}

std::vector<Degraded> NodeCollector::degraded() const {
  std::vector<Degraded> list;
  if (!stat_.is_open()) list.push_back({"node", "/proc/stat cannot be opened"});
  if (!meminfo_.is_open()) list.push_back({"node", "/proc/meminfo cannot be opened"});
  return list;
}

}  // namespace flash
