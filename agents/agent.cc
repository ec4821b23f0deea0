#include "agents/agent.h"

#include <algorithm>
#include <cmath>

#include "agents/learner.h"
#include "agents/net.h"
#include "agents/off_policy_estimate.h"
#include "agents/offline.h"
#include "agents/registry.h"
#include "agents/replay.h"
#include "agents/scaling.h"
#include "core/json.h"

namespace flash {
namespace {

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

Result<void> check(const AgentSpaces& spaces, const AgentOptions& o) {
  if (spaces.state_dim < 1 || spaces.state_dim > 256) return invalid("state_dim is not within 1 to 256");
  if (spaces.action_dim < 1 || spaces.action_dim > 256) return invalid("action_dim is not within 1 to 256");
  if (!(o.discount >= 0 && o.discount < 1)) return invalid("discount is not within [0, 1)");
  if (o.learning_starts < 1) return invalid("learning_starts is below 1");
  if (o.replay_steps < o.learning_starts) return invalid("replay_steps is below learning_starts");
  return {};
}

/// From `first` to `last` while the agent makes its first `kExploring` steps of its own; by the fallback's
/// steps nothing is explored.
constexpr double kExploring = 2000;
float schedule(double first, double last, std::uint64_t own_steps) {
  return static_cast<float>(first +
                            (last - first) * std::min(1.0, static_cast<double>(own_steps) / kExploring));
}

}  // namespace

struct Agent::Impl {
  AgentSpaces spaces;
  ActionForm form;
  AgentOptions options;
  AlgorithmRow algorithm;
  Replay replay;
  Scaling scaling;
  Random random;
  std::unique_ptr<Learner> learner;
  Offline offline;
  std::uint64_t seen = 0;         // transitions ever added
  std::uint64_t own_steps = 0;    // of them, not by the fallback
  std::uint64_t measured_at = 0;  // value of `seen` when the scaling was last measured
  std::uint64_t online_updates = 0, offline_updates = 0;
  std::vector<at::Tensor> last_finite;  // parameters of all parts
  std::uint64_t copied_at = 0;          // value of online_updates + offline_updates

  Impl(const AgentSpaces& s, const AgentOptions& o, const AlgorithmRow& online,
       const AlgorithmRow& offline_row, Random r, std::unique_ptr<Learner> l)
      : spaces(s),
        form(action_form(s.task)),
        options(o),
        algorithm(online),
        replay(s.state_dim, action_size(), static_cast<std::size_t>(o.replay_steps)),
        scaling(unscaled(s.state_dim, o.discount)),
        random(r),
        learner(std::move(l)),
        offline(s, o, offline_row, online) {
    last_finite = copy_parts(learner->parts());
  }

  bool levels() const { return form == ActionForm::Discrete; }
  /// Numbers of an action as it is logged.
  int action_size() const { return levels() ? 1 : spaces.action_dim; }
  bool ready() const { return replay.size() >= static_cast<std::size_t>(options.learning_starts); }
  Experience experience(bool by_fallback_only) { return {replay, scaling, random, by_fallback_only}; }

  /// The networks are rewritten to compute the same.
  void rescale_to(Scaling to) {
    learner->rescale(scaling, to);
    offline.rescale(scaling, to);
    scaling = std::move(to);
    last_finite = copy_parts(learner->parts());
  }

  /// Measured again each time the data has doubled; in between inputs and outputs keep their meaning.
  void rescale_when_due() {
    if (seen < 2 * measured_at) return;
    measured_at = seen;
    Scaling to = measure(replay, options.discount);
    to.spread = scaling.spread;
    rescale_to(std::move(to));
  }

  void use_spread(double spread) {
    if (scaling.spread == spread) return;
    Scaling to = scaling;
    to.spread = spread;
    rescale_to(std::move(to));
  }

  /// The learner's own updates, counted.
  void update_learner(int n, bool by_fallback_only, std::uint64_t& counter, UpdateSum& sum) {
    const std::uint64_t before = sum.updates;
    if (sum.finite) learner->update(n, experience(by_fallback_only), sum);
    counter += sum.updates - before;
  }

  UpdateReport learn_online(int n) {
    UpdateSum sum;
    // While the policy is still held near the data, the offline method makes them.
    for (int i = 0; i < n && sum.finite; ++i) {
      const auto held = offline.update_online(*learner, experience(false), online_updates);
      if (!held) break;
      sum.add(*held);
      ++online_updates;
    }
    update_learner(n - static_cast<int>(sum.updates), false, online_updates, sum);
    return finish(sum);
  }

  UpdateReport learn_offline_itself(int n) {
    UpdateSum sum;
    rescale_when_due();
    update_learner(n, true, offline_updates, sum);
    return finish(sum);
  }

  UpdateReport learn_offline_beside(int n) {
    UpdateSum sum;
    use_spread(kOfflineSpread);
    // New networks bring their own scaling.
    n = offline.prepare(n, replay, random);
    sum.repeat(n, [&] {
      bool renewed = false;
      const Losses losses = offline.update(replay, scaling, learner, random, renewed);
      if (renewed) {
        // Online learning starts over with it, and so does the weight of behaviour cloning.
        online_updates = 0;
        copied_at = offline_updates;
        measured_at = seen;
        last_finite = copy_parts(learner->parts());
      }
      ++offline_updates;
      return losses;
    });
    return finish(sum);
  }

  /// What is no longer finite goes back to where it last was.
  UpdateReport finish(const UpdateSum& sum) {
    UpdateReport report{sum.updates, sum.losses.critic, sum.losses.actor, sum.finite};
    const std::vector<Part> all = learner->parts();
    report.finite = report.finite && all_finite(all);
    constexpr std::uint64_t kCopyEvery = 50;  // updates; a copy costs a tenth of one
    if (!report.finite) {
      put_back(last_finite, all);
      offline.diverged();
    } else if (online_updates + offline_updates >= copied_at + kCopyEvery) {
      last_finite = copy_parts(all);
      copied_at = online_updates + offline_updates;
    }
    if (report.updates > 0) {
      report.critic_loss /= static_cast<double>(report.updates);
      report.actor_loss /= static_cast<double>(report.updates);
    }
    return report;
  }
};

Agent::Agent(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Agent::~Agent() = default;

Result<std::unique_ptr<Agent>> Agent::create(const AgentSpaces& spaces, const AgentOptions& options) {
  FLASH_CHECK(check(spaces, options));
  const ActionForm form = action_form(spaces.task);
  FLASH_TRY(const AlgorithmRow offline,
            algorithm_row("offline", options.offline, form, LearningPhase::Offline));
  FLASH_TRY(const AlgorithmRow online, algorithm_row("online", options.online, form, LearningPhase::Online));
  Random random(options.seed);
  FLASH_TRY(auto learner, online.make(spaces, options, random));
  return std::unique_ptr<Agent>(
      new Agent(std::make_unique<Impl>(spaces, options, online, offline, random, std::move(learner))));
}

Result<void> Agent::add(const Transition& t) {
  const AgentSpaces& s = impl_->spaces;
  const bool levels = impl_->levels();
  const auto sane = [](const std::vector<float>& v) {
    return std::all_of(v.begin(), v.end(), [](float x) { return std::abs(x) <= 1e6F; });
  };
  const auto is_action = [&](const std::vector<float>& a) {
    if (a.size() != static_cast<std::size_t>(impl_->action_size())) return false;
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
  if (t.behaviour.given && (t.by_fallback || !sane({t.behaviour.log_probability, t.behaviour.value}) ||
                            (levels && t.behaviour.log_probability > 0)))
    return invalid("transition: its behaviour is the fallback's, or a number of it is impossible");
  impl_->replay.add(t);
  ++impl_->seen;
  if (!t.by_fallback) ++impl_->own_steps;
  if (t.behaviour.given || !impl_->algorithm.name.on_policy) impl_->learner->add(t);
  return {};
}

std::size_t Agent::transitions() const {
  return impl_->replay.size();
}
bool Agent::ready() const {
  return impl_->ready();
}

UpdateReport Agent::learn_offline(int n) {
  if (!impl_->ready() || impl_->replay.by_fallback() == 0) return {};
  switch (impl_->learner->offline_phase()) {
    case OfflinePhase::Itself:
      return impl_->learn_offline_itself(n);
    case OfflinePhase::HandOver:
      if (impl_->offline.keeps(impl_->replay)) break;
      return impl_->learn_offline_beside(n);
    case OfflinePhase::None:
      break;
  }
  return {};
}

UpdateReport Agent::learn_online(int n) {
  if (!impl_->ready()) return {};
  impl_->use_spread(kOnlineSpread);
  impl_->rescale_when_due();
  return impl_->learn_online(n);
}

bool Agent::learned() const {
  if (impl_->online_updates > 0) return true;
  // Continuous, handed over: the offline method learns beside the seat first.
  if (!impl_->levels() && impl_->learner->offline_phase() == OfflinePhase::HandOver)
    return impl_->offline.in_seat();
  return impl_->offline_updates > 0;
}

OffPolicyEstimate Agent::estimate() {
  if (!impl_->ready() || impl_->replay.by_fallback() == 0) return {};
  return off_policy_estimate(impl_->replay, snapshot(), {}, impl_->random.fork(impl_->seen));
}

PolicySnapshot Agent::snapshot() const {
  PolicySnapshot p;
  p.task = impl_->spaces.task;
  const bool online = impl_->online_updates > 0, by_offline = impl_->offline.in_seat() && !online;
  p.algorithm = by_offline ? impl_->offline.algorithm() : impl_->algorithm.name.name;
  p.mean = impl_->scaling.mean;
  p.scale = impl_->scaling.scale;
  p.value_offset = static_cast<float>(impl_->scaling.value_offset());
  p.value_scale = static_cast<float>(impl_->scaling.value_scale());
  // Table 8: sigma 0.2, here falling; Table 10 explores by epsilon. flashd's own budget caps both.
  if (impl_->levels())
    p.exploration.epsilon = schedule(0.2, 0.05, impl_->own_steps);
  else
    p.exploration.sigma = schedule(0.2, 0.05, impl_->own_steps);
  impl_->learner->policy(p, online);
  if (auto scores = impl_->offline.scores(); by_offline && !scores.empty()) {
    p.critic = std::move(p.actor);
    p.actor = std::move(scores);
  }
  return p;
}

namespace {

constexpr int kCheckpointFormat = 1;

/// Numbers of the checkpoint's meta by name; a missing one or one of another type is remembered.
struct Meta {
  const nlohmann::json& json;
  std::string wrong;

  std::uint64_t count(const char* name) {
    const auto it = json.find(name);
    if (it != json.end() && it->is_number_unsigned()) return it->get<std::uint64_t>();
    wrong = name;
    return 0;
  }
  double number(const char* name, double least) {
    const auto it = json.find(name);
    if (it != json.end() && it->is_number())
      if (const auto x = it->get<double>(); x >= least && x <= 1e6) return x;
    wrong = name;
    return least;
  }
};

}  // namespace

TensorFile Agent::checkpoint() const {
  TensorFile file;
  file.kind = "checkpoint";
  file.format = kCheckpointFormat;
  *file.meta = {{"task", to_string(impl_->spaces.task)},
                {"state_dim", impl_->spaces.state_dim},
                {"action_dim", impl_->spaces.action_dim},
                {"algorithm", impl_->algorithm.name.name},
                {"random", impl_->random.state()},
                {"seen", impl_->seen},
                {"own_steps", impl_->own_steps},
                {"measured_at", impl_->measured_at},
                {"online_updates", impl_->online_updates},
                {"offline_updates", impl_->offline_updates},
                {"offline_in_seat", std::uint64_t{impl_->offline.in_seat()}},
                {"reward_mean", impl_->scaling.reward_mean},
                {"reward_scale", impl_->scaling.reward_scale},
                {"spread", impl_->scaling.spread}};
  put_numbers(file, "state_mean", impl_->scaling.mean);
  put_numbers(file, "state_scale", impl_->scaling.scale);
  for (const Part& part : impl_->learner->parts()) {
    put(file, part.name, *part.network);
    if (part.adam == nullptr) continue;
    put(file, part.name, *part.adam);
    file.meta["adam_steps"][part.name] = static_cast<std::uint64_t>(part.adam->steps);
  }
  impl_->learner->checkpoint(file);
  return file;
}

Result<void> Agent::restore(const TensorFile& file) {
  const Impl& now = *impl_;
  if (file.kind != "checkpoint" || file.format != kCheckpointFormat || !file.meta->is_object())
    return invalid("not a checkpoint of format " + std::to_string(kCheckpointFormat));
  const nlohmann::json same = {{"task", to_string(now.spaces.task)},
                               {"state_dim", now.spaces.state_dim},
                               {"action_dim", now.spaces.action_dim},
                               {"algorithm", now.algorithm.name.name}};
  for (const auto& [key, value] : same.items())
    if (!file.meta->contains(key) || file.meta[key] != value)
      return invalid("checkpoint: its " + key + " is " +
                     (file.meta->contains(key) ? file.meta[key].dump() : "missing") + ", this agent's " +
                     value.dump());
  // All into a new learner first: a checkpoint that is refused half way changes nothing.
  Random random(now.options.seed);
  FLASH_TRY(auto learner, now.algorithm.make(now.spaces, now.options, random));
  Meta meta{*file.meta, ""};
  Meta adam_steps{file.meta->contains("adam_steps") ? file.meta["adam_steps"] : *file.meta, ""};
  for (const Part& part : learner->parts()) {
    FLASH_CHECK(get(file, part.name, *part.network));
    if (part.adam == nullptr) continue;
    FLASH_CHECK(get(file, part.name, *part.network, *part.adam));
    part.adam->steps = static_cast<std::int64_t>(adam_steps.count(part.name.c_str()));
  }
  FLASH_CHECK(learner->resume(file));
  Scaling scaling = now.scaling;
  FLASH_CHECK(get_numbers(file, "state_mean", -1e6F, scaling.mean));
  FLASH_CHECK(get_numbers(file, "state_scale", kLeastStateScale, scaling.scale));
  scaling.reward_mean = meta.number("reward_mean", -1e6);
  scaling.reward_scale = meta.number("reward_scale", kLeastRewardScale);
  scaling.spread = meta.number("spread", kOfflineSpread);
  const std::uint64_t state = meta.count("random"), seen = meta.count("seen"),
                      own_steps = meta.count("own_steps"), measured_at = meta.count("measured_at"),
                      online = meta.count("online_updates"), offline = meta.count("offline_updates"),
                      in_seat = meta.count("offline_in_seat");
  for (const std::string& wrong : {meta.wrong, adam_steps.wrong})
    if (!wrong.empty()) return invalid("checkpoint: '" + wrong + "' is missing or impossible");
  Impl& to = *impl_;
  to.learner = std::move(learner);
  to.scaling = std::move(scaling);
  to.random = Random(state);
  to.seen = seen;
  to.own_steps = own_steps;
  to.measured_at = measured_at;
  to.online_updates = online;
  to.offline_updates = offline;
  to.offline.restored(in_seat != 0, online > 0 || in_seat != 0 ? seen : 0);
  to.last_finite = copy_parts(to.learner->parts());
  to.copied_at = online + offline;
  return {};
}

}  // namespace flash
