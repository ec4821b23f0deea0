#include "collectors/registry.h"

#include "collectors/cgroup_collector.h"
#include "collectors/counter_ladder.h"
#include "collectors/cpufreq_collector.h"
#include "collectors/node_collector.h"
#include "collectors/pressure_collector.h"
#include "collectors/rapl_collector.h"
#include "collectors/slo_ladder.h"

namespace flash {
namespace {

using Made = std::unique_ptr<Collector>;
using Context = const CollectorContext&;

CgroupLayout layout_of(Context c) {
  return c.layout ? *c.layout : CgroupLayout();
}

constexpr CollectorEntry kCollectors[] = {
    {"cgroup", [](Context c) -> Made { return std::make_unique<CgroupCollector>(layout_of(c)); }},
    {"pressure",
     [](Context c) -> Made { return std::make_unique<PressureCollector>(*c.root, layout_of(c)); }},
    {"node", [](Context c) -> Made { return std::make_unique<NodeCollector>(*c.root); }},
    // After cgroup: they compare their CPU time with cpu.stat's.
    {"counters", [](Context c) -> Made { return std::make_unique<CounterLadder>(*c.root, c.layout); }},
    {"cpufreq", [](Context c) -> Made { return std::make_unique<CpufreqCollector>(*c.root); }},
    {"rapl", [](Context c) -> Made { return std::make_unique<RaplCollector>(*c.root); }},
};

}  // namespace

std::span<const CollectorEntry> collector_registry() {
  return kCollectors;
}

std::vector<SignalSource> sources_of(const Collector& collector) {
  const auto* ladder = dynamic_cast<const CounterLadder*>(&collector);
  if (ladder) return ladder->sources();
  const auto* slo = dynamic_cast<const SloLadder*>(&collector);
  return slo ? slo->sources() : std::vector<SignalSource>();
}

std::vector<std::unique_ptr<Collector>> build_collectors(const CollectorContext& context) {
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const auto& entry : collector_registry()) collectors.push_back(entry.create(context));
  return collectors;
}

}  // namespace flash
