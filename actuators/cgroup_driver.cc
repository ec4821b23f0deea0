#include "actuators/cgroup_driver.h"

#include <fcntl.h>
#include <libcgroup.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "host/parse.h"
#include "host/safe_path.h"

namespace flash {
namespace {

// kernel/sched/core.c: min_cfs_quota_period, the least that is taken as a quota.
constexpr double kMinQuotaUs = 1000;
const std::string kCannotBeWritten = "cannot be written: ";

CgroupController controller_of(KnobKind kind) {
  return kind == KnobKind::CpuLimit ? CgroupController::Cpu : CgroupController::Memory;
}

struct Files {
  const char* controller;  // libcgroup's name
  const char* value;
  const char* period;  // v1 CPU only
};
Files files_of(KnobKind kind, CgroupVersion version) {
  if (kind == KnobKind::CpuLimit)
    return version == CgroupVersion::V2 ? Files{"cpu", "cpu.max", nullptr}
                                        : Files{"cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us"};
  return version == CgroupVersion::V2 ? Files{"memory", "memory.high", nullptr}
                                      : Files{"memory", "memory.limit_in_bytes", nullptr};
}

std::string whole(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}

// libcgroup writes to stderr on its own; what went wrong is in our Result.
void say_nothing(void*, int, const char*, va_list) {}

bool start_libcgroup() {
  static const bool ok = [] {
    cgroup_set_logger(say_nothing, CGROUP_LOG_ERROR, nullptr);
    return cgroup_init() == 0;
  }();
  return ok;
}

std::pair<std::string_view, std::string_view> two_words(std::string_view text) {
  text = chomp(text);
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return {text, {}};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

struct CgroupDriver::Open {
  KnobKind kind;
  CgroupVersion version;
  std::uint64_t inode = 0;
  std::string cgroup;
  std::string directory;
  KeptFile value;
  KeptFile period;
  Fd writable;  // of `value`, since the first write
};

Result<std::string> cgroup_locator(const CgroupLayout& layout, KnobKind kind, std::string_view cgroup) {
  FLASH_TRY(const auto inode, inode_beneath(layout.mount(controller_of(kind)), cgroup));
  return std::to_string(inode) + " " + std::string(cgroup);
}

CgroupDriver::CgroupDriver(const HostRoot& root, CgroupLayout layout)
    : root_(root), layout_(std::move(layout)), libcgroup_(root.real() && start_libcgroup()) {}
CgroupDriver::~CgroupDriver() = default;

Result<std::vector<KnobInfo>> CgroupDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::Cgroup || target.owner == CgroupOwner::Systemd) return knobs;
  const std::array<std::pair<KnobKind, bool>, 2> kinds = {
      {{KnobKind::CpuLimit, rule.cpu.manage}, {KnobKind::MemoryLimit, rule.memory.manage}}};
  for (const auto& [kind, managed] : kinds) {
    const auto version = layout_.version(controller_of(kind));
    if (!managed || version == CgroupVersion::None) continue;
    const auto directory = layout_.directory(controller_of(kind), target.cgroup);
    // No such file: the root cgroup, or the controller is not enabled here. Not our business to enable it.
    const std::string file = directory + "/" + files_of(kind, version).value;
    const std::string why_not = why_not_writable(file);
    if (why_not.empty() && !exists(file)) continue;
    auto locator = cgroup_locator(layout_, kind, target.cgroup);
    if (!locator) continue;
    KnobInfo info;
    info.ref = {kind, target.id, std::string(name()), std::move(*locator)};
    info.lower = static_cast<double>(::sysconf(_SC_PAGESIZE));
    if (kind == KnobKind::CpuLimit) {
      auto opened = open(info.ref);
      if (!opened && why_not.empty()) continue;
      // Not even to be read: what is below a directory of mode 0700.
      if (!opened) {
        info.blocked_by = kCannotBeWritten + why_not;
        knobs.push_back(std::move(info));
        continue;
      }
      auto reading = read(info.ref);
      if (!reading) {
        close(info.ref);
        return std::move(reading).error();
      }
      const auto period = parse_u64(two_words(reading->raw).second);
      info.lower = kMinQuotaUs / (period && *period > 0 ? static_cast<double>(*period) : 100000.0);
    }
    if (target.owner == CgroupOwner::Unknown)
      info.blocked_by = "whose cgroup this is cannot be told (" + target.doubt +
                        "); a rule whose select.cgroup spells out " + target.spell_out + " may write it";
    if (target.owner == CgroupOwner::Kubelet && !rule.allow_kubelet)
      info.blocked_by = "the kubelet owns this cgroup and would rewrite it; allow_kubelet is not set";
    if (!why_not.empty() && info.blocked_by.empty()) info.blocked_by = kCannotBeWritten + why_not;
    knobs.push_back(std::move(info));
  }
  return knobs;
}

Result<CgroupDriver::Open*> CgroupDriver::open(const KnobRef& ref) {
  auto& all = opened(ref.kind.kind);
  const auto found = all.find(ref.locator);
  if (found != all.end()) return found->second.get();

  const auto [inode_text, cgroup] = two_words(ref.locator);
  const auto inode = parse_u64(inode_text);
  if (!inode || cgroup.empty())
    return Error(std::errc::invalid_argument, "'" + ref.locator + "' names no cgroup");
  auto knob = std::make_unique<Open>();
  knob->kind = ref.kind.kind;
  knob->version = layout_.version(controller_of(ref.kind.kind));
  knob->inode = *inode;
  knob->cgroup = cgroup;
  knob->directory = layout_.directory(controller_of(ref.kind.kind), cgroup);
  if (knob->directory.empty())
    return Error(std::errc::no_such_file_or_directory,
                 "no hierarchy has " + std::string(traits(ref.kind.kind).name));
  // A locator comes from a file: it must not lead out of the hierarchy.
  FLASH_CHECK(still_there(*knob));
  const Files files = files_of(ref.kind.kind, knob->version);
  FLASH_CHECK(
      open_beneath(layout_.mount(controller_of(ref.kind.kind)), knob->cgroup + "/" + files.value, O_PATH));
  FLASH_TRY(knob->value, KeptFile::open(knob->directory + "/" + files.value));
  if (files.period) {
    FLASH_TRY(knob->period, KeptFile::open(knob->directory + "/" + files.period));
  }
  // After opening: what is open now is the cgroup with this inode.
  FLASH_CHECK(still_there(*knob));
  return all.emplace(ref.locator, std::move(knob)).first->second.get();
}

Result<void> CgroupDriver::still_there(const Open& knob) const {
  const auto inode = inode_beneath(layout_.mount(controller_of(knob.kind)), knob.cgroup);
  if (!inode) return inode.error();
  if (*inode != knob.inode)
    return Error(std::errc::no_such_file_or_directory,
                 knob.cgroup + " was removed; another of its name is there");
  return {};
}

Result<KnobReading> CgroupDriver::read(const KnobRef& ref) {
  FLASH_TRY(Open* const knob, open(ref));
  auto reading = read_open(*knob);
  if (reading) return reading;
  // Whatever it says: of a cgroup that is gone only that it is gone is worth knowing.
  auto error = std::move(reading).error();
  if (auto there = still_there(*knob); !there) error = std::move(there).error();
  if (vanished(error)) opened(ref.kind.kind).erase(ref.locator);
  return error;
}

Result<KnobReading> CgroupDriver::read_open(const Open& knob) const {
  std::array<char, 128> buffer{};
  std::array<char, 64> period_buffer{};
  const auto ours = [&] { return still_there(knob).has_value(); };
  FLASH_TRY(const auto text, knob.value.read(buffer, ours));
  KnobReading reading;
  reading.raw = chomp(text);
  if (knob.kind == KnobKind::MemoryLimit) {
    FLASH_TRY(reading.value, knob.version == CgroupVersion::V2 ? parse_limit_v2(text) : parse_limit_v1(text));
    return reading;
  }
  if (knob.version == CgroupVersion::V2) {
    FLASH_TRY(reading.value, parse_cpu_max(text));
    return reading;
  }
  FLASH_TRY(const auto period, knob.period.read(period_buffer, ours));
  FLASH_TRY(reading.value, parse_cfs_limit(text, period));
  reading.raw += ' ';
  reading.raw += chomp(period);
  return reading;
}

/// For as long as it is ours: whoever the file is given to later, it can be put back.
void CgroupDriver::keep_writable(Open& knob) const {
  if (knob.writable) return;
  const std::string file = knob.cgroup + "/" + files_of(knob.kind, knob.version).value;
  if (auto opened = open_beneath(layout_.mount(controller_of(knob.kind)), file, O_WRONLY))
    if (still_there(knob)) knob.writable = std::move(*opened);
}

/// Puts back, also what has been given to another user meanwhile.
Result<void> CgroupDriver::give_back(Open& knob, const char* file, const std::string& text) {
  auto done = put(knob, file, text);
  // A cgroup that is gone is gone for its descriptor, too.
  if (!done && done.error().is(std::errc::permission_denied) && knob.writable &&
      file == std::string_view(files_of(knob.kind, knob.version).value))
    return write_open(knob.writable, knob.directory + "/" + file, text);
  return done;
}

Result<void> CgroupDriver::put(Open& knob, const char* file, const std::string& text) {
  FLASH_CHECK(still_there(knob));
  if (libcgroup_) {
    // Names are relative to the mount, without leading slash.
    const auto start = knob.cgroup.find_first_not_of('/');
    const std::string relative = start == std::string::npos ? "." : knob.cgroup.substr(start);
    ::cgroup* group = cgroup_new_cgroup(relative.c_str());
    cgroup_controller* controller =
        group ? cgroup_add_controller(group, files_of(knob.kind, knob.version).controller) : nullptr;
    const bool written = controller && cgroup_set_value_string(controller, file, text.c_str()) == 0 &&
                         cgroup_modify_cgroup(group) == 0;
    cgroup_free(&group);
    if (written) return {};
  }
  return write_beneath(layout_.mount(controller_of(knob.kind)), knob.cgroup + "/" + file, text);
}

Result<void> CgroupDriver::write(const KnobRef& ref, double value) {
  FLASH_TRY(const KnobReading before, read(ref));
  FLASH_TRY(Open* const knob, open(ref));
  const Files files = files_of(knob->kind, knob->version);
  keep_writable(*knob);
  if (knob->kind == KnobKind::MemoryLimit) {
    const bool v2 = knob->version == CgroupVersion::V2;
    return put(*knob, files.value, std::isinf(value) ? (v2 ? "max" : "-1") : whole(value));
  }
  const auto period_text = two_words(before.raw).second;
  FLASH_TRY(const auto period, parse_u64(period_text));
  const std::string quota =
      std::isinf(value) ? "" : whole(std::max(kMinQuotaUs, std::round(value * static_cast<double>(period))));
  if (knob->version == CgroupVersion::V1) return put(*knob, files.value, quota.empty() ? "-1" : quota);
  return put(*knob, files.value, (quota.empty() ? "max" : quota) + " " + std::string(period_text));
}

Result<void> CgroupDriver::restore(const KnobRef& ref, const std::string& raw) {
  FLASH_TRY(Open* const knob, open(ref));
  const Files files = files_of(knob->kind, knob->version);
  if (!files.period) return give_back(*knob, files.value, raw);
  const auto [quota, period] = two_words(raw);
  FLASH_TRY(const KnobReading now, read(ref));
  // We never change the period; if someone did, both are put back, and which order the kernel takes depends
  // on the parent's ratio.
  if (two_words(now.raw).second == period) return give_back(*knob, files.value, std::string(quota));
  if (auto done = give_back(*knob, files.period, std::string(period)); !done) {
    FLASH_CHECK(give_back(*knob, files.value, std::string(quota)));
    return give_back(*knob, files.period, std::string(period));
  }
  return give_back(*knob, files.value, std::string(quota));
}

void CgroupDriver::close(const KnobRef& ref) {
  opened(ref.kind.kind).erase(ref.locator);
}

}  // namespace flash
