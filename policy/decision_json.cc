#include "policy/decision_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "core/json.h"
#include "core/utf8.h"
#include "policy/explain.h"
#include "policy/group.h"
#include "policy/task.h"

namespace flash {
namespace {

/// Appends JSON to a string that keeps its memory. A document tree of the same record costs some 150
/// allocations, and the journal writes one per agent and tick.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  Writer& key(std::string_view name) {
    separate();
    put(name);
    out_ += ':';
    fresh_ = true;
    return *this;
  }
  void open(char bracket) {
    separate();
    out_ += bracket;
    fresh_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    fresh_ = false;
  }

  void value(std::string_view text) {
    separate();
    put(text);
  }
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool b) {
    separate();
    out_ += b ? "true" : "false";
  }
  void null() {
    separate();
    out_ += "null";
  }
  /// Shortest text that reads back as the same number; "max" for no limit, null for what is not known.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void value(Number x) {
    if constexpr (std::is_floating_point_v<Number>) {
      if (std::isinf(x) && x > 0) return value(std::string_view("max"));
      if (!std::isfinite(x)) return null();
    }
    separate();
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), x);
    out_.append(text.data(), end.ptr);
  }

  template <class Value>
  void field(std::string_view name, const Value& v) {
    key(name).value(v);
  }

 private:
  void separate() {
    if (!std::exchange(fresh_, false)) out_ += ',';
  }

  /// Names of cgroups and containers are bytes, not always UTF-8: what is not becomes U+FFFD.
  void put(std::string_view text) {
    out_ += '"';
    for (std::size_t i = 0; i < text.size();) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += text[i++];
      } else if (c < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", c);
        out_ += escape;
        ++i;
      } else if (c < 0x80) {
        out_ += text[i++];
      } else if (const std::size_t n = utf8_sequence(text.substr(i)); n > 0) {
        out_.append(text, i, n);
        i += n;
      } else {
        out_ += "\xEF\xBF\xBD";
        ++i;
      }
    }
    out_ += '"';
  }

  std::string& out_;
  bool fresh_ = true;  // nothing to separate from yet
};

void put(Writer& w, std::string_view name, const Action& a) {
  w.key(name).open('{');
  a.each([&w](const KnobId& knob, double value) { w.field(knob_name(knob), value); });
  w.close('}');
}

template <class Range>
void put_array(Writer& w, std::string_view name, const Range& values) {
  w.key(name).open('[');
  for (const auto& x : values) w.value(x);
  w.close(']');
}

void put_or_null(Writer& w, std::string_view name, const std::vector<float>& values) {
  if (values.empty())
    w.key(name).null();
  else
    put_array(w, name, values);
}

std::string rfc3339(std::int64_t us) {
  std::int64_t s = us / 1000000, rest = us % 1000000;
  if (rest < 0) {
    rest += 1000000;
    --s;
  }
  const auto t = static_cast<std::time_t>(s);
  std::tm tm{};
  gmtime_r(&t, &tm);
  char day[40], out[64];
  std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
  std::snprintf(out, sizeof out, "%s.%06dZ", day, static_cast<int>(rest));
  return out;
}

void put_target(Writer& w, const Target& t) {
  w.key("target").open('{');
  w.field("name", t.name);
  w.field("agent", agent_name(t.id));
  w.field("task", to_string(t.task()));
  w.field("cgroup", t.cgroup);
  w.field("unit", t.unit);
  put_array(w, "cpus", t.cpus);
  w.field("owner", to_string(t.owner));
  w.field("application", t.application);
  w.field("rule", t.rule);
  if (t.container.runtime.empty()) {
    w.key("container").null();
  } else {
    w.key("container").open('{');
    w.field("runtime", t.container.runtime);
    w.field("id", t.container.id);
    w.field("name", t.container.name);
    w.field("pod_uid", t.container.pod_uid);
    w.close('}');
  }
  w.close('}');
}

void put_observation(Writer& w, const Observation& o) {
  w.key("observation").open('{');
  for (const auto& row : signal_table()) {
    const Sample& s = o[row.signal];
    if (s.validity == Validity::Missing) continue;
    w.key(row.name).open('{');
    if (s.usable())
      w.field("value", s.value);
    else
      w.key("value").null();
    w.field("unit", row.unit);
    w.field("validity", to_string(s.validity));
    w.close('}');
  }
  w.close('}');
}

void put_reward(Writer& w, const Reward& r) {
  w.key("reward");
  if (!r.given) return w.null();
  w.open('{');
  w.field("value", r.value);
  w.field("slo_preservation", r.slo_preservation);
  w.field("utilization", r.utilization);
  w.field("ips_gain", r.ips_gain);
  w.field("power_cost", r.power_cost);
  w.field("trusted", r.trusted);
  w.close('}');
}

void put_learning(Writer& w, const Decision& d, Task task) {
  const std::vector<float>& state = d.learning.state;
  const TaskSpec& spec = task_spec(task);
  const std::size_t own = spec.state.size();
  w.key("state");
  if (state.size() != own && state.size() != own + kGroupEntries.size()) {
    w.null();
  } else {
    w.open('{');
    for (std::size_t i = 0; i < state.size(); ++i)
      w.field(state_entry(spec, static_cast<int>(i))->name, state[i]);
    w.close('}');
  }
  w.key("learning").open('{');
  w.field("state_trusted", d.learning.state_trusted);
  w.field("end_of_episode", d.learning.end_of_episode);
  put_or_null(w, "action", d.learning.action);
  put_or_null(w, "fallback", d.learning.fallback);
  w.close('}');
  w.key("ranges").open('{');
  for (const KnobContext& c : d.contexts) {
    w.key(knob_name(c.knob)).open('{');
    w.field("lower", c.lower);
    w.field("upper", c.upper);
    put_array(w, "steps", c.steps);
    w.close('}');
  }
  w.close('}');
}

void put_considered(Writer& w, const Decision& d) {
  w.key("attributions").open('[');
  for (const Attribution& a : d.attributions) {
    w.open('{');
    w.field("entry", a.entry);
    w.field("value", a.value);
    w.field("weight", a.weight);
    w.close('}');
  }
  w.close(']');
  w.key("alternatives").open('[');
  for (const Alternative& a : d.alternatives) {
    w.open('{');
    w.field("label", a.label);
    put(w, "action", a.action);
    w.field("value", a.value);
    w.close('}');
  }
  w.close(']');
  w.key("verdicts").open('[');
  for (const GuardVerdict& v : d.verdicts) {
    w.open('{');
    w.field("guard", v.guard);
    w.field("knob", knob_name(v.knob));
    w.field("verdict", to_string(v.verdict));
    w.field("before", v.before);
    w.field("after", v.after);
    w.field("reason", v.reason);
    w.close('}');
  }
  w.close(']');
  w.key("outcomes").open('[');
  for (const KnobOutcome& o : d.outcomes) {
    w.open('{');
    w.field("knob", knob_name(o.knob));
    w.field("status", to_string(o.status));
    w.field("asked", o.asked);
    w.field("executed", o.executed);
    w.field("message", o.message);
    w.close('}');
  }
  w.close(']');
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  return verdict == Verdict::Changed ? "changed" : "refused";
}

void append_json_text(std::string& out, const Decision& d, const Target& target, WithWords with) {
  Writer w(out);
  const std::int64_t us =
      std::chrono::duration_cast<std::chrono::microseconds>(d.at.wall.time_since_epoch()).count();
  w.open('{');
  w.field("seq", d.seq);
  w.field("time", rfc3339(us));
  w.field("time_us", us);
  put_target(w, target);
  w.field("stage", to_string(d.stage));
  w.field("mode", to_string(d.mode));
  w.field("controller", to_string(d.controller));
  w.field("controller_reason", d.controller_reason);
  w.field("episode", d.episode);
  w.field("step", d.step);
  put_observation(w, d.observation);
  put_reward(w, d.reward);
  put(w, "current", d.current);
  put(w, "proposed", d.proposed);
  put(w, "allowed", d.allowed);
  w.field("explanation", d.explanation);
  w.field("explored", d.explored);
  w.field("exploration", d.exploration);
  w.field("model_version", d.model_version);
  w.field("notes", d.notes);
  put_learning(w, d, target.task());
  put_considered(w, d);
  if (with == WithWords::Yes) w.field("words", explain(d, target));
  w.close('}');
}

std::string to_json_text(const Decision& decision, const Target& target) {
  std::string out;
  append_json_text(out, decision, target, WithWords::Yes);
  return out;
}

nlohmann::json to_json(const Decision& decision, const Target& target) {
  return nlohmann::json::parse(to_json_text(decision, target));
}

}  // namespace flash
