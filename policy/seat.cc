#include "policy/seat.h"

#include <numeric>

#include "policy/explain.h"

namespace flash {

std::uint64_t SnapshotCounters::refusals() const {
  return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
}

Result<void> PolicySeat::refused(WallTime now, const Refusal& refusal) {
  ++counters_.refused[static_cast<std::size_t>(refusal.kind)];
  counters_.last_refusal = refusal.message;
  counters_.last_refusal_at = now;
  counters_.last_was_refused = true;
  return Error(refusal.code, refusal.message);
}

Result<void> PolicySeat::offer(WallTime now, const SpaceLayout& layout, const PolicySnapshot& s,
                               const RecentSteps& recent, const ActingOutputs& acts, OfferBudget& budget,
                               EvaluatorScratch& scratch) {
  ++counters_.offered;
  const std::size_t size = parameters(s);
  if (accepted_now_ || looked_at_ >= kLookedAt || (size > budget.parameters && size <= kMaxParameters))
    return refused(now, {SnapshotRefusal::TooMany, std::errc::resource_unavailable_try_again,
                         "policy snapshot: too many offers since the last tick"});
  ++looked_at_;
  if (auto refusal = check_offer(s, layout, now, accepted_version_)) return refused(now, *refusal);
  budget.parameters -= size;
  auto compiled = std::make_unique<const CompiledPolicy>(s);
  if (auto refusal = check_behaviour(*compiled, layout, recent, acts, scratch)) return refused(now, *refusal);
  accepted_now_ = true;
  ++counters_.accepted;
  counters_.last_was_refused = false;
  accepted_version_ = s.version;
  policy_ = std::move(compiled);
  return {};
}

bool PolicySeat::look_again(WallTime now, const SpaceLayout& layout, const RecentSteps& recent,
                            const ActingOutputs& acts, EvaluatorScratch& scratch) {
  if (!policy_) return false;
  auto refusal = check_behaviour(*policy_, layout, recent, acts, scratch);
  if (!refusal) return false;
  refusal->message += " (seen after it was accepted)";
  ++counters_.withdrawn;
  static_cast<void>(refused(now, *refusal));
  policy_.reset();
  return true;
}

void PolicySeat::leave(WallTime now, const SpaceLayout& layout) {
  if (!policy_) return;
  std::string why = "policy snapshot: another layout";
  if (const auto& its = policy_->snapshot.layout)
    if (const auto same = same_layout(*its, layout); !same)
      why = "policy snapshot: " + same.error().message();
  ++counters_.withdrawn;
  static_cast<void>(refused(
      now, {SnapshotRefusal::OtherLayout, std::errc::invalid_argument, why + " (the agent's changed)"}));
  policy_.reset();
}

void PolicySeat::append_refusals(std::string& out) const {
  const std::uint64_t n = counters_.refusals();
  if (n == 0) return;
  appendf(out,
          "%llu of %llu offered policies were refused, the last one: ", static_cast<unsigned long long>(n),
          static_cast<unsigned long long>(counters_.offered));
  constexpr std::string_view kPrefix = "policy snapshot: ";
  std::string_view why = counters_.last_refusal;
  if (why.starts_with(kPrefix)) why.remove_prefix(kPrefix.size());
  out.append(why);
}

}  // namespace flash
