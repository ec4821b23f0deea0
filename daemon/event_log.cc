#include "daemon/event_log.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "daemon/log.h"

namespace flash {
namespace {

constexpr double kLines = 10;                            // of one user, at once
constexpr Duration kPerLine = std::chrono::seconds(10);  // and one more after that
constexpr std::size_t kUsers = 64;
constexpr std::size_t kArgumentBytes = 256;

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  return text;
}

void log_degraded(int level, const std::string& text, const Degraded& d) {
  const LogField id = {"MESSAGE_ID", std::string(kMessageDegraded)}, part = {"FLASHD_PART", d.part};
  if (d.target.empty())
    log(level, text, {id, part});
  else
    log(level, text, {id, part, {"FLASHD_TARGET", d.target}});
}

void log_knob(const Target& target, const Decision& decision, const KnobOutcome& o) {
  const std::string knob = knob_name(o.knob);
  const bool bad = o.status != WriteStatus::Written;
  const std::string before = number(decision.current[o.knob]);
  log(bad ? LOG_WARNING : LOG_INFO,
      target.name + ": " + knob + " " + before + " -> " + number(o.executed) + " " +
          std::string(traits(o.knob).unit) + " (" + std::string(to_string(o.status)) + ")" +
          (o.message.empty() ? "" : ": " + o.message) + ". " + decision.explanation,
      {{"MESSAGE_ID", std::string(kMessageDecision)},
       {"FLASHD_AGENT", agent_name(target.id)},
       {"FLASHD_TARGET", target.name},
       {"FLASHD_TASK", std::string(to_string(target.task()))},
       {"FLASHD_RULE", target.rule},
       {"FLASHD_STAGE", std::string(to_string(decision.stage))},
       {"FLASHD_CONTROLLER", std::string(to_string(decision.controller))},
       {"FLASHD_REWARD", number(decision.reward.value)},
       {"FLASHD_KNOB", knob},
       {"FLASHD_BEFORE", before},
       {"FLASHD_ASKED", number(o.asked)},
       {"FLASHD_AFTER", number(o.executed)}});
}

std::string shortened(const std::string& text) {
  return text.size() <= kArgumentBytes ? text : text.substr(0, kArgumentBytes) + "...";
}

/// An operator's call over D-Bus, done or refused.
void log_call(const ChangeRecord& call) {
  const std::string who = call.sender.empty() ? "a direct connection" : call.sender;
  log(call.verdict == "done" ? LOG_NOTICE : LOG_WARNING,
      call.method + "(" + shortened(call.arguments) + ") by uid " + std::to_string(call.uid) + ", pid " +
          std::to_string(call.pid) + " (" + who + "): " + call.verdict +
          (call.message.empty() ? "" : ": " + shortened(call.message)),
      {{"MESSAGE_ID", std::string(kMessageOperator)},
       {"FLASHD_METHOD", call.method},
       {"FLASHD_CALLER_UID", std::to_string(call.uid)},
       {"FLASHD_CALLER_PID", std::to_string(call.pid)},
       {"FLASHD_VERDICT", call.verdict}});
}

}  // namespace

void log_managed(const AgentView& agent) {
  const Target& target = *agent.target;
  log(LOG_INFO,
      "managing " + target.name + " by rule " + agent.rule->name + " (" +
          std::string(to_string(target.task())) + ", " + std::string(to_string(agent.mode)) + ")",
      {{"FLASHD_AGENT", agent_name(target.id)}, {"FLASHD_TARGET", target.name}});
}

void log_stage(const AgentView& agent) {
  const Target& target = *agent.target;
  std::string message = target.name + ": stage " + std::string(to_string(agent.stage));
  if (!agent.stages.empty()) message += ": " + agent.stages.back().reason;
  log(LOG_NOTICE, message,
      {{"MESSAGE_ID", std::string(kMessageStage)},
       {"FLASHD_AGENT", agent_name(target.id)},
       {"FLASHD_TARGET", target.name},
       {"FLASHD_STAGE", std::string(to_string(agent.stage))}});
}

void log_decision(const Target& target, const Decision& decision) {
  if (!decision.changed_something()) return;
  for (const KnobOutcome& o : decision.outcomes)
    if (o.status == WriteStatus::Written || o.status == WriteStatus::Failed ||
        o.status == WriteStatus::Undone)
      log_knob(target, decision, o);
}

void CallLog::say(const ChangeRecord& call, Duration now) {
  if (call.verdict == "done" || call.uid == 0) return log_call(call);
  // Users beyond those few share the last one's lines.
  const uid_t who = users_.size() < kUsers || users_.contains(call.uid) ? call.uid : users_.rbegin()->first;
  const auto [found, fresh] = users_.try_emplace(who);
  User& user = found->second;
  user.left = fresh ? kLines : std::min(kLines, user.left + seconds(now - user.at) / seconds(kPerLine));
  user.at = now;
  if (user.left >= 1) {
    user.left -= 1;
    return log_call(call);
  }
  if (user.unsaid++ == 0) user.unsaid_since = now;
}

void CallLog::flush(Duration now, bool end) {
  for (auto it = users_.begin(); it != users_.end();) {
    User& user = it->second;
    if (user.unsaid > 0 && (end || now - user.unsaid_since >= kPerLine)) {
      log(LOG_WARNING,
          std::to_string(user.unsaid) + " more calls of uid " + std::to_string(it->first) +
              " were denied or failed; they are not logged one by one",
          {{"MESSAGE_ID", std::string(kMessageOperator)},
           {"FLASHD_CALLER_UID", std::to_string(it->first)},
           {"FLASHD_VERDICT", "denied"}});
      user.unsaid = 0;
    }
    const bool quiet = user.unsaid == 0 && now - user.at > kLines * kPerLine;
    it = quiet ? users_.erase(it) : std::next(it);
  }
}

void DegradedLog::say(std::vector<Degraded> all) {
  std::map<std::string, Degraded> now;
  for (Degraded& d : all) {
    std::string text = d.part + ": " + d.reason;
    now.emplace(std::move(text), std::move(d));
  }
  for (const auto& [text, d] : now)
    if (!said_.contains(text)) log_degraded(LOG_WARNING, text, d);
  for (const auto& [text, d] : said_)
    if (!now.contains(text)) log_degraded(LOG_INFO, "over: " + text, d);
  said_ = std::move(now);
}

}  // namespace flash
