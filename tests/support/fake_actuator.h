// Purpose: an Actuator and a Collector in memory, for tests of the control loop: knobs are plain numbers,
// samples come from a function. Writes can be made to fail, knobs to vanish, others to write.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/ports.h"

namespace flash::fake {

class FakeActuator final : public Actuator {
 public:
  /// What adopt() will find; also the hardware's range. Call before the target is added.
  void offer(TargetId id, const KnobId& kind, double value, double lower = 0, double upper = kUnlimited,
             std::vector<double> steps = {}) {
    KnobView v;
    v.kind = kind;
    v.current = Sample::good(value);
    v.original = value;
    v.lower = lower;
    v.upper = upper;
    v.steps = std::move(steps);
    v.writable = true;
    v.driver = "fake";
    offered_[id].push_back(v);
  }
  KnobView& knob(TargetId id, const KnobId& kind) {
    for (KnobView& v : managed_[id])
      if (v.kind == kind) return v;
    return managed_[id].emplace_back();
  }
  double value(TargetId id, const KnobId& kind) { return knob(id, kind).current.value; }
  /// A knob of a target that is there already comes, or goes without a trace.
  void come(TargetId id, const KnobId& kind, double value, double lower = 0, double upper = kUnlimited) {
    KnobView& v = knob(id, kind);
    v.kind = kind;
    v.current = Sample::good(value);
    v.original = value;
    v.lower = lower;
    v.upper = upper;
    v.writable = true;
    v.driver = "fake";
  }
  void go(TargetId id, const KnobId& kind) {
    std::erase_if(managed_[id], [&kind](const KnobView& v) { return v.kind == kind; });
  }
  /// Somebody else writes.
  void foreign(TargetId id, const KnobId& kind, double value) {
    knob(id, kind).current = Sample::good(value);
  }
  /// The next writes to this target fail with this message; empty: they work again.
  void fail_writes(TargetId id, std::string message) { failing_[id] = std::move(message); }
  void vanish(TargetId id) {
    for (KnobView& v : managed_[id]) {
      v.current = Sample::missing();
      v.lease = LeaseState::Gone;
      v.writable = false;
      v.lease_reason = "gone";
    }
    failing_[id] = "No such file or directory";
  }

  Result<void> adopt(const Target& target, const Rule&) override {
    ++adopted;
    if (!refuse_adoption.empty()) return Error(std::errc::io_error, refuse_adoption);
    if (!managed_.contains(target.id)) managed_[target.id] = offered_[target.id];
    return {};
  }
  RestoreReport release(TargetId target) override {
    ++released;
    RestoreReport report = put_back(target);
    for (const KnobView& v : managed_[target])
      for (KnobView& o : offered_[target])
        if (o.kind == v.kind) o.current = v.current;
    if (!refuse_restoring) managed_.erase(target);
    return report;
  }
  void forget(TargetId target) override {
    ++forgotten;
    managed_.erase(target);
  }
  void observe(Now) override { ++observed; }
  std::span<const KnobView> knobs(TargetId target) const override {
    const auto it = managed_.find(target);
    return it == managed_.end() ? std::span<const KnobView>{} : std::span<const KnobView>(it->second);
  }
  std::vector<KnobOutcome> apply(Now, std::span<const KnobChange> changes) override {
    ++transactions;
    std::vector<KnobOutcome> out;
    for (const KnobChange& c : changes) {
      KnobOutcome o;
      o.knob = c.kind;
      o.asked = c.value;
      KnobView& v = knob(c.target, c.kind);
      if (const auto it = failing_.find(c.target); it != failing_.end() && !it->second.empty()) {
        o.status = WriteStatus::Failed;
        o.executed = v.current.value;
        o.message = it->second;
      } else {
        o.status = WriteStatus::Written;
        o.executed = c.value;
        v.current = Sample::good(c.value);
        v.lease = LeaseState::Ours;
        ++v.writes;
        written.push_back(c);
      }
      out.push_back(std::move(o));
    }
    return out;
  }
  void hold(TargetId target, Now, std::optional<Duration> until, std::string) override {
    held_until[target] = until;
    for (KnobView& v : managed_[target]) {
      v.lease = LeaseState::Held;
      v.writable = false;
    }
  }
  void unhold(TargetId target) override {
    held_until.erase(target);
    for (KnobView& v : managed_[target]) {
      v.lease = LeaseState::Unclaimed;
      v.writable = true;
    }
  }
  RestoreReport restore_all() override {
    RestoreReport all;
    for (auto& [id, views] : managed_)
      for (auto& item : put_back(id).items) all.items.push_back(std::move(item));
    return all;
  }
  std::vector<std::string> verify() override { return {}; }
  std::vector<Degraded> degraded() const override { return {}; }

  std::string refuse_adoption;
  bool refuse_restoring = false;
  std::vector<KnobChange> written;
  std::map<TargetId, std::optional<Duration>> held_until;
  int adopted = 0, released = 0, forgotten = 0, observed = 0, transactions = 0;

 private:
  RestoreReport put_back(TargetId id) {
    RestoreReport report;
    for (KnobView& v : managed_[id]) {
      if (v.writes == 0) continue;
      if (refuse_restoring) {
        report.items.push_back({{v.kind, id, "fake", ""}, false, "Invalid argument"});
        continue;
      }
      v.current = Sample::good(v.original);
      v.lease = LeaseState::Released;
      v.writes = 0;
      report.items.push_back({{v.kind, id, "fake", ""}, true, ""});
    }
    return report;
  }
  std::map<TargetId, std::vector<KnobView>> offered_, managed_;
  std::map<TargetId, std::string> failing_;
};

class FakeCollector final : public Collector {
 public:
  using Fill = std::function<void(Now, TargetId, Observation&)>;
  explicit FakeCollector(Fill f) : fill(std::move(f)) {}
  std::string_view name() const override { return "fake"; }
  void track(const Target& target) override { tracked.push_back(target.id); }
  void untrack(TargetId id) override { std::erase(tracked, id); }
  void collect(Now now, ObservationTable& table) override {
    for (auto& [id, observation] : table) fill(now, id, observation);
  }
  std::string_view ceiling_of(TargetId, Signal signal) const override {
    return signal == Signal::CpuCeiling ? cores_of : memory_of;
  }
  Fill fill;
  std::string cores_of, memory_of;  // ceiling_of() any target
  std::vector<TargetId> tracked;
};

}  // namespace flash::fake
