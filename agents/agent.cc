#include "agents/agent.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "agents/ddpg.h"
#include "agents/off_policy_estimate.h"
#include "agents/offline.h"
#include "agents/q_learning.h"
#include "agents/replay.h"
#include "agents/scaling.h"
#include "agents/tabular_q.h"
#include "core/json.h"

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
  if (o.frequency_offline != "td3+bc" && o.frequency_offline != "iql" && o.frequency_offline != "bcq")
    return invalid("frequency_offline: '" + o.frequency_offline + "' is none of td3+bc, iql, bcq");
  if (o.frequency_algorithm != "q-learning" && o.frequency_algorithm != "tabular-q")
    return invalid("frequency_algorithm: '" + o.frequency_algorithm +
                   "' is neither q-learning nor tabular-q");
  if (!(o.discount >= 0 && o.discount < 1)) return invalid("discount is not within [0, 1)");
  if (o.learning_starts < 1) return invalid("learning_starts is below 1");
  if (o.replay_steps < o.learning_starts) return invalid("replay_steps is below learning_starts");
  return {};
}

using Learner = OnlineLearner;

Result<Learner> make_learner(const AgentSpaces& s, const AgentOptions& o, Random& random) {
  if (action_form(s.task) == ActionForm::Continuous) {
    DdpgOptions d;
    d.discount = o.discount;
    return Learner(make_ddpg(s.state_dim, s.action_dim, d, random));
  }
  if (o.frequency_algorithm == "tabular-q") {
    if (s.state_dim != kFrequencyCellEntries)
      return invalid("tabular-q has cells for " + std::to_string(kFrequencyCellEntries) +
                     " state entries, not for " + std::to_string(s.state_dim));
    TabularQOptions t;
    t.discount = o.discount;
    return Learner(make_tabular_q(frequency_cells(), s.action_dim, t));
  }
  QLearningOptions q;
  q.double_q = o.double_q;
  q.discount = o.discount;
  return Learner(make_q_learning(s.state_dim, s.action_dim, q, random));
}

const char* algorithm(const Learner& learner) {
  if (std::holds_alternative<Ddpg>(learner)) return "ddpg";
  return std::holds_alternative<QLearning>(learner) ? "q-learning" : "tabular-q";
}

std::vector<Part> parts(TabularQ&) {
  return {};
}
std::vector<Part> parts(Learner& learner) {
  return std::visit([](auto& l) { return parts(l); }, learner);
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
  AgentOptions options;
  Replay replay;
  Scaling scaling;
  Random random;
  Learner learner;
  Offline offline;
  std::uint64_t seen = 0;         // transitions ever added
  std::uint64_t own_steps = 0;    // of them, not by the fallback
  std::uint64_t measured_at = 0;  // value of `seen` when the scaling was last measured
  std::uint64_t online_updates = 0, offline_updates = 0;
  std::vector<at::Tensor> last_finite;  // parameters of all parts
  std::uint64_t copied_at = 0;          // value of online_updates + offline_updates

  Impl(const AgentSpaces& s, const AgentOptions& o, Random r, Learner l)
      : spaces(s),
        options(o),
        replay(s.state_dim, action_form(s.task) == ActionForm::Discrete ? 1 : s.action_dim,
               static_cast<std::size_t>(o.replay_steps)),
        scaling(unscaled(s.state_dim, o.discount)),
        random(r),
        learner(std::move(l)),
        offline(o) {
    last_finite = copy_parts(parts(learner));
  }

  bool ready() const { return replay.size() >= static_cast<std::size_t>(options.learning_starts); }

  /// The networks are rewritten to compute the same.
  void rescale_to(Scaling to) {
    std::visit([&](auto& l) { rescale(l, scaling, to); }, learner);
    offline.rescale(scaling, to);
    scaling = std::move(to);
    last_finite = copy_parts(parts(learner));
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

  Losses update_online() {
    if (auto* ddpg = std::get_if<Ddpg>(&learner)) {
      if (const auto held = offline.update_online(replay, scaling, *ddpg, online_updates, random))
        return *held;
      return update(*ddpg, sample(replay, scaling, random, ddpg->options.batch, false));
    }
    if (auto* q = std::get_if<QLearning>(&learner))
      return {update(*q, sample(replay, scaling, random, q->options.batch, true)), 0};
    return {update(std::get<TabularQ>(learner), replay, scaling, random), 0};
  }

  /// `n` times `one`; what is no longer finite goes back to where it last was.
  template <class One>
  UpdateReport learn(int n, std::uint64_t& counter, One one) {
    UpdateReport report;
    for (int i = 0; i < n && report.finite; ++i) {
      const Losses l = one();
      ++report.updates;
      ++counter;
      report.critic_loss += l.critic;
      report.actor_loss += l.actor;
      report.finite = std::isfinite(l.critic) && std::isfinite(l.actor);
    }
    const std::vector<Part> all = parts(learner);
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
  Random random(options.seed);
  FLASH_TRY(Learner learner, make_learner(spaces, options, random));
  return std::unique_ptr<Agent>(
      new Agent(std::make_unique<Impl>(spaces, options, random, std::move(learner))));
}

Result<void> Agent::add(const Transition& t) {
  const AgentSpaces& s = impl_->spaces;
  const bool levels = action_form(s.task) == ActionForm::Discrete;
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
  if (!t.by_fallback) ++impl_->own_steps;
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
  Impl& a = *impl_;
  if (auto* table = std::get_if<TabularQ>(&a.learner)) {
    a.rescale_when_due();
    return a.learn(n, a.offline_updates, [&]() -> Losses {
      return {update(*table, a.replay, a.scaling, a.random, true), 0};
    });
  }
  a.use_spread(kOfflineSpread);
  // New networks bring their own scaling.
  n = a.offline.prepare(n, a.replay, a.learner, a.random);
  return a.learn(n, a.offline_updates, [&] {
    bool renewed = false;
    const Losses losses = a.offline.update(a.replay, a.scaling, a.learner, a.random, renewed);
    if (renewed) {
      // Online learning starts over with it, and so does the weight of behaviour cloning.
      a.online_updates = 0;
      a.copied_at = a.offline_updates;
      a.measured_at = a.seen;
      a.last_finite = copy_parts(parts(a.learner));
    }
    return losses;
  });
}

UpdateReport Agent::learn_online(int n) {
  if (!impl_->ready()) return {};
  impl_->use_spread(kOnlineSpread);
  impl_->rescale_when_due();
  return impl_->learn(n, impl_->online_updates, [&] { return impl_->update_online(); });
}

bool Agent::learned() const {
  if (impl_->online_updates > 0) return true;
  // The offline method of resource-limits learns beside the seat first.
  return std::holds_alternative<Ddpg>(impl_->learner) ? impl_->offline.in_seat() : impl_->offline_updates > 0;
}

OffPolicyEstimate Agent::estimate() {
  if (!impl_->ready() || impl_->replay.by_fallback() == 0) return {};
  return off_policy_estimate(impl_->replay, snapshot(), {}, impl_->random.fork(impl_->seen));
}

PolicySnapshot Agent::snapshot() const {
  PolicySnapshot p;
  p.task = impl_->spaces.task;
  const bool by_offline = impl_->offline.in_seat() && impl_->online_updates == 0;
  p.algorithm = by_offline ? impl_->offline.algorithm(action_form(p.task) == ActionForm::Discrete)
                           : algorithm(impl_->learner);
  p.mean = impl_->scaling.mean;
  p.scale = impl_->scaling.scale;
  p.value_offset = static_cast<float>(impl_->scaling.value_offset());
  p.value_scale = static_cast<float>(impl_->scaling.value_scale());
  // Table 8: sigma 0.2, here falling; Table 10 explores by epsilon. flashd's own budget caps both.
  if (action_form(p.task) == ActionForm::Continuous)
    p.exploration.sigma = schedule(0.2, 0.05, impl_->own_steps);
  else
    p.exploration.epsilon = schedule(0.2, 0.05, impl_->own_steps);
  if (const auto* ddpg = std::get_if<Ddpg>(&impl_->learner)) {
    // The target's is the mean of the last few hundred actors: it does not swing with the last minibatches.
    p.actor = to_layers(impl_->online_updates > 0 ? ddpg->target_actor : ddpg->actor);
    p.critic = to_layers(ddpg->critic);
  } else if (const auto* q = std::get_if<QLearning>(&impl_->learner)) {
    p.actor = to_layers(impl_->online_updates > 0 ? q->target_q : q->q);
    if (auto scores = impl_->offline.scores(); by_offline && !scores.empty()) {
      p.critic = std::move(p.actor);
      p.actor = std::move(scores);
    }
  } else {
    const TabularQ& table = std::get<TabularQ>(impl_->learner);
    p.actor = to_layers(table);
    p.mean.assign(p.mean.size(), 0.0F);  // its cells are cut in the raw state
    p.scale.assign(p.scale.size(), 1.0F);
  }
  return p;
}

namespace {

constexpr int kCheckpointFormat = 1;

void put_numbers(TensorFile& file, const std::string& name, const std::vector<float>& values) {
  file.tensors.push_back({name, {static_cast<std::int64_t>(values.size())}, values});
}

Result<void> get_numbers(const TensorFile& file, const std::string& name, float least,
                         std::vector<float>& values) {
  const Tensor* from = file.find(name);
  if (from == nullptr || from->values.size() != values.size())
    return invalid("checkpoint: array '" + name + "' is missing or does not have " +
                   std::to_string(values.size()) + " numbers");
  for (float x : from->values)
    if (!(x >= least && x <= 1e6F))
      return invalid("checkpoint: array '" + name + "' has an impossible number");
  values = from->values;
  return {};
}

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
                {"algorithm", algorithm(impl_->learner)},
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
  for (const Part& part : parts(impl_->learner)) {
    put(file, part.name, *part.network);
    if (part.adam == nullptr) continue;
    put(file, part.name, *part.adam);
    file.meta["adam_steps"][part.name] = static_cast<std::uint64_t>(part.adam->steps);
  }
  if (const auto* table = std::get_if<TabularQ>(&impl_->learner)) {
    put_numbers(file, "table", table->q);
    put_numbers(file, "visits", table->visits);
  }
  return file;
}

Result<void> Agent::restore(const TensorFile& file) {
  const Impl& now = *impl_;
  if (file.kind != "checkpoint" || file.format != kCheckpointFormat || !file.meta->is_object())
    return invalid("not a checkpoint of format " + std::to_string(kCheckpointFormat));
  const nlohmann::json same = {{"task", to_string(now.spaces.task)},
                               {"state_dim", now.spaces.state_dim},
                               {"action_dim", now.spaces.action_dim},
                               {"algorithm", algorithm(now.learner)}};
  for (const auto& [key, value] : same.items())
    if (!file.meta->contains(key) || file.meta[key] != value)
      return invalid("checkpoint: its " + key + " is " +
                     (file.meta->contains(key) ? file.meta[key].dump() : "missing") + ", this agent's " +
                     value.dump());
  // All into a new learner first: a checkpoint that is refused half way changes nothing.
  Random random(now.options.seed);
  FLASH_TRY(Learner learner, make_learner(now.spaces, now.options, random));
  Meta meta{*file.meta, ""};
  Meta adam_steps{file.meta->contains("adam_steps") ? file.meta["adam_steps"] : *file.meta, ""};
  for (const Part& part : parts(learner)) {
    FLASH_CHECK(get(file, part.name, *part.network));
    if (part.adam == nullptr) continue;
    FLASH_CHECK(get(file, part.name, *part.network, *part.adam));
    part.adam->steps = static_cast<std::int64_t>(adam_steps.count(part.name.c_str()));
  }
  if (auto* table = std::get_if<TabularQ>(&learner)) {
    FLASH_CHECK(get_numbers(file, "table", -1e6F, table->q));
    FLASH_CHECK(get_numbers(file, "visits", 0, table->visits));
  }
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
  to.offline = Offline(now.options);
  to.offline.restored(in_seat != 0);
  to.last_finite = copy_parts(parts(to.learner));
  to.copied_at = online + offline;
  return {};
}

}  // namespace flash
