#include "lab/report/claims.h"

#include <algorithm>
#include <cmath>

#include "lab/report/report_charts.h"
#include "lab/report/svg.h"

namespace flash::lab {
namespace {

constexpr Claim kClaims[] = {
    {"Limits, unseen pairs, nothing adapted: share of the oracle's score", "adapt-resource-limits",
     "score_before/imitation", "", "", 1},
    {"the same after 60 episodes", "adapt-resource-limits", "score/imitation", "", "", 1},
    {"reward lost against an agent that learned on the pair itself", "adapt-resource-limits",
     "reward_drop_pct/imitation", " %", "10.5 % (FLASH 5.2)", 1},
    {"times faster than transfer learning to that agent's reward", "adapt-resource-limits",
     "speed_up_over_tl_to_converged_agent/imitation", "", "5.5 (FLASH 5.3)", 1},
    {"reward more than the rules, per step", "adapt-resource-limits", "gain/imitation_over_rule", "", "", 1},
    {"Frequency, unseen pairs, nothing adapted: share of the oracle's score", "adapt-cpu-frequency",
     "score_before/imitation", "", "", 1},
    {"the same after 60 episodes", "adapt-cpu-frequency", "score/imitation", "", "", 1},
    {"reward lost against an agent that learned on the pair itself", "adapt-cpu-frequency",
     "reward_drop_pct/imitation", " %", "7.1 % (FLASH 5.2)", 1},
    {"times faster than transfer learning to that agent's reward", "adapt-cpu-frequency",
     "speed_up_over_tl_to_converged_agent/imitation", "", "9.2 (FLASH 5.3)", 1},
    {"Limits while learning: seconds with the SLO missed, against the rules, points",
     "bootstrap-resource-limits", "against_rule/imitation/violations_pct", "", "", 1},
    {"reward against the rules", "bootstrap-resource-limits", "against_rule/imitation/reward", "", "", 1},
    {"Frequency while learning: seconds with the SLO missed, against the rules, points",
     "bootstrap-cpu-frequency", "against_rule/imitation/violations_pct", "", "", 1},
    {"Limits, applications updated while the policy serves: reward lost", "serve-resource-limits",
     "methods/imitation/loss_pct", " %", "3.6 % (AWARE 5.3)", 1},
    {"Frequency, the same", "serve-cpu-frequency", "methods/imitation/loss_pct", " %", "3.6 % (AWARE 5.3)",
     1},
    {"Speed-up curves of chunk-func from 3 known runs: mean error", "rcs-chunkfunc", "mape/curve_model/3",
     " %", "", 100},
    {"the best network there (FLASH's own)", "rcs-chunkfunc", "mape/flash/3", " %", "", 100},
    {"CloudBandit's from 3 known runs: mean error", "rcs-cloudbandit", "mape/curve_model/3", " %", "", 100},
    {"An embedding adds to a decision, CPU time", "overhead", "decision_us/added_pct/32", " %", "", 1},
    {"A tick with 1000 targets, us of CPU per target", "tick", "us_per_target", "", "", 1},
};

std::string cell_of(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

Result<std::string> figure_of(const Claim& claim, const ResultFile& file) {
  const auto value = inner(file.root(), claim.value);
  if (!value) return file.root().wrong(std::string(claim.value) + " is missing");
  FLASH_TRY(Interval i, value->interval());
  for (double* of : {&i.mean, &i.lo, &i.hi}) *of *= claim.scale;
  return (i.lo == i.mean && i.hi == i.mean ? digits(i.mean) : cell(i)) + std::string(claim.unit);
}

Result<std::string> text_or(const ResultFile& file, const char* key) {
  const auto value = file.root().find(key);
  if (!value) return std::string("not recorded");
  return value->text();
}

}  // namespace

std::span<const Claim> claims() {
  return kClaims;
}

Result<std::string> results_page(const std::vector<ResultFile>& results) {
  std::string out =
      "# Results\n\n"
      "Made by `flash-bench report --markdown` from `results/`; a test holds this page to those files. "
      "Intervals are 95 %, over\n"
      "pairs or repetitions. Pairs are simulated applications on simulated machines that the models never "
      "saw; a score is 0 for\n"
      "random actions and 1 for an oracle that knows the pair and the load ahead. `lab/README.md` says how "
      "each is run,\n"
      "`docs/ablations/` what each part of the design buys, `docs/NEGATIVE_RESULTS.md` what did not work and "
      "what nobody has seen.\n\n"
      "| claim | here | the paper | result |\n|---|---|---|---|\n";
  for (const Claim& claim : claims()) {
    const auto file = std::find_if(results.begin(), results.end(), [&](const ResultFile& r) {
      return r.name == std::string(claim.file) + ".json";
    });
    std::string figure = "not run";
    if (file != results.end()) {
      FLASH_TRY(figure, figure_of(claim, *file));
    }
    out += "| " + cell_of(std::string(claim.what)) + " | " + figure + " | " + std::string(claim.paper) +
           " | " + std::string(claim.file) + " |\n";
  }
  out += "\n| result | command | machine | commit |\n|---|---|---|---|\n";
  for (const ResultFile& r : results) {
    FLASH_TRY(const std::string command, text_or(r, "command"));
    FLASH_TRY(const std::string hardware, text_or(r, "hardware"));
    FLASH_TRY(const std::string commit, text_or(r, "commit"));
    out += "| " + r.name.substr(0, r.name.size() - 5) + " | `" + cell_of(command) + "` | " +
           cell_of(hardware) + " | " + commit.substr(0, 12) + " |\n";
  }
  return out;
}

}  // namespace flash::lab
