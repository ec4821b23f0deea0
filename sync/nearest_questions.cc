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
  link::NearestQuestion now{e.agent, e.task, e.model, e.embedding};
  if (now == agent.question) return;
  agent.question = std::move(now);
  agent.moved = true;
}

std::vector<link::NearestQuestion> NearestQuestions::due(Duration now) {
  std::vector<link::NearestQuestion> out;
  for (auto& [name, agent] : agents_) {
    if (out.size() >= options_.per_round) break;
    if (agent.asked && (now < agent.ask_at || (agent.told && !agent.moved))) continue;
    const Duration longest = agent.told ? options_.again_longest : options_.retry_longest;
    agent.retry = agent.asked ? std::min(agent.retry * 2, longest) : options_.retry_first;
    agent.asked = agent.open = true;
    agent.moved = false;
    agent.ask_at = now + agent.retry;
    out.push_back(agent.question);
  }
  return out;
}

NearestQuestions::Heard NearestQuestions::answered(const coordinator::NearestAnswer& answer) {
  const auto at = agents_.find(answer.agent);
  if (at == agents_.end() || !at->second.open) return Heard::Unasked;
  if (!answer.neighbour) return Heard::Nobody;
  Agent& agent = at->second;
  const link::NearestQuestion& q = agent.question;
  const link::Neighbour& n = *answer.neighbour;
  if (n.task != q.task || n.model != q.model || n.embedding.size() != q.embedding.size())
    return Heard::Unasked;
  const bool same = agent.told && link::same_agent(*agent.told, n);
  agent.open = false;
  agent.told = n;
  return same ? Heard::Same : Heard::Another;
}

std::size_t NearestQuestions::waiting() const {
  return static_cast<std::size_t>(
      std::count_if(agents_.begin(), agents_.end(), [](const auto& a) { return !a.second.told; }));
}

}  // namespace flash::sync
