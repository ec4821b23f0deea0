#include "daemon/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/json.h"
#include "core/tensor_file.h"
#include "policy/action_space.h"
#include "policy/explain.h"
#include "policy/knob_policy.h"
#include "policy/learning_view.h"
#include "policy/observation_space.h"
#include "policy/task.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kAttributions = 3;
constexpr std::size_t kNamedTargets = 20;

/// A journal or a model may come from anybody: no escapes for a terminal.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto b = static_cast<unsigned char>(text[i]);
    const bool c1 = b == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    out += b < 0x20 || b == 0x7f || c1 ? '?' : text[i];
    i += c1;
  }
  return out;
}

KnobRange range_of(const KnobContext& c) {
  return {c.lower, c.upper};
}

/// Where in its range, [0,1], on the scale of the action space.
double place(const KnobId& kind, double value, KnobRange range) {
  return limited_resource(kind) ? (to_unit(value, range) + 1) / 2 : relative_position(value, range);
}

/// An action as the networks have it: every limit in [-1,1], 0 where there is no knob to act on.
std::vector<float> limits_form(Task task, const Action& action, const std::vector<KnobContext>& contexts) {
  OutputKnobs knobs;
  std::vector<float> out(output_knobs(task, contexts, knobs));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const KnobContext* c = knobs[i];
    const bool acts = c && std::isfinite(c->upper) && action.has(c->knob);
    out[i] = acts ? static_cast<float>(to_unit(action[c->knob], range_of(*c))) : 0.0F;
  }
  return out;
}

class Replay {
 public:
  Replay(const ReplayOptions& options, PolicySnapshot snapshot, std::vector<std::string> sets)
      : options_(options), policy_(std::move(snapshot)), sets_(std::move(sets)) {
    policy_.actor.prepare(scratch_);
    policy_.critic.prepare(critic_scratch_);
    report_.version = policy_.snapshot.version;
    report_.algorithm = policy_.snapshot.algorithm;
    report_.model = policy_.snapshot.model;
    report_.task = policy_.snapshot.task;
  }

  Result<void> take(const JournalEntry& e);
  Result<ReplayReport> finish(JournalRead read) &&;

 private:
  bool wanted(const JournalEntry& e) const {
    return options_.target.empty() || options_.target == e.target || options_.target == e.agent ||
           (!e.cgroup.empty() && options_.target == e.cgroup) ||
           (!e.application.empty() && options_.target == e.application);
  }
  /// Does the policy set what this decision was about, with the same devices?
  bool sets_its_knobs(const JournalEntry& e) const;
  /// Discounted reward that the policy's critic expects, NaN without a critic.
  double value(const JournalEntry& e, const Action& action, const std::vector<float>& scores);
  std::vector<Attribution> attributions(const JournalEntry& e, const KnobId& knob,
                                        const std::vector<float>& scores) const;
  void keep(ReplayDifference difference);

  const ReplayOptions& options_;
  CompiledPolicy policy_;
  std::vector<std::string> sets_;  // SpaceLayout::actions
  EvaluatorScratch scratch_, critic_scratch_;
  ReplayReport report_;
  std::set<std::string> targets_;  // seen, for an error's sake
};

bool Replay::sets_its_knobs(const JournalEntry& e) const {
  OutputKnobs knobs;
  const std::size_t n = output_knobs(report_.task, e.contexts, knobs);
  if (n < sets_.size() || (n > sets_.size() && action_form(report_.task) == ActionForm::Continuous))
    return false;
  for (std::size_t i = 0; i < sets_.size(); ++i)
    if (knobs[i] && knob_name(knobs[i]->knob) != sets_[i]) return false;
  return true;
}

double Replay::value(const JournalEntry& e, const Action& action, const std::vector<float>& scores) {
  double y = 0;
  if (action_form(report_.task) == ActionForm::Continuous) {
    if (policy_.critic.empty()) return kNaN;
    std::vector<float> input = e.state;
    for (float a : limits_form(report_.task, action, e.contexts)) input.push_back(a);
    y = policy_.critic.evaluate(input, critic_scratch_)[0];
  } else {
    // Logits are no values.
    if (policy_.critic.empty() && policy_.snapshot.head == PolicyHead::Categorical) return kNaN;
    OutputKnobs knobs;
    output_knobs(report_.task, e.contexts, knobs);
    const auto level = static_cast<std::size_t>(khz_to_level(action[knobs[0]->knob], range_of(*knobs[0])));
    y = policy_.critic.empty() ? scores[level] : policy_.critic.evaluate(e.state, critic_scratch_)[level];
  }
  return policy_.snapshot.value_offset + policy_.snapshot.value_scale * y;
}

std::vector<Attribution> Replay::attributions(const JournalEntry& e, const KnobId& knob,
                                              const std::vector<float>& scores) const {
  int output = 0;
  if (action_form(report_.task) == ActionForm::Discrete) {
    output = static_cast<int>(decided_level(scores, e.state, policy_.snapshot.stay_margin));
  } else {
    OutputKnobs knobs;
    const std::size_t n = output_knobs(report_.task, e.contexts, knobs);
    output = static_cast<int>(std::find_if(knobs.begin(), knobs.begin() + static_cast<std::ptrdiff_t>(n),
                                           [&knob](const KnobContext* c) { return c && c->knob == knob; }) -
                              knobs.begin());
  }
  std::vector<float> gradient(e.state.size());
  policy_.actor.gradient(e.state, output, gradient);
  std::vector<Attribution> all;
  const TaskSpec& spec = task_spec(report_.task);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    all.push_back({state_entry(spec, static_cast<int>(i))->name, e.state[i],
                   gradient[i] * (e.state[i] - policy_.snapshot.mean[i])});
  std::stable_sort(all.begin(), all.end(), [](const Attribution& a, const Attribution& b) {
    return std::abs(a.weight) > std::abs(b.weight);
  });
  all.resize(std::min(all.size(), kAttributions));
  return all;
}

void Replay::keep(ReplayDifference difference) {
  auto& kept = report_.largest;
  // Equal ones stay in the order of the journal.
  const auto place = std::upper_bound(
      kept.begin(), kept.end(), difference,
      [](const ReplayDifference& a, const ReplayDifference& b) { return a.distance > b.distance; });
  if (kept.size() >= options_.largest) {
    if (place == kept.end()) return;
    kept.insert(place, std::move(difference));
    kept.pop_back();
  } else {
    kept.insert(place, std::move(difference));
  }
}

Result<void> Replay::take(const JournalEntry& e) {
  if (targets_.size() < kNamedTargets) targets_.insert(e.target);
  if (!wanted(e)) {
    ++report_.other_target;
    return {};
  }
  if (e.task != report_.task) {
    ++report_.other_task;
    return {};
  }
  if (e.state.empty()) {
    ++report_.no_state;
    return {};
  }
  if (e.state.size() != policy_.snapshot.mean.size()) {
    ++report_.other_state;
    return {};
  }
  if (!sets_its_knobs(e)) {
    ++report_.no_knob;
    return {};
  }
  const auto y = policy_.actor.evaluate(e.state, scratch_);
  const std::vector<float> outputs(y.begin(), y.end());
  if (!std::all_of(outputs.begin(), outputs.end(), [](float v) { return std::isfinite(v); }))
    return Error(std::errc::invalid_argument, "the policy's output is not a number for decision " +
                                                  std::to_string(e.seq) + " of " + plain(e.target));
  ReplayDifference d;
  from_network_form(policy_.snapshot, e.state, outputs, e.contexts, d.replayed);
  decided_limits(e.current, e.contexts, d.replayed);
  bool compared = false, differs = false;
  for (const KnobContext& c : e.contexts) {
    if (!d.replayed.has(c.knob) || !std::isfinite(c.upper)) continue;
    // Who proposed nothing for a knob left it where it was. What is outside of the range (or "no limit")
    // would have been brought to its end by the guards.
    const Action& from = e.proposed.has(c.knob) ? e.proposed : e.current;
    if (!from.has(c.knob)) continue;
    const double was = std::clamp(from[c.knob], c.lower, c.upper), is = d.replayed[c.knob];
    d.recorded.set(c.knob, was);
    compared = true;
    ReplayKnob& knob = report_.knobs[c.knob];
    ++knob.count.decisions;
    knob.sum += std::abs(is - was);
    knob.max = std::max(knob.max, std::abs(is - was));
    if (!same_setting(c.knob, was, is)) {
      ++knob.count.differ;
      differs = true;
    }
    const double distance = std::abs(place(c.knob, is, range_of(c)) - place(c.knob, was, range_of(c)));
    if (distance > d.distance || d.distance == 0) {
      d.distance = distance;
      d.knob = c.knob;
    }
    if (!limited_resource(c.knob) && khz_to_level(was, range_of(c)) == khz_to_level(is, range_of(c)))
      ++report_.same_level;
  }
  if (!compared) {
    ++report_.no_knob;
    return {};
  }
  ReplayCount& by = report_.by_controller[static_cast<std::size_t>(e.controller)];
  for (ReplayCount* count : {&report_.all, &by}) {
    ++count->decisions;
    count->differ += differs;
  }
  report_.explored += e.explored;
  report_.not_trusted += !e.state_trusted;
  d.recorded_value = value(e, d.recorded, outputs);
  d.replayed_value = value(e, d.replayed, outputs);
  if (std::isfinite(d.recorded_value) && std::isfinite(d.replayed_value)) {
    ++report_.valued;
    report_.recorded_value += d.recorded_value;
    report_.replayed_value += d.replayed_value;
  }
  if (differs) {
    d.entry = e;
    d.attributions = attributions(e, d.knob, outputs);
    keep(std::move(d));
  }
  return {};
}

Result<ReplayReport> Replay::finish(JournalRead read) && {
  report_.read = read;
  if (report_.valued > 0) {
    report_.recorded_value /= static_cast<double>(report_.valued);
    report_.replayed_value /= static_cast<double>(report_.valued);
  }
  if (report_.all.decisions > 0) return std::move(report_);
  const std::string journal = options_.journal + ": ";
  if (read.lines == 0) return Error(std::errc::no_such_file_or_directory, journal + "has no decision");
  if (report_.other_target == read.lines) {
    std::string named;
    for (const std::string& t : targets_) named += (named.empty() ? "" : ", ") + plain(t);
    return Error(std::errc::no_such_file_or_directory,
                 journal + "has no decision of target '" + options_.target + "'; it has " + named +
                     (targets_.size() >= kNamedTargets ? " and perhaps more" : ""));
  }
  if (report_.other_task + report_.other_target == read.lines)
    return Error(std::errc::invalid_argument,
                 "the model is for the task " + std::string(to_string(report_.task)) + ", the decisions of " +
                     options_.journal +
                     (options_.target.empty() ? "" : " of target '" + options_.target + "'") + " are not");
  return Error(std::errc::invalid_argument,
               journal + "nothing can be replayed: " + std::to_string(report_.no_state) +
                   " decisions have no state, " + std::to_string(report_.no_knob) + " no knob to compare");
}

json number(double v) {
  if (std::isnan(v)) return nullptr;
  if (std::isinf(v)) return v > 0 ? json("max") : json(nullptr);
  return v;
}

json action_json(const Action& a) {
  json out = json::object();
  a.each([&out](const KnobId& knob, double value) { out[knob_name(knob)] = number(value); });
  return out;
}

json count_json(const ReplayCount& c) {
  return {{"decisions", c.decisions}, {"differ", c.differ}};
}

std::string plural(std::uint64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

Result<ReplayReport> replay(const ReplayOptions& options) {
  FLASH_TRY(const TensorFile file, read_tensor_file(options.model));
  const auto in_model = [&](Error e) { return std::move(e).context(options.model); };
  auto snapshot = to_policy(file);
  if (!snapshot) return in_model(std::move(snapshot).error());
  const TaskSpec& spec = task_spec(snapshot->task);
  Rule rule;
  if (snapshot->mean.size() > spec.state.size()) rule.group = "any";
  std::vector<KnobId> instances;
  if (snapshot->layout)
    for (const std::string& action : snapshot->layout->actions)
      if (auto knob = knob_from_name(action); knob && !knob->instance.empty())
        instances.push_back(*std::move(knob));
  std::sort(instances.begin(), instances.end());
  SpaceLayout here = space_layout(spec, rule, instances);
  // What is rewarded may differ: that is what one wants to compare.
  here.reward.clear();
  if (snapshot->layout)
    if (auto same = same_layout(*snapshot->layout, here); !same) return in_model(std::move(same).error());
  if (auto valid = snapshot->validate(here.state_dim(), here.action_dim()); !valid)
    return in_model(std::move(valid).error());
  Replay replay(options, std::move(*snapshot), std::move(here.actions));
  FLASH_TRY(const JournalRead read,
            read_journal(options.journal, [&](const JournalEntry& e) { return replay.take(e); }));
  return std::move(replay).finish(read);
}

json to_json(const ReplayReport& r) {
  json out = json::object();
  out["model"] = {{"version", r.version},
                  {"algorithm", r.algorithm},
                  {"model", r.model},
                  {"task", std::string(to_string(r.task))}};
  out["journal"] = {{"files", r.read.files}, {"lines", r.read.lines}, {"half_lines", r.read.half_lines}};
  out["decisions"] = r.all.decisions;
  out["differ"] = r.all.differ;
  out["explored"] = r.explored;
  out["not_trusted"] = r.not_trusted;
  json& by = out["controllers"] = json::object();
  for (Controller c : {Controller::None, Controller::Fallback, Controller::Learned})
    by[std::string(to_string(c))] = count_json(r.by_controller[static_cast<std::size_t>(c)]);
  json& knobs = out["knobs"] = json::object();
  const auto put_knob = [&knobs](const KnobId& knob, const ReplayKnob& k) {
    json& out_knob = knobs[knob_name(knob)] = count_json(k.count);
    out_knob.update(
        {{"unit", std::string(traits(knob).unit)}, {"mean_difference", k.mean()}, {"max_difference", k.max}});
  };
  for (const auto& row : kKnobs)
    if (row.task == r.task) put_knob(row.kind, {});
  for (const auto& [knob, k] : r.knobs)
    if (traits(knob).task == r.task) put_knob(knob, k);
  out["level_agreement"] = action_form(r.task) == ActionForm::Discrete
                               ? json(static_cast<double>(r.same_level) /
                                      static_cast<double>(std::max<std::uint64_t>(r.all.decisions, 1)))
                               : json(nullptr);
  out["critic"] = r.valued == 0 ? json(nullptr)
                                : json({{"decisions", r.valued},
                                        {"recorded", number(r.recorded_value)},
                                        {"replayed", number(r.replayed_value)}});
  out["not_replayed"] = {{"other_task", r.other_task},
                         {"other_target", r.other_target},
                         {"other_state", r.other_state},
                         {"no_state", r.no_state},
                         {"no_knob", r.no_knob}};
  json& largest = out["largest"] = json::array();
  for (const ReplayDifference& d : r.largest) {
    json attributions = json::array();
    for (const Attribution& a : d.attributions)
      attributions.push_back(
          {{"entry", std::string(a.entry)}, {"value", number(a.value)}, {"weight", number(a.weight)}});
    largest.push_back({{"target", d.entry.target},
                       {"agent", d.entry.agent},
                       {"seq", d.entry.seq},
                       {"time", d.entry.time},
                       {"time_us", d.entry.time_us},
                       {"controller", std::string(to_string(d.entry.controller))},
                       {"model_version", d.entry.model_version},
                       {"explored", d.entry.explored},
                       {"recorded", action_json(d.recorded)},
                       {"replayed", action_json(d.replayed)},
                       {"knob", knob_name(d.knob)},
                       {"distance", d.distance},
                       {"recorded_value", number(d.recorded_value)},
                       {"replayed_value", number(d.replayed_value)},
                       {"attributions", std::move(attributions)}});
  }
  return out;
}

std::string to_text(const ReplayReport& r) {
  std::string out;
  appendf(out, "%s replayed with policy version %llu", plural(r.all.decisions, "decision").c_str(),
          static_cast<unsigned long long>(r.version));
  if (!r.algorithm.empty()) out += " (" + plain(r.algorithm) + ")";
  appendf(out, ": %llu differ\n", static_cast<unsigned long long>(r.all.differ));
  for (Controller c : {Controller::Learned, Controller::Fallback, Controller::None}) {
    const ReplayCount& n = r.by_controller[static_cast<std::size_t>(c)];
    if (n.decisions == 0) continue;
    appendf(out, "  %llu of %s differ\n", static_cast<unsigned long long>(n.differ),
            (plural(n.decisions, "decision") +
             (c == Controller::None ? " in mode observe" : " of controller " + std::string(to_string(c))))
                .c_str());
  }
  for (const auto& [knob, k] : r.knobs) {
    if (k.count.decisions == 0) continue;
    out += knob_name(knob) + ": ";
    appendf(out, "%llu of %llu differ, by ", static_cast<unsigned long long>(k.count.differ),
            static_cast<unsigned long long>(k.count.decisions));
    append_value(out, knob, k.mean());
    out += " on average, by ";
    append_value(out, knob, k.max);
    out += " at most\n";
  }
  if (action_form(r.task) == ActionForm::Discrete)
    appendf(out, "the same level: %.1f %%\n",
            100.0 * static_cast<double>(r.same_level) / static_cast<double>(r.all.decisions));
  if (r.valued > 0)
    appendf(out,
            "the policy's critic expects %.3f of what it would do, %.3f of what was proposed (discounted "
            "reward)\n",
            r.replayed_value, r.recorded_value);
  if (r.explored > 0) out += plural(r.explored, "recorded decision") + " had been varied to explore\n";
  if (r.not_trusted > 0) out += plural(r.not_trusted, "state") + " not trusted\n";
  const auto skipped = [&out](std::uint64_t n, const char* why) {
    if (n > 0) out += "not replayed: " + plural(n, "decision") + " " + why + "\n";
  };
  skipped(r.other_task, "of the other task");
  skipped(r.other_target, "of other targets");
  skipped(r.other_state, "whose state is not the model's (of a group, or of none)");
  skipped(r.no_state, "without a state");
  skipped(r.no_knob, "without a knob to compare");
  if (r.read.half_lines > 0) out += plural(r.read.half_lines, "last line") + " without an end left out\n";
  if (!r.largest.empty()) out += "\nThe largest differences:\n";
  for (const ReplayDifference& d : r.largest) {
    out += plain(d.entry.time) + " " + plain(d.entry.target) + ", decision " + std::to_string(d.entry.seq) +
           " (" + std::string(to_string(d.entry.controller)) + (d.entry.explored ? ", explored" : "") + "):";
    d.recorded.each([&](const KnobId& knob, double recorded) {
      if (!d.replayed.has(knob)) return;
      out += " " + knob_name(knob) + " ";
      append_value(out, knob, recorded);
      out += " -> ";
      append_value(out, knob, d.replayed[knob]);
      out += ";";
    });
    if (std::isfinite(d.recorded_value) && std::isfinite(d.replayed_value))
      appendf(out, " critic %.3f -> %.3f;", d.recorded_value, d.replayed_value);
    out.pop_back();
    out += "\n    because of";
    for (const Attribution& a : d.attributions)
      appendf(out, " %s %.3f (%+.3f)", std::string(a.entry).c_str(), a.value, a.weight);
    out += "\n";
  }
  return out;
}

}  // namespace flash
