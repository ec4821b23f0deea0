// Purpose: a target without troubles, whose decisions may be varied: 2 cores of which one is used, 400 MiB of which
// half are; or a frequency of 2 GHz.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "policy/exploration.h"
#include "tests/policy/fixtures.h"

namespace flash::exploring {

struct World {
  World() {
    rule.slo.latency_p99_ms = 10;
    KnobView cpu, memory;
    cpu.kind = KnobKind::CpuLimit;
    memory.kind = KnobKind::MemoryLimit;
    cpu.writable = memory.writable = true;
    cpu.current = Sample::good(2);
    memory.current = Sample::good(400 * kMiB);
    knobs = {cpu, memory};
    contexts = {{KnobKind::CpuLimit, 0.1, 8, {}}, {KnobKind::MemoryLimit, 64 * kMiB, 8192 * kMiB, {}}};
    o[Signal::CpuUsage] = Sample::good(1);
    o[Signal::CpuThrottled] = Sample::good(0);
    o[Signal::MemoryWorkingSet] = Sample::good(200 * kMiB);
    o[Signal::LatencyP99] = Sample::good(4);
    o[Signal::RequestRate] = Sample::good(100);
    wanted.set(KnobKind::CpuLimit, 2);
    wanted.set(KnobKind::MemoryLimit, 400 * kMiB);
    in.rule = &rule;
    in.stage = Stage::Offline;
    in.controller = Controller::Fallback;
    in.executing = in.state_trusted = true;
    in.observation = &o;
    in.cores = 2;
    in.flaps = &flaps;
  }
  static World frequency(std::vector<double> steps) {
    World w;
    w.rule.task = Task::CpuFrequency;
    w.knobs.resize(1);
    w.knobs[0].kind = KnobKind::CpuFrequency;
    w.knobs[0].current = Sample::good(2e6);
    w.contexts = {{KnobKind::CpuFrequency, 1e6, 3e6, std::move(steps)}};
    w.wanted = Action{};
    w.wanted.set(KnobKind::CpuFrequency, 2e6);
    w.o[Signal::CpuUsage] = Sample::good(0.5);
    return w;
  }
  /// As a learned policy in this stage.
  void learned(Stage stage, float epsilon, float sigma) {
    in.stage = stage;
    in.controller = Controller::Learned;
    policy.snapshot.exploration = {epsilon, sigma};
  }
  bool step(Explorer& e) {
    ++in.step;
    in.rule = &rule;
    in.observation = &o;
    in.flaps = &flaps;
    in.knobs = knobs;
    in.contexts = contexts;
    in.current = wanted;
    in.policy = in.controller == Controller::Learned ? &policy : nullptr;
    in.state = state;
    in.scratch = &scratch;
    proposed = wanted;
    words.clear();
    return e.vary(in, proposed, words);
  }
  int varied(Explorer& e, int steps) {
    int n = 0;
    for (int i = 0; i < steps; ++i) n += step(e) ? 1 : 0;
    return n;
  }
  Rule rule;
  Observation o;
  std::vector<KnobView> knobs;
  std::vector<KnobContext> contexts;
  KnobMap<FlapRecord> flaps;
  CompiledPolicy policy{PolicySnapshot{}};
  std::vector<float> state;
  EvaluatorScratch scratch;
  ExplorationInput in;
  Action wanted, proposed;
  std::string words;
};

}  // namespace flash::exploring
