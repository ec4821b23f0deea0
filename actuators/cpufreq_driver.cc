#include "actuators/cpufreq_driver.h"

#include <cpufreq.h>
#include <dirent.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "host/parse.h"

namespace flash {
namespace {

constexpr const char* kUserspace = "userspace";

std::vector<std::string> split(std::string_view text, char sep) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = std::min(text.find(sep), text.size());
    if (at > 0) parts.emplace_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

Result<unsigned long> number_in(const std::string& path) {
  FLASH_TRY(const auto text, read_file(path));
  FLASH_TRY(const auto value, parse_u64(text));
  return static_cast<unsigned long>(value);
}

std::string text_in(const std::string& path) {
  const auto text = read_file(path);
  return text ? std::string(chomp(*text)) : std::string();
}

bool has_word(std::string_view text, std::string_view word) {
  for (const auto w : split_words(text))
    if (w == word) return true;
  return false;
}

/// intel_pstate and amd-pstate in active mode: their "powersave" follows the load.
bool has_own_governors(std::string_view driver) {
  return driver == "intel_pstate" || driver == "amd-pstate-epp" || driver == "amd_pstate_epp";
}

// Offline: the policy's files answer EBUSY or are not there.
bool offline(const Error& error) {
  return vanished(error) || error.is(std::errc::device_or_resource_busy);
}

}  // namespace

struct CpufreqDriver::Policy {
  bool clamp = false;
  bool own_governors = false;
  KeptFile governor, min, max, setspeed;
};

struct CpufreqDriver::State {
  std::string governor;
  unsigned long min = 0, max = 0;
  unsigned long setspeed = 0;  // userspace only
  double value = 0;
};

CpufreqDriver::CpufreqDriver(const HostRoot& root, std::function<std::string()> blocked_by)
    : root_(root), blocked_by_(std::move(blocked_by)) {}
CpufreqDriver::~CpufreqDriver() = default;

std::string CpufreqDriver::path(const std::string& policy, const char* file) const {
  return root_.sys("devices/system/cpu/cpufreq/" + policy + "/" + file);
}

Result<std::vector<KnobInfo>> CpufreqDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::CpuSet) return knobs;
  const std::string top = root_.sys("devices/system/cpu/cpufreq");
  std::vector<int> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(top.c_str()), ::closedir);
  if (!dir) return knobs;                               // no cpufreq driver
  while (const dirent* entry = ::readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe): own stream
    const std::string_view name = entry->d_name;
    if (!name.starts_with("policy")) continue;
    if (const auto n = parse_u64(name.substr(6))) numbers.push_back(static_cast<int>(*n));
  }
  std::sort(numbers.begin(), numbers.end());

  KnobInfo info;
  info.ref = {KnobKind::CpuFrequency, target.id, std::string(this->name()), {}};
  std::string shared;
  for (const int n : numbers) {
    const std::string name = "policy" + std::to_string(n);
    // related_cpus and affected_cpus are lists of words ("0 1"), not ranges.
    std::vector<int> cpus;
    const std::string related = text_in(path(name, "related_cpus"));
    for (const auto word : split_words(related))
      if (const auto cpu = parse_u64(word)) cpus.push_back(static_cast<int>(*cpu));
    const auto mine = std::count_if(cpus.begin(), cpus.end(), [&](int cpu) {
      return target.cpus.empty() || std::binary_search(target.cpus.begin(), target.cpus.end(), cpu);
    });
    if (mine == 0) continue;
    if (static_cast<std::size_t>(mine) < cpus.size())
      shared = name + " also drives CPUs that this target does not have (" + format_cpu_list(cpus) + ")";
    const auto lowest = number_in(path(name, "cpuinfo_min_freq"));
    const auto highest = number_in(path(name, "cpuinfo_max_freq"));
    if (!lowest || !highest) continue;  // offline
    const bool first = info.ref.locator.empty();
    info.ref.locator += (first ? "" : ",") + name;
    info.lower = first ? static_cast<double>(*lowest) : std::min(info.lower, static_cast<double>(*lowest));
    info.upper = first ? static_cast<double>(*highest) : std::max(info.upper, static_cast<double>(*highest));
    if (!first) continue;
    const std::string frequencies = text_in(path(name, "scaling_available_frequencies"));
    for (const auto word : split_words(frequencies))
      if (const auto khz = parse_u64(word)) info.steps.push_back(static_cast<double>(*khz));
  }
  if (info.ref.locator.empty()) return knobs;
  std::sort(info.steps.begin(), info.steps.end());
  info.blocked_by = shared;
  if (info.blocked_by.empty() && !rule.frequency.claim && blocked_by_) info.blocked_by = blocked_by_();
  knobs.push_back(std::move(info));
  return knobs;
}

Result<CpufreqDriver::Policy*> CpufreqDriver::policy(const std::string& name) {
  const auto found = policies_.find(name);
  if (found != policies_.end()) return found->second.get();
  auto fresh = std::make_unique<Policy>();
  FLASH_TRY(fresh->governor, KeptFile::open(path(name, "scaling_governor")));
  FLASH_TRY(fresh->min, KeptFile::open(path(name, "scaling_min_freq")));
  FLASH_TRY(fresh->max, KeptFile::open(path(name, "scaling_max_freq")));
  if (auto setspeed = KeptFile::open(path(name, "scaling_setspeed"))) fresh->setspeed = std::move(*setspeed);
  fresh->clamp =
      !fresh->setspeed.is_open() || !has_word(text_in(path(name, "scaling_available_governors")), kUserspace);
  fresh->own_governors = has_own_governors(text_in(path(name, "scaling_driver")));
  return policies_.emplace(name, std::move(fresh)).first->second.get();
}

Result<CpufreqDriver::State> CpufreqDriver::state(const std::string& name) {
  FLASH_TRY(Policy* const p, policy(name));
  auto now = state_of(*p);
  if (now) return now;
  auto error = std::move(now).error();
  if (!exists(path(name, "scaling_governor")))
    error = Error(std::errc::no_such_file_or_directory, name + " is gone (its CPUs are offline)");
  if (vanished(error)) policies_.erase(name);
  return error;
}

Result<CpufreqDriver::State> CpufreqDriver::state_of(const Policy& p) {
  std::array<char, 64> buffer{};
  State s;
  FLASH_TRY(const auto governor, p.governor.read(buffer));
  s.governor = chomp(governor);
  FLASH_TRY(const auto min, p.min.read(buffer));
  FLASH_TRY(s.min, parse_u64(min));
  FLASH_TRY(const auto max, p.max.read(buffer));
  FLASH_TRY(s.max, parse_u64(max));
  s.value = static_cast<double>(s.governor == "powersave" && !p.own_governors ? s.min : s.max);
  if (s.governor == kUserspace) {
    FLASH_TRY(const auto setspeed, p.setspeed.read(buffer));
    FLASH_TRY(s.setspeed, parse_u64(setspeed));
    s.value = static_cast<double>(s.setspeed);
  }
  return s;
}

Result<KnobReading> CpufreqDriver::read(const KnobRef& ref) {
  KnobReading reading;
  std::optional<Error> trouble;
  for (const auto& name : split(ref.locator, ',')) {
    auto now = state(name);
    if (!now) {
      trouble = std::move(now).error();
      if (!offline(*trouble)) return *trouble;
      continue;
    }
    reading.value = std::max(reading.value, now->value);
    reading.mode += (reading.mode.empty() ? "" : ",") + now->governor;
    if (!reading.raw.empty()) reading.raw += '\n';
    reading.raw += name + " governor=" + now->governor + " min=" + std::to_string(now->min) +
                   " max=" + std::to_string(now->max);
    if (now->governor == kUserspace) reading.raw += " setspeed=" + std::to_string(now->setspeed);
  }
  if (reading.raw.empty())
    return trouble ? *trouble : Error(std::errc::invalid_argument, "no policy in '" + ref.locator + "'");
  return reading;
}

Result<void> CpufreqDriver::set(const std::string& name, const char* file, const std::string& text) {
  if (root_.real()) {
    const auto cpus = text_in(path(name, "affected_cpus"));
    const auto words = split_words(cpus);
    const auto cpu = words.empty() ? Result<std::uint64_t>(Error(std::errc::no_such_device, "offline"))
                                   : parse_u64(words.front());
    if (cpu) {
      const auto c = static_cast<unsigned>(*cpu);
      const std::string_view what = file;
      int r = -1;
      if (what == "scaling_governor") {
        std::string governor = text;
        r = cpufreq_modify_policy_governor(c, governor.data());
      } else {
        const unsigned long khz = std::strtoul(text.c_str(), nullptr, 10);
        if (what == "scaling_min_freq") r = cpufreq_modify_policy_min(c, khz);
        if (what == "scaling_max_freq") r = cpufreq_modify_policy_max(c, khz);
        if (what == "scaling_setspeed") r = cpufreq_set_frequency(c, khz);
      }
      if (r == 0) return {};
    }
  }
  return write_file(path(name, file), text);
}

/// In an order in which min <= max holds all the time.
Result<void> CpufreqDriver::set_limits(const std::string& name, const State& now, unsigned long min,
                                       unsigned long max) {
  const bool max_first = min > now.max;
  for (const bool upper : {max_first, !max_first}) {
    if (upper && now.max != max) FLASH_CHECK(set(name, "scaling_max_freq", std::to_string(max)));
    if (!upper && now.min != min) FLASH_CHECK(set(name, "scaling_min_freq", std::to_string(min)));
  }
  return {};
}

Result<void> CpufreqDriver::write(const KnobRef& ref, double value) {
  if (!(value > 0) || std::isinf(value)) return Error(std::errc::invalid_argument, "not a frequency");
  const auto khz = static_cast<unsigned long>(std::llround(value));
  bool any = false;
  std::optional<Error> trouble;
  for (const auto& name : split(ref.locator, ',')) {
    const auto now = state(name);
    if (!now) {
      trouble = now.error();
      if (!offline(*trouble)) return *trouble;
      continue;
    }
    any = true;
    FLASH_TRY(Policy* const p, policy(name));
    if (p->clamp) {
      // The hardware's own limits: the kernel rounds what lies beyond, but a value that comes back as asked
      // is easier to hold under a lease.
      const unsigned long lowest = number_in(path(name, "cpuinfo_min_freq")).value_or(khz);
      const unsigned long highest = number_in(path(name, "cpuinfo_max_freq")).value_or(khz);
      const unsigned long clamped = std::clamp(khz, lowest, std::max(lowest, highest));
      FLASH_CHECK(set_limits(name, *now, clamped, clamped));
      continue;
    }
    if (now->governor != kUserspace) FLASH_CHECK(set(name, "scaling_governor", kUserspace));
    FLASH_CHECK(set(name, "scaling_setspeed", std::to_string(khz)));
  }
  if (!any)
    return trouble ? *trouble : Error(std::errc::invalid_argument, "no policy in '" + ref.locator + "'");
  return {};
}

Result<void> CpufreqDriver::restore(const KnobRef&, const std::string& raw) {
  std::optional<Error> trouble;
  for (const auto& line : split(raw, '\n')) {
    const auto words = split(line, ' ');
    State original;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto eq = words[i].find('=');
      if (eq == std::string::npos)
        return Error(std::errc::invalid_argument, "'" + line + "' is no original of cpufreq");
      const auto key = words[i].substr(0, eq);
      const auto text = words[i].substr(eq + 1);
      if (key == "governor") {
        original.governor = text;
        continue;
      }
      FLASH_TRY(const auto number, parse_u64(text));
      (key == "min" ? original.min : key == "max" ? original.max : original.setspeed) = number;
    }
    if (words.empty() || original.governor.empty() || original.max == 0)
      return Error(std::errc::invalid_argument, "'" + line + "' is no original of cpufreq");
    // One policy that fails (offline) must not keep the others from being put back.
    const auto done = [&]() -> Result<void> {
      FLASH_TRY(const State now, state(words[0]));
      FLASH_CHECK(set_limits(words[0], now, original.min, original.max));
      if (now.governor != original.governor)
        FLASH_CHECK(set(words[0], "scaling_governor", original.governor));
      if (original.setspeed && now.setspeed != original.setspeed)
        FLASH_CHECK(set(words[0], "scaling_setspeed", std::to_string(original.setspeed)));
      return {};
    }();
    if (!done) trouble = done.error();
  }
  if (trouble) return *trouble;
  return {};
}

}  // namespace flash
