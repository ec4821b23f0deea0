#include "policy/tasks/cpu_frequency.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/policy_snapshot.h"
#include "policy/explain.h"
#include "policy/exploration.h"
#include "policy/fallback_frequency.h"
#include "policy/idle.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr std::array<StateEntry, kFrequencyStateDim> kEntries = {{
    {"ips", "1/s", "instructions per second and CPU, in units of 1e10 (about 4 GHz at 2.5 IPC); 0: unknown"},
    {"ips_known", "1", "1 if the machine counts instructions, else 0"},
    {"cpu_usage", "cores", "share of the set's CPUs"},
    {"frequency", "kHz", "place in the range, [0,1]"},
    {"sp_latency", "ms", "SLO preservation of latency, [0,1], 1 without an SLO"},
    {"sp_throughput", "1/s", "SLO preservation of throughput, [0,1], 1 without an SLO"},
    {"ips_gain", "1", "speed gained per frequency, e of the default reward, [0,1]; 0.5: not known"},
    {"cpu_usage_3", "cores", "share of the set's CPUs, mean of about 3 steps"},
    {"cpu_usage_8", "cores", "share of the set's CPUs, mean of about 8 steps"},
    {"cpu_usage_64", "cores", "share of the set's CPUs, mean of about 64 steps"},
    {"cpu_usage_peak", "cores", "share of the set's CPUs, the highest of about 128 steps"},
    {"latency", "ms", "ln(p99 / objective) / 3, [-2,2], -1 without an SLO or a request"},
    {"latency_8", "ms", "the same, mean of about 8 steps"},
    {"latency_64", "ms", "the same, mean of about 64 steps"},
}};

static_assert(kEntries[kPlaceInForce].name == "frequency");

constexpr double kIpsUnit = 1e10;

constexpr double kSmallestChange = 0.02;   // of the frequency, below it a change of speed is noise
constexpr double kLeastBusy = 0.05;        // CPUs; below it speed is the idle process's
constexpr double kElasticityWeight = 0.1;  // exponential smoothing of e where a change tells much
constexpr double kSpeedNoise = 0.15;       // of ln(speed), against which what a change tells is weighed
constexpr double kMostSurprise = 0.5;      // of ln(speed): a program that does something else now

/// Without a request, and before the first one, latency is far below the objective.
void add_latency(StateBuilder& b, const Slo& slo, const Observation& o, const RecentLatency& late) {
  constexpr double kFarBelow = -1;
  if (!slo.latency_p99_ms) {
    for (int i = 0; i < 3; ++i) b.add(kFarBelow, true, true);
    return;
  }
  const Sample& p99 = o[Signal::LatencyP99];
  if (idle(o))
    b.add(kFarBelow, o[Signal::RequestRate]);
  else
    b.add(p99.usable() ? latency_distance(p99.value, *slo.latency_p99_ms) : 0, p99);
  for (std::size_t i = 0; i < 2; ++i)
    b.add(late.distances() != nullptr ? (*late.distances())[i] : kFarBelow, true, true);
}

}  // namespace

void RecentUse::add(const Sample& usage, int cpus) {
  if (!usage.trusted() || !std::isfinite(usage.value)) return;
  constexpr double kSteps[] = {3, 8, 64}, kMost = 2;
  static const double kHighestKept = std::exp(-1.0 / 128);
  const double share = std::clamp(usage.value / std::max(cpus, 1), 0.0, kMost);
  if (!any_) shares_.fill(share);
  any_ = true;
  for (std::size_t i = 0; i < std::size(kSteps); ++i) shares_[i] += (share - shares_[i]) / kSteps[i];
  shares_[3] = std::max(share, shares_[2] + (shares_[3] - shares_[2]) * kHighestKept);
}

double latency_distance(double p99_ms, double objective_ms) {
  constexpr double kUnit = 3;  // e^3: about twenty times
  if (!(p99_ms > 0)) return -kFurthestLatency;
  return std::clamp(std::log(p99_ms / objective_ms) / kUnit, -kFurthestLatency, kFurthestLatency);
}

void RecentLatency::add(const Slo& slo, const Sample& p99) {
  if (!slo.latency_p99_ms || !p99.trusted() || !std::isfinite(p99.value)) return;
  constexpr double kSteps[] = {8, 64};
  const double distance = latency_distance(p99.value, *slo.latency_p99_ms);
  if (!any_) distances_.fill(distance);
  any_ = true;
  for (std::size_t i = 0; i < std::size(kSteps); ++i) distances_[i] += (distance - distances_[i]) / kSteps[i];
}

StateVector frequency_state(const Rule& rule, const Observation& now, double khz, KnobRange range, int cpus,
                            double gain, const FrequencyPast& past) {
  StateBuilder b;
  const Sample& ips = now[Signal::Instructions];
  const int n = std::max(cpus, 1);
  if (ips.validity == Validity::Missing || ips.validity == Validity::Proxy) {
    b.add(0, true, true);
    b.add(0, true, true);
  } else {
    b.add(ips.value_or(0) / n / kIpsUnit, ips);
    b.add(1, true, true);
  }
  const Sample& usage = now[Signal::CpuUsage];
  b.add(usage.value_or(0) / n, usage);
  const bool known = khz > 0 && std::isfinite(range.upper);
  b.add(known ? relative_position(khz, range) : 0, known, known);
  add_slo(b, rule.slo, now, cpu_saturated(now, n, rule.guards.throttled_floor));
  b.add(std::isfinite(gain) ? gain : kUnknownElasticity, true, true);
  for (std::size_t i = 0; i < 4; ++i)
    b.add(past.use.shares() != nullptr ? (*past.use.shares())[i] : usage.value_or(0) / n, usage);
  add_latency(b, rule.slo, now, past.latency);
  return b.take();
}

double speed_elasticity(double e, double khz_before, double khz_now, double khz_upper, double speed_before,
                        double speed_now) {
  const double more_before = khz_upper / khz_before - 1, more_now = khz_upper / khz_now - 1;
  const double t_before = 1 + e * more_before, t_now = 1 + e * more_now;  // T(f) of the same work
  const double surprise = std::clamp(std::log(speed_now / speed_before) - std::log(t_before / t_now),
                                     -kMostSurprise, kMostSurprise);
  const double slope = more_before / t_before - more_now / t_now;  // of ln(T(before) / T(now)) along e
  const double gain = kElasticityWeight * slope / (slope * slope + kSpeedNoise * kSpeedNoise);
  return std::clamp(e + gain * surprise, 0.0, 1.0);
}

Reward frequency_reward(const Rule& rule, const FrequencyStep& step) {
  const Observation& o = *step.now;
  const bool paper = rule.reward.kind == RewardKind::Paper;
  const double alpha = rule.reward.alpha;
  Reward r;
  r.given = true;
  const bool saturated = paper || cpu_saturated(o, step.cpus, rule.guards.throttled_floor);
  const SloPreservation sp = slo_preservation(rule.slo, o, saturated);
  r.slo_preservation = sp.value;
  r.slo_known = sp.known;

  const Sample& ips = o[Signal::Instructions];
  const Sample ips_before = step.before ? (*step.before)[Signal::Instructions] : Sample::missing();
  const bool both_trusted = ips.trusted() && ips_before.trusted() && ips.value > 0 && ips_before.value > 0;
  const bool khz_known = step.khz_now > 0 && step.khz_before > 0;
  const double rise = khz_known ? (step.khz_now - step.khz_before) / step.khz_before : 0;

  if (paper) {
    r.ips_gain = rise > 0 && both_trusted ? (ips.value - ips_before.value) / ips.value : 0;
    r.value = alpha * r.ips_gain + (1 - alpha) * sp.value;
    r.trusted = sp.trusted && both_trusted && khz_known;
    return r;
  }

  const Sample& usage = o[Signal::CpuUsage];
  const Sample usage_before = step.before ? (*step.before)[Signal::CpuUsage] : Sample::missing();
  const bool busy = usage.trusted() && usage_before.trusted() && usage.value >= kLeastBusy &&
                    usage_before.value >= kLeastBusy;
  const double highest = std::max({step.range.upper, step.khz_now, step.khz_before});
  double e = step.gain_before;
  if (both_trusted && busy && std::isfinite(highest) && std::abs(rise) >= kSmallestChange)
    e = speed_elasticity(std::isnan(e) ? kUnknownElasticity : e, step.khz_before, step.khz_now, highest,
                         ips_before.value / usage_before.value, ips.value / usage.value);
  r.ips_gain = e;

  const Sample& watts = o[Signal::Power];
  if (watts.usable() && step.highest_power > 0)
    r.power_cost = share_of(watts.value, step.highest_power);
  else if (step.khz_now > 0 && step.range.upper > 0 && std::isfinite(step.range.upper))
    r.power_cost = std::pow(std::clamp(step.khz_now / step.range.upper, 0.0, 1.0), 3);

  const bool no_counter = ips.validity == Validity::Missing || ips.validity == Validity::Proxy;
  const double price = rule.reward.power_price;
  const double x = relative_position(step.khz_now, step.range);
  const double use = std::clamp(usage.value_or(0) / std::max(step.cpus, 1), 0.0, 1.0);
  const double gain = use * (std::isnan(e) ? kUnknownElasticity : e);
  const double benefit = gain * x + (1 - gain) * (1 - x);
  const double merit = no_counter ? sp.value : alpha * benefit + (1 - alpha) * sp.value;
  r.value = (merit + price * (1 - r.power_cost)) / (1 + price);
  r.trusted =
      sp.trusted && step.khz_now > 0 && (no_counter ? rule.slo.given() : ips.trusted() && usage.trusted());
  return r;
}

namespace {

/// What an agent remembers.
struct FrequencyMemory {
  FrequencyPast past;
  double gain =
      std::numeric_limits<double>::quiet_NaN();  // Reward::ips_gain of the step before; NaN: not known
};

constexpr KnobKind kActions[] = {KnobKind::CpuFrequency};

/// As read back; 0: not known.
double khz_of(const KnobNow* k) {
  return k != nullptr && !std::isnan(k->value) ? k->value : 0;
}

StateVector state_of(const TaskStep& step, TaskMemory& memory) {
  auto& m = memory.as<FrequencyMemory>();
  m.past.add(*step.rule, *step.now, step.cpus);
  const KnobNow* k = find_knob(step.knobs, KnobKind::CpuFrequency);
  return frequency_state(*step.rule, *step.now, khz_of(k), k != nullptr ? k->scale.range : KnobRange{},
                         step.cpus, m.gain, m.past);
}

Reward reward(const TaskStep& step, TaskMemory& memory) {
  auto& m = memory.as<FrequencyMemory>();
  FrequencyStep f;
  f.before = step.before;
  f.now = step.now;
  if (const KnobNow* k = find_knob(step.knobs, KnobKind::CpuFrequency)) f.range = k->scale.range;
  if (step.in_force->has(KnobKind::CpuFrequency)) f.khz_now = (*step.in_force)[KnobKind::CpuFrequency];
  if (step.in_force_before->has(KnobKind::CpuFrequency))
    f.khz_before = (*step.in_force_before)[KnobKind::CpuFrequency];
  f.cpus = step.cpus;
  f.gain_before = m.gain;
  f.highest_power = step.highest_power;
  const Reward r = frequency_reward(*step.rule, f);
  if (step.rule->reward.kind == RewardKind::Default) m.gain = r.ips_gain;
  return r;
}

TaskFallback fallback() {
  return [](const TaskStep& step, bool words, Proposal& proposal) {
    FrequencyInput in;
    in.rule = step.rule;
    in.observation = step.now;
    in.cpus = step.cpus;
    in.words = words;
    Observation moved;
    if (const KnobNow* k = find_knob(step.knobs, KnobKind::CpuFrequency)) {
      in.khz = khz_of(k);
      in.range = k->scale.range;
      in.steps = k->steps;
      if (k->own_view != k->value && in.khz > 0) {
        moved = seen_at(*step.now, in.khz, k->own_view);
        in.observation = &moved;
        in.khz = k->own_view;
      }
    }
    decide_frequency(in, proposal.action, proposal.explanation, proposal.alternatives);
  };
}

}  // namespace

constexpr TaskSpec kCpuFrequency = {
    .task = Task::CpuFrequency,
    .target = TargetKind::CpuSet,
    .state = kEntries,
    .knobs = kActions,
    .levels = kFrequencyLevels,
    // A held frequency is the rules' own, and nothing of what was learned is used
    // (docs/ablations/14-objective-guard-frequency.md).
    .objective_slack = 15,
    .objective_known = 50,
    .pays_for_power = true,
    .start = [](TaskMemory& memory) { memory.start<FrequencyMemory>(); },
    .state_of = state_of,
    .reward = reward,
    .growth_room = [](TaskMemory&, Duration) { return 0.0; },
    .cores = [](const TaskStep& step) { return static_cast<double>(step.cpus); },
    .fallback = fallback,
    .explain_reward =
        [](const Reward& r, std::string& out) {
          appendf(out, ", power %.0f %% of the highest", 100 * r.power_cost);
        },
};

}  // namespace flash
