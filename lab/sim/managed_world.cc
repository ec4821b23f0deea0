#include "lab/sim/managed_world.h"

#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "policy/action_space.h"
#include "policy/task.h"

namespace flash {
namespace {

Target target_of(const Pair& pair, std::uint64_t id) {
  Target t;
  t.name = pair.application().name;
  t.application = t.name;
  t.rule = pair.rule().name;
  t.id = {task_spec(pair.task()).target, id, pair.task()};
  if (t.id.kind == TargetKind::CpuSet) {
    for (int i = 0; i < pair.cpus(); ++i) t.cpus.push_back(i);
  } else {
    t.cgroup = "/" + t.name;
  }
  return t;
}

LoopOptions loop_options(const Pair& pair, std::uint64_t seed, int episode_steps) {
  LoopOptions o;
  o.mode = Mode::Control;
  o.episode_steps = episode_steps;
  o.history = 4;
  o.seed = seed;
  o.capacity = pair.node();
  return o;
}

/// The node model as the kernel is to flashd: samples out, knob values in.
class SimulatedNode final : public Collector, public Actuator {
 public:
  explicit SimulatedNode(const WorldCore& world) : world_(&world) {}

  std::string_view name() const override { return "simulated"; }
  void track(const Target&) override {}
  void untrack(TargetId) override {}
  void collect(Now, ObservationTable& table) override {
    for (auto& [id, observation] : table) observation = world_->observation();
  }
  std::vector<Degraded> degraded() const override { return {}; }

  Result<void> adopt(const Target& target, const Rule&) override {
    const TaskSpec& spec = task_spec(target.task());
    for (std::size_t i = 0; i < world_->in_force().size(); ++i) {
      KnobView v;
      v.kind = spec.knobs[i];
      v.writable = true;
      v.original = world_->in_force()[i];
      v.lower = world_->pair().range(v.kind.kind).lower;
      v.upper = world_->pair().range(v.kind.kind).upper;
      v.driver = "simulated";
      if (spec.form() == ActionForm::Discrete)
        v.steps.assign(world_->pair().steps().begin(), world_->pair().steps().end());
      knobs_.push_back(std::move(v));
    }
    return {};
  }
  void observe(Now) override {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      knobs_[i].current = Sample::good(world_->in_force()[i]);
      wanted_[i] = world_->in_force()[i];
    }
  }
  std::span<const KnobView> knobs(TargetId) const override { return knobs_; }
  std::vector<KnobOutcome> apply(Now, std::span<const KnobChange> changes) override {
    std::vector<KnobOutcome> out;
    for (const KnobChange& c : changes) {
      for (std::size_t i = 0; i < knobs_.size(); ++i)
        if (knobs_[i].kind == c.kind) wanted_[i] = c.value;
      out.push_back({c.kind, WriteStatus::Written, c.value, c.value, {}});
    }
    return out;
  }
  RestoreReport release(TargetId) override { return {}; }
  void forget(TargetId) override {}
  void hold(TargetId, Now, std::optional<Duration>, std::string) override {}
  void unhold(TargetId) override {}
  RestoreReport restore_all() override { return {}; }
  std::vector<std::string> verify() override { return {}; }

  std::span<const double> wanted() const { return {wanted_.data(), knobs_.size()}; }

 private:
  const WorldCore* world_;
  std::vector<KnobView> knobs_;
  KnobValues wanted_{};
};

}  // namespace

StepStats step_stats(const WorldCore& world) {
  const Observation& o = world.observation();
  const Pair& pair = world.pair();
  const Sample& p99 = o[Signal::LatencyP99];
  const NodeTick& t = world.truth();
  StepStats s;
  s.reward = world.reward().value;
  s.trusted = world.reward().trusted;
  s.violated = (p99.usable() && p99.value > pair.rule().slo.latency_p99_ms.value_or(kUnlimited)) ||
               t.refused > 0 || (t.completed == 0 && world.node().backlog >= 1);
  for (std::size_t i = 0; i < world.in_force().size(); ++i)
    simulated_knob(world.spec().knobs[i]).report(world, world.in_force()[i], s);
  return s;
}

struct ManagedWorld::Impl {
  WorldCore world;
  SimulatedNode node{world};
  std::function<Now()> clock;
  Target target;
  ControlLoop loop;

  Impl(const Pair& pair, std::uint64_t seed, ManagedOptions options)
      : clock(std::move(options.clock)),
        target(target_of(pair, options.id)),
        loop(loop_options(pair, seed, options.episode_steps), {&node}, node, std::move(options.events)) {}
  Now now() const {
    if (clock) return clock();
    const Duration d = std::chrono::seconds(world.step());
    return {d, WallTime(d)};
  }
};

ManagedWorld::ManagedWorld(const Pair& pair, Rule rule, double offset_s, std::uint64_t seed,
                           ManagedOptions options)
    : impl_(std::make_unique<Impl>(pair, seed, std::move(options))) {
  impl_->world.reset(pair, offset_s, seed);
  rule.mode = Mode::Control;
  rule.mode_given = true;
  // Neither can fail: the target is new, and the simulated node adopts whatever it is given.
  static_cast<void>(
      impl_->loop.add_target(impl_->now(), impl_->target, std::make_shared<const Rule>(std::move(rule))));
  impl_->loop.tick(impl_->now());
}
ManagedWorld::~ManagedWorld() = default;

StepStats ManagedWorld::step() {
  Impl& i = *impl_;
  const Stage stage = decision().stage;
  const bool learned = decision().controller == Controller::Learned, explored = decision().explored;
  i.world.execute(i.node.wanted());
  i.loop.tick(i.now());
  StepStats s = step_stats(i.world);
  s.reward = decision().reward.value;
  s.trusted = decision().reward.trusted;
  s.stage = stage;
  s.learned = learned;
  s.explored = explored;
  return s;
}

const Decision& ManagedWorld::decision() const {
  return impl_->loop.history(impl_->target.id)->back();
}

Result<void> ManagedWorld::offer(PolicySnapshot snapshot) {
  return impl_->loop.offer_snapshot(impl_->now(), impl_->target.id,
                                    std::make_shared<const PolicySnapshot>(std::move(snapshot)));
}

void ManagedWorld::change_pair(const Pair& pair) {
  impl_->world.change_pair(pair);
}

AgentView ManagedWorld::view() const {
  return *impl_->loop.view(impl_->target.id);
}

const WorldCore& ManagedWorld::world() const {
  return impl_->world;
}

}  // namespace flash
