// Purpose: a control loop over plain numbers: one target with a CPU limit of 1 core on a node of 4, one tick
// per second, samples from a function.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "policy/control_loop.h"
#include "policy/observation_space.h"
#include "tests/policy/fixtures.h"
#include "tests/support/fake_actuator.h"

namespace flash::loop_fixture {

using fake::FakeActuator;
using fake::FakeCollector;

inline constexpr TargetId kWeb{TargetKind::Cgroup, 7};
inline constexpr TargetId kBatch{TargetKind::Cgroup, 8};

inline Now at(double s) {
  return {from_seconds(1000 + s), WallTime(from_seconds(1.7e9 + s))};
}

inline Target target(TargetId id, std::string name) {
  Target t;
  t.id = id;
  t.name = name;
  t.cgroup = "/" + name;
  return t;
}

inline std::shared_ptr<Rule> cpu_rule(Mode mode) {
  auto r = std::make_shared<Rule>();
  r->name = "web";
  r->mode = mode;
  r->mode_given = true;
  r->limits[KnobKind::MemoryLimit].manage = false;
  r->limits[KnobKind::CpuLimit].down_stabilization_s = 5;
  r->exploration.fallback_share = 0;  // tests that are about it ask for it
  return r;
}

/// Nearly the same action whatever comes in: what ignores its input is refused.
inline std::shared_ptr<PolicySnapshot> constant_policy(Task task, std::vector<float> outputs,
                                                       std::uint64_t version, WallTime expires) {
  auto p = std::make_shared<PolicySnapshot>();
  const int dim = state_dim(task);
  p->task = task;
  p->version = version;
  p->model = "test";
  p->expires = expires;
  p->mean.assign(static_cast<std::size_t>(dim), 0);
  p->scale.assign(static_cast<std::size_t>(dim), 1);
  DenseLayer layer;
  layer.inputs = dim;
  layer.outputs = static_cast<int>(outputs.size());
  layer.weights.assign(static_cast<std::size_t>(dim) * outputs.size(), 0);
  for (std::size_t o = 0; o < outputs.size(); ++o) layer.weights[o * static_cast<std::size_t>(dim)] = 1e-4F;
  layer.bias = std::move(outputs);
  p->actor = {layer};
  p->estimate.given = true;
  return p;
}

struct Loop {
  explicit Loop(LoopOptions options = defaults()) {
    auto fill = [this](Now now, TargetId id, Observation& o) {
      o[Signal::CpuUsage] = Sample::good(usage);
      o[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
      o[Signal::CpuThrottled] = Sample::good(0);
      if (observe) observe(now, id, o);
    };
    collector = std::make_unique<FakeCollector>(fill);
    LoopEvents events;
    events.changed = [this](TargetId, AgentChange c) { changes.push_back(c); };
    events.decided = [this](const Target&, const Decision&) { ++decided; };
    actuator.offer(kWeb, KnobKind::CpuLimit, 1.0);
    loop = std::make_unique<ControlLoop>(options, std::vector<Collector*>{collector.get()}, actuator, events);
  }
  static LoopOptions defaults() {
    LoopOptions o;
    o.episode_steps = 10;
    o.capacity.cores = 4;
    o.capacity.memory_bytes = 4096 * kMiB;
    return o;
  }
  void add(std::shared_ptr<const Rule> rule) {
    ASSERT_TRUE(loop->add_target(at(0), target(kWeb, "web"), std::move(rule)));
  }
  TickReport tick() { return loop->tick(at(++time)); }
  void ticks(int n) {
    for (int i = 0; i < n; ++i) tick();
  }
  const Decision& last(TargetId id = kWeb) { return loop->history(id)->back(); }
  double cpu() { return actuator.value(kWeb, KnobKind::CpuLimit); }

  double usage = 0.9;
  double time = 0;
  std::function<void(Now, TargetId, Observation&)> observe;
  FakeActuator actuator;
  std::unique_ptr<FakeCollector> collector;
  std::unique_ptr<ControlLoop> loop;
  std::vector<AgentChange> changes;
  int decided = 0;
};

}  // namespace flash::loop_fixture
