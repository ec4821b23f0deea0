#include "lab/experiments/live_results.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "core/json.h"

namespace flash::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

double number(const json& from, const char* key, double otherwise) {
  const auto it = from.find(key);
  return it != from.end() && it->is_number() ? it->get<double>() : otherwise;
}

std::string text(const json& from, const char* key) {
  const auto it = from.find(key);
  return it != from.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::optional<LiveDecision> decision_of(const std::string& line) {
  const json j = json::parse(line, nullptr, false);
  if (!j.is_object() || !j.contains("time_us") || !j["time_us"].is_number_integer() ||
      !j.contains("target") || !j["target"].is_object())
    return std::nullopt;
  LiveDecision d;
  d.time_us = j["time_us"].get<std::int64_t>();
  d.application = text(j["target"], "application");
  d.stage = text(j, "stage");
  d.learned = text(j, "controller") == "learned";
  if (const auto r = j.find("reward"); r != j.end() && r->is_object()) {
    d.rewarded = r->value("trusted", json()) == true && r->contains("value") && (*r)["value"].is_number();
    d.reward = number(*r, "value", 0);
    d.slo_preservation = number(*r, "slo_preservation", 0);
    d.utilization = number(*r, "utilization", 0);
  }
  const auto current = j.find("current");
  d.cpu_limit = current == j.end() || !current->is_object()
                    ? std::numeric_limits<double>::infinity()
                    : number(*current, "cpu-limit", std::numeric_limits<double>::infinity());
  return d;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ordered_json counted(const std::vector<double>& values) {
  ordered_json out = interval_of(values);
  out["samples"] = values.size();
  return out;
}

/// NaN of none, which is null in JSON.
double mean_of(const std::vector<double>& values) {
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : interval_of(values).mean;
}

}  // namespace

std::string_view to_string(LiveMethod m) {
  switch (m) {
    case LiveMethod::Static:
      return "static";
    case LiveMethod::Rules:
      return "rules";
    case LiveMethod::Flashd:
      return "flashd";
  }
  return "?";
}

std::vector<LiveDecision> read_decisions(const std::string& directory) {
  std::vector<LiveDecision> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("decisions") || !name.ends_with(".jsonl")) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      if (auto d = decision_of(line)) out.push_back(*std::move(d));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const LiveDecision& a, const LiveDecision& b) { return a.time_us < b.time_us; });
  return out;
}

LiveSample sample_of(const std::vector<LiveDecision>& decisions, const std::string& application,
                     std::int64_t from_us, std::int64_t to_us, std::int64_t ended_us, double cores) {
  LiveSample s;
  s.ended = ended_us != kNever;
  std::size_t steps = 0;
  for (const LiveDecision& d : decisions) {
    if (d.application != application || d.time_us < from_us || d.time_us >= to_us) continue;
    ++steps;
    s.cpu_reserved += std::min(d.cpu_limit, cores);
    s.learned_share += d.learned ? 1 : 0;
    s.stage = d.stage;
    if (s.ended && d.time_us >= ended_us) {
      ++s.rewards;
      continue;
    }
    if (!d.rewarded) continue;
    ++s.rewards;
    s.reward += d.reward;
    s.slo_preservation += d.slo_preservation;
    s.utilization += d.utilization;
  }
  for (double* sum : {&s.reward, &s.slo_preservation, &s.utilization})
    *sum /= static_cast<double>(std::max<std::size_t>(1, s.rewards));
  for (double* sum : {&s.cpu_reserved, &s.learned_share})
    *sum /= static_cast<double>(std::max<std::size_t>(1, steps));
  return s;
}

void add_load(LiveSample& s, const json& report, double slo_ms, int settle_s) {
  const auto rows = report.find("per_second");
  if (rows == report.end() || !rows->is_array()) return;
  std::vector<double> p99s;
  double misses = 0, seconds = 0;
  for (const json& row : *rows) {
    if (!row.is_object() || number(row, "second", 0) < settle_s || number(row, "offered", 0) <= 0) continue;
    ++seconds;
    const double p99 = number(row, "p99_ms", 0);
    const bool none = number(row, "completed", 0) <= 0;
    if (!none) p99s.push_back(p99);
    misses += none || p99 > slo_ms || number(row, "dropped", 0) > 0 ? 1 : 0;
  }
  if (!p99s.empty()) s.p99_ms = median(std::move(p99s));
  if (seconds > 0) s.miss_share = misses / seconds;
}

double median_p99_ms(const json& report, int settle_s) {
  LiveSample s;
  add_load(s, report, 1e300, settle_s);
  return s.p99_ms > 0 ? s.p99_ms : std::numeric_limits<double>::infinity();
}

std::vector<double> differences(const std::vector<LiveSample>& samples, LiveMethod one, LiveMethod other) {
  std::vector<double> values;
  for (const LiveSample& a : samples) {
    if (a.method != one || a.rewards == 0) continue;
    for (const LiveSample& b : samples)
      if (b.method == other && b.round == a.round && b.application == a.application && b.rewards > 0)
        values.push_back(a.reward - b.reward);
  }
  return values;
}

ordered_json summary(const std::vector<LiveSample>& samples, const std::vector<std::string>& applications,
                     const std::vector<double>& slo_ms) {
  ordered_json out;
  for (const LiveMethod m : kLiveMethods) {
    std::vector<double> reward, preservation, utilization, relative, misses, reserved;
    std::size_t ended = 0;
    for (const LiveSample& s : samples) {
      if (s.method == m && s.ended) ++ended;
      if (s.method != m || s.rewards == 0) continue;
      reward.push_back(s.reward);
      preservation.push_back(s.slo_preservation);
      utilization.push_back(s.utilization);
      if (!std::isnan(s.p99_ms)) relative.push_back(s.p99_ms / slo_ms.at(s.application));
      if (!std::isnan(s.miss_share)) misses.push_back(s.miss_share);
      reserved.push_back(s.cpu_reserved);
    }
    auto& row = out["methods"][std::string(to_string(m))];
    row["reward"] = counted(reward);
    row["slo_preservation"] = mean_of(preservation);
    row["utilization"] = mean_of(utilization);
    row["p99_over_slo"] = mean_of(relative);
    row["slo_miss_share"] = mean_of(misses);
    row["cpu_reserved"] = mean_of(reserved);
    row["ended"] = ended;
  }
  out["difference"]["flashd_minus_static"] =
      counted(differences(samples, LiveMethod::Flashd, LiveMethod::Static));
  out["difference"]["flashd_minus_rules"] =
      counted(differences(samples, LiveMethod::Flashd, LiveMethod::Rules));
  for (const LiveSample& s : samples)
    out["samples"].push_back({{"method", to_string(s.method)},
                              {"round", s.round},
                              {"application", applications.at(s.application)},
                              {"reward", s.reward},
                              {"rewards", s.rewards},
                              {"slo_preservation", s.slo_preservation},
                              {"utilization", s.utilization},
                              {"p99_ms", s.p99_ms},
                              {"slo_ms", slo_ms.at(s.application)},
                              {"slo_miss_share", s.miss_share},
                              {"cpu_reserved", s.cpu_reserved},
                              {"ended", s.ended},
                              {"stage", s.stage},
                              {"learned_share", s.learned_share}});
  return out;
}

}  // namespace flash::lab
