#include "lab/sim/world.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <vector>

#include "lab/sim/noise.h"
#include "policy/learning_view.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr std::uint64_t kReadings = 0x5ead1e55;

/// A counter's reading: relative noise of this size.
double read(double value, double noise, Random& random) {
  return value * std::max(0.0, 1 + noise * bell(random.next()));
}

}  // namespace

Sample BorrowedLatency::p99(const NodeTick& tick, std::uint64_t bits) {
  const Sample missing = Sample::missing();
  const int n = static_cast<int>(tick.completed);
  Recent& mine = recent_[static_cast<std::size_t>(next_)];
  Sample result = missing;
  if (n >= kFewRequests) {
    result = Sample::good(tick.p99_ms);
  } else if (n > 0) {
    float top[2] = {static_cast<float>(tick.top_ms[0]), n > 1 ? static_cast<float>(tick.top_ms[1]) : 0.0F};
    float samples = static_cast<float>(n);
    // The slot `next_` holds the oldest of ten: not looked at where it is out of reach.
    for (int back = 1; back <= kLookBack && samples < kFewRequests; ++back) {
      const Recent& r = recent_[static_cast<std::size_t>((next_ + kLookBack - back) % kLookBack)];
      if (r.samples <= 0) continue;
      const float taken = std::min(r.samples, kFewRequests - samples);
      for (int i = 0; i < (r.samples > 1 ? 2 : 1); ++i) {
        const float chance = static_cast<float>((bits = bits * 6364136223846793005ULL + 1) >> 40) * 0x1p-24F;
        if (chance * r.samples >= taken) continue;
        if (r.top_ms[i] > top[0]) {
          top[1] = top[0];
          top[0] = r.top_ms[i];
        } else {
          top[1] = std::max(top[1], r.top_ms[i]);
        }
      }
      samples += taken;
    }
    result = {samples > 1 ? top[1] : top[0], samples < kFewRequests ? Validity::Degraded : Validity::Good};
  }
  mine.samples = static_cast<float>(n);
  mine.top_ms[0] = static_cast<float>(n < kFewRequests ? tick.top_ms[0] : tick.p99_ms * 1.1);
  mine.top_ms[1] = static_cast<float>(n < kFewRequests ? tick.top_ms[1] : tick.p99_ms);
  next_ = (next_ + 1) % kLookBack;
  return result;
}

void WorldCore::reset(const Pair& pair, double offset_s, std::uint64_t seed) {
  *this = WorldCore();
  pair_ = &pair;
  spec_ = &task_spec(pair.task());
  spec_->start(memory_);
  assert(spec_->knobs.size() <= kMostKnobs);
  random_ = Random(seed);
  offset_s_ = offset_s;
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i) rows_[i] = &simulated_knob(spec_->knobs[i]);
  // RAPL's highest reading is known from before, as flashd knows it.
  if (spec_->pays_for_power && pair.options().rapl) highest_power_ = pair.environment().power.max_w;
  const SimulatedTask& life = simulated_task(pair.task());
  Random start = Random(seed).fork(~0ULL);
  for (int i = 0; i < life.warm_up; ++i) {
    if (i == 0 || life.varied) draw(start);
    pass(life.varied && i > 0, true);
  }
}

void WorldCore::draw(Random& random) {
  in_force_before_ = in_force_;
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i)
    in_force_[i] = rows_[i]->start(*pair_, offset_s_, random);
}

void WorldCore::act(std::span<const double> wanted, bool words) {
  thread_local std::vector<GuardVerdict> verdicts;
  GuardInput in;
  in.observation = &now_;
  in.rule = &pair_->rule();
  in.node = &pair_->node();
  in.step = step_;
  in.words = words;
  in.growth_room = spec_->growth_room(memory_, from_seconds(static_cast<double>(step_)));
  if (spec_->form() == ActionForm::Discrete) in.steps = pair_->steps();
  in_force_before_ = in_force_;
  for (std::size_t i = 0; i < in_force().size(); ++i) {
    in.knob = spec_->knobs[i];
    in.current = in_force_[i];
    in.range = pair_->range(in.knob.kind);
    in.flaps = &flaps_[i];
    const double allowed = apply_guards(in, wanted[i], verdicts);
    put_in_force(i, in.knob.kind, as_written(in.knob, allowed, in.current, in.range));
  }
  verdicts.clear();
  pass(true, false);
}

void WorldCore::execute(std::span<const double> allowed) {
  in_force_before_ = in_force_;
  for (std::size_t i = 0; i < in_force().size(); ++i) put_in_force(i, spec_->knobs[i], allowed[i]);
  pass(true, true);
}

void WorldCore::put_in_force(std::size_t i, KnobKind knob, double allowed) {
  if (same_setting(knob, allowed, in_force_[i])) return;
  flaps_[i].record(step_, allowed > in_force_[i] ? 1 : -1);
  in_force_[i] = allowed;
}

void WorldCore::pass(bool with_reward, bool median) {
  NodeSettings settings{kUnlimited, kUnlimited, pair_->environment().top_khz(), median};
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i) rows_[i]->apply(in_force_[i], settings);
  tick_ = advance(pair_->parameters(), settings, rate_ahead(0), random_.fork(step_), node_);
  ++step_;
  const Observation before = now_;
  observe(tick_, settings);
  const Sample& watts = now_[Signal::Power];
  if (with_reward && watts.trusted()) highest_power_ = std::max(highest_power_, watts.value);
  const TaskStep step = seen(&before);
  if (with_reward) reward_ = spec_->reward(step, memory_);
  state_ = spec_->state_of(step, memory_);
}

TaskStep WorldCore::seen(const Observation* before) const {
  thread_local std::array<KnobNow, kMostKnobs> knobs;
  thread_local Action in_force, in_force_before;
  in_force = in_force_before = Action{};
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i) {
    const KnobKind knob = spec_->knobs[i];
    KnobNow& k = knobs[i];
    k.knob = knob;
    k.value = k.own_view = in_force_[i];
    k.scale = pair_->scale(knob);
    k.steps = spec_->form() == ActionForm::Discrete ? pair_->steps() : std::span<const double>();
    in_force.set(knob, in_force_[i]);
    in_force_before.set(knob, in_force_before_[i]);
  }
  TaskStep step;
  step.at = from_seconds(static_cast<double>(step_));
  step.rule = &pair_->rule();
  step.node = &pair_->node();
  step.before = before;
  step.now = &now_;
  step.knobs = std::span(knobs).first(spec_->knobs.size());
  step.cpus = pair_->cpus();
  step.in_force = &in_force;
  step.in_force_before = &in_force_before;
  step.highest_power = highest_power_;
  return step;
}

void WorldCore::observe(const NodeTick& t, const NodeSettings& settings) {
  const Environment& e = pair_->environment();
  const PairOptions& options = pair_->options();
  Random random = random_.fork(step_ ^ kReadings);
  Observation& o = now_;
  o = Observation{};
  const double cpus = pair_->parameters().cores;
  const double used = std::min(read(t.cpu_s, e.noise, random), cpus);
  o[Signal::CpuUsage] = Sample::good(used);
  // What a cgroup has files for.
  if (spec_->target == TargetKind::Cgroup) {
    o[Signal::CpuLimit] = Sample::good(settings.cpu_limit);
    o[Signal::CpuThrottled] = Sample::good(t.throttled_share);
    o[Signal::CpuThrottledTime] = Sample::good(t.throttled_s);
    o[Signal::MemoryUsage] = Sample::good(t.memory_bytes);
    o[Signal::MemoryWorkingSet] = Sample::good(t.working_set_bytes);
    o[Signal::MemoryLimit] = Sample::good(settings.memory_limit);
    o[Signal::MemoryHighEvents] = Sample::good(t.limit_hits);
    o[Signal::MemoryOomKills] = Sample::good(t.oom_killed ? 1 : 0);
    if (options.pressure) {
      o[Signal::CpuPressureSome] = Sample::good(t.cpu_wait_share);
      o[Signal::MemoryPressureSome] = Sample::good(t.memory_some);
      o[Signal::MemoryPressureFull] = Sample::good(t.memory_stalled);
    }
  }
  o[Signal::TaskClock] = Sample::good(used);
  o[Signal::Frequency] = Sample::good(settings.khz);
  o[Signal::FrequencyMin] = Sample::good(pair_->steps().front());
  o[Signal::FrequencyMax] = Sample::good(e.top_khz());
  if (options.instruction_counter) {
    o[Signal::Cycles] = Sample::good(used * settings.khz * 1000);
    o[Signal::Instructions] =
        Sample::good(read(t.work * pair_->parameters().instructions + 1e6, e.noise, random));
  }
  if (options.rapl && e.power.max_w > 0) {
    const double speed = settings.khz / e.top_khz();
    const double busy = std::min(1.0, t.cpu_s / cpus) * (speed == 1 ? 1 : std::pow(speed, e.power.exponent));
    o[Signal::Power] =
        Sample::good(read(e.power.idle_w + (e.power.max_w - e.power.idle_w) * busy, e.noise, random));
  }
  // What the StatsD collector says of a tick: no latency without a request.
  if (t.completed > 0 && settings.median) o[Signal::LatencyP50] = Sample::good(t.p50_ms);
  o[Signal::LatencyP99] = latency_.p99(t, random.next());
  o[Signal::RequestRate] = Sample::good(t.completed);
  o[Signal::ErrorRate] = Sample::good(t.refused);
  o[Signal::NodeCpuUsage] = Sample::good(used);
  o[Signal::NodeMemoryAvailable] = Sample::good(std::max(0.0, pair_->node().memory_bytes - t.memory_bytes));
}

void WorldCore::to_knobs(std::span<const float> action, std::span<double> values) const {
  if (spec_->form() == ActionForm::Discrete) {
    values[0] =
        level_to_khz(static_cast<int>(std::lround(action[0])), pair_->steps(), pair_->range(spec_->knobs[0]));
    return;
  }
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i) {
    const KnobKind knob = spec_->knobs[i];
    const KnobScale& scale = pair_->scale(knob);
    values[i] = decided_limit(knob, from_unit(action[i], scale), in_force_[i], scale.range);
  }
}

void WorldCore::executed(std::span<float> action) const {
  if (spec_->form() == ActionForm::Discrete) {
    action[0] = static_cast<float>(khz_to_level(in_force_[0], pair_->range(spec_->knobs[0])));
    return;
  }
  for (std::size_t i = 0; i < spec_->knobs.size(); ++i)
    action[i] = static_cast<float>(to_unit(in_force_[i], pair_->scale(spec_->knobs[i])));
}

void World::reset(const Pair& pair, double offset_s, std::uint64_t seed, bool with_fallback) {
  core_.reset(pair, offset_s, seed);
  rules_ = with_fallback ? core_.spec().fallback() : TaskFallback();
  core_.executed(executed_);
  ask_fallback();
}

void World::step(std::span<const float> action) {
  KnobValues values{};
  core_.to_knobs(action, values);
  step_knobs(values);
}

void World::step_fallback() {
  step_knobs(fallback_knobs_);
}

void World::step_knobs(std::span<const double> values) {
  core_.act(values);
  core_.executed(executed_);
  ask_fallback();
}

void World::ask_fallback() {
  if (!rules_) return;
  const TaskSpec& spec = core_.spec();
  const Pair& pair = core_.pair();
  Proposal proposal;
  rules_(core_.seen(nullptr), false, proposal);
  for (std::size_t i = 0; i < spec.knobs.size(); ++i) {
    const KnobKind knob = spec.knobs[i];
    fallback_knobs_[i] = proposal.action[knob];
    fallback_[i] = spec.form() == ActionForm::Discrete
                       ? static_cast<float>(khz_to_level(fallback_knobs_[i], pair.range(knob)))
                       : static_cast<float>(to_unit(fallback_knobs_[i], pair.scale(knob)));
  }
}

}  // namespace flash
