#include "sync/nearest_questions.h"

#include <algorithm>

namespace flash::sync {

void NearestQuestions::seen(const link::Episode& e) {
  const auto at = agents_.find(e.agent);
  if (e.stage == Stage::Serving || e.model.empty() || e.embedding.empty()) {
    if (at != agents_.end()) agents_.erase(at);
    return;
  }
  if (at == agents_.end() && agents_.size() >= options_.agents) return;
  Agent& agent = agents_[e.agent];
  // Another life of it: flashd has forgotten the answer.
  if (agent.question.model != e.model || agent.question.task != e.task || e.episode < agent.episode)
    agent = {};
  agent.episode = e.episode;
  if (!agent.answered) agent.question = {e.agent, e.task, e.model, e.embedding};
}

std::vector<link::NearestQuestion> NearestQuestions::due(Duration now) {
  std::vector<link::NearestQuestion> out;
  for (auto& [name, agent] : agents_) {
    if (out.size() >= options_.per_round) break;
    if (agent.answered || (agent.asked && now < agent.ask_at)) continue;
    agent.retry = agent.asked ? std::min(agent.retry * 2, options_.retry_longest) : options_.retry_first;
    agent.asked = true;
    agent.ask_at = now + agent.retry;
    out.push_back(agent.question);
  }
  return out;
}

bool NearestQuestions::answered(const coordinator::NearestAnswer& answer) {
  const auto at = agents_.find(answer.agent);
  if (at == agents_.end() || !at->second.asked || at->second.answered) return false;
  if (!answer.neighbour) return true;
  const link::NearestQuestion& q = at->second.question;
  const link::Neighbour& n = *answer.neighbour;
  if (n.task != q.task || n.model != q.model || n.embedding.size() != q.embedding.size()) return false;
  at->second.answered = true;
  return true;
}

std::size_t NearestQuestions::waiting() const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(), [](const auto& a) { return !a.second.answered; }));
}

}  // namespace flash::sync
