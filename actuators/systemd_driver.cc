#include "actuators/systemd_driver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <ctime>

#include "host/cgroup_id.h"
#include "host/file_io.h"
#include "host/parse.h"
#include "host/safe_path.h"

namespace flash {
namespace {

constexpr long kPollNs = 2'000'000;
constexpr int kPolls = 125;             // a quarter of a second
constexpr double kMinInterval_s = 0.9;  // one set per second and knob, with room for a tick that comes early
constexpr double kMinCores = 0.01;      // 1 ms of the 100 ms period that systemd uses

CgroupController controller_of(KnobKind kind) {
  return kind == KnobKind::CpuLimit ? CgroupController::Cpu : CgroupController::Memory;
}

constexpr const char* kDropInTops[] = {"/run/systemd/system.control/", "/run/systemd/transient/"};

bool has_text(const std::string& top, const std::string& file) {
  const auto there = open_beneath(top, file, O_PATH);
  struct stat st {};
  return there && ::fstat(there->get(), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/// Without effect, and without systemd taking notice.
Result<void> make_empty(const std::string& path) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0) return Error::from_errno(errno, "open " + path);
  const timespec times[] = {st.st_atim, st.st_mtim};
  if (::ftruncate(file.get(), 0) != 0 || ::futimens(file.get(), times) != 0)
    return Error::from_errno(errno, "empty " + path);
  return {};
}

}  // namespace

SystemdDriver::SystemdDriver(const HostRoot& root, CgroupLayout layout, sd_bus* bus,
                             SystemdDriverOptions options)
    : root_(root), layout_(layout), files_(root, std::move(layout)), bus_(bus), options_(options) {}

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
    info.ref = {kind, target.id, std::string(name()), target.cgroup};
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
  KnobRef& known = (ref.kind.kind == KnobKind::CpuLimit ? cpu_ : memory_)[ref.locator];
  if (!known.locator.empty()) {
    auto reading = files_.read(known);
    if (reading || !vanished(reading.error())) return reading;
  }
  // The unit was restarted, or has no such file.
  files_.close(known);
  FLASH_TRY(auto locator, cgroup_locator(layout_, ref.kind.kind, ref.locator));
  known = {ref.kind.kind, ref.target, {}, std::move(locator)};
  auto reading = files_.read(known);
  if (reading || !vanished(reading.error()) || v1(ref.kind.kind)) return reading;
  known.locator.clear();
  return KnobReading{kUnlimited, ref.kind.kind == KnobKind::CpuLimit ? "max 100000" : "max", {}};
}

/// The drop-in that sets the property now; empty if there is none.
std::string SystemdDriver::drop_in(const KnobRef& ref) const {
  for (const char* top : kDropInTops) {
    const std::string file = unit_of(ref.locator) + ".d/50-" + setting(ref.kind.kind) + ".conf";
    if (has_text(root_.path(top), file)) return root_.path(top) + file;
  }
  return {};
}

Result<KnobReading> SystemdDriver::read(const KnobRef& ref) {
  auto reading = read_files(ref);
  const auto path = drop_in(ref);
  if (!reading && vanished(reading.error()) && !path.empty()) {
    FLASH_TRY(const auto text, read_file(path));
    const auto value = drop_in_value(text, ref.kind.kind, setting(ref.kind.kind));
    if (value) return KnobReading{*value, "stopped|runtime", {}};
  }
  if (reading) reading->raw += path.empty() ? "|none" : "|runtime";
  return reading;
}

Result<void> SystemdDriver::set(const KnobRef& ref, double value) {
  if (!bus_) return Error(std::errc::not_connected, "there is no system bus to ask systemd");
  if (std::chrono::steady_clock::now() < silent_until_)
    return Error(std::errc::timed_out, "systemd did not answer a moment ago; it is asked again soon");
  const std::string unit = unit_of(ref.locator);
  const bool cpu = ref.kind.kind == KnobKind::CpuLimit;
  const char* property = cpu ? "CPUQuotaPerSecUSec" : setting(ref.kind.kind);
  const std::uint64_t number =
      std::isinf(value)
          ? UINT64_MAX
          : static_cast<std::uint64_t>(std::llround(cpu ? std::max(value, kMinCores) * 1e6 : value));
  sd_bus_message* call = nullptr;
  sd_bus_error error = SD_BUS_ERROR_NULL;
  int r = sd_bus_message_new_method_call(bus_, &call, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                         "org.freedesktop.systemd1.Manager", "SetUnitProperties");
  if (r >= 0) r = sd_bus_message_append(call, "sba(sv)", unit.c_str(), 1, 1, property, "t", number);
  if (r >= 0)
    r = sd_bus_call(
        bus_, call,
        static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(options_.answer_within).count()),
        &error, nullptr);
  if (r == -ETIMEDOUT) silent_until_ = std::chrono::steady_clock::now() + options_.pause;
  const std::string said = error.message ? std::string(": ") + error.message : std::string();
  sd_bus_error_free(&error);
  sd_bus_message_unref(call);
  if (r >= 0) return {};
  return Error(std::error_code(-r, std::generic_category()),
               std::string("systemd did not set ") + property + " of " + unit +
                   (said.empty() ? ": " + std::generic_category().message(-r) : said));
}

Result<void> SystemdDriver::write(const KnobRef& ref, double value) {
  // The drop-in that systemd writes has CPUQuota= in whole percents: anything finer changes at daemon-reload.
  if (ref.kind.kind == KnobKind::CpuLimit && std::isfinite(value))
    value = std::ceil(value * 100 - 1e-6) / 100;
  return put(ref, value);
}

Result<void> SystemdDriver::put(const KnobRef& ref, double value) {
  const auto before = read_files(ref);
  if (!before) return before.error();
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
  if (ref.kind.kind == KnobKind::MemoryLimit) {
    value = v1(ref.kind.kind) ? parse_limit_v1(file) : parse_limit_v2(file);
  } else if (v1(ref.kind.kind)) {
    const auto space = std::min(file.find(' '), file.size());
    value = parse_cfs_limit(file.substr(0, space), file.substr(std::min(space + 1, file.size())));
  } else {
    value = parse_cpu_max(file);
  }
  if (!value) return std::move(value).error();
  auto done = put(ref, *value);
  if (!done && vanished(done.error())) done = set(ref, *value);  // stopped: the property is still there
  const bool ours = text.substr(bar) == "|none";
  if (const auto path = drop_in(ref); ours && !path.empty()) {
    auto emptied = make_empty(path);
    if (done && !emptied)
      done = std::move(emptied).error().context("the value is back, but our drop-in stays");
  }
  return done;
}

void SystemdDriver::close(const KnobRef& ref) {
  auto& known = ref.kind.kind == KnobKind::CpuLimit ? cpu_ : memory_;
  const auto found = known.find(ref.locator);
  if (found == known.end()) return;
  files_.close(found->second);
  known.erase(found);
}

std::optional<double> drop_in_value(std::string_view text, KnobKind kind, std::string_view setting) {
  std::optional<double> value;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(setting) || line.size() <= setting.size() || line[setting.size()] != '=') continue;
    line.remove_prefix(setting.size() + 1);
    const bool percent = line.ends_with('%');
    if (percent) line.remove_suffix(1);
    double number = 0;
    const auto [ptr, ec] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (line.empty() || line == "infinity")
      value = kUnlimited;
    else if (ec == std::errc{} && ptr == line.data() + line.size() && number >= 0 &&
             percent == (kind == KnobKind::CpuLimit))
      value = percent ? number / 100 : number;
  }
  return value;
}

}  // namespace flash
