#include "lab/workloads/trace_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/printable.h"
#include "lab/workloads/trace.h"

namespace flash {

namespace {

constexpr double kCountMax = 1e9;
constexpr std::size_t kFunctionsMax = 1'000'000;
constexpr double kSecondsMax = 1.3e6;  // 15 days; the trace of 2021 has 14

UsageError usage(const Error& error) {
  return {error.message()};
}

std::string quoted(std::string_view word) {
  return "'" + printable_line(word.substr(0, 40)) + "'";
}

std::optional<double> parse_count(std::string_view word) {
  const auto value = parse_real(word);
  return value && *value >= 0 && *value <= kCountMax ? value : std::nullopt;
}

bool belongs_to(LoadClass wanted, double requests_per_second) {
  return wanted == LoadClass::Any || is_high_load(requests_per_second) == (wanted == LoadClass::High);
}

constexpr std::string_view kNoRow = ": no row ";

UsageError no_such_row(const CsvReader& file, const TraceSelection& selection, std::uint64_t rows) {
  const char* which = selection.load == LoadClass::High  ? " of high load"
                      : selection.load == LoadClass::Low ? " of low load"
                                                         : "";
  return {file.name() + std::string(kNoRow) + std::to_string(selection.row) + which + "; it has " +
          std::to_string(rows)};
}

UsageError wrong_width(const CsvReader& rows, std::size_t expected) {
  return usage(rows.wrong("has " + std::to_string(rows.fields().size()) + " columns, the header " +
                          std::to_string(expected)));
}

/// Rates of pieces of the same length, scaled and sped up.
PiecewiseRate made_of(std::vector<double> rates, double step_s, const TraceSelection& selection) {
  for (auto& rate : rates) {
    rate = std::min(rate * selection.scale, kTraceRateMax);
  }
  const std::vector<double> durations_s(rates.size(), step_s / selection.speedup);
  return {std::move(rates), durations_s};
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

constexpr std::size_t kNames = 4;
constexpr std::string_view k2019[kNames] = {"HashOwner", "HashApp", "HashFunction", "Trigger"};
constexpr std::string_view k2021[kNames] = {"app", "func", "end_timestamp", "duration"};

Parsed<PiecewiseRate> read_2019(CsvReader& rows, const TraceSelection& selection) {
  constexpr std::size_t kMinutesMax = 1440;
  const std::size_t columns = rows.fields().size();
  if (columns <= kNames || columns - kNames > kMinutesMax) {
    return usage(
        rows.wrong("the header has " + std::to_string(columns - kNames) + " minutes, not 1 to 1440"));
  }
  std::optional<std::uint64_t> before;
  for (const auto word : std::span(rows.fields()).subspan(kNames)) {
    const auto minute = parse_integer(word);
    if (!minute || *minute > kMinutesMax || (before && *minute != *before + 1)) {
      return usage(rows.wrong(quoted(word) + " is not the next minute"));
    }
    before = minute;
  }
  std::uint64_t found = 0;
  std::vector<double> rates;
  for (;;) {
    const auto more = rows.next();
    if (!more) {
      return usage(more.error());
    }
    if (!*more) {
      return no_such_row(rows, selection, found);
    }
    if (rows.fields().size() != columns) {
      return wrong_width(rows, columns);
    }
    rates.clear();
    for (const auto word : std::span(rows.fields()).subspan(kNames)) {
      const auto count = parse_count(word);
      if (!count) {
        return usage(rows.wrong(quoted(word) + " is not a number of invocations"));
      }
      rates.push_back(*count / 60);
    }
    found += belongs_to(selection.load, mean(rates));
    if (found == selection.row) {
      return made_of(std::move(rates), 60, selection);
    }
  }
}

/// The invocations of a file of 2021, from its second row on, until an error: `each` gets the function
/// ("app,func") and the second of its start.
Applied each_of_2021(CsvReader& rows, const std::function<Applied(std::string_view, std::size_t)>& each) {
  std::string function;
  for (;;) {
    const auto more = rows.next();
    if (!more) {
      return usage(more.error());
    }
    if (!*more) {
      return std::nullopt;
    }
    const auto& words = rows.fields();
    if (words.size() != kNames) {
      return usage(rows.wrong("has " + std::to_string(words.size()) +
                              " columns, not app,func,end_timestamp,duration"));
    }
    const auto end_s = parse_count(words[2]);
    const auto duration_s = parse_count(words[3]);
    if (!end_s || !duration_s || *end_s > 2 * kSecondsMax) {
      return usage(rows.wrong(quoted(end_s && *end_s <= 2 * kSecondsMax ? words[3] : words[2]) +
                              " is not a time in seconds"));
    }
    const double start_s = std::max(*end_s - *duration_s, 0.0);
    if (start_s >= kSecondsMax) {
      continue;
    }
    function.assign(words[0]).append(",").append(words[1]);
    if (auto wrong = each(function, static_cast<std::size_t>(start_s))) {
      return wrong;
    }
  }
}

Parsed<PiecewiseRate> read_2021(CsvReader& rows, const TraceSelection& selection) {
  struct Function {
    std::size_t order = 0;
    std::uint64_t invocations = 0;
  };
  std::map<std::string, Function, std::less<>> functions;
  std::size_t length_s = 1;
  const auto count = [&](std::string_view name, std::size_t second) -> Applied {
    length_s = std::max(length_s, second + 1);
    auto known = functions.find(name);
    if (known == functions.end()) {
      if (functions.size() == kFunctionsMax) {
        return usage(rows.wrong("more than " + std::to_string(kFunctionsMax) + " functions"));
      }
      known = functions.emplace(name, Function{functions.size(), 0}).first;
    }
    ++known->second.invocations;
    return std::nullopt;
  };
  if (auto wrong = each_of_2021(rows, count)) {
    return std::move(*wrong);
  }
  std::vector<const std::pair<const std::string, Function>*> in_order(functions.size());
  for (const auto& function : functions) {
    in_order[function.second.order] = &function;
  }
  std::uint64_t found = 0;
  for (const auto* function : in_order) {
    found += belongs_to(selection.load,
                        static_cast<double>(function->second.invocations) / static_cast<double>(length_s));
    if (found != selection.row) {
      continue;
    }
    std::vector<double> rates(length_s, 0.0);
    const auto add = [&](std::string_view name, std::size_t second) -> Applied {
      if (name == function->first && second < rates.size()) {
        rates[second] += 1;
      }
      return std::nullopt;
    };
    if (const auto again = rows.rewind(); !again) {
      return usage(again.error());
    }
    if (const auto header = rows.next(); !header) {
      return usage(header.error());
    }
    if (auto wrong = each_of_2021(rows, add)) {
      return std::move(*wrong);
    }
    return made_of(std::move(rates), 1, selection);
  }
  return no_such_row(rows, selection, found);
}

/// Which column the selection means, and whether the first row is none of data.
struct Column {
  std::size_t index = 0;
  bool header = true;
};
std::optional<Column> find_column(const std::vector<std::string_view>& first, const std::string& wanted) {
  const auto number = parse_integer(wanted);
  // "1" is the number of the only column, also where its first value happens to be 1.
  const bool bare = number && first.size() == 1 && parse_count(first[0]);
  if (const auto named = column_of(first, wanted); named && !bare) {
    return Column{*named, true};
  }
  if (!number || *number < 1 || *number > first.size()) {
    return std::nullopt;
  }
  return Column{static_cast<std::size_t>(*number) - 1, !parse_count(first[*number - 1])};
}

}  // namespace

bool says_no_such_row(const UsageError& error) {
  return error.message.find(kNoRow) != std::string::npos;
}

TraceFormat trace_format(std::span<const std::string_view> header) {
  if (header.size() >= kNames && same_names(header.first(kNames), k2019)) {
    return TraceFormat::Azure2019;
  }
  return same_names(header, k2021) ? TraceFormat::Azure2021 : TraceFormat::Other;
}

Parsed<PiecewiseRate> azure_trace(CsvReader& rows, const TraceSelection& selection) {
  const auto more = rows.next();
  if (!more) {
    return usage(more.error());
  }
  if (!*more) {
    return UsageError{rows.name() + ": is empty"};
  }
  switch (trace_format(rows.fields())) {
    case TraceFormat::Azure2019:
      return read_2019(rows, selection);
    case TraceFormat::Azure2021:
      return read_2021(rows, selection);
    case TraceFormat::Other:
      break;
  }
  return usage(rows.wrong("the header is neither of the Azure Functions trace of 2019 nor of 2021"));
}

Parsed<PiecewiseRate> series(CsvReader& rows, const TraceSelection& selection) {
  auto more = rows.next();
  if (!more) {
    return usage(more.error());
  }
  if (!*more) {
    return UsageError{rows.name() + ": is empty"};
  }
  const std::size_t columns = rows.fields().size();
  const auto column = find_column(rows.fields(), selection.column);
  if (!column) {
    return usage(rows.wrong("no column '" + selection.column + "'"));
  }
  if (column->header) {
    more = rows.next();
  }
  std::vector<double> rates;
  for (; more && *more; more = rows.next()) {
    if (rows.fields().size() != columns) {
      return wrong_width(rows, columns);
    }
    const auto word = rows.fields()[column->index];
    const auto count = parse_count(word);
    if (!count) {
      return usage(rows.wrong(quoted(word) + " is not a number of requests"));
    }
    if (rates.size() == kTracePiecesMax) {
      return usage(rows.wrong("more than " + std::to_string(kTracePiecesMax) + " lines"));
    }
    rates.push_back(*count / selection.step_s);
  }
  if (!more) {
    return usage(more.error());
  }
  if (rates.empty()) {
    return UsageError{rows.name() + ": has no rows"};
  }
  return made_of(std::move(rates), selection.step_s, selection);
}

}  // namespace flash
