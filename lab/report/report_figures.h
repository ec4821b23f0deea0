// Purpose: what each experiment's result becomes on the page of `flash-bench report`: pictures, tables, what
// was to be shown.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <span>
#include <string_view>

#include "lab/report/report_charts.h"

namespace flash::lab {

struct Experiment {
  std::string_view name;  // of the command and its files
  std::string_view title;
  std::string_view about;  // what it shows, and after which paper
  bool by_task = false;    // one result per task
  std::string_view make;   // options of the command that makes it
  std::string_view quick;  // and of its quick form; empty: it has none, as it needs root or data
  Result<Figures> (*figures)(const Value& result);
};

std::span<const Experiment> experiments();

}  // namespace flash::lab
