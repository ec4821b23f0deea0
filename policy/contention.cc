#include "policy/contention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "policy/explain.h"

namespace flash {
namespace {

/// What running into a limit counts for where there is no pressure to tell how bad it is.
constexpr double kHit = 0.5;
constexpr std::size_t kRulesSteps = 300;  // about so many say what is usual under the rules
/// Rules under which there is that much leave no room to see more by the shares alone; then what is taken of
/// the limit tells.
constexpr double kMostUsual = 0.8;
constexpr double kForgivenAfter = 8;  // times the backoff

/// The first of its shares that is beyond its bound; nullptr: none is. What is not measured compares false.
const LimitedResource::Contended::Share* beyond(const LimitedResource& row, const Shortage& shortage,
                                                const ContentionOptions& bounds) {
  for (std::size_t i = 0; i < Shortage::kShares; ++i) {
    const auto& share = row.contended->shares[i];
    if (share.bound && shortage.share[i] > bounds.*share.bound) return &share;
  }
  return nullptr;
}

}  // namespace

Contention contention(const Rule& rule, const NodeCapacity& node, const Observation& o,
                      const Action& in_force) {
  Contention c;
  for (std::size_t i = 0; i < limited_resources.size(); ++i) {
    const LimitedResource& row = limited_resources[i];
    if (!row.contended) continue;
    const Shortage& s = c.of[i] = row.contended->of(o, node, in_force);
    c.known = c.known || s.known;
    c.violation = c.violation || beyond(row, s, rule.contention) || s.hit || s.killed;
  }
  return c;
}

void ContentionTrip::rules(const Contention& c) {
  for (std::size_t i = 0; i < c.of.size(); ++i)
    for (std::size_t k = 0; k < Shortage::kShares; ++k)
      if (!std::isnan(c.of[i].share[k])) rules_[i][k].add(c.of[i].share[k], kRulesSteps);
}

bool ContentionTrip::policy(const Contention& c, const ContentionOptions& bounds,
                            const PerLimit<Blame>& blame, double seconds) {
  enum class Sign : std::uint8_t { None, Share, Taken, Hit, Killed };
  double most = 0;
  Sign sign = Sign::None;
  std::size_t of = 0, which = 0;  // limit, share
  const auto each = [&](auto&& look) {
    for (std::size_t i = 0; i < limited_resources.size(); ++i)
      if (limited_resources[i].contended && blame[i].less) look(limited_resources[i], c.of[i], i);
  };
  const auto worse = [&](double value, Sign s, std::size_t i, std::size_t k) {
    if (!(value > most)) return;
    most = value;
    sign = s;
    of = i;
    which = k;
  };
  each([&](const LimitedResource& row, const Shortage& s, std::size_t i) {
    for (std::size_t k = 0; k < Shortage::kShares; ++k) {
      const auto bound = row.contended->shares[k].bound;
      if (bound && s.share[k] > bounds.*bound)
        worse(s.share[k] - std::min(rules_[i][k].mean(), kMostUsual), Sign::Share, i, k);
    }
  });
  each([&](const LimitedResource& row, const Shortage& s, std::size_t i) {
    if (row.contended->taken && beyond(row, s, bounds)) worse(blame[i].taken, Sign::Taken, i, 0);
  });
  each([&](const LimitedResource&, const Shortage& s, std::size_t i) {
    if (s.hit) worse(kHit, Sign::Hit, i, 0);
  });
  sum_ = std::max(0.0, sum_ + (most - kAllowance) * std::clamp(seconds, 0.0, kLongestStep));
  each([&](const LimitedResource&, const Shortage& s, std::size_t i) {
    if (!s.killed || sign == Sign::Killed) return;
    sum_ = std::max(sum_, kTrip);
    sign = Sign::Killed;
    of = i;
  });
  if (sum_ < kTrip) return false;
  if (sign == Sign::None) return true;  // and what there was to say has been said

  const LimitedResource& row = limited_resources[of];
  const Shortage& s = c.of[of];
  words_.clear();
  if (sign == Sign::Killed) {
    words_ = row.contended->killed;
    return true;
  }
  if (sign == Sign::Hit) {
    words_ = "the " + knob_words(row.knob) + " was run into";
    return true;
  }
  const auto& share = sign == Sign::Share ? row.contended->shares[which] : *beyond(row, s, bounds);
  const std::size_t k = static_cast<std::size_t>(&share - row.contended->shares.data());
  if (s.by_use)
    words_ = "all that the " + knob_words(row.knob) + " allowed was used";
  else
    appendf(words_, "%s %.0f %% %s", share.in, 100 * s.share[k], share.of);
  if (sign == Sign::Taken)
    appendf(words_, " with %.0f %% of the rules' %s taken away", 100 * blame[of].taken,
            std::string(traits(row.knob).unit).c_str());
  else if (!s.by_use)
    appendf(words_, ", %.0f %% under the rules", 100 * rules_[of][k].mean());
  return true;
}

double backoff_s(std::uint64_t times, double first) {
  if (times == 0) return 0;
  const double doubled = std::ldexp(first, static_cast<int>(std::min<std::uint64_t>(times - 1, 64)));
  return std::min(doubled, std::max(first, kMostBackoff_s));
}

double forgiven_after_s(std::uint64_t times, double first) {
  return kForgivenAfter * backoff_s(times, first);
}

}  // namespace flash
