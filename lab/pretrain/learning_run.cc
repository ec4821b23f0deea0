#include "lab/pretrain/learning_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "agents/off_policy_estimate.h"
#include "lab/pretrain/adaptation.h"
#include "meta/trajectory_buffer.h"
#include "policy/action_space.h"

namespace flash {
namespace {

/// A life is shorter; how policies expire is tested elsewhere.
constexpr Duration kExpires = std::chrono::hours(24 * 29);

/// A step as the learner remembers it until the next one makes a transition of it.
struct Remembered {
  LearningView view;
  bool by_fallback = false;
};

}  // namespace

void EpisodeSum::add(const StepStats& s) {
  sum_.reward += s.reward;
  sum_.violations += s.violated ? 1 : 0;
  sum_.cpu += s.cpu;
  sum_.memory += s.memory;
  sum_.place += s.place;
  sum_.learned += s.learned ? 1 : 0;
  sum_.explored += s.explored ? 1 : 0;
  sum_.stage = s.stage;
  ++seconds_;
}

EpisodeStats EpisodeSum::take() {
  for (double* v :
       {&sum_.reward, &sum_.violations, &sum_.cpu, &sum_.memory, &sum_.place, &sum_.learned, &sum_.explored})
    *v /= std::max(1, seconds_);
  seconds_ = 0;
  return std::exchange(sum_, {});
}

struct LearningRun::Impl {
  LearningRunOptions options;
  ManagedWorld world;
  Task task;
  std::unique_ptr<Agent> agent;
  const SharedPolicy* shared = nullptr;
  Random chance;

  std::optional<Remembered> last;
  std::uint64_t version = 0, updates = 0, updates_at_offer = 0;
  int since_offer = 0;
  std::uint64_t transitions = 0;
  // Of a shared policy.
  Replay replay;  // of the fallback's steps, for the estimate
  TrajectoryBuffer known;
  Recorded recording;
  bool initial = false;  // a step of it was in the stage INITIALIZED

  Impl(const Pair& pair, Rule rule, const LearningRunOptions& o)
      : options(o),
        world(pair, std::move(rule), o.offset_s, o.seed),
        task(pair.task()),
        chance(Random(o.seed).fork(0x11fe)),
        replay(state_dim(task), action_size(task), 1000),
        known(*TrajectoryBuffer::create(
            {.state_dim = state_dim(task), .action_dim = action_size(task), .steps = kEpisodeSteps})) {
    take_step();
  }

  bool bootstrapping() const {
    const Stage s = world.decision().stage;
    return s == Stage::Initialized || s == Stage::Offline;
  }
  void take_step();
  void learn(const Transition& t);
  void end_episode();
  void offer(PolicySnapshot policy, const OffPolicyEstimate& estimate);
};

/// What flash-learner does with a step (Trainer::take).
void LearningRun::Impl::take_step() {
  const Decision& d = world.decision();
  std::optional<Transition> t;
  if (last && last->view.state_trusted && d.learning.state_trusted && d.reward.given && d.reward.trusted &&
      !last->view.action.empty()) {
    t.emplace();
    t->state = last->view.state;
    t->action = last->view.action;
    t->reward = static_cast<float>(d.reward.value);
    t->next_state = d.learning.state;
    t->by_fallback = last->by_fallback;
    t->fallback = last->view.fallback;
    t->next_fallback = d.learning.fallback;
  }
  last = Remembered{d.learning, d.controller == Controller::Fallback};
  if (t) {
    ++transitions;
    if (shared) {
      recording.rows.insert(recording.rows.end(), t->state.begin(), t->state.end());
      recording.rows.insert(recording.rows.end(), t->action.begin(), t->action.end());
      recording.rows.push_back(t->reward);
      ++recording.steps;
      initial = initial || d.stage == Stage::Initialized;
      if (t->by_fallback) replay.add(*t);
    } else if (agent) {
      learn(*t);
    }
  }
  if (d.learning.end_of_episode) end_episode();
}

void LearningRun::Impl::learn(const Transition& t) {
  if (!agent->add(t)) return;
  if (world.decision().stage != Stage::Online) return;
  if (agent->ready()) updates += agent->learn_online(options.updates_per_step).updates;
  if (++since_offer < options.publish_steps || updates == updates_at_offer || !agent->learned()) return;
  offer(agent->snapshot(), {});
}

void LearningRun::Impl::end_episode() {
  if (shared) {
    if (recording.steps > 0)
      static_cast<void>(
          known.insert(trajectory_of(std::exchange(recording, {}), task), std::exchange(initial, false)));
    PolicySnapshot policy = shared->snapshot(shared->embed(std::span<const TrajectoryBuffer>(&known, 1)));
    OffPolicyEstimate estimate;
    if (bootstrapping()) estimate = off_policy_estimate(replay, policy, {}, Random(chance.next()));
    offer(std::move(policy), estimate);
    return;
  }
  if (!agent) return;
  // An agent that came with a policy keeps it until it has lost the seat.
  const bool has_policy = world.decision().stage == Stage::Initialized && agent->learned();
  if (bootstrapping() && !has_policy && agent->ready())
    updates += agent->learn_offline(options.offline_updates).updates;
  if (!agent->learned() || (updates == updates_at_offer && version > 0)) return;
  offer(agent->snapshot(), bootstrapping() ? agent->estimate() : OffPolicyEstimate{});
}

void LearningRun::Impl::offer(PolicySnapshot policy, const OffPolicyEstimate& estimate) {
  since_offer = 0;
  updates_at_offer = updates;
  policy.version = ++version;
  policy.data_steps = transitions;
  policy.expires = world.decision().at.wall + kExpires;
  policy.estimate = estimate;
  static_cast<void>(world.offer(std::move(policy)));  // a refusal is counted in the seat
}

LearningRun::LearningRun(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LearningRun::LearningRun(LearningRun&&) noexcept = default;
LearningRun::~LearningRun() = default;

LearningRun LearningRun::of_rule(const Pair& pair, Rule rule, const LearningRunOptions& options) {
  rule.exploration.fallback_share = 0;
  return LearningRun(std::make_unique<Impl>(pair, std::move(rule), options));
}

LearningRun::LearningRun(const Pair& pair, Rule rule, std::unique_ptr<Agent> agent,
                         const LearningRunOptions& options)
    : impl_(std::make_unique<Impl>(pair, std::move(rule), options)) {
  impl_->agent = std::move(agent);
}

LearningRun::LearningRun(const Pair& pair, Rule rule, const SharedPolicy& policy,
                         const LearningRunOptions& options)
    : impl_(std::make_unique<Impl>(pair, std::move(rule), options)) {
  impl_->shared = &policy;
}

EpisodeStats LearningRun::live() {
  EpisodeSum sum;
  for (int t = 0; t < kEpisodeSteps; ++t) {
    sum.add(impl_->world.step());
    impl_->take_step();
  }
  return sum.take();
}

Stage LearningRun::stage() const {
  return impl_->world.decision().stage;
}
void LearningRun::replace_agent(std::unique_ptr<Agent> agent) {
  impl_->agent = std::move(agent);
  impl_->offer(impl_->agent->snapshot(), {});
}
AgentView LearningRun::view() const {
  return impl_->world.view();
}
void LearningRun::change_pair(const Pair& pair) {
  impl_->world.change_pair(pair);
}

}  // namespace flash
