#include "policy/snapshot_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/explain.h"

namespace flash {
namespace {

constexpr std::array<std::string_view, kSnapshotRefusals> kNames = {
    "wrong-task", "other-layout",  "malformed", "too-large",          "version", "expiry", "too-many",
    "not-finite", "ignores-input", "extreme",   "worse-than-fallback"};

/// Versions are counted, and JSON readers keep whole numbers only up to here.
constexpr std::uint64_t kLargestVersion = std::uint64_t{1} << 53;

Refusal refuse(SnapshotRefusal kind, std::string message, std::errc code = std::errc::invalid_argument) {
  return {kind, code, "policy snapshot: " + message};
}

bool finite(std::span<const float> v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
}

bool acts_on(Task task, const ActingOutputs& acts, std::size_t i) {
  return action_form(task) == ActionForm::Discrete || (i < acts.size() && acts[i]);
}

/// Smallest and largest value of each entry of a state, or of each output, over the steps.
struct Spread {
  std::array<float, std::max(kMaxStateDim, kMaxOutputs)> low, high;
  Spread() {
    low.fill(std::numeric_limits<float>::infinity());
    high.fill(-std::numeric_limits<float>::infinity());
  }
  void add(std::span<const float> v) {
    for (std::size_t i = 0; i < v.size() && i < low.size(); ++i) {
      low[i] = std::min(low[i], v[i]);
      high[i] = std::max(high[i], v[i]);
    }
  }
  /// Of the outputs that act, is none different from step to step?
  bool same(Task task, const ActingOutputs& acts, std::size_t outputs) const {
    for (std::size_t i = 0; i < outputs; ++i) {
      const double size = std::max({1.0, std::abs(double(low[i])), std::abs(double(high[i]))});
      if (acts_on(task, acts, i) && double(high[i]) - double(low[i]) > kSameOutput * size) return false;
    }
    return true;
  }
};
static_assert(kMaxActionDim <= kMaxOutputs);

/// critic(s, a); NaN where it is not finite. resource-limits only.
double value_of(const CompiledPolicy& policy, const StateVector& state, std::span<const float> action,
                EvaluatorScratch& scratch) {
  std::array<float, kMaxStateDim + kMaxActionDim> x{};
  const auto n = static_cast<std::size_t>(state.size);
  std::copy_n(state.values.begin(), n, x.begin());
  std::copy(action.begin(), action.end(), x.begin() + state.size);
  const auto y = policy.critic.evaluate({x.data(), n + action.size()}, scratch);
  return std::isfinite(y[0]) ? y[0] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::string_view to_string(SnapshotRefusal r) {
  return kNames[static_cast<std::size_t>(r)];
}

void RecentSteps::push(const StateVector& state, std::span<const float> fallback) {
  Step& step = steps_[next_];
  next_ = (next_ + 1) % kKept;
  count_ = std::min(count_ + 1, kKept);
  step.state = state;
  step.fallback_known = !fallback.empty();
  step.fallback = {};
  std::copy_n(fallback.begin(), std::min(fallback.size(), step.fallback.size()), step.fallback.begin());
}

std::size_t parameters(const PolicySnapshot& s) {
  std::size_t n = 0;
  for (const auto* network : {&s.actor, &s.critic, &s.state_value})
    for (const DenseLayer& layer : *network) n += layer.weights.size() + layer.bias.size();
  return n;
}

std::optional<Refusal> check_offer(const PolicySnapshot& s, const SpaceLayout& layout, WallTime now,
                                   std::uint64_t last_accepted) {
  if (s.task != layout.task)
    return refuse(SnapshotRefusal::WrongTask, "is for task " + std::string(to_string(s.task)) +
                                                  ", the agent's is " + std::string(to_string(layout.task)));
  if (s.layout)
    if (auto same = same_layout(*s.layout, layout); !same)
      return refuse(SnapshotRefusal::OtherLayout, same.error().message());
  if (s.version <= last_accepted || s.version > kLargestVersion)
    return refuse(SnapshotRefusal::Version,
                  s.version > kLargestVersion
                      ? "version " + std::to_string(s.version) + " is not a count"
                      : "version " + std::to_string(s.version) + " is not above the last accepted, " +
                            std::to_string(last_accepted),
                  std::errc::operation_not_permitted);
  if (s.expires <= now)
    return refuse(SnapshotRefusal::Expiry, "expired before it came", std::errc::timed_out);
  if (s.expires - now > kLongestLife)
    return refuse(SnapshotRefusal::Expiry, "expires in more than 30 days", std::errc::timed_out);
  if (const std::size_t n = parameters(s); n > kMaxParameters)
    return refuse(SnapshotRefusal::TooLarge,
                  std::to_string(n) + " parameters, at most " + std::to_string(kMaxParameters));
  if (auto valid = s.validate(layout.state_dim(), layout.action_dim()); !valid)
    return Refusal{SnapshotRefusal::Malformed, std::errc::invalid_argument, valid.error().message()};
  return std::nullopt;
}

std::optional<Refusal> check_behaviour(const CompiledPolicy& policy, const SpaceLayout& layout,
                                       const RecentSteps& recent, const ActingOutputs& acts,
                                       EvaluatorScratch& scratch) {
  const PolicySnapshot& s = policy.snapshot;
  const bool limits = action_form(s.task) == ActionForm::Continuous;
  const bool critic = !policy.critic.empty();
  policy.actor.prepare(scratch);
  if (critic) policy.critic.prepare(scratch);

  Spread states, outputs;
  bool all_at_end = true;
  std::size_t there = 0, asked = 0;  // was the fallback where the policy is?
  double advantage = 0;              // of the fallback, by the critic
  std::size_t compared = 0;
  std::array<float, kMaxOutputs> y{};
  const auto dim = static_cast<std::size_t>(layout.action_dim());
  const auto state_size = static_cast<std::size_t>(layout.state_dim());
  for (std::size_t n = 0; n < recent.size(); ++n) {
    const RecentSteps::Step& step = recent[n];
    const auto out = policy.actor.evaluate(step.state.span(), scratch);
    if (!finite(out))
      return refuse(SnapshotRefusal::NotFinite, "its output for a recent state is not finite");
    std::copy(out.begin(), out.end(), y.begin());
    states.add(step.state.span());
    outputs.add(out);

    if (limits) {
      std::array<float, kMaxActionDim> action{};
      for (std::size_t i = 0; i < dim; ++i) {
        if (!acts[i]) continue;  // the transitions that it learned from have 0 there
        action[i] = std::clamp(y[i], -1.0F, 1.0F);
        if (std::abs(action[i]) < kAtEnd) all_at_end = false;
        ++asked;
        if (step.fallback_known && std::abs(step.fallback[i] - action[i]) <= kFallbackThere) ++there;
      }
      if (critic) {
        const double chosen = value_of(policy, step.state, std::span(action).first(dim), scratch);
        const double theirs = step.fallback_known
                                  ? value_of(policy, step.state, std::span(step.fallback).first(dim), scratch)
                                  : chosen;
        if (std::isnan(chosen) || std::isnan(theirs))
          return refuse(SnapshotRefusal::NotFinite, "its critic's value of a recent state is not finite");
        if (step.fallback_known) {
          advantage += theirs - chosen;
          ++compared;
        }
      }
    } else if (critic) {
      const auto q = policy.critic.evaluate(step.state.span(), scratch);
      if (!finite(q))
        return refuse(SnapshotRefusal::NotFinite, "its critic's value of a recent state is not finite");
      if (step.fallback_known) {
        const std::size_t best = decided_level(std::span(y).first(dim), step.state.span(), s.stay_margin);
        const auto theirs = static_cast<std::size_t>(
            std::clamp(static_cast<int>(step.fallback[0]), 0, static_cast<int>(dim) - 1));
        advantage += double(q[theirs]) - double(q[best]);
        ++compared;
      }
    }
  }
  if (!recent.enough()) return std::nullopt;

  const bool any = !limits || std::any_of(acts.begin(), acts.end(), [](bool a) { return a; });
  if (limits && any && all_at_end && 2 * there < asked)
    return refuse(SnapshotRefusal::Extreme, "every limit is at an end of its range in all of the last " +
                                                std::to_string(recent.size()) +
                                                " states, where the fallback is not");

  double differ = 0;
  std::size_t which = 0;
  for (std::size_t i = 0; i < state_size; ++i)
    if (const double d = double(states.high[i]) - double(states.low[i]); d > differ) {
      differ = d;
      which = i;
    }
  if (any && differ >= kClearly && !(limits && all_at_end) && outputs.same(s.task, acts, dim)) {
    // A table is constant within a cell, and so may be what a policy says of the states of half a minute. So
    // the same is asked of what these states are not: every entry at both ends of its scale.
    for (std::size_t i = 0; i < state_size; ++i)
      for (float end : {0.0F, 1.0F}) {
        StateVector probe = recent[0].state;
        probe.values[i] = end;
        outputs.add(policy.actor.evaluate(probe.span(), scratch));
      }
    if (outputs.same(s.task, acts, dim)) {
      std::string why = "ignores its input: the same output for ";
      appendf(why, "%zu states although %s lay between %.2f and %.2f", recent.size(),
              layout.state[which].c_str(), double(states.low[which]), double(states.high[which]));
      return refuse(SnapshotRefusal::IgnoresInput, std::move(why));
    }
  }

  if (compared >= RecentSteps::kEnough) {
    const double worse = advantage / static_cast<double>(compared) * s.value_scale;
    if (worse > kWorseByCritic) {
      std::string why;
      appendf(
          why,
          "its own critic values the fallback higher, by %.1f on the mean of %zu states (%.0f are allowed)",
          worse, compared, kWorseByCritic);
      return refuse(SnapshotRefusal::WorseThanFallback, std::move(why));
    }
  }
  return std::nullopt;
}

}  // namespace flash
