// Purpose: what the project claims, one row each: the result that shows it, and what the paper has. `flash-bench report
// --markdown` makes docs/RESULTS.md of them.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/report/report_data.h"

namespace flash::lab {

struct Claim {
  std::string_view what;   // it is a sentence's beginning, the figure its end
  std::string_view file;   // in results/, without ".json"
  std::string_view value;  // its place in the file, "score/imitation"
  std::string_view unit;   // behind the figure: " %"
  std::string_view paper;  // what the paper has, with its place there; empty: nothing like it
  double scale = 1;
};
std::span<const Claim> claims();

/// The page: a table of the claims, then one of the results with command, machine and commit. A claim whose result is not
/// among them says so. EINVAL: a result without the claim's value, named.
Result<std::string> results_page(const std::vector<ResultFile>& results);

}  // namespace flash::lab
