#include "lab/pretrain/flash_agent.h"

#include <algorithm>

#include "core/json.h"

namespace flash {

FlashAgent::FlashAgent(Task task, const FlashAgentOptions& o, RlModel meta, SharedLearner base)
    : task_(task),
      options_(o),
      meta_(std::move(meta)),
      base_(std::move(base)),
      replay_(state_dim(task), action_size(task), static_cast<std::size_t>(o.replay_steps)),
      random_(o.seed),
      embedding_(static_cast<std::size_t>(meta_.embedding_dim()), 0.0F) {
  if (options_.batch == 0) options_.batch = action_form(task) == ActionForm::Continuous ? 64 : 32;
  base_.set_rate(options_.rate);
}

Result<FlashAgent> FlashAgent::create(const TaskModel& model, Task task, const FlashAgentOptions& o) {
  const auto bad = [](const char* what) { return Error(std::errc::invalid_argument, what); };
  if (model.task != to_string(task)) return bad("task model: of another task");
  FLASH_TRY(SharedLearner base, SharedLearner::restore(model.base));
  if (base.options().task != task || base.options().state_dim != state_dim(task) ||
      base.options().actions != action_dim(task))
    return bad("task model: its base learner is of other states or actions");
  MetaOptions m;
  const auto given = [&](const char* key, int& to) {
    const auto it = model.meta.meta->find(key);
    if (it != model.meta.meta->end() && it->is_number_integer()) to = it->get<int>();
  };
  if (!model.meta.meta->is_object()) return bad("task model: no meta learner");
  given("embedding", m.encoder.embedding);
  given("hidden", m.encoder.hidden);
  given("layers", m.encoder.layers);
  given("fc", m.encoder.fc);
  if (model.meta.meta->value("encoder", nlohmann::json()) == "set") m.encoder.kind = EncoderKind::Set;
  FLASH_TRY(RlModel meta, RlModel::create(m));
  FLASH_CHECK(meta.register_base_learner(model.task, state_dim(task), action_size(task)));
  FLASH_CHECK(meta.restore(model.meta));
  if (meta.embedding_dim() != base.options().embedding)
    return bad("task model: the base learner is of another embedding");
  return FlashAgent(task, o, std::move(meta), std::move(base));
}

Result<void> FlashAgent::insert(const Recorded& episode) {
  if (!known_) {
    Scaling scaling = base_.scaling();
    scaling.reward_mean = mean_reward_of(episode);
    base_.set_scaling(scaling);
    known_ = true;
  }
  const Trajectory one = trajectory_of(episode, task_);
  return meta_.insert_traj_samples({&one, 1});
}

Result<PolicySnapshot> FlashAgent::snapshot() {
  FLASH_TRY(embedding_, meta_.get_embedding());
  PolicySnapshot s = base_.snapshot(embedding_);
  // As agents/agent.h: exploration falls while it makes its first steps.
  const double left = 1 - std::min(1.0, static_cast<double>(own_steps_) / 2000);
  const auto explored = static_cast<float>(0.05 + 0.15 * left);
  (action_form(task_) == ActionForm::Continuous ? s.exploration.sigma : s.exploration.epsilon) = explored;
  return s;
}

void FlashAgent::learn(const Transition& transition) {
  constexpr std::uint64_t kCheckEvery = 50;
  replay_.add(transition);
  ++own_steps_;
  if (replay_.size() < static_cast<std::size_t>(options_.learning_starts)) return;
  const SharedLearner::Share all{&replay_, embedding_, options_.batch, base_.scaling().reward_mean};
  base_.update({&all, 1}, random_, {});
  if (own_steps_ % kCheckEvery == 0) base_.keep_finite();
}

Result<AdaptationCurve> adapt_flash(FlashAgent& agent, const Pair& pair, const Recorded& first, int episodes,
                                    std::uint64_t seed, const AdaptationOptions& o,
                                    std::vector<LivedEpisode>* lived) {
  FLASH_CHECK(agent.insert(first));
  FLASH_TRY(PolicySnapshot policy, agent.snapshot());
  AdaptationCurve curve{reward_of(policy, pair, o)};
  for (int e = 0; e < episodes; ++e) {
    Recorded recorded;
    const LivedEpisode l = live_one_episode(policy, pair, e, seed, [&](const Transition& x) {
      recorded.rows.insert(recorded.rows.end(), x.state.begin(), x.state.end());
      recorded.rows.insert(recorded.rows.end(), x.action.begin(), x.action.end());
      recorded.rows.push_back(x.reward);
      ++recorded.steps;
      agent.learn(x);
    });
    if (lived != nullptr) lived->push_back(l);
    FLASH_CHECK(agent.insert(recorded));
    FLASH_TRY(policy, agent.snapshot());
    curve.push_back(reward_of(policy, pair, o));
  }
  return curve;
}

}  // namespace flash
