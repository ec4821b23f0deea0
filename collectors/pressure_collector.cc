#include "collectors/pressure_collector.h"

#include <array>
#include <utility>

namespace flash {
namespace {

Result<PressureTotals> read_pressure(const KeptFile& file, SkippedRows& skipped) {
  std::array<char, 512> buffer;
  FLASH_TRY(const auto text, file.read(buffer));
  return parse_pressure(text, &skipped);
}

}  // namespace

PressureCollector::PressureCollector(const HostRoot& root, CgroupLayout layout,
                                     PressureCollectorOptions options)
    : layout_(std::move(layout)),
      options_(options),
      node_cpu_file_(root.proc("pressure/cpu")),
      node_memory_file_(root.proc("pressure/memory")),
      node_readable_(node_cpu_file_.ensure_open().has_value()) {}

void PressureCollector::Share::update(const Result<PressureTotals>& totals, Duration at) {
  if (!totals) {
    some = full = sample_of(totals.error());
    // While it was switched off nothing was counted: that time is no part of the next share.
    some_total.reset();
    full_total.reset();
    return;
  }
  some = totals->has_some ? some_total.rate(totals->some_us, at, 1e-6) : Sample::missing();
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
  states_.emplace(target.id, State{.cgroup = std::move(*cgroup), .name = target.name});
}

void PressureCollector::untrack(TargetId id) {
  states_.erase(id);
}

void PressureCollector::read_node(Now now) {
  const auto since = now.mono - node_last_;
  if (!node_first_ && since < options_.every) return;
  node_first_ = false;
  node_last_ = now.mono;
  node_skipped_ = {};
  const auto cpu = read_pressure(node_cpu_file_, node_skipped_);
  const auto memory = read_pressure(node_memory_file_, node_skipped_);
  node_readable_ = cpu || memory;
  node_trouble_ = !cpu      ? "/proc/pressure/cpu: " + cpu.error().message()
                  : !memory ? "/proc/pressure/memory: " + memory.error().message()
                            : std::string();
  node_cpu_.update(cpu, now.mono);
  node_memory_.update(memory, now.mono);
}

void PressureCollector::read_cgroup(Duration at, State& state) {
  const auto update = [&](Share& share, const Result<PressureTotals>& totals) {
    if (!totals) out_of_files_ |= out_of_descriptors(totals.error());
    share.update(totals, at);
  };
  update(state.cpu, state.cgroup.cpu_pressure());
  update(state.memory, state.cgroup.memory_pressure());
  update(state.io, state.cgroup.io_pressure());
  state.gone = state.cgroup.lost_any() && !state.cgroup.alive();
}

void PressureCollector::collect(Now now, ObservationTable& table) {
  read_node(now);
  out_of_files_ = false;
  for (auto& [id, state] : states_) {
    const auto since = now.mono - state.last;
    if (!state.gone && (state.first || since >= options_.every)) {
      read_cgroup(now.mono, state);
      state.first = false;
      state.last = now.mono;
    }
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
  std::size_t without = 0;  // targets that never had pressure files
  for (const auto& [id, state] : states_) {
    if (state.gone) continue;
    if (state.cgroup.lost_any())
      list.push_back({"psi",
                      state.name + ": " + state.cgroup.lost() +
                          " went away: was pressure switched off (cgroup.pressure)?",
                      state.name});
    else
      without += state.cgroup.complete() ? 0 : 1;
    if (const auto files = state.cgroup.left_out(); !files.empty())
      list.push_back({"psi", state.name + ": rows that cannot be read are left out: " + files, state.name});
  }
  // Kernels booted with psi=0 may have the files and refuse to read them.
  if (!node_readable_)
    list.push_back({"psi", "the kernel gives no pressure information (CONFIG_PSI, boot option psi=1)"});
  else if (cgroups && layout_.version(CgroupController::Pressure) == CgroupVersion::None)
    list.push_back({"psi", "cgroup v1 has no pressure per cgroup; only the node's is known"});
  else if (without > 0)
    list.push_back({"psi", std::to_string(without) + (without == 1 ? " target has" : " targets have") +
                               " no pressure files in the cgroup v2 hierarchy; only the node's is known"});
  if (node_readable_ && !node_trouble_.empty()) list.push_back({"psi", node_trouble_});
  if (node_skipped_.count > 0)
    list.push_back({"psi", "/proc/pressure: rows that cannot be read are left out (row " +
                               std::to_string(node_skipped_.first) + ")"});
  if (out_of_files_)
    list.push_back({"psi", "out of file descriptors (LimitNOFILE): some targets lack pressure"});
  return list;
}

}  // namespace flash
