#include "collectors/cpufreq_collector.h"

#include <sys/stat.h>

#include <algorithm>

namespace flash {
namespace {

constexpr Signal kSignals[] = {Signal::Frequency, Signal::FrequencyMin, Signal::FrequencyMax};

/// A policy's folder is there before its files are.
constexpr int kScansAfterChange = 3;

bool share_a_cpu(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::find(b.begin(), b.end(), cpu) != b.end(); });
}

Sample as_sample(const Result<std::uint64_t>& khz) {
  if (khz) return *khz > 0 ? Sample::good(static_cast<double>(*khz)) : Sample::invalid();
  // "<unknown>" where the driver cannot tell.
  if (khz.error().is(std::errc::invalid_argument) || khz.error().is(std::errc::result_out_of_range))
    return Sample::invalid();
  return Sample::missing();  // EBUSY: its CPUs are offline
}

/// 2 and one for each folder in it; 0: not there.
std::uint64_t links_of(const std::string& folder) {
  struct stat st;
  return ::stat(folder.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_nlink) : 0;
}

}  // namespace

CpufreqCollector::CpufreqCollector(const HostRoot& root)
    : root_(root), folder_(root.sys("devices/system/cpu/cpufreq")) {
  links_ = links_of(folder_);
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
  for (CpufreqPolicy& policy : cpufreq_policies(root_))
    if (auto reader = CpufreqPolicyReader::open(root_, policy.name))
      policies_.push_back({std::move(policy.related_cpus), *std::move(reader), {}});
}

bool CpufreqCollector::read(Policy& policy) {
  const auto min = policy.reader.min_khz();
  policy.samples[Current] = as_sample(policy.reader.current_khz());
  policy.samples[Min] = as_sample(min);
  policy.samples[Max] = as_sample(policy.reader.max_khz());
  return min || !vanished(min.error());
}

void CpufreqCollector::collect(Now /*now*/, ObservationTable& table) {
  if (targets_.empty()) return;
  // A driver can be loaded later, and a policy come back with its CPUs; looking at the folder costs a
  // microsecond.
  if (const auto links = links_of(folder_); links != links_) {
    links_ = links;
    scans_ = kScansAfterChange;
  }
  if (scans_ > 0) {
    --scans_;
    scan();
  }
  bool all_here = true;
  for (Policy& policy : policies_) all_here &= read(policy);
  if (!all_here) {
    scan();
    for (Policy& policy : policies_) read(policy);
  }
  for (const auto& [id, cpus] : targets_) {
    const auto row = table.find(id);
    if (row == table.end()) continue;
    for (int i = 0; i < ReadingCount; ++i) {
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
