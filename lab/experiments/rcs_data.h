// Purpose: readers of public measurements of applications in configurations (chunk-func profiles, the
// multi-cloud configuration data set of CloudBandit, Sizeless on OpenWhisk). Files come from outside: read a
// row at a time (core/csv.h), bounded, errors name file, line and column.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "lab/experiments/performance.h"

namespace flash::lab {

/// The CSV text of one file; which of the three it is, its columns say. Failed runs (status not ok, no time)
/// are skipped; runs of one configuration are averaged. EINVAL: none of the three, or a value that cannot be.
Result<PerformanceSet> parse_performance(std::string_view text, const std::string& file);

/// All *.csv files of a folder (or one file) as one set. EINVAL: two kinds, or nothing in it.
Result<PerformanceSet> read_performance(const std::string& path);

}  // namespace flash::lab
