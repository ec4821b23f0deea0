#include "collectors/bpf/statsd_door.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "collectors/bpf/load.h"
#include "statsd_door.skel.h"

namespace flash {
namespace {

constexpr std::string_view kDoorCapabilities = "CAP_BPF and CAP_PERFMON";

std::uint32_t door_hierarchy(CgroupController controller, CgroupVersion version) {
  if (version != CgroupVersion::V1) return FLASH_DOOR_UNIFIED;
  return controller == CgroupController::Memory ? FLASH_DOOR_MEMORY : FLASH_DOOR_CPU;
}

}  // namespace

struct StatsdDoor::Impl {
  ~Impl() { statsd_door_bpf::destroy(skeleton); }
  int members_fd() const { return bpf_map__fd(skeleton->maps.members); }

  statsd_door_bpf* skeleton = nullptr;
  mutable std::vector<flash_door_counts> cpus;  // one per possible CPU
};

StatsdDoor::StatsdDoor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatsdDoor::~StatsdDoor() = default;

Result<std::unique_ptr<StatsdDoor>> StatsdDoor::open(CgroupController controller, CgroupVersion version,
                                                     std::size_t max_members) {
  note_bpf_complaints();
  auto impl = std::make_unique<Impl>();
  impl->skeleton = statsd_door_bpf::open();
  if (!impl->skeleton) return why_not_loaded(errno, kDoorCapabilities);
  impl->skeleton->rodata->hierarchy = door_hierarchy(controller, version);
  bpf_map__set_max_entries(impl->skeleton->maps.members, static_cast<std::uint32_t>(max_members));
  if (const int r = statsd_door_bpf::load(impl->skeleton); r != 0)
    return why_not_loaded(-r, kDoorCapabilities);
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 0) return Error::from_errno(-cpus, "possible CPUs");
  impl->cpus.resize(static_cast<std::size_t>(cpus));
  return std::unique_ptr<StatsdDoor>(new StatsdDoor(std::move(impl)));
}

Result<void> StatsdDoor::attach(int socket) {
  const int program = bpf_program__fd(impl_->skeleton->progs.at_door);
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) != 0)
    return Error::from_errno(errno, "attaching to the StatsD socket");
  return {};
}

Result<void> StatsdDoor::admit(std::uint64_t id) {
  const flash_member fresh{};
  if (bpf_map_update_elem(impl_->members_fd(), &id, &fresh, BPF_NOEXIST) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "admitting a cgroup to the StatsD socket");
  return {};
}

void StatsdDoor::dismiss(std::uint64_t id) {
  bpf_map_delete_elem(impl_->members_fd(), &id);
}

void StatsdDoor::set(const flash_door_settings& settings) {
  impl_->skeleton->bss->settings = settings;
}

flash_door_counts StatsdDoor::counts() const {
  const std::uint32_t first = 0;
  flash_door_counts sum{};
  if (bpf_map_lookup_elem(bpf_map__fd(impl_->skeleton->maps.counts), &first, impl_->cpus.data()) != 0)
    return sum;
  for (const flash_door_counts& cpu : impl_->cpus) {
    sum.passed += cpu.passed;
    sum.dropped_members += cpu.dropped_members;
    sum.dropped_strangers += cpu.dropped_strangers;
  }
  return sum;
}

std::uint64_t StatsdDoor::dropped(std::uint64_t id) const {
  flash_member member{};
  return bpf_map_lookup_elem(impl_->members_fd(), &id, &member) == 0 ? member.dropped : 0;
}

}  // namespace flash
