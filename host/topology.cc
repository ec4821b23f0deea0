#include "host/topology.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "host/parse.h"

namespace flash {
namespace {

constexpr std::string_view kCpu = "devices/system/cpu/";

std::string policy_directory(const HostRoot& root, std::string_view policy) {
  return root.sys(std::string(kCpu) + "cpufreq/" + std::string(policy));
}

/// "policy12" gives 12.
std::optional<std::uint64_t> policy_number(std::string_view name) {
  if (!name.starts_with("policy")) return std::nullopt;
  const auto number = parse_u64(name.substr(6));
  return number ? std::optional(*number) : std::nullopt;
}

/// affected_cpus and related_cpus separate by blanks what other files call a list.
std::vector<int> read_cpus(const std::string& path) {
  std::vector<int> cpus;
  const auto text = read_file(path, 1 << 20);
  if (!text) return cpus;
  for (const auto word : split_words(*text)) {
    const auto cpu = parse_u64(word);
    if (cpu && *cpu <= static_cast<std::uint64_t>(kMaxCpu)) cpus.push_back(static_cast<int>(*cpu));
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Result<bool> read_switch(const std::string& path) {
  FLASH_TRY(const auto text, read_file(path));
  const auto value = parse_u64(text);
  if (!value || *value > 1) return Error(std::errc::invalid_argument, path + ": neither 0 nor 1");
  return *value == 1;
}

}  // namespace

Result<std::vector<int>> online_cpus(const HostRoot& root) {
  const auto path = root.sys(std::string(kCpu) + "online");
  FLASH_TRY(const auto text, read_file(path));
  auto cpus = parse_cpu_list(text);
  if (!cpus) return std::move(cpus).error().context(path);
  return cpus;
}

std::vector<CpufreqPolicy> cpufreq_policies(const HostRoot& root) {
  std::vector<std::pair<std::uint64_t, std::string>> names;
  const auto directory = root.sys(std::string(kCpu) + "cpufreq");
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (!dir) return {};
  while (const dirent* entry = ::readdir(dir.get()))  // NOLINT(concurrency-mt-unsafe): own stream
    if (const auto number = policy_number(entry->d_name)) names.emplace_back(*number, entry->d_name);
  std::sort(names.begin(), names.end());

  std::vector<CpufreqPolicy> policies;
  for (auto& [number, name] : names) {
    const auto path = policy_directory(root, name);
    auto related = read_cpus(path + "/related_cpus");
    if (related.empty()) continue;
    auto affected = read_cpus(path + "/affected_cpus");
    const bool online = !affected.empty() || !read_file(path + "/affected_cpus");
    policies.push_back({std::move(name), std::move(affected), std::move(related), online});
  }
  return policies;
}

std::vector<CpufreqPolicy> cpufreq_policies_of(const HostRoot& root, std::span<const int> cpus) {
  auto policies = cpufreq_policies(root);
  std::erase_if(policies, [&](const CpufreqPolicy& policy) {
    return std::find_first_of(policy.related_cpus.begin(), policy.related_cpus.end(), cpus.begin(),
                              cpus.end()) == policy.related_cpus.end();
  });
  return policies;
}

Result<bool> boost_enabled(const HostRoot& root) {
  struct Switch {
    std::string_view file;
    bool when_on;
  };
  constexpr Switch kSwitches[] = {{"cpufreq/boost", true}, {"intel_pstate/no_turbo", false}};
  for (const auto& s : kSwitches) {
    const auto path = root.sys(std::string(kCpu) + std::string(s.file));
    if (!exists(path)) continue;
    FLASH_TRY(const bool on, read_switch(path));
    return on == s.when_on;
  }
  return Error(std::errc::no_such_file_or_directory, "no boost switch");
}

Result<std::string> pstate_status(const HostRoot& root) {
  for (const std::string_view driver : {"intel_pstate", "amd_pstate"}) {
    const auto text = read_file(root.sys(std::string(kCpu) + std::string(driver) + "/status"));
    if (text) return std::string(chomp(*text));
  }
  return Error(std::errc::no_such_file_or_directory, "neither intel_pstate nor amd_pstate");
}

CpufreqPolicyReader::CpufreqPolicyReader(std::string directory, std::string name)
    : directory_(std::move(directory)), name_(std::move(name)) {
  static constexpr std::array<const char*, kKeptCount> kNames = {"scaling_cur_freq", "scaling_min_freq",
                                                                 "scaling_max_freq", "scaling_governor"};
  for (std::size_t i = 0; i < kKeptCount; ++i) kept_[i] = KeptFile(directory_ + "/" + kNames[i]);
}

Result<CpufreqPolicyReader> CpufreqPolicyReader::open(const HostRoot& root, const std::string& policy) {
  auto directory = policy_directory(root, policy);
  FLASH_TRY([[maybe_unused]] const auto inode, inode_of(directory));
  return CpufreqPolicyReader(std::move(directory), policy);
}

Result<std::uint64_t> CpufreqPolicyReader::read_kept_khz(Kept file) {
  std::array<char, 64> buffer;
  FLASH_TRY(const auto text, kept_[static_cast<std::size_t>(file)].read(buffer));
  return parse_u64(text);
}

Result<std::uint64_t> CpufreqPolicyReader::current_khz() {
  return read_kept_khz(Kept::Current);
}
Result<std::uint64_t> CpufreqPolicyReader::min_khz() {
  return read_kept_khz(Kept::Min);
}
Result<std::uint64_t> CpufreqPolicyReader::max_khz() {
  return read_kept_khz(Kept::Max);
}

Result<std::string> CpufreqPolicyReader::governor() {
  std::array<char, 64> buffer;
  FLASH_TRY(const auto text, kept_[static_cast<std::size_t>(Kept::Governor)].read(buffer));
  return std::string(chomp(text));
}

Result<std::string> CpufreqPolicyReader::read(std::string_view file) const {
  FLASH_TRY(const auto text, read_file(directory_ + "/" + std::string(file), 1 << 16));
  return std::string(chomp(text));
}

Result<std::string> CpufreqPolicyReader::driver() const {
  return read("scaling_driver");
}

Result<std::uint64_t> CpufreqPolicyReader::hardware_min_khz() const {
  FLASH_TRY(const auto text, read("cpuinfo_min_freq"));
  return parse_u64(text);
}

Result<std::uint64_t> CpufreqPolicyReader::hardware_max_khz() const {
  FLASH_TRY(const auto text, read("cpuinfo_max_freq"));
  return parse_u64(text);
}

Result<std::optional<std::uint64_t>> CpufreqPolicyReader::setspeed_khz() const {
  FLASH_TRY(const auto text, read("scaling_setspeed"));
  if (text == "<unsupported>") return std::optional<std::uint64_t>();
  FLASH_TRY(const auto khz, parse_u64(text));
  return std::optional(khz);
}

std::vector<std::string> CpufreqPolicyReader::available_governors() const {
  std::vector<std::string> names;
  if (const auto text = read("scaling_available_governors"))
    for (const auto word : split_words(*text)) names.emplace_back(word);
  return names;
}

std::vector<std::uint64_t> CpufreqPolicyReader::available_khz() const {
  std::vector<std::uint64_t> list;
  const auto boosts = boost();
  const bool without_boost = boosts && !*boosts;
  // Boost frequencies stand in a file of their own, whether boost is on or off.
  for (const char* file : {"scaling_available_frequencies", "scaling_boost_frequencies"}) {
    if (without_boost && file == std::string_view("scaling_boost_frequencies")) continue;
    if (const auto text = read(file))
      for (const auto word : split_words(*text))
        if (const auto khz = parse_u64(word)) list.push_back(*khz);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

Result<bool> CpufreqPolicyReader::boost() const {
  const std::string own = directory_ + "/boost";
  return read_switch(exists(own) ? own : directory_ + "/../boost");
}

Result<std::string> CpufreqPolicyReader::energy_performance_preference() const {
  return read("energy_performance_preference");
}

}  // namespace flash
