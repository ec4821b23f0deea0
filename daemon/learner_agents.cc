#include "daemon/learner_agents.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "daemon/local_peer.h"
#include "host/parse.h"

namespace flash {
namespace {

/// Bookkeeping of one step in the backlog, beside its bytes.
constexpr std::size_t kStepOverhead = 64;

/// The numbers as they may be sent; a vector with one that is not finite says nothing.
std::vector<float> finite(const std::vector<float>& values) {
  if (values.size() > link::kMaxDim) return {};
  for (float v : values)
    if (!std::isfinite(v)) return {};
  return values;
}

}  // namespace

std::string learning_key(const Target& target) {
  return plain(std::string(to_string(target.task())) + ":" +
               (target.id.kind == TargetKind::Cgroup ? target.cgroup : format_cpu_list(target.cpus)));
}

// --- agents ---------------------------------------------------------------------------------------------

const LearnerAgent& LearnerAgents::add(const Target& target, const SpaceLayout& layout,
                                       const std::string& group) {
  const std::string name = agent_name(target.id);
  auto& agent = agents_[name];
  link::Announce announce;
  announce.agent = name;
  announce.key = learning_key(target);
  announce.application = plain(target.application);
  announce.rule = plain(target.rule);
  announce.group = plain(group);
  announce.layout = layout;
  if (!agent) {
    agent = std::make_unique<LearnerAgent>();
    agent->gone = true;
  }
  if (agent->gone) {
    // A name may come back (a reload), its Decision::seq starts over: what was said before stays below.
    // The gap keeps the last step of one life and the first of the next from looking like a transition.
    agent->base = highest_ == 0 ? 0 : highest_ + 1;
    agent->first_episode = highest_ == 0 ? 0 : highest_episode_ + 1;
    agent->last = agent->base;  // the learner may know steps of an earlier life
    agent->gone = false;
    agent->embedded.reset();
    agent->nearest.reset();
    ++present_;
  } else {
    announce.model_version = agent->announce.model_version;
    // Steps with the numbers of the old layout that were not said yet would be taken for those of the new one.
    if (layout.digest() != agent->announce.layout.digest()) agent->stored = agent->last;
  }
  agent->id = target.id;
  agent->announce = std::move(announce);
  agent->announced = false;
  return *agent;
}

const LearnerAgent* LearnerAgents::remove(TargetId id) {
  const auto it = agents_.find(agent_name(id));
  if (it == agents_.end() || it->second->gone) return nullptr;
  it->second->gone = true;
  --present_;
  return it->second.get();
}

LearnerAgent* LearnerAgents::find(const std::string& name) {
  const auto it = agents_.find(name);
  return it != agents_.end() ? it->second.get() : nullptr;
}

const LearnerAgent* LearnerAgents::find(TargetId id) const {
  const auto it = agents_.find(agent_name(id));
  return it != agents_.end() ? it->second.get() : nullptr;
}

LearnerAgent* LearnerAgents::find_key(const std::string& key, Task task) {
  for (auto& [name, agent] : agents_)
    if (!agent->gone && agent->announce.key == key && agent->announce.layout.task == task) return agent.get();
  return nullptr;
}

std::vector<std::string> LearnerAgents::names() const {
  std::vector<std::string> all;
  for (const auto& [name, agent] : agents_) all.push_back(name);
  return all;
}

std::size_t LearnerAgents::unsaid_gone(std::size_t enough) const {
  if (agents_.size() - present_ <= enough) return 0;
  return static_cast<std::size_t>(std::count_if(agents_.begin(), agents_.end(), [](const auto& a) {
    return a.second->gone && a.second->in_backlog == 0;
  }));
}

void LearnerAgents::told_gone(const std::string& name) {
  const auto it = agents_.find(name);
  if (it == agents_.end() || !it->second->gone) return;
  it->second->announced = false;
  forget(name);
}

void LearnerAgents::forget(const std::string& name) {
  const auto it = agents_.find(name);
  if (it != agents_.end() && it->second->gone && it->second->in_backlog == 0) agents_.erase(it);
}

void LearnerAgents::restart() {
  sent_ = 0;
  for (auto& [name, agent] : agents_) {
    agent->announced = false;
    agent->status = {};
  }
  std::erase_if(agents_, [](const auto& a) { return a.second->gone && a.second->in_backlog == 0; });
}

// --- steps ----------------------------------------------------------------------------------------------

void LearnerAgents::decided(const Target& target, const Decision& d) {
  const auto it = agents_.find(agent_name(target.id));
  if (it == agents_.end() || it->second->gone) return;
  LearnerAgent& agent = *it->second;
  link::Step step;
  step.agent = it->first;
  step.seq = agent.base + d.seq;
  step.time_us = std::chrono::duration_cast<std::chrono::microseconds>(d.at.wall.time_since_epoch()).count();
  step.episode = agent.first_episode + d.episode;
  step.step = d.step;
  step.stage = d.stage;
  step.controller = d.controller;
  step.explored = d.explored;
  step.end_of_episode = d.learning.end_of_episode;
  step.state = finite(d.learning.state);
  step.state_trusted = d.learning.state_trusted && !step.state.empty();
  step.action = finite(d.learning.action);
  step.fallback = finite(d.learning.fallback);
  if (const Behaviour& b = d.learning.behaviour;
      b.given && std::isfinite(b.log_probability) && std::isfinite(b.value) && !step.action.empty())
    step.behaviour = b;
  step.reward_given = d.reward.given && std::isfinite(d.reward.value);
  step.reward_trusted = step.reward_given && d.reward.trusted;
  step.reward = step.reward_given ? static_cast<float>(d.reward.value) : 0;
  if (!std::isfinite(step.reward)) step.reward_given = step.reward_trusted = false, step.reward = 0;
  agent.last = step.seq;
  highest_ = std::max(highest_, step.seq);
  highest_episode_ = std::max(highest_episode_, step.episode);
  ++agent.in_backlog;
  backlog_.push_back({&agent, step.seq, link::encode_step(step)});
  bytes_ += backlog_.back().bytes.size() + kStepOverhead;
}

std::size_t LearnerAgents::shrink(std::size_t bytes) {
  std::size_t lost = 0;
  while (bytes_ > bytes && !backlog_.empty()) {
    if (backlog_.front().seq > backlog_.front().agent->stored) ++lost;
    drop_front();
  }
  return lost;
}

void LearnerAgents::drop_front() {
  Slot& slot = backlog_.front();
  bytes_ -= slot.bytes.size() + kStepOverhead;
  LearnerAgent* agent = slot.agent;
  backlog_.pop_front();
  if (sent_ > 0) --sent_;
  if (--agent->in_backlog == 0 && agent->gone && !agent->announced)
    forget(std::string(agent->announce.agent));
}

Result<bool> LearnerAgents::stored(const link::Stored& s) {
  LearnerAgent* agent = find(s.agent);
  if (agent == nullptr) return false;  // came and went; its steps were dropped
  if (s.seq > agent->last)
    return Error(std::errc::invalid_argument, "acknowledges step " + std::to_string(s.seq) + " of " +
                                                  s.agent + ", the last was " + std::to_string(agent->last));
  if (s.seq <= agent->stored) return false;
  agent->stored = s.seq;
  return true;
}

/// All agents' steps are committed together, so that what is stored is at the front.
std::size_t LearnerAgents::trim() {
  std::size_t n = 0;
  for (; !backlog_.empty() && backlog_.front().seq <= backlog_.front().agent->stored; ++n) drop_front();
  return n;
}

LearnerAgents::Batch LearnerAgents::next_batch() const {
  Batch batch{{}, sent_};
  std::size_t bytes = link::kStepsOverhead;
  for (; batch.end < backlog_.size() && batch.steps.size() < link::kMaxStepsPerMessage; ++batch.end) {
    const Slot& slot = backlog_[batch.end];
    if (slot.seq <= slot.agent->stored) continue;  // from before this connection
    if (bytes + slot.bytes.size() > link::kMaxMessage) break;
    bytes += slot.bytes.size();
    batch.steps.push_back(slot.bytes);
  }
  return batch;
}

}  // namespace flash
