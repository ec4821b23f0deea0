#include "actuators/cgroup_driver.h"

#include <fcntl.h>
#include <libcgroup.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "host/parse.h"
#include "host/safe_path.h"

namespace flash {
namespace {

const std::string kCannotBeWritten = "cannot be written: ";

// libcgroup writes to stderr on its own; what went wrong is in our Result.
void say_nothing(void*, int, const char*, va_list) {}

bool start_libcgroup() {
  static const bool ok = [] {
    cgroup_set_logger(say_nothing, CGROUP_LOG_ERROR, nullptr);
    return cgroup_init() == 0;
  }();
  return ok;
}

}  // namespace

struct CgroupDriver::Open {
  KnobId knob;
  const LimitFile* row = nullptr;
  CgroupVersion version;
  std::uint64_t inode = 0;
  std::string cgroup;
  std::string directory;
  KeptFile value;
  KeptFile period;
  Fd writable;  // of `value`, since the first write

  const LimitFile::Names& names() const { return row->names(version); }
  /// The texts of a reading's raw: the value's, and the period's where that is a file of its own.
  LimitText texts(std::string_view raw) const {
    if (!names().period) return {version, knob.instance, raw, {}};
    const auto [value, period] = two_words(raw);
    return {version, knob.instance, value, period};
  }
};

Result<std::string> cgroup_locator(const CgroupLayout& layout, CgroupController controller,
                                   std::string_view cgroup) {
  FLASH_TRY(const auto inode, inode_beneath(layout.mount(controller), cgroup));
  return std::to_string(inode) + " " + std::string(cgroup);
}

CgroupDriver::CgroupDriver(const HostRoot& root, CgroupLayout layout)
    : root_(root), layout_(std::move(layout)), libcgroup_(root.real() && start_libcgroup()) {}
CgroupDriver::~CgroupDriver() = default;

Result<std::vector<KnobInfo>> CgroupDriver::discover(const Target& target, const Rule& rule) {
  std::vector<KnobInfo> knobs;
  if (target.id.kind != TargetKind::Cgroup || target.owner == CgroupOwner::Systemd) return knobs;
  for (const LimitFile& row : limit_files) {
    const auto version = layout_.version(row.controller);
    if (traits(row.knob).task != target.task() || !rule.limits[row.knob].manage ||
        version == CgroupVersion::None || !row.names(version).value)
      continue;
    const auto directory = layout_.directory(row.controller, target.cgroup);
    // No such file: the root cgroup, or the controller is not enabled here. Not our business to enable it.
    const std::string file = directory + "/" + row.names(version).value;
    const std::string why_not = why_not_writable(file);
    if (why_not.empty() && !exists(file)) continue;
    auto locator = cgroup_locator(layout_, row.controller, target.cgroup);
    if (!locator) continue;
    for (const std::string& instance :
         row.instances ? row.instances(directory) : std::vector<std::string>(1)) {
      KnobInfo info;
      info.ref = {KnobId(row.knob, instance), target.id, std::string(name()), *locator};
      FLASH_TRY(const bool there, look(row, why_not, info));
      if (!there) continue;
      if (info.blocked_by.empty()) info.blocked_by = why_blocked(target, rule, why_not);
      knobs.push_back(std::move(info));
    }
  }
  return knobs;
}

/// The least value, where the kernel's depends on what is there now. False: the knob is not there after all.
Result<bool> CgroupDriver::look(const LimitFile& row, const std::string& why_not, KnobInfo& info) {
  info.lower = static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (!row.least) return true;
  const auto opened = open(info.ref);
  if (!opened && why_not.empty()) return false;
  // Not even to be read: what is below a directory of mode 0700.
  if (!opened) {
    info.blocked_by = kCannotBeWritten + why_not;
    return true;
  }
  auto reading = read(info.ref);
  if (!reading) {
    close(info.ref);
    return std::move(reading).error();
  }
  info.lower = row.least((*opened)->texts(reading->raw));
  return true;
}

std::string CgroupDriver::why_blocked(const Target& target, const Rule& rule, const std::string& why_not) {
  if (target.owner == CgroupOwner::Unknown)
    return "whose cgroup this is cannot be told (" + target.doubt +
           "); a rule whose select.cgroup spells out " + target.spell_out + " may write it";
  if (target.owner == CgroupOwner::Kubelet && !rule.allow_kubelet)
    return "the kubelet owns this cgroup and would rewrite it; allow_kubelet is not set";
  return why_not.empty() ? "" : kCannotBeWritten + why_not;
}

CgroupDriver::Open* CgroupDriver::opened(const KnobRef& ref) {
  const auto found = open_.find(ref.locator);
  if (found == open_.end()) return nullptr;
  for (const auto& knob : found->second)
    if (knob->knob == ref.kind) return knob.get();
  return nullptr;
}

Result<CgroupDriver::Open*> CgroupDriver::open(const KnobRef& ref) {
  if (Open* const known = opened(ref)) return known;
  const LimitFile* const row = limit_file(ref.kind.kind);
  if (!row) return Error(std::errc::invalid_argument, knob_name(ref.kind) + " is no limit of a cgroup");
  const auto [inode_text, cgroup] = two_words(ref.locator);
  const auto inode = parse_u64(inode_text);
  if (!inode || cgroup.empty())
    return Error(std::errc::invalid_argument, "'" + ref.locator + "' names no cgroup");
  auto knob = std::make_unique<Open>();
  knob->knob = ref.kind;
  knob->row = row;
  knob->version = layout_.version(row->controller);
  knob->inode = *inode;
  knob->cgroup = cgroup;
  knob->directory = layout_.directory(row->controller, cgroup);
  if (knob->directory.empty() || !knob->names().value)
    return Error(std::errc::no_such_file_or_directory, "no hierarchy has " + knob_name(ref.kind));
  // A locator comes from a file: it must not lead out of the hierarchy.
  FLASH_CHECK(still_there(*knob));
  const LimitFile::Names& files = knob->names();
  FLASH_CHECK(open_beneath(layout_.mount(row->controller), knob->cgroup + "/" + files.value, O_PATH));
  FLASH_TRY(knob->value, KeptFile::open(knob->directory + "/" + files.value));
  if (files.period) {
    FLASH_TRY(knob->period, KeptFile::open(knob->directory + "/" + files.period));
  }
  // After opening: what is open now is the cgroup with this inode.
  FLASH_CHECK(still_there(*knob));
  return open_[ref.locator].emplace_back(std::move(knob)).get();
}

Result<void> CgroupDriver::still_there(const Open& knob) const {
  const auto inode = inode_beneath(layout_.mount(knob.row->controller), knob.cgroup);
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
  if (vanished(error)) close(ref);
  return error;
}

Result<KnobReading> CgroupDriver::read_open(const Open& knob) const {
  std::array<char, 128> buffer{};
  std::array<char, 64> period_buffer{};
  const auto ours = [&] { return still_there(knob).has_value(); };
  LimitText text{knob.version, knob.knob.instance, {}, {}};
  FLASH_TRY(text.value, knob.value.read(buffer, ours));
  KnobReading reading;
  if (knob.row->line) {
    reading.raw = knob.row->line(text.value, text.instance);
    text.value = reading.raw;
  } else {
    reading.raw = chomp(text.value);
  }
  if (knob.names().period) {
    FLASH_TRY(text.period, knob.period.read(period_buffer, ours));
  }
  FLASH_TRY(reading.value, knob.row->parse(text));
  if (!knob.names().period) return reading;
  reading.raw += ' ';
  reading.raw += chomp(text.period);
  return reading;
}

/// For as long as it is ours: whoever the file is given to later, it can be put back.
void CgroupDriver::keep_writable(Open& knob) const {
  if (knob.writable) return;
  const std::string file = knob.cgroup + "/" + knob.names().value;
  if (auto opened = open_beneath(layout_.mount(knob.row->controller), file, O_WRONLY))
    if (still_there(knob)) knob.writable = std::move(*opened);
}

/// Puts back, also what has been given to another user meanwhile.
Result<void> CgroupDriver::give_back(Open& knob, const char* file, const std::string& text) {
  auto done = put(knob, file, text);
  // A cgroup that is gone is gone for its descriptor, too.
  if (!done && done.error().is(std::errc::permission_denied) && knob.writable &&
      file == std::string_view(knob.names().value))
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
    cgroup_controller* controller = group ? cgroup_add_controller(group, knob.row->controller_name) : nullptr;
    const bool written = controller && cgroup_set_value_string(controller, file, text.c_str()) == 0 &&
                         cgroup_modify_cgroup(group) == 0;
    cgroup_free(&group);
    if (written) return {};
  }
  return write_beneath(layout_.mount(knob.row->controller), knob.cgroup + "/" + file, text);
}

Result<void> CgroupDriver::write(const KnobRef& ref, double value) {
  FLASH_TRY(const KnobReading before, read(ref));
  FLASH_TRY(Open* const knob, open(ref));
  keep_writable(*knob);
  FLASH_TRY(const std::string text, knob->row->print(value, knob->texts(before.raw)));
  return put(*knob, knob->names().value, text);
}

Result<void> CgroupDriver::restore(const KnobRef& ref, const std::string& raw) {
  FLASH_TRY(Open* const knob, open(ref));
  const LimitFile::Names& files = knob->names();
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
  const auto found = open_.find(ref.locator);
  if (found == open_.end()) return;
  std::erase_if(found->second, [&ref](const auto& knob) { return knob->knob == ref.kind; });
  if (found->second.empty()) open_.erase(found);
}

}  // namespace flash
