// Purpose: recorded loads as rates over time: the public Azure Functions traces of 2019 (invocations per
// minute) and 2021 (single invocations), and series of counts in a column of a CSV file. Files of any size
// are read a row at a time (core/csv.h).
// Ownership: values.
// Thread rule: pure. Errors name file and line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "core/csv.h"
#include "lab/workloads/piecewise_rate.h"

namespace flash {

inline constexpr std::size_t kTracePiecesMax = 2'000'000;

/// Which load of the file is meant.
enum class LoadClass { Any, High, Low };

struct TraceSelection {
  std::uint64_t row = 1;            // of azure: the n-th function of that class, from 1
  LoadClass load = LoadClass::Any;  // of azure: AWARE 2.3's halves, high is > 1e5 requests per day
  std::string column;               // of series: its name, or its number from 1
  double step_s = 60;               // of series: how long a row lasts
  double scale = 1;                 // all rates times this
  double speedup = 1;               // time passes so much faster; requests per second stay
};

enum class TraceFormat { Azure2019, Azure2021, Other };
TraceFormat trace_format(std::span<const std::string_view> header);

/// The format is known by the header:
///   HashOwner,HashApp,HashFunction,Trigger,M,M+1,...   a function per line, counts of these minutes; the
///                                                      trace is as long as the columns and repeats
///   app,func,end_timestamp,duration                    an invocation per line, in seconds; a rate per
///                                                      second, functions in the order of their first line.
///                                                      Read twice: first for which function is meant, then
///                                                      for its invocations
Parsed<PiecewiseRate> azure_trace(CsvReader& rows, const TraceSelection& selection);

/// Is an error of azure_trace() that the file has fewer rows than asked for? What it has is all right then.
bool says_no_such_row(const UsageError& error);

/// Each row is a step_s with `column` requests in it. The first row is a header, unless the column is meant
/// by its number and has a number there, too.
Parsed<PiecewiseRate> series(CsvReader& rows, const TraceSelection& selection);

}  // namespace flash
