#include "lab/experiments/adapt_summary.h"

#include <algorithm>

#include "core/interval.h"
#include "core/json.h"
#include "core/random.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr double kConverged = 0.95;  // of the reference score, or of the converged agent's reward
constexpr int kResamples = 2000;
constexpr const char* kOrder[] = {"flash",        "imitation", "shared",    "true_params", "scratch",
                                  "tl",           "tl_plus",   "converged", "rule",        "best_fixed",
                                  "no_foresight", "oracle",    "random"};

/// Ratio of means over pairs, with the 2.5 % and 97.5 % quantiles of resampled pairs.
Interval ratio(const std::vector<double>& above, const std::vector<double>& below, std::uint64_t seed) {
  const std::size_t n = above.size();
  const auto of = [&](auto&& pick) {
    double a = 0, b = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = pick(i);
      a += above[k], b += below[k];
    }
    return a / b;
  };
  Random chance(seed);
  std::vector<double> drawn;
  for (int r = 0; r < kResamples; ++r)
    drawn.push_back(of([&](std::size_t) { return static_cast<std::size_t>(chance.below(n)); }));
  std::sort(drawn.begin(), drawn.end());
  return {of([](std::size_t i) { return i; }), drawn[kResamples / 40],
          drawn[kResamples - 1 - kResamples / 40]};
}

/// Means over pairs of the episodes that a way needed, by the way's name.
using Episodes = std::map<std::string, std::vector<double>>;

/// How many times faster than transfer learning; a way that is there at once has needed one episode.
/// REQUIRES: "tl" is among them.
ordered_json speed_ups_over_tl(const Episodes& episodes, std::uint64_t seed) {
  ordered_json out;
  for (const char* name : {"flash", "imitation", "tl_plus"}) {
    if (!episodes.contains(name)) continue;
    std::vector<double> own = episodes.at(name);
    for (double& e : own) e = std::max(e, 1.0);
    out[name] = ratio(episodes.at("tl"), own, seed);
  }
  return out;
}

}  // namespace

std::size_t settled_from(const std::vector<double>& scores, double least) {
  std::size_t first = scores.size();
  while (first > 0 && scores[first - 1] >= least) --first;
  return first;
}

ordered_json summarise(const AdaptRecord& record) {
  const std::vector<AdaptationCurve>&random = record.ways.at("random").curves,
        &oracle = record.ways.at("oracle").curves, &converged = record.ways.at("converged").curves;
  const std::size_t pairs = random.size();
  const auto score = [&](std::size_t i, double reward) {
    return (reward - random[i][0]) / (oracle[i][0] - random[i][0]);
  };
  std::vector<double> reference(pairs, 0.0);
  for (const auto& [name, way] : record.ways)
    if (way.runnable)
      for (std::size_t i = 0; i < pairs; ++i)
        reference[i] = std::max(reference[i], score(i, way.curves[i].back()));

  ordered_json out;
  Episodes to_reference, to_converged_agent;
  for (const char* name : kOrder) {
    const auto found = record.ways.find(name);
    if (found == record.ways.end()) continue;
    const Way& way = found->second;
    std::vector<double> rewards, scores, first, drops, settled, used, kept;
    std::vector<double>&until = to_reference[name], &until_agent = to_converged_agent[name];
    // Where it never settles, it counts as the whole budget.
    const auto episodes_until = [&](std::size_t settled_at, const AdaptationCurve& c) {
      return (settled_at < c.size() ? static_cast<double>(settled_at) : record.budget) + way.before;
    };
    for (std::size_t i = 0; i < pairs; ++i) {
      const AdaptationCurve& c = way.curves[i];
      rewards.push_back(c.back());
      scores.push_back(score(i, c.back()));
      first.push_back(score(i, c.front()));
      drops.push_back(100 * (converged[i][0] - c.front()) / converged[i][0]);
      std::vector<double> along;
      for (double r : c) along.push_back(score(i, r));
      const std::size_t from = settled_from(along, kConverged * reference[i]);
      settled.push_back(from < c.size() ? 1 : 0);
      until.push_back(episodes_until(from, c));
      until_agent.push_back(episodes_until(settled_from(c, kConverged * converged[i][0]), c));
      if (i < way.lived.size() && !way.lived[i].empty()) {
        double u = 0, s = 0;
        for (const LivedEpisode& l : way.lived[i]) u += l.utilization, s += l.slo_preservation;
        used.push_back(u / static_cast<double>(way.lived[i].size()));
        kept.push_back(s / static_cast<double>(way.lived[i].size()));
      }
    }
    for (std::size_t e = 0; pairs > 0 && way.curves[0].size() > 1 && e < way.curves[0].size(); ++e) {
      std::vector<double> then;
      for (std::size_t i = 0; i < pairs; ++i) then.push_back(score(i, way.curves[i][e]));
      out["curves"][name].push_back(interval_of(then));
    }
    out["score"][name] = interval_of(scores);
    out["score_before"][name] = interval_of(first);
    out["reward"][name] = interval_of(rewards);
    out["reward_drop_pct"][name] = interval_of(drops);
    out["episodes_to_converge"][name] = interval_of(until);
    out["converged_share"][name] = interval_of(settled);
    out["episodes_to_converged_agent"][name] = interval_of(until_agent);
    out["per_pair"][name] = {{"score_before", first},
                             {"score", scores},
                             {"reward", rewards},
                             {"episodes_to_converge", until},
                             {"episodes_to_converged_agent", until_agent}};
    if (!used.empty()) {
      out["adaptation"]["utilization"][name] = interval_of(used);
      out["adaptation"]["slo_preservation"][name] = interval_of(kept);
    }
  }
  const auto gain = [&](const char* key, const char* one, const char* other, bool before) {
    const auto a = record.ways.find(one), b = record.ways.find(other);
    if (a == record.ways.end() || b == record.ways.end()) return;
    std::vector<double> d;
    for (std::size_t i = 0; i < pairs; ++i)
      d.push_back((before ? a->second.curves[i].front() : a->second.curves[i].back()) -
                  b->second.curves[i].back());
    out["gain"][key] = interval_of(d);
  };
  gain("imitation_over_shared", "imitation", "shared", false);
  gain("imitation_before_over_shared", "imitation", "shared", true);
  gain("true_params_over_shared", "true_params", "shared", false);
  gain("imitation_over_flash", "imitation", "flash", false);
  gain("imitation_over_rule", "imitation", "rule", false);
  gain("imitation_over_best_fixed", "imitation", "best_fixed", false);
  gain("flash_over_rule", "flash", "rule", false);
  if (record.ways.contains("tl")) {
    out["speed_up_over_tl"] = speed_ups_over_tl(to_reference, record.seed);
    out["speed_up_over_tl_to_converged_agent"] = speed_ups_over_tl(to_converged_agent, record.seed);
  }
  return out;
}

}  // namespace flash::lab
