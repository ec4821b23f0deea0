// Purpose: `flash-bench report`: one self-contained HTML page of the experiments' results: a picture and a
// table per figure, each with its command, seed and hardware. No script, nothing from elsewhere.
// Ownership: values.
// Thread rule: one thread; write_report() may start flash-bench.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "lab/report/report_figures.h"

namespace flash::lab {

struct ReportOptions {
  std::string from;    // folder of results NAME.json, NAME-TASK.json; empty: flash-bench-results, and quick
  std::string out;     // empty: flash-bench-report.html, docs/RESULTS.md
  bool quick = false;  // first makes what is not in `from`, by the quick forms of the experiments
  bool markdown = false;  // not that page, but docs/RESULTS.md: the claims of claims.h
};

/// The page of these results, in the experiments' order; `missing`: file names that are not among them with
/// why. EINVAL: a result that is not as its experiment writes it, with file and key.
struct Missing {
  std::string file, why;
};
Result<std::string> report_page(const std::vector<ResultFile>& results, const std::vector<Missing>& missing);

/// Names of the files that a report has when nothing is missing.
std::vector<std::string> wanted_results();

/// All results of a folder, by name.
Result<std::vector<ResultFile>> read_results(const std::string& folder);

/// Reads the folder (and runs what is asked for first), writes the page. Progress goes to stderr.
Result<void> write_report(const ReportOptions& options);

}  // namespace flash::lab
