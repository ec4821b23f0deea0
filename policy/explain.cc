#include "policy/explain.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "policy/task.h"

namespace flash {

void appendf(std::string& out, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (n <= 0) return;
  out.append(text, std::min(static_cast<std::size_t>(n), sizeof text - 1));
}

void append_value(std::string& out, const KnobId& kind, double value) {
  append_rounded(out, kind, value, "unknown");
}

std::string in_words(const KnobId& kind, double value) {
  std::string out;
  append_value(out, kind, value);
  return out;
}

namespace {

void who_decided(std::string& out, const Decision& d, const Target& target) {
  switch (d.controller) {
    case Controller::None:
      appendf(out, "Nothing was decided for %s", target.name.c_str());
      break;
    case Controller::Fallback:
      appendf(out, "The rule-based fallback decided for %s", target.name.c_str());
      break;
    case Controller::Learned:
      appendf(out, "The learned policy decided for %s", target.name.c_str());
      break;
  }
  if (!d.controller_reason.empty()) out.append(" (").append(d.controller_reason).append(")");
  out += ".";
}

void what_happened(std::string& out, const Decision& d) {
  bool touched = false;
  for (const KnobOutcome& o : d.outcomes) {
    const std::string words = knob_words(o.knob);
    const char* const name = words.c_str();
    switch (o.status) {
      case WriteStatus::NotAsked:
        if (d.mode == Mode::Recommend && d.allowed.has(o.knob) && d.current.has(o.knob) &&
            !same_setting(o.knob, d.allowed[o.knob], d.current[o.knob])) {
          appendf(out, " Recommended, not written: %s from ", name);
          append_value(out, o.knob, d.current[o.knob]);
          out += " to ";
          append_value(out, o.knob, d.allowed[o.knob]);
          out += ".";
          touched = true;
        } else if (!o.message.empty()) {
          appendf(out, " The %s was not written: %s.", name, o.message.c_str());
          touched = true;
        }
        break;
      case WriteStatus::Unchanged:
        break;
      case WriteStatus::Written:
        appendf(out, " The %s went from ", name);
        append_value(out, o.knob, d.current[o.knob]);
        out += " to ";
        append_value(out, o.knob, o.executed);
        out += " (read back).";
        touched = true;
        break;
      case WriteStatus::Refused:
        appendf(out, " The %s was left alone: %s.", name, o.message.c_str());
        touched = true;
        break;
      case WriteStatus::Failed:
        appendf(out, " Writing the %s failed: %s.", name, o.message.c_str());
        touched = true;
        break;
      case WriteStatus::Undone:
        appendf(out, " The %s was written and put back: %s.", name, o.message.c_str());
        touched = true;
        break;
    }
  }
  if (!touched && d.controller != Controller::None) out += " Nothing had to be written.";
}

void what_it_earned(std::string& out, const Decision& d, const Target& target) {
  if (!d.reward.given) return;
  appendf(out, " The step before earned a reward of %.2f", d.reward.value);
  if (!d.reward.slo_known)
    out += " (objective not measured";
  else if (d.reward.slo_preservation >= 1)
    out += " (objectives kept";
  else
    appendf(out, " (objectives kept to %.0f %%", 100 * d.reward.slo_preservation);
  task_spec(target.task()).explain_reward(d.reward, out);
  out += d.reward.trusted ? ")." : "; not every input can be trusted, so nothing is learned from it).";
}

}  // namespace

std::string explain(const Decision& decision, const Target& target) {
  std::string out;
  out.reserve(512);
  who_decided(out, decision, target);
  if (!decision.explanation.empty()) out.append(" ").append(decision.explanation);
  if (!decision.exploration.empty())
    out.append(" This step explored: ").append(decision.exploration).append(".");
  if (!decision.notes.empty()) out.append(" ").append(decision.notes);
  for (const GuardVerdict& v : decision.verdicts) {
    out.append(" Guard \"").append(v.guard).append("\" ");
    if (v.verdict == Verdict::Refused) {
      appendf(out, "kept the %s at ", knob_words(v.knob).c_str());
    } else {
      appendf(out, "changed the %s from ", knob_words(v.knob).c_str());
      append_value(out, v.knob, v.before);
      out += " to ";
    }
    append_value(out, v.knob, v.after);
    out.append(": ").append(v.reason).append(".");
  }
  what_happened(out, decision);
  what_it_earned(out, decision, target);
  return out;
}

}  // namespace flash
