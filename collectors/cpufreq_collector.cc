#include "collectors/cpufreq_collector.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>

#include "host/parse.h"

namespace flash {
namespace {

constexpr std::string_view kFiles[] = {"scaling_cur_freq", "scaling_min_freq", "scaling_max_freq"};
constexpr Signal kSignals[] = {Signal::Frequency, Signal::FrequencyMin, Signal::FrequencyMax};

bool share_a_cpu(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::find(b.begin(), b.end(), cpu) != b.end(); });
}

/// related_cpus: "0 1 2\n".
std::vector<int> parse_related(std::string_view text) {
  std::vector<int> cpus;
  for (const std::string_view word : split_words(text)) {
    const auto cpu = parse_u64(word);
    if (cpu && *cpu <= static_cast<std::uint64_t>(kMaxCpu)) cpus.push_back(static_cast<int>(*cpu));
  }
  return cpus;
}

}  // namespace

CpufreqCollector::CpufreqCollector(const HostRoot& root) : root_(root) {
  scan();
}

void CpufreqCollector::track(const Target& target) {
  targets_[target.id] = target.id.kind == TargetKind::CpuSet ? target.cpus : std::vector<int>{};
}

void CpufreqCollector::untrack(TargetId id) {
  targets_.erase(id);
}

void CpufreqCollector::scan() {
  policies_.clear();
  const std::string base = root_.sys("devices/system/cpu/cpufreq");
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(base.c_str()), ::closedir);
  if (!directory) return;
  while (const dirent* entry = ::readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe): own stream
    std::string_view name = entry->d_name;
    constexpr std::string_view kPrefix = "policy";
    if (!name.starts_with(kPrefix)) continue;
    Policy policy;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, policy.number);
    if (parsed.ec != std::errc() || parsed.ptr != end) continue;
    const std::string path = base + "/" + std::string(name) + "/";
    const auto related = read_file(path + "related_cpus");
    if (!related) continue;
    policy.cpus = parse_related(*related);
    for (int i = 0; i < FileCount; ++i)
      if (auto file = KeptFile::open(path + std::string(kFiles[i]))) policy.files[i] = *std::move(file);
    policies_.push_back(std::move(policy));
  }
  std::sort(policies_.begin(), policies_.end(),
            [](const Policy& a, const Policy& b) { return a.number < b.number; });
}

bool CpufreqCollector::read(Policy& policy) const {
  std::array<char, 64> buffer;
  bool here = true;
  for (int i = 0; i < FileCount; ++i) {
    policy.samples[i] = Sample::missing();
    if (!policy.files[i].is_open()) continue;
    const auto text = policy.files[i].read(buffer);
    if (!text) {
      // EBUSY: all its CPUs are offline; the file reads again when one is back.
      here &= !vanished(text.error());
      continue;
    }
    // "<unknown>" where the driver cannot tell.
    const auto khz = parse_u64(*text);
    policy.samples[i] = khz && *khz > 0 ? Sample::good(static_cast<double>(*khz)) : Sample::invalid();
  }
  return here;
}

void CpufreqCollector::collect(Now /*now*/, ObservationTable& table) {
  if (targets_.empty()) return;
  // A driver can be loaded later; looking for the folder costs a microsecond.
  if (policies_.empty()) scan();
  bool all_here = true;
  for (Policy& policy : policies_) all_here &= read(policy);
  if (!all_here) {
    scan();
    for (Policy& policy : policies_) read(policy);
  }
  for (const auto& [id, cpus] : targets_) {
    const auto row = table.find(id);
    if (row == table.end()) continue;
    for (int i = 0; i < FileCount; ++i) {
      double sum = 0, lowest = 0, highest = 0;
      int usable = 0;
      bool invalid = false;
      for (const Policy& policy : policies_) {
        if (!cpus.empty() && !share_a_cpu(cpus, policy.cpus)) continue;
        const Sample& sample = policy.samples[i];
        invalid |= sample.validity == Validity::Invalid;
        if (!sample.usable()) continue;
        sum += sample.value;
        lowest = usable ? std::min(lowest, sample.value) : sample.value;
        highest = usable ? std::max(highest, sample.value) : sample.value;
        ++usable;
      }
      Sample& out = row->second[kSignals[i]];
      if (invalid)
        out = Sample::invalid();
      else if (!usable)
        out = Sample::missing();
      else
        out = Sample::good(i == Current ? sum / usable : i == Min ? lowest : highest);
    }
  }
}

std::vector<Degraded> CpufreqCollector::degraded() const {
  if (!policies_.empty()) return {};
  return {{"cpufreq", "no cpufreq driver: frequencies are not measured"}};
}

}  // namespace flash
