#include "actuators/cpufreq_driver.h"

#include <cpufreq.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "host/parse.h"
#include "host/safe_path.h"
#include "host/topology.h"

namespace flash {
namespace {

constexpr const char* kTop = "devices/system/cpu/cpufreq";
constexpr const char* kUserspace = "userspace";
/// Frequencies come back from arithmetic a little off.
constexpr double kSame = 1e-6;
/// Where one policy has a table and another none, the latter is offered in steps as well.
constexpr double kStepWithoutTable = 100'000;

std::vector<std::string> split(std::string_view text, char sep) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = std::min(text.find(sep), text.size());
    if (at > 0) parts.emplace_back(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
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
  // What may be asked of it. Without a table (`steps` empty) anything in between, else just the steps: the
  // first is `lowest`, the last `highest`.
  double lowest = 0, highest = 0;
  std::vector<double> steps;
  bool beyond_table = false;     // the last step is the range's end and not in the table
  unsigned long table_ends = 0;  // a range's end that was asked for and answered with the table's; 0: none

  /// What it is given where the whole set is asked for `khz`: the nearest it has that is not above.
  double own(double khz) const {
    if (steps.empty()) return std::clamp(khz, lowest, highest);
    const auto above = std::upper_bound(steps.begin(), steps.end(), khz * (1 + kSame));
    return above == steps.begin() ? steps.front() : *std::prev(above);
  }
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
  return root_.sys(kTop) + "/" + policy + "/" + file;
}

Result<std::vector<KnobInfo>> CpufreqDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::CpuSet || traits(KnobKind::CpuFrequency).task != target.task())
    return knobs;
  KnobInfo info;
  info.ref = {KnobKind::CpuFrequency, target.id, std::string(this->name()), {}};
  std::string shared;
  std::vector<Reach> all;
  for (const CpufreqPolicy& p : cpufreq_policies(root_)) {
    const auto has = [&](int cpu) {
      return target.cpus.empty() || std::binary_search(target.cpus.begin(), target.cpus.end(), cpu);
    };
    if (!p.online || std::none_of(p.related_cpus.begin(), p.related_cpus.end(), has)) continue;
    const auto mine = policy(p.name);
    if (!mine) continue;  // offline
    const auto now = state(p.name);
    if (!learn(p.name, **mine) || !now) continue;
    // A sibling that is offline has no frequency. A rule that names no CPUs means all of them: one that was
    // offline when the set was made is no stranger either.
    const auto& driven = p.cpus.empty() ? p.related_cpus : p.cpus;
    if (!rule.select.cpus.empty() && !std::all_of(driven.begin(), driven.end(), has))
      shared = p.name + " also drives CPUs that this target does not have (" + format_cpu_list(driven) + ")";
    info.ref.locator += (info.ref.locator.empty() ? "" : ",") + p.name;
    all.push_back(reach(**mine, *now));
  }
  if (all.empty()) return knobs;
  join(all, info);
  info.blocked_by = shared;
  if (info.blocked_by.empty() && !rule.frequency.claim && blocked_by_) info.blocked_by = blocked_by_();
  knobs.push_back(std::move(info));
  return knobs;
}

/// Asks the kernel what the policy may be asked for: it changes with boost.
Result<void> CpufreqDriver::learn(const std::string& name, Policy& p) const {
  FLASH_TRY(const auto reader, CpufreqPolicyReader::open(root_, name));
  FLASH_TRY(const auto lowest, reader.hardware_min_khz());
  FLASH_TRY(const auto highest, reader.hardware_max_khz());
  if (highest == 0 || lowest > highest)
    return Error(std::errc::invalid_argument, name + ": cpuinfo_min_freq and cpuinfo_max_freq are no range");
  p.lowest = static_cast<double>(lowest);
  p.highest = static_cast<double>(highest);
  p.steps.clear();
  p.beyond_table = false;
  if (p.own_governors) return {};
  for (const auto khz : reader.available_khz())
    if (khz >= lowest && khz <= highest) p.steps.push_back(static_cast<double>(khz));
  if (p.steps.empty()) return {};
  p.lowest = p.steps.front();
  // The range may go on beyond the table: boost that no file lists. Of some drivers (acpi-cpufreq) it is what
  // the hardware does at the table's end, which is what they then answer with.
  const auto boosts = reader.boost();
  const bool off = boosts && !*boosts;
  if (off || p.table_ends == highest || same_setting(KnobKind::CpuFrequency, p.steps.back(), p.highest)) {
    p.highest = p.steps.back();
    return {};
  }
  p.steps.push_back(p.highest);
  p.beyond_table = true;
  return {};
}

Result<CpufreqDriver::Policy*> CpufreqDriver::policy(const std::string& name) {
  const auto found = policies_.find(name);
  if (found != policies_.end()) return found->second.get();
  // A name comes from a file: it must not lead out of sysfs.
  if (!name.starts_with("policy") || !parse_u64(name.substr(6)))
    return Error(std::errc::invalid_argument, "'" + name + "' names no cpufreq policy");
  FLASH_CHECK(open_beneath(root_.sys(kTop), name, O_PATH | O_DIRECTORY));
  auto fresh = std::make_unique<Policy>();
  FLASH_TRY(fresh->governor, KeptFile::open(path(name, "scaling_governor")));
  FLASH_TRY(fresh->min, KeptFile::open(path(name, "scaling_min_freq")));
  FLASH_TRY(fresh->max, KeptFile::open(path(name, "scaling_max_freq")));
  if (auto setspeed = KeptFile::open(path(name, "scaling_setspeed"))) fresh->setspeed = std::move(*setspeed);
  fresh->clamp =
      !fresh->setspeed.is_open() || !has_word(text_in(path(name, "scaling_available_governors")), kUserspace);
  fresh->own_governors = has_own_governors(text_in(path(name, "scaling_driver")));
  FLASH_CHECK(learn(name, *fresh));
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

/// Under userspace the limits that are set stay, so they bound what may be asked for.
CpufreqDriver::Reach CpufreqDriver::reach(const Policy& p, const State& now) {
  Reach r{p.lowest, p.highest, p.steps};
  if (p.clamp) return r;
  r.lower = std::clamp(static_cast<double>(now.min), p.lowest, p.highest);
  r.upper = std::clamp(static_cast<double>(now.max), r.lower, p.highest);
  if (r.steps.empty()) return r;
  std::erase_if(r.steps, [&](double khz) { return khz < r.lower || khz > r.upper; });
  if (r.steps.empty()) r.steps.push_back(p.own(r.upper));
  r.lower = r.steps.front();
  r.upper = r.steps.back();
  return r;
}

/// The ranges and steps of all policies as those of one knob. Steps that no policy would answer to with
/// anything else than to the one before are left out: the lowest of those that cannot go as low as others.
void CpufreqDriver::join(const std::vector<Reach>& all, KnobInfo& info) {
  info.lower = all.front().lower;
  info.upper = all.front().upper;
  bool any_table = false;
  for (const Reach& r : all) {
    info.lower = std::min(info.lower, r.lower);
    info.upper = std::max(info.upper, r.upper);
    any_table |= !r.steps.empty();
  }
  if (!any_table) return;
  info.steps.push_back(info.lower);
  for (const Reach& r : all) {
    if (!r.steps.empty()) {
      info.steps.insert(info.steps.end(), r.steps.begin() + 1, r.steps.end());
      continue;
    }
    const double first = std::floor(r.lower / kStepWithoutTable) + 1;
    for (double n = first; n * kStepWithoutTable < r.upper; ++n) info.steps.push_back(n * kStepWithoutTable);
    info.steps.push_back(r.upper);
  }
  std::sort(info.steps.begin(), info.steps.end());
  // Of two that count as the same setting the higher one: 2601000 is how acpi-cpufreq writes 2600000 with
  // turbo.
  std::size_t n = 0;
  for (const double khz : info.steps) {
    if (n > 0 && same_setting(KnobKind::CpuFrequency, info.steps[n - 1], khz)) --n;
    info.steps[n++] = khz;
  }
  info.steps.resize(n);
}

/// The value that, written, gives what is in force. A policy that is at its lowest may have been asked for
/// less, so it has no say while another is above its own.
Result<KnobReading> CpufreqDriver::read(const KnobRef& ref) {
  KnobReading reading;
  double lowest = kUnlimited;
  std::optional<Error> trouble;
  for (const auto& name : split(ref.locator, ',')) {
    auto now = state(name);
    if (!now) {
      trouble = std::move(now).error();
      if (!offline(*trouble)) return *trouble;
      continue;
    }
    const Policy& p = *policies_.at(name);
    const double bottom = p.clamp ? p.lowest : std::max(p.lowest, static_cast<double>(now->min));
    const bool above = now->value > bottom && !same_setting(ref.kind, now->value, bottom);
    (above ? reading.value : lowest) =
        above ? std::max(reading.value, now->value) : std::min(lowest, now->value);
    reading.mode += (reading.mode.empty() ? "" : ",") + now->governor;
    if (!reading.raw.empty()) reading.raw += '\n';
    reading.raw += name + " governor=" + now->governor + " min=" + std::to_string(now->min) +
                   " max=" + std::to_string(now->max);
    if (now->governor == kUserspace) reading.raw += " setspeed=" + std::to_string(now->setspeed);
  }
  if (reading.raw.empty())
    return trouble ? *trouble : Error(std::errc::invalid_argument, "no policy in '" + ref.locator + "'");
  if (reading.value == 0) reading.value = lowest;
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
  return write_beneath(root_.sys(kTop), name + "/" + file, text);
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
    const auto khz = static_cast<unsigned long>(std::llround(p->own(value)));
    if (p->clamp) {
      FLASH_CHECK(set_limits(name, *now, khz, khz));
      continue;
    }
    if (now->governor != kUserspace) FLASH_CHECK(set(name, "scaling_governor", kUserspace));
    if (now->governor != kUserspace || now->setspeed != khz)
      FLASH_CHECK(set(name, "scaling_setspeed", std::to_string(khz)));
    if (p->beyond_table && khz >= p->highest) {
      const auto after = state(name);
      const double table_end = p->steps[p->steps.size() - 2];
      if (after && after->governor == kUserspace && after->max >= khz && after->value == table_end) {
        p->table_ends = khz;
        FLASH_CHECK(learn(name, *p));
      }
    }
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
