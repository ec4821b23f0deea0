// Purpose: a DbusService over a real ControlLoop with three agents on fake knobs: "web" (a container), "db"
// (a unit) and CPUs 0-1, the last of which shares web's application.
// Ownership: owns loop and service, borrows the bus.
// Thread rule: one thread.
#pragma once

#include <systemd/sd-bus.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/dbus_service.h"
#include "policy/action_space.h"
#include "policy/control_loop.h"
#include "policy/observation_space.h"
#include "tests/support/fake_actuator.h"

namespace flash::fake {

struct ServiceWorld {
  static constexpr TargetId kWeb{TargetKind::Cgroup, 11};
  static constexpr TargetId kDb{TargetKind::Cgroup, 12};
  static constexpr TargetId kCpus{TargetKind::CpuSet, 13};
  static constexpr const char* kWebPath = "/org/flashd/agent/limits_11";

  ServiceWorld()
      : collector([](Now, TargetId, Observation& o) {
          o[Signal::CpuUsage] = Sample::good(0.9);
          o[Signal::CpuLimit] = Sample::good(1.0);
          o[Signal::MemoryUsage] = Sample::good(100e6);
          o[Signal::MemoryWorkingSet] = Sample::good(100e6);
        }),
        loop(options(), {&collector}, actuator, {[this](TargetId id, AgentChange change) {
               if (service) service->agent_changed(id, change);
             }}) {}

  /// Puts the service on the bus and adds the targets.
  void start(sd_bus* bus) {
    DbusCallbacks c;
    c.version = "1.2.3";
    c.now = [this] { return now; };
    c.reload = [this]() -> Result<void> {
      if (reload_error.empty()) return {};
      return Error(std::errc::invalid_argument, reload_error);
    };
    c.verify = [this] { return differences; };
    c.degraded = [] { return std::vector<Degraded>{{"perf", "no hardware PMU"}}; };
    c.sources = [] {
      return std::vector<SignalSource>{{Signal::TaskClock, "ebpf", 3, ""},
                                       {Signal::Instructions, "proxy", 3, "no hardware PMU"}};
    };
    c.learner = [] { return std::string("absent"); };
    c.learner_error = [] { return std::string("version 3 is not above 5"); };
    c.learner_counters = [] {
      return std::vector<std::pair<std::string, std::uint64_t>>{{"offers", 12}, {"refused", 1}};
    };
    c.learning = [](TargetId id) { return "learning for " + agent_name(id); };
    c.nearest = [](TargetId id) { return "shop@n2 for " + agent_name(id); };
    c.journal_counters = [] { return Counters{{"decisions", 24}, {"dropped", 2}}; };
    c.metrics_counters = [] { return Counters{{"lines", 7}}; };
    c.period = [] { return Duration(std::chrono::seconds(1)); };
    c.ticks = [this] { return ticks; };
    c.tick_duration = [] { return Duration(std::chrono::microseconds(42)); };
    c.log = [this](const ChangeRecord& r) { records.push_back(r); };
    auto opened = DbusService::open(bus, loop, std::move(c));
    if (!opened) throw std::runtime_error(opened.error().message());
    service = std::move(opened).value();
    add(kWeb, "shop-web", "/machine/shop-web", "", {"docker", "0123456789abcdef0123", "shop-web", ""},
        "shop");
    add(kDb, "db.service", "/system.slice/db.service", "db.service", {}, "database");
    add(kCpus, "cpus 0-1", "", "", {}, "shop");
  }

  void add(TargetId id, const std::string& name, const std::string& cgroup, const std::string& unit,
           const Container& container, const std::string& application) {
    Target t;
    t.id = id;
    t.name = name;
    t.cgroup = cgroup;
    t.unit = unit;
    t.container = container;
    t.application = application;
    auto rule = std::make_shared<Rule>();
    rule->name = "rule-of-" + name;
    rule->task = t.task();
    if (id.kind == TargetKind::Cgroup) {
      actuator.offer(id, KnobKind::CpuLimit, 1.0, 0.01, 4.0);
      actuator.offer(id, KnobKind::MemoryLimit, kUnlimited, 4096);
    } else {
      t.cpus = {0, 1};
      actuator.offer(id, KnobKind::CpuFrequency, 2e6, 1e6, 3e6, {1e6, 2e6, 3e6});
    }
    t.rule = rule->name;
    if (auto added = loop.add_target(now, t, rule); !added) throw std::runtime_error(added.error().message());
  }

  void tick(int n = 1) {
    for (int i = 0; i < n; ++i) {
      now.mono += std::chrono::seconds(1);
      now.wall += std::chrono::seconds(1);
      ++ticks;
      loop.tick(now);
    }
  }

  /// To "web": a network whose output depends on the CPU's utilisation.
  Result<void> offer_policy(std::uint64_t version) {
    PolicySnapshot p;
    p.task = Task::ResourceLimits;
    p.version = version;
    p.algorithm = "td3+bc";
    p.model = "td3+bc, seed 1";
    p.data_steps = 1200;
    p.expires = now.wall + std::chrono::seconds(600);
    const auto states = static_cast<std::size_t>(state_dim(p.task));
    p.mean.assign(states, 0);
    p.scale.assign(states, 1);
    p.embedding = {0.5F};
    DenseLayer out{state_dim(p.task) + 1, action_dim(p.task), {}, {0, 0}, Activation::Tanh};
    out.weights.assign((states + 1) * 2, 0);
    out.weights[2] = out.weights[states + 1 + 2] = 0.5F;
    p.actor = {out};
    p.estimate = {true, "fqe", 0.8F, 0.7F, -0.01F, 0.2F, 400};
    return loop.offer_snapshot(now, kWeb, std::make_shared<const PolicySnapshot>(std::move(p)));
  }

  static LoopOptions options() {
    LoopOptions o;
    o.episode_steps = 10;
    o.capacity.cores = 4;
    o.capacity.memory_bytes = 4e9;
    return o;
  }

  Now now{std::chrono::seconds(100), WallTime(std::chrono::seconds(1'700'000'000))};
  std::uint64_t ticks = 0;
  std::string reload_error;
  std::vector<std::string> differences;
  std::vector<ChangeRecord> records;
  FakeActuator actuator;
  FakeCollector collector;
  ControlLoop loop;
  std::unique_ptr<DbusService> service;
};

}  // namespace flash::fake
