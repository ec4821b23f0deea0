#include "actuators/systemd_driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>

#include "host/cgroup_id.h"
#include "host/file_io.h"
#include "host/parse.h"

namespace flash {
namespace {

constexpr std::uint64_t kCallTimeoutUs = 2'000'000;
constexpr long kPollNs = 2'000'000;
constexpr int kPolls = 125;             // a quarter of a second
constexpr double kMinInterval_s = 0.9;  // one set per second and knob, with room for a tick that comes early
constexpr double kMinCores = 0.01;      // 1 ms of the 100 ms period that systemd uses

CgroupController controller_of(KnobKind kind) {
  return kind == KnobKind::CpuLimit ? CgroupController::Cpu : CgroupController::Memory;
}

std::string_view cgroup_of(const KnobRef& ref) {
  const std::string_view locator = ref.locator;
  const auto space = locator.find(' ');
  return space == std::string_view::npos ? std::string_view() : locator.substr(space + 1);
}

/// systemd's names for files below /run are the unit's own, which may hold backslashes but no slash.
std::string unit_name(const KnobRef& ref) {
  return unit_of(cgroup_of(ref));
}

}  // namespace

SystemdDriver::SystemdDriver(const HostRoot& root, CgroupLayout layout, sd_bus* bus)
    : root_(root), layout_(layout), files_(root, std::move(layout)), bus_(bus) {}

bool SystemdDriver::v1(KnobKind kind) const {
  return layout_.version(controller_of(kind)) == CgroupVersion::V1;
}

/// The name in unit files.
const char* SystemdDriver::setting(KnobKind kind) const {
  if (kind == KnobKind::CpuLimit) return "CPUQuota";
  return v1(kind) ? "MemoryLimit" : "MemoryHigh";
}

Result<std::vector<KnobInfo>> SystemdDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::Cgroup || target.owner != CgroupOwner::Systemd) return knobs;
  const std::array<std::pair<KnobKind, bool>, 2> kinds = {
      {{KnobKind::CpuLimit, rule.cpu.manage}, {KnobKind::MemoryLimit, rule.memory.manage}}};
  for (const auto& [kind, managed] : kinds) {
    if (!managed || layout_.version(controller_of(kind)) == CgroupVersion::None) continue;
    auto locator = cgroup_locator(layout_, kind, target.cgroup);
    if (!locator) continue;
    KnobInfo info;
    info.ref = {kind, target.id, std::string(name()), std::move(*locator)};
    info.lower = kind == KnobKind::CpuLimit ? kMinCores : static_cast<double>(::sysconf(_SC_PAGESIZE));
    info.min_interval_s = kMinInterval_s;
    if (unit_of(target.cgroup).empty())
      info.blocked_by = "systemd owns this cgroup and it is no unit of its own";
    else if (!bus_)
      info.blocked_by = "systemd owns this cgroup and there is no system bus to ask it";
    knobs.push_back(std::move(info));
  }
  return knobs;
}

Result<KnobReading> SystemdDriver::read_files(const KnobRef& ref) {
  auto reading = files_.read(ref);
  if (reading || !vanished(reading.error())) return reading;
  const auto locator = cgroup_locator(layout_, ref.kind, cgroup_of(ref));
  if (!locator || *locator != ref.locator) return reading;
  // v1 files cannot be missing where the cgroup is there.
  if (v1(ref.kind)) return reading;
  return KnobReading{kUnlimited, ref.kind == KnobKind::CpuLimit ? "max 100000" : "max", {}};
}

std::string SystemdDriver::drop_in(const KnobRef& ref, bool transient) const {
  return root_.path(transient ? "/run/systemd/transient/" : "/run/systemd/system.control/") + unit_name(ref) +
         ".d/50-" + setting(ref.kind) + ".conf";
}

Result<KnobReading> SystemdDriver::read(const KnobRef& ref) {
  auto reading = read_files(ref);
  if (reading)
    reading->raw += exists(drop_in(ref, false)) || exists(drop_in(ref, true)) ? "|runtime" : "|none";
  return reading;
}

Result<void> SystemdDriver::set(const KnobRef& ref, double value) {
  if (!bus_) return Error(std::errc::not_connected, "there is no system bus to ask systemd");
  const std::string unit = unit_name(ref);
  const bool cpu = ref.kind == KnobKind::CpuLimit;
  const char* property = cpu ? "CPUQuotaPerSecUSec" : setting(ref.kind);
  const std::uint64_t number =
      std::isinf(value)
          ? UINT64_MAX
          : static_cast<std::uint64_t>(std::llround(cpu ? std::max(value, kMinCores) * 1e6 : value));
  sd_bus_message* call = nullptr;
  sd_bus_error error = SD_BUS_ERROR_NULL;
  int r = sd_bus_message_new_method_call(bus_, &call, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                         "org.freedesktop.systemd1.Manager", "SetUnitProperties");
  if (r >= 0) r = sd_bus_message_append(call, "sba(sv)", unit.c_str(), 1, 1, property, "t", number);
  if (r >= 0) r = sd_bus_call(bus_, call, kCallTimeoutUs, &error, nullptr);
  const std::string said = error.message ? std::string(": ") + error.message : std::string();
  sd_bus_error_free(&error);
  sd_bus_message_unref(call);
  if (r >= 0) return {};
  return Error(std::error_code(-r, std::generic_category()),
               std::string("systemd did not set ") + property + " of " + unit +
                   (said.empty() ? ": " + std::generic_category().message(-r) : said));
}

Result<void> SystemdDriver::write(const KnobRef& ref, double value) {
  // The unit may have been restarted: the same name, another cgroup.
  FLASH_CHECK([&]() -> Result<void> {
    auto now = read_files(ref);
    if (!now) return std::move(now).error();
    return {};
  }());
  FLASH_CHECK(set(ref, value));
  for (int i = 0; i < kPolls; ++i) {
    const auto now = read_files(ref);
    if (!now || same_setting(ref.kind, now->value, value)) break;
    const timespec pause{0, kPollNs};
    ::nanosleep(&pause, nullptr);
  }
  return {};
}

Result<void> SystemdDriver::restore(const KnobRef& ref, const std::string& raw) {
  const std::string_view text = raw;
  const auto bar = text.rfind('|');
  if (bar == std::string_view::npos)
    return Error(std::errc::invalid_argument, "'" + raw + "' is no original of systemd");
  const auto file = text.substr(0, bar);
  Result<double> value = 0.0;
  if (ref.kind == KnobKind::MemoryLimit) {
    value = v1(ref.kind) ? parse_limit_v1(file) : parse_limit_v2(file);
  } else if (v1(ref.kind)) {
    const auto space = std::min(file.find(' '), file.size());
    value = parse_cfs_limit(file.substr(0, space), file.substr(std::min(space + 1, file.size())));
  } else {
    value = parse_cpu_max(file);
  }
  if (!value) return std::move(value).error();
  FLASH_CHECK(write(ref, *value));
  if (text.substr(bar) == "|runtime") return {};
  for (const bool transient : {false, true}) {
    const std::string path = drop_in(ref, transient);
    if (!exists(path)) continue;
    if (::unlink(path.c_str()) != 0)
      return Error::from_errno(errno, "the value is back, but our drop-in stays: remove " + path);
    ::rmdir(path.substr(0, path.rfind('/')).c_str());  // if it was the only one
  }
  return {};
}

}  // namespace flash
