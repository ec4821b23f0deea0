#include "link/episode.h"

#include "link/episode_cbor.h"

namespace flash::link::cbor {
void check_model(Check& c, const std::string& model, bool may_be_empty) {
  c.name("model", model, may_be_empty);
  if (model.size() > kMaxModel) c.fail("model", "more than " + std::to_string(kMaxModel) + " bytes");
}

Result<void> check(const Episode& e, const std::string& path) {
  Check c(path);
  c.name("agent", e.agent);
  c.name("target", e.target);
  c.name("application", e.application, true);
  c.name("rule", e.rule, true);
  c.range("rewards", e.rewards, 0, e.steps);
  c.range("reward_mean", e.reward_mean, kLeastReward, kMostReward);
  c.range("fallback_reward", e.fallback_reward, kLeastReward, kMostReward);
  check_model(c, e.model, true);
  c.numbers("embedding", e.embedding, kMaxEmbedding);
  c.range("time_us", static_cast<double>(e.time_us), 0, 1e17);
  return c.result();
}

void write(Writer& w, const Episode& e) {
  w.head(Writer::kMap, 16);
  w.field("agent", e.agent);
  w.field("task", to_string(e.task));
  w.field("target", e.target);
  w.field("application", e.application);
  w.field("rule", e.rule);
  w.field("episode", e.episode);
  w.field("stage", to_string(e.stage));
  w.field("steps", e.steps);
  w.field("rewards", e.rewards);
  w.field("reward_mean", e.reward_mean);
  w.field("fallback_rewards", e.fallback_rewards);
  w.field("fallback_reward", e.fallback_reward);
  w.field("model_version", e.model_version);
  w.field("model", e.model);
  w.field("embedding", e.embedding);
  w.field("time_us", e.time_us);
}

Result<void> read(const json& map, const std::string& path, Episode& e) {
  if (!map.is_object()) return invalid(path.substr(0, path.size() - 1) + ": not a map");
  Fields f(map, path);
  f.get("agent", e.agent);
  f.get_enum("task", e.task, known_tasks(), "a task");
  f.get("target", e.target);
  f.get("application", e.application);
  f.get("rule", e.rule);
  f.get("episode", e.episode);
  f.get_enum("stage", e.stage, kStages, "a stage");
  f.get("steps", e.steps);
  f.get("rewards", e.rewards);
  f.get("reward_mean", e.reward_mean);
  f.get("fallback_rewards", e.fallback_rewards);
  f.get("fallback_reward", e.fallback_reward);
  f.get("model_version", e.model_version);
  f.get("model", e.model);
  f.get("embedding", e.embedding);
  f.get("time_us", e.time_us);
  return f.done({"agent", "task", "target", "application", "rule", "episode", "stage", "steps", "rewards",
                 "reward_mean", "fallback_rewards", "fallback_reward", "model_version", "model", "embedding",
                 "time_us"});
}

}  // namespace flash::link::cbor
