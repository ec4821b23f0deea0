#include "collectors/pressure_collector.h"

#include <array>
#include <bit>
#include <utility>

namespace flash {
namespace {

Result<PressureTotals> read_pressure(const KeptFile& file) {
  std::array<char, 512> buffer;
  FLASH_TRY(const auto text, file.read(buffer));
  return parse_pressure(text);
}

KeptFile open_if_there(const HostRoot& root, std::string_view name) {
  auto file = KeptFile::open(root.proc(name));
  return file ? std::move(*file) : KeptFile();
}

}  // namespace

PressureCollector::PressureCollector(const HostRoot& root, CgroupLayout layout,
                                     PressureCollectorOptions options)
    : layout_(std::move(layout)),
      options_(options),
      node_cpu_file_(open_if_there(root, "pressure/cpu")),
      node_memory_file_(open_if_there(root, "pressure/memory")) {}

void PressureCollector::Share::update(const Result<PressureTotals>& totals, Duration at) {
  if (!totals) {
    some = full = sample_of(totals.error());
    return;
  }
  some = some_total.rate(totals->some_us, at, 1e-6);
  full = totals->has_full ? full_total.rate(totals->full_us, at, 1e-6) : Sample::missing();
}

void PressureCollector::track(const Target& target) {
  if (target.id.kind != TargetKind::Cgroup || states_.contains(target.id)) return;
  if (layout_.version(CgroupController::Pressure) == CgroupVersion::None) return;
  auto cgroup = Cgroup::open(layout_, target.cgroup, CgroupFiles::Pressure);
  if (!cgroup || cgroup->inode() != target.id.value) {
    if (!cgroup && !vanished(cgroup.error())) out_of_files_ = true;
    return;
  }
  states_.emplace(target.id, State{.cgroup = std::move(*cgroup)});
}

void PressureCollector::untrack(TargetId id) {
  states_.erase(id);
}

void PressureCollector::read_node(Now now) {
  const auto since = now.mono - node_last_;
  if (!node_first_ && since < options_.every) return;
  node_first_ = false;
  node_last_ = now.mono;
  const auto cpu = read_pressure(node_cpu_file_);
  node_readable_ = cpu.has_value();
  node_cpu_.update(cpu, now.mono);
  node_memory_.update(read_pressure(node_memory_file_), now.mono);
}

void PressureCollector::read_cgroup(Duration at, State& state) {
  state.cpu.update(state.cgroup.cpu_pressure(), at);
  state.memory.update(state.cgroup.memory_pressure(), at);
  state.io.update(state.cgroup.io_pressure(), at);
}

void PressureCollector::collect(Now now, ObservationTable& table) {
  read_node(now);
  without_ = 0;
  out_of_files_ = false;
  for (auto& [id, state] : states_) {
    const auto since = now.mono - state.last;
    if (state.first || since >= options_.every) {
      ++state.reads;
      if (!state.cgroup.complete() && (std::has_single_bit(state.reads) || state.reads % 64 == 0))
        if (const auto opened = state.cgroup.open_missing(); !opened) out_of_files_ = true;
      read_cgroup(now.mono, state);
      state.first = false;
      state.last = now.mono;
    }
    without_ += state.cgroup.complete() ? 0 : 1;
    const auto found = table.find(id);
    if (found == table.end()) continue;
    Observation& out = found->second;
    out[Signal::CpuPressureSome] = state.cpu.some;
    out[Signal::MemoryPressureSome] = state.memory.some;
    out[Signal::MemoryPressureFull] = state.memory.full;
    out[Signal::IoPressureSome] = state.io.some;
    out[Signal::IoPressureFull] = state.io.full;
  }
  for (auto& [id, out] : table) {
    out[Signal::NodeCpuPressureSome] = node_cpu_.some;
    out[Signal::NodeMemoryPressureFull] = node_memory_.full;
  }
}

std::vector<Degraded> PressureCollector::degraded() const {
  std::vector<Degraded> list;
  const bool cgroups = !layout_.reference_mount().empty();
  // Kernels booted with psi=0 may have the files and refuse to read them.
  if (!node_cpu_file_.is_open() || !node_readable_)
    list.push_back({"psi", "the kernel gives no pressure information (CONFIG_PSI, boot option psi=1)"});
  else if (cgroups && layout_.version(CgroupController::Pressure) == CgroupVersion::None)
    list.push_back({"psi", "cgroup v1 has no pressure per cgroup; only the node's is known"});
  else if (without_ > 0)
    list.push_back({"psi", std::to_string(without_) + (without_ == 1 ? " target has" : " targets have") +
                               " no pressure files in the cgroup v2 hierarchy; only the node's is known"});
  if (out_of_files_)
    list.push_back({"psi", "out of file descriptors (LimitNOFILE): some targets lack pressure"});
  return list;
}

}  // namespace flash
