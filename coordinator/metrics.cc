#include "coordinator/metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace flash::coordinator {

using link::sync::Family;
using link::sync::FamilyType;

namespace {

Family one(std::string name, FamilyType type, std::string unit, std::string help, double value) {
  return {std::move(name), type, std::move(unit), std::move(help), {}, {}, {value}};
}

Family nodes_family(const FleetView& view) {
  std::map<std::string, double> states = {{"alive", 0}, {"suspect", 0}, {"dead", 0}, {"unknown", 0}};
  for (const NodeView& n : view.nodes()) ++states[n.state];
  Family f{"flash_coordinator_nodes", FamilyType::Gauge, "", "Nodes by state.", {"state"}, {}, {}};
  for (const auto& [state, nodes] : states) {
    f.label_values.push_back(state);
    f.values.push_back(nodes);
  }
  return f;
}

Family instances_family(const FleetView& view) {
  double in_step = 0, holders = 0;
  for (const FleetCoordinator& c : view.coordinators()) {
    in_step += c.in_step;
    holders += c.lease > 0;
  }
  return {"flash_coordinator_instances",
          FamilyType::Gauge,
          "",
          "Coordinators that this one knows, itself among them: all, those that have read the whole stream, "
          "holders of the lease.",
          {"state"},
          {"known", "in_step", "holder"},
          {static_cast<double>(view.coordinators().size()), in_step, holders}};
}

Family agents_family(const FleetView& view) {
  std::map<std::pair<Task, Stage>, double> counts;
  for (const FleetAgent& a : view.agents()) ++counts[{a.latest.task, a.latest.stage}];
  Family f{"flash_coordinator_agents",
           FamilyType::Gauge,
           "",
           "Agents by task and stage.",
           {"task", "stage"},
           {},
           {}};
  for (const Task t : known_tasks())
    for (const Stage s : {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving}) {
      f.label_values.emplace_back(to_string(t));
      f.label_values.emplace_back(to_string(s));
      f.values.push_back(counts[{t, s}]);
    }
  return f;
}

/// Means over agents, per task: reward and what the fallback earns.
Family rewards_family(const FleetView& view) {
  Family f{"flash_coordinator_reward",
           FamilyType::Gauge,
           "",
           "Mean over agents of the latest episode's reward per step, and of what their fallbacks earn.",
           {"task", "of"},
           {},
           {}};
  for (const Task t : known_tasks())
    for (const bool fallback : {false, true}) {
      double sum = 0, count = 0;
      for (const FleetAgent& a : view.agents()) {
        const auto value = fallback ? fallback_of(a) : reward_of(a);
        if (a.latest.task != t || !value) continue;
        sum += *value;
        ++count;
      }
      if (count == 0) continue;
      f.label_values.emplace_back(to_string(t));
      f.label_values.emplace_back(fallback ? "fallback" : "agents");
      f.values.push_back(sum / count);
    }
  return f;
}

}  // namespace

std::vector<Family> families_of(const FleetView& view, const OwnState& own, std::string_view version) {
  const StoreCounts& c = view.counts();
  double lag = 0, lagging = 0;
  for (const NodeView& n : view.nodes()) {
    lag += static_cast<double>(n.lag);
    lagging += n.lag > 0;
  }
  std::vector<Family> all = {{"flash_coordinator_build",
                              FamilyType::Info,
                              "",
                              "Version of flash-coordinator.",
                              {"version"},
                              {std::string(version)},
                              {1}}};
  all.push_back(one("flash_coordinator_nats_connected", FamilyType::Gauge, "",
                    "1 while connected to the NATS server.", view.live().connected ? 1 : 0));
  all.push_back(instances_family(view));
  all.push_back(nodes_family(view));
  all.push_back(agents_family(view));
  all.push_back(rewards_family(view));
  all.push_back({"flash_coordinator_records",
                 FamilyType::Counter,
                 "",
                 "Messages of the stream since the store was made, by what became of them; thinned: stored "
                 "ones that became part of a summary.",
                 {"result"},
                 {"stored", "duplicate", "refused", "thinned"},
                 {static_cast<double>(c.records), static_cast<double>(c.duplicates),
                  static_cast<double>(c.refused), static_cast<double>(c.thinned)}});
  all.push_back(one("flash_coordinator_watermark_lag_records", FamilyType::Gauge, "",
                    "Numbers of records beyond the nodes' watermarks: something before them has not come.",
                    lag));
  all.push_back(one("flash_coordinator_watermark_lagging_nodes", FamilyType::Gauge, "",
                    "Nodes with such records.", lagging));
  all.push_back(one("flash_coordinator_store_bytes", FamilyType::Gauge, "bytes", "Size of the store's files.",
                    own.store_bytes));
  all.push_back(
      one("flash_coordinator_http_requests", FamilyType::Counter, "", "Requests over HTTP.", own.requests));
  all.push_back(one("flash_coordinator_cpu_seconds", FamilyType::Counter, "seconds",
                    "CPU time of flash-coordinator.", own.cpu_seconds));
  all.push_back(one("flash_coordinator_resident_memory_bytes", FamilyType::Gauge, "bytes",
                    "Resident memory of flash-coordinator.", own.rss_bytes));
  return all;
}

}  // namespace flash::coordinator
