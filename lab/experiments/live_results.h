// Purpose: from what `flash-bench live` recorded to its table: decision journals and load reports per
// segment, means with intervals.
// Ownership: values.
// Thread rule: pure functions; read_decisions() reads files.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/interval.h"
#include "core/json.h"

namespace flash::lab {

enum class LiveMethod : std::uint8_t { Static, Rules, Flashd };
inline constexpr LiveMethod kLiveMethods[] = {LiveMethod::Static, LiveMethod::Rules, LiveMethod::Flashd};
std::string_view to_string(LiveMethod m);  // "static", "rules", "flashd"

/// One line of a decision journal, as far as it counts here.
struct LiveDecision {
  std::int64_t time_us = 0;
  std::string application;
  bool rewarded = false;  // a trusted reward, of the step that ended here
  double reward = 0, slo_preservation = 0, utilization = 0;
  double cpu_limit = 0;  // cores in force; infinite: none
  bool learned = false;
  std::string stage;
};

/// All decisions*.jsonl of a journal directory, by time. Lines that are none are left out.
std::vector<LiveDecision> read_decisions(const std::string& directory);

/// One application during one segment.
struct LiveSample {
  LiveMethod method = LiveMethod::Static;
  std::size_t round = 0, application = 0;
  double reward = 0;  // mean per step
  double slo_preservation = 0, utilization = 0;
  std::size_t rewards = 0;
  // As the client saw it; NaN where no second says: nothing completed, or its report is missing.
  double p99_ms = std::numeric_limits<double>::quiet_NaN();      // median over the seconds
  double miss_share = std::numeric_limits<double>::quiet_NaN();  // of the seconds: p99 above the objective,
                                                                 // or nothing completed
  double cpu_reserved = 0;  // cores, mean over steps; no limit counts as `cores`
  double learned_share = 0;
  std::string stage;   // at the end
  bool ended = false;  // its service did, in this segment
};

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// Decisions of one application within [from, to). A service that ended earns nothing from then on: what its
/// controller is given for a silent application, which misses no objective, is not counted.
LiveSample sample_of(const std::vector<LiveDecision>& decisions, const std::string& application,
                     std::int64_t from_us, std::int64_t to_us, std::int64_t ended_us, double cores);
/// Adds what flash-workload load --json reported, without its first `settle_s` seconds.
void add_load(LiveSample& sample, const nlohmann::json& report, double slo_ms, int settle_s);

/// The median over the seconds from `settle_s` on, as the client saw them; infinite where nothing completed.
double median_p99_ms(const nlohmann::json& report, int settle_s);

/// reward of `one` less that of `other`, over (application, round) that have both.
std::vector<double> differences(const std::vector<LiveSample>& samples, LiveMethod one, LiveMethod other);

/// methods, difference, samples.
nlohmann::ordered_json summary(const std::vector<LiveSample>& samples,
                               const std::vector<std::string>& applications,
                               const std::vector<double>& slo_ms);

}  // namespace flash::lab
