#include "agents/agent.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "agents/ddpg.h"
#include "agents/q_learning.h"
#include "agents/replay.h"
#include "agents/scaling.h"

namespace flash {
namespace {

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

Result<void> check(const AgentSpaces& spaces, const AgentOptions& o) {
  if (spaces.state_dim < 1 || spaces.state_dim > 256) return invalid("state_dim is not within 1 to 256");
  if (spaces.action_dim < 1 || spaces.action_dim > 256) return invalid("action_dim is not within 1 to 256");
  if (o.limits_offline != "td3+bc" && o.limits_offline != "bcq")
    return invalid("limits_offline: '" + o.limits_offline + "' is neither td3+bc nor bcq");
  if (o.frequency_offline != "iql" && o.frequency_offline != "bcq")
    return invalid("frequency_offline: '" + o.frequency_offline + "' is neither iql nor bcq");
  if (o.frequency_algorithm != "q-learning" && o.frequency_algorithm != "tabular-q")
    return invalid("frequency_algorithm: '" + o.frequency_algorithm +
                   "' is neither q-learning nor tabular-q");
  if (!(o.discount >= 0 && o.discount < 1)) return invalid("discount is not within [0, 1)");
  if (o.learning_starts < 1) return invalid("learning_starts is below 1");
  if (o.replay_steps < o.learning_starts) return invalid("replay_steps is below learning_starts");
  return {};
}

}  // namespace

struct Agent::Impl {
  AgentSpaces spaces;
  AgentOptions options;
  Replay replay;
  Scaling scaling;
  Random random;
  std::variant<Ddpg, QLearning> learner;
  std::uint64_t seen = 0;  // transitions ever added
  std::uint64_t online_updates = 0;
  std::uint64_t measured_at = 0;  // value of `seen` when the scaling was last measured

  Impl(const AgentSpaces& s, const AgentOptions& o)
      : spaces(s),
        options(o),
        replay(s.state_dim, s.task == Task::CpuFrequency ? 1 : s.action_dim,
               static_cast<std::size_t>(o.replay_steps)),
        scaling(unscaled(s.state_dim, o.discount)),
        random(o.seed) {
    if (s.task == Task::CpuFrequency) {
      QLearningOptions q;
      q.double_q = o.double_q;
      q.discount = o.discount;
      learner = make_q_learning(s.state_dim, s.action_dim, q, random);
    } else {
      DdpgOptions d;
      d.discount = o.discount;
      learner = make_ddpg(s.state_dim, s.action_dim, d, random);
    }
  }

  bool ready() const { return replay.size() >= static_cast<std::size_t>(options.learning_starts); }

  /// Measured again each time the data has doubled: in between the networks' inputs and outputs keep their
  /// meaning, and at each change they are rewritten to compute the same.
  void rescale_when_due() {
    if (seen < 2 * measured_at) return;
    measured_at = seen;
    const Scaling to = measure(replay, options.discount);
    std::visit([&](auto& l) { rescale(l, scaling, to); }, learner);
    scaling = to;
  }
};

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::create(const AgentSpaces& spaces, const AgentOptions& options) {
  FLASH_CHECK(check(spaces, options));
  return std::unique_ptr<Agent>(new Agent(std::make_unique<Impl>(spaces, options)));
}

Result<void> Agent::add(const Transition& t) {
  const AgentSpaces& s = impl_->spaces;
  const bool levels = s.task == Task::CpuFrequency;
  const auto sane = [](const std::vector<float>& v) {
    return std::all_of(v.begin(), v.end(), [](float x) { return std::abs(x) <= 1e6F; });
  };
  const auto is_action = [&](const std::vector<float>& a) {
    if (a.size() != static_cast<std::size_t>(levels ? 1 : s.action_dim)) return false;
    return std::all_of(a.begin(), a.end(), [&](float x) {
      return levels ? x >= 0 && x < static_cast<float>(s.action_dim) && x == std::floor(x) : std::abs(x) <= 1;
    });
  };
  if (t.state.size() != static_cast<std::size_t>(s.state_dim) || t.next_state.size() != t.state.size())
    return invalid("transition: states have " + std::to_string(t.state.size()) + " and " +
                   std::to_string(t.next_state.size()) + " entries, not " + std::to_string(s.state_dim));
  if (!sane(t.state) || !sane(t.next_state) || !(std::abs(t.reward) <= 1e6F))
    return invalid("transition: a state or the reward is not finite or beyond +-1e6");
  if (!is_action(t.action)) return invalid("transition: the action is not in the action space");
  if (!t.fallback.empty() && !is_action(t.fallback))
    return invalid("transition: the fallback's action is not in the action space");
  if (!t.next_fallback.empty() && !is_action(t.next_fallback))
    return invalid("transition: the fallback's next action is not in the action space");
  impl_->replay.add(t);
  ++impl_->seen;
  return {};
}

std::size_t Agent::transitions() const {
  return impl_->replay.size();
}
bool Agent::ready() const {
  return impl_->ready();
}

UpdateReport Agent::learn_offline(int) {
  return {};
}

UpdateReport Agent::learn_online(int n) {
  UpdateReport report;
  if (!impl_->ready()) return report;
  impl_->rescale_when_due();
  for (int i = 0; i < n; ++i) {
    if (auto* ddpg = std::get_if<Ddpg>(&impl_->learner)) {
      const Losses l =
          update(*ddpg, sample(impl_->replay, impl_->scaling, impl_->random, ddpg->options.batch, false));
      report.critic_loss += l.critic / n;
      report.actor_loss += l.actor / n;
    } else if (auto* q = std::get_if<QLearning>(&impl_->learner)) {
      report.critic_loss +=
          update(*q, sample(impl_->replay, impl_->scaling, impl_->random, q->options.batch, true)) / n;
    }
    ++report.updates;
    ++impl_->online_updates;
  }
  return report;
}

OffPolicyEstimate Agent::estimate() {
  return {};
}

PolicySnapshot Agent::snapshot() const {
  PolicySnapshot p;
  p.task = impl_->spaces.task;
  p.mean = impl_->scaling.mean;
  p.scale = impl_->scaling.scale;
  p.value_offset = static_cast<float>(impl_->scaling.value_offset());
  p.value_scale = static_cast<float>(impl_->scaling.value_scale());
  if (const auto* ddpg = std::get_if<Ddpg>(&impl_->learner)) {
    p.algorithm = "ddpg";
    p.actor = to_layers(ddpg->actor);
    p.critic = to_layers(ddpg->critic);
  } else if (const auto* q = std::get_if<QLearning>(&impl_->learner)) {
    p.algorithm = "q-learning";
    p.actor = to_layers(q->q);
  }
  return p;
}

TensorFile Agent::checkpoint() const {
  return {};
}
Result<void> Agent::restore(const TensorFile&) {
  return invalid("a checkpoint");
}

std::string prepare_libtorch(std::string&) {
  return "libtorch";
}

}  // namespace flash
