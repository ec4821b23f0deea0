#include "policy/fallback_frequency.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "policy/explain.h"
#include "policy/idle.h"

namespace flash {
namespace {

constexpr double kDefaultStepKhz = 100000;

/// How much longer the same work takes one STEP lower.
double slowdown(double freq, double lower_freq) {
  return lower_freq > 0 ? freq / lower_freq : 1.0;
}

}  // namespace

Slack latency_slack(double target_ms, double actual_ms, double freq, double lower_freq) {
  Slack s;
  s.of = "p99 latency";
  s.now = (target_ms - actual_ms) / target_ms;
  s.predicted = (target_ms - actual_ms * slowdown(freq, lower_freq)) / target_ms;
  return s;
}

Slack headroom_slack(double target_utilization, double utilization, double freq, double lower_freq) {
  const double target = std::max(target_utilization, 0.01);
  Slack s;
  s.of = "CPU headroom";
  s.now = (target - utilization) / target;
  s.predicted = (target - utilization * slowdown(freq, lower_freq)) / target;
  return s;
}

Slack throughput_slack(double target_rps, double rate, double target_utilization, double utilization,
                       double freq, double lower_freq) {
  const Slack headroom = headroom_slack(target_utilization, utilization, freq, lower_freq);
  const double full = std::max(1.0, utilization * slowdown(freq, lower_freq));
  Slack s;
  s.of = "throughput";
  s.now = std::max((rate - target_rps) / target_rps, headroom.now);
  s.predicted = std::max((rate / full - target_rps) / target_rps, headroom.predicted);
  return s;
}

double one_step_down(const FrequencyInput& in) {
  constexpr double kBelow = 1 - 1e-4;
  const double configured = in.rule->frequency.step_khz;
  if (in.steps.empty())
    return std::max(in.range.lower, in.khz - (configured > 0 ? configured : kDefaultStepKhz));
  const double next = step_at_or_below(in.khz * kBelow, in.steps, in.range);
  if (configured <= 0) return std::min(in.khz, next);
  return std::min({in.khz, next, step_at_or_above(in.khz - configured, in.steps, in.range)});
}

void decide_frequency(const FrequencyInput& in, Action& proposed, std::string& out,
                      std::vector<Alternative>& alternatives) {
  constexpr KnobKind kKnob = KnobKind::CpuFrequency;
  const FrequencyOptions& opt = in.rule->frequency;
  const Slo& slo = in.rule->slo;
  const Observation& o = *in.observation;
  if (!(in.khz > 0)) {
    out += "The frequency in force is not known: it stays.";
    return;
  }
  const double lower = one_step_down(in);
  const Sample& usage = o[Signal::CpuUsage];
  const double u = usage.value_or(1) / std::max(in.cpus, 1);
  const Sample& rate = o[Signal::RequestRate];
  const Sample& p99 = o[Signal::LatencyP99];

  std::array<Slack, 3> slacks{};
  if (slo.latency_p99_ms && p99.usable())
    slacks[0] = latency_slack(*slo.latency_p99_ms, p99.value, in.khz, lower);
  if (slo.throughput_rps && rate.usable() && usage.usable())
    slacks[1] = throughput_slack(*slo.throughput_rps, rate.value, opt.target_utilization, u, in.khz, lower);
  const bool judged = slacks[0].known() || slacks[1].known();
  if (!judged && usage.usable()) slacks[2] = headroom_slack(opt.target_utilization, u, in.khz, lower);

  const Slack* worst = nullptr;     // smallest slack now
  const Slack* tightest = nullptr;  // smallest predicted slack
  for (const Slack& s : slacks) {
    if (!s.known()) continue;
    if (!worst || s.now < worst->now) worst = &s;
    if (!tightest || s.predicted < tightest->predicted) tightest = &s;
  }
  if (!worst) {
    out += "Neither the objective nor CPU use is measured: the frequency stays.";
    proposed.set(kKnob, in.khz);
    return;
  }

  double freq = in.khz;
  if (worst->now < opt.slack_threshold)                // line 10
    freq = std::min(in.range.upper, in.khz * 2);       // line 22
  else if (tightest->predicted > opt.slack_threshold)  // line 16
    freq = std::max(in.range.lower, lower);            // line 24
  if (freq > in.khz) freq = step_at_or_above(freq, in.steps, in.range);
  freq = std::clamp(freq, in.range.lower, in.range.upper);
  proposed.set(kKnob, freq);
  if (!in.words) return;

  if (slo.given() && !judged)
    out += idle(o) ? "No request came, judged by CPU use. "
                   : "The objective's metric is not measured, judged by CPU use. ";
  if (worst->of == slacks[0].of)
    appendf(out, "p99 latency %.1f of %.1f ms", p99.value, *slo.latency_p99_ms);
  else if (worst->of == slacks[1].of)
    appendf(out, "%.1f of %.1f requests/s, CPU use %.0f %%", rate.value, *slo.throughput_rps, 100 * u);
  else
    appendf(out, "CPU use %.0f %% (target %.0f %%)", 100 * u, 100 * opt.target_utilization);
  appendf(out, ", slack %.0f %%", 100 * worst->now);
  if (same_setting(kKnob, freq, in.khz)) {
    if (worst->now < opt.slack_threshold)
      out += ": too little, but the frequency is the highest allowed.";
    else if (tightest->predicted > opt.slack_threshold)
      out += ": the frequency is the lowest allowed.";
    else
      appendf(out, ", predicted %.0f %% one step lower: the frequency stays.", 100 * tightest->predicted);
  } else {
    if (freq < in.khz) appendf(out, ", predicted %.0f %%", 100 * tightest->predicted);
    out += freq > in.khz ? ": frequency doubled up to " : ": frequency one step down to ";
    append_value(out, kKnob, freq);
    out += ".";
  }

  Alternative& stay = alternatives.emplace_back();
  stay.label = "current";
  stay.action.set(kKnob, in.khz);
  stay.value = worst->now;
  if (lower < in.khz) {
    Alternative& down = alternatives.emplace_back();
    down.label = "step down";
    down.action.set(kKnob, lower);
    down.value = tightest->predicted;
  }
}

}  // namespace flash
