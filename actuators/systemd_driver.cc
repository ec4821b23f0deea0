#include "actuators/systemd_driver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <ctime>

#include "host/cgroup_id.h"
#include "host/file_io.h"
#include "host/safe_path.h"

namespace flash {
namespace {

constexpr long kPollNs = 2'000'000;
constexpr int kPolls = 125;             // a quarter of a second
constexpr double kMinInterval_s = 0.9;  // one set per second and knob, with room for a tick that comes early

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

bool SystemdDriver::v1(const LimitFile& row) const {
  return layout_.version(row.controller) == CgroupVersion::V1;
}

/// The name in unit files; nullptr: systemd has no word for it.
const char* SystemdDriver::setting(const LimitFile& row) const {
  return v1(row) ? row.systemd.v1 : row.systemd.v2;
}

/// A property is of the unit: what has one per device is not set that way.
bool SystemdDriver::has_word(const LimitFile& row) const {
  return setting(row) && !row.instances;
}

/// For writing: its row, if systemd has a word for it.
Result<const LimitFile*> SystemdDriver::row_of(const KnobRef& ref) const {
  const LimitFile* const row = limit_file(ref.kind.kind);
  if (!row || !has_word(*row))
    return Error(std::errc::invalid_argument, "systemd has no property for " + knob_name(ref.kind));
  return row;
}

Result<std::vector<KnobInfo>> SystemdDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::Cgroup || target.owner != CgroupOwner::Systemd) return knobs;
  for (const LimitFile& row : limit_files) {
    const auto version = layout_.version(row.controller);
    if (traits(row.knob).task != target.task() || !rule.limits[row.knob].manage ||
        version == CgroupVersion::None || !row.names(version).value)
      continue;
    auto locator = cgroup_locator(layout_, row.controller, target.cgroup);
    if (!locator) continue;
    const auto directory = layout_.directory(row.controller, target.cgroup);
    for (const auto& instance : row.instances ? row.instances(directory) : std::vector<std::string>(1)) {
      KnobInfo info;
      info.ref = {KnobId(row.knob, instance), target.id, std::string(name()), target.cgroup};
      info.lower = row.systemd.least > 0 ? row.systemd.least : static_cast<double>(::sysconf(_SC_PAGESIZE));
      info.min_interval_s = kMinInterval_s;
      if (unit_of(target.cgroup).empty())
        info.blocked_by = "systemd owns this cgroup and it is no unit of its own";
      else if (!bus_)
        info.blocked_by = "systemd owns this cgroup and there is no system bus to ask it";
      else if (!has_word(row))
        info.blocked_by = "systemd owns this cgroup and has no property for it";
      knobs.push_back(std::move(info));
    }
  }
  return knobs;
}

Result<KnobReading> SystemdDriver::read_files(const KnobRef& ref, const LimitFile& row) {
  KnobRef& known = known_[ref.locator][ref.kind];
  if (!known.locator.empty()) {
    auto reading = files_.read(known);
    if (reading || !vanished(reading.error())) return reading;
  }
  // The unit was restarted, or has no such file.
  files_.close(known);
  FLASH_TRY(auto locator, cgroup_locator(layout_, row.controller, ref.locator));
  known = {ref.kind, ref.target, {}, std::move(locator)};
  auto reading = files_.read(known);
  if (reading || !vanished(reading.error()) || v1(row)) return reading;
  known.locator.clear();
  return KnobReading{kUnlimited, row.systemd.absent, {}};
}

/// The drop-in that sets the property now; empty if there is none.
std::string SystemdDriver::drop_in(const KnobRef& ref, const LimitFile& row) const {
  for (const char* top : kDropInTops) {
    const std::string file = unit_of(ref.locator) + ".d/50-" + setting(row) + ".conf";
    if (has_text(root_.path(top), file)) return root_.path(top) + file;
  }
  return {};
}

Result<KnobReading> SystemdDriver::read(const KnobRef& ref) {
  const LimitFile* const row = limit_file(ref.kind.kind);
  if (!row) return Error(std::errc::invalid_argument, knob_name(ref.kind) + " is no limit of a cgroup");
  auto reading = read_files(ref, *row);
  if (!has_word(*row)) return reading;
  const auto path = drop_in(ref, *row);
  if (!reading && vanished(reading.error()) && !path.empty()) {
    FLASH_TRY(const auto text, read_file(path));
    const auto value = drop_in_value(text, row->knob, setting(*row));
    if (value) return KnobReading{*value, "stopped|runtime", {}};
  }
  if (reading) reading->raw += path.empty() ? "|none" : "|runtime";
  return reading;
}

Result<void> SystemdDriver::set(const KnobRef& ref, const LimitFile& row, double value) {
  if (!bus_) return Error(std::errc::not_connected, "there is no system bus to ask systemd");
  if (std::chrono::steady_clock::now() < silent_until_)
    return Error(std::errc::timed_out, "systemd did not answer a moment ago; it is asked again soon");
  const std::string unit = unit_of(ref.locator);
  const char* property = row.systemd.property ? row.systemd.property : setting(row);
  const std::uint64_t number =
      std::isinf(value)
          ? UINT64_MAX
          : static_cast<std::uint64_t>(std::llround(std::max(value, row.systemd.least) * row.systemd.scale));
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
  FLASH_TRY(const LimitFile* const row, row_of(ref));
  // The drop-in that systemd writes has whole percents: anything finer changes at daemon-reload.
  if (row->systemd.percents && std::isfinite(value)) value = std::ceil(value * 100 - 1e-6) / 100;
  return put(ref, *row, value);
}

Result<void> SystemdDriver::put(const KnobRef& ref, const LimitFile& row, double value) {
  const auto before = read_files(ref, row);
  if (!before) return before.error();
  FLASH_CHECK(set(ref, row, value));
  for (int i = 0; i < kPolls; ++i) {
    const auto now = read_files(ref, row);
    if (!now || same_setting(ref.kind, now->value, value)) break;
    const timespec pause{0, kPollNs};
    ::nanosleep(&pause, nullptr);
  }
  return {};
}

Result<void> SystemdDriver::restore(const KnobRef& ref, const std::string& raw) {
  FLASH_TRY(const LimitFile* const row, row_of(ref));
  const std::string_view text = raw;
  const auto bar = text.rfind('|');
  if (bar == std::string_view::npos)
    return Error(std::errc::invalid_argument, "'" + raw + "' is no original of systemd");
  LimitText file{layout_.version(row->controller), ref.kind.instance, text.substr(0, bar), {}};
  if (row->names(file.version).period) {
    const auto space = std::min(file.value.find(' '), file.value.size());
    file.period = file.value.substr(std::min(space + 1, file.value.size()));
    file.value = file.value.substr(0, space);
  }
  const Result<double> value = row->parse(file);
  if (!value) return value.error();
  auto done = put(ref, *row, *value);
  if (!done && vanished(done.error())) done = set(ref, *row, *value);  // stopped: the property is still there
  const bool ours = text.substr(bar) == "|none";
  if (const auto path = drop_in(ref, *row); ours && !path.empty()) {
    auto emptied = make_empty(path);
    if (done && !emptied)
      done = std::move(emptied).error().context("the value is back, but our drop-in stays");
  }
  return done;
}

void SystemdDriver::close(const KnobRef& ref) {
  const auto found = known_.find(ref.locator);
  if (found == known_.end()) return;
  if (const KnobRef* const known = found->second.find(ref.kind)) files_.close(*known);
  found->second.erase(ref.kind);
  if (found->second.empty()) known_.erase(found);
}

std::optional<double> drop_in_value(std::string_view text, KnobKind kind, std::string_view setting) {
  const LimitFile* const row = limit_file(kind);
  const bool percents = row && row->systemd.percents;
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
    else if (ec == std::errc{} && ptr == line.data() + line.size() && number >= 0 && percent == percents)
      value = percent ? number / 100 : number;
  }
  return value;
}

}  // namespace flash
