#include "daemon/peer_judge.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/local_peer.h"
#include "host/cgroup_id.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "host/process_place.h"

namespace flash {
namespace {

/// Is `inner` the cgroup `outer`, or below it?
bool within(std::string_view inner, std::string_view outer) {
  if (outer == "/") return true;
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '/');
}

/// The paths of all cgroups from the outermost to this one, without "/".
template <class See>
void each_level(std::string_view path, See see) {
  for (std::size_t at = 1; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    if (!see(path.substr(0, end))) return;
    at = end + 1;
  }
}

/// "session-3.scope" of user.slice: a login, which only logind makes.
bool login_session(std::string_view unit) {
  const auto name = unit.substr(unit.rfind('/') + 1);
  return unit.starts_with("/user.slice/") && name.starts_with("session-") && name.ends_with(".scope");
}

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

/// By its user alone.
bool may_be(const PeerFacts& facts, const PeerRole& role) {
  return facts.uid == 0 || facts.uid == facts.own_uid || (role.uid && facts.uid == *role.uid);
}

/// Where the peer may be besides, as systemd says.
enum class Home { Elsewhere, ItsUnit, Login };

/// Of one hierarchy: why this is not the host's side. `main`: the cgroup by which systemd names the peer's
/// unit.
std::string judge_place(const PeerFacts::Place& place, std::string_view main, Home home, const PeerRole& role,
                        const TargetAround& target_around) {
  const std::string& cgroup = place.cgroup;
  if (cgroup.starts_with("/..") || !cgroup.starts_with('/'))
    return "its cgroup " + plain(cgroup) + " cannot be seen from here";
  std::string container;
  each_level(cgroup, [&](std::string_view level) {
    // What is around flashd as well does not tell the two apart.
    if (!within(place.own, level) && (!container_of(level).runtime.empty() || is_kubelets(level)))
      container = level;
    return container.empty();
  });
  if (!container.empty()) return "it is in a container (" + plain(container) + ")";
  if (home == Home::ItsUnit) return {};
  if (target_around)
    if (const std::string target = target_around(cgroup); !target.empty() && !within(place.own, target))
      return "it is in " + plain(target) + ", which flashd controls";
  if (within(place.own, cgroup)) return {};  // flashd's own, or around it
  if (!place.foreign.empty())
    return "it is in " + plain(place.foreign) + ", which belongs to uid " + std::to_string(place.foreign_uid);
  if (place.own != "/" && within(cgroup, place.own)) return {};
  // On cgroup v1 systemd makes a unit's path only as deep as a controller needs it.
  if (home == Home::Login && within(main, cgroup)) return {};
  return "it is in " + plain(cgroup) + ", not beside flashd (" + plain(place.own) + "), in " + role.unit +
         " or in a login session";
}

}  // namespace

std::string judge_peer(const PeerFacts& facts, const PeerRole& role, const TargetAround& target_around) {
  if (!may_be(facts, role)) return "uid " + std::to_string(facts.uid) + " is not " + plain(role.user);
  const std::string who = "pid " + std::to_string(facts.pid) + " of uid " + std::to_string(facts.uid) + ": ";
  if (facts.pid <= 0) return who + "it is in a pid namespace that cannot be seen from here";
  if (!facts.unreadable.empty()) return who + "where it runs cannot be told: " + facts.unreadable;
  if (facts.pid_namespaces != 1) return who + "it is in a pid namespace of its own, as containers are";
  if (facts.places.empty()) return who + "it is in no cgroup";

  std::string_view main;
  for (const auto& place : facts.places)
    if (place.systemds) main = place.cgroup;
  const auto unit = facts.systemd_running ? system_unit_path(main) : std::string_view{};
  const Home home = unit.empty()                 ? Home::Elsewhere
                    : name_of(unit) == role.unit ? Home::ItsUnit
                    : login_session(unit)        ? Home::Login
                                                 : Home::Elsewhere;
  for (const auto& place : facts.places)
    if (auto why = judge_place(place, main, home, role, target_around); !why.empty()) return who + why;
  return {};
}

namespace {

/// The controllers by which /proc/PID/cgroup names the hierarchies that the layout knows.
std::string directory_of(const CgroupLayout& layout, const std::vector<std::string>& controllers) {
  using C = CgroupController;
  if (controllers.empty()) return layout.mount(C::Pressure);
  constexpr std::pair<std::string_view, C> kNames[] = {
      {"cpu", C::Cpu},   {"cpuacct", C::CpuAcct}, {"memory", C::Memory},  {"blkio", C::Io},
      {"pids", C::Pids}, {"cpuset", C::CpuSet},   {"freezer", C::Freezer}};
  for (const auto& [name, controller] : kNames)
    if (std::find(controllers.begin(), controllers.end(), name) != controllers.end() &&
        layout.version(controller) == CgroupVersion::V1)
      return layout.mount(controller);
  return {};
}

/// The outermost directory of the way that belongs to another user than root and flashd.
Result<void> look_at_owners(const std::string& mount, PeerFacts::Place& place) {
  Result<void> looked;
  each_level(place.cgroup, [&](std::string_view level) {
    struct stat st {};
    if (::stat((mount + std::string(level)).c_str(), &st) != 0) {
      looked = Error::from_errno(errno, mount + std::string(level));
      return false;
    }
    if (st.st_uid == 0 || st.st_uid == ::geteuid()) return true;
    place.foreign = level;
    place.foreign_uid = st.st_uid;
    return false;
  });
  return looked;
}

Result<void> look_at_places(PeerFacts& facts, const Fd& pinned) {
  FLASH_TRY(const ProcessPlace peer, process_place(facts.pid, pinned));
  facts.pid_namespaces = peer.pid_namespaces;
  if (facts.pid_namespaces != 1) return {};  // nothing else counts
  FLASH_TRY(const ProcessPlace self, process_place(::getpid(), Fd()));
  const HostRoot root;
  FLASH_TRY(const CgroupLayout layout, CgroupLayout::detect(root));
  facts.systemd_running = exists(root.path("/run/systemd/system"));  // sd_booted(3)
  const std::vector<std::string> kSystemds = {"name=systemd"};
  const bool v1 = std::any_of(peer.cgroups.begin(), peer.cgroups.end(),
                              [&](const ProcessCgroup& c) { return c.controllers == kSystemds; });
  for (const ProcessCgroup& c : peer.cgroups) {
    PeerFacts::Place place;
    place.cgroup = c.path;
    const auto own = std::find_if(self.cgroups.begin(), self.cgroups.end(),
                                  [&](const ProcessCgroup& s) { return s.controllers == c.controllers; });
    if (own == self.cgroups.end())
      return Error(std::errc::no_such_file_or_directory, "flashd is not in each of its hierarchies");
    place.own = own->path;
    place.systemds = v1 ? c.controllers == kSystemds : c.controllers.empty();
    // Of flashd's own and what is around it the owner does not count (and in a container there may be no such
    // path).
    const std::string mount = directory_of(layout, c.controllers);
    if (!mount.empty() && !c.path.starts_with("/..") && !within(place.own, c.path))
      FLASH_CHECK(look_at_owners(mount, place));
    facts.places.push_back(std::move(place));
  }
  return {};
}

}  // namespace

std::string why_refused(const link::Connection& peer, const PeerRole& role,
                        const TargetAround& target_around) {
  const auto who = peer.peer();
  if (!who) return who.error().message();
  PeerFacts facts;
  facts.uid = who->uid;
  facts.pid = who->pid;
  facts.own_uid = ::geteuid();
  if (may_be(facts, role) && facts.pid > 0) {
    const auto process = peer.peer_process();
    const auto looked = process ? look_at_places(facts, Fd(*process)) : Result<void>(process.error());
    if (!looked) facts.unreadable = looked.error().message();
  }
  return judge_peer(facts, role, target_around);
}

}  // namespace flash
