#include "workloads/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "workloads/trace.h"

namespace flash {

namespace {

constexpr double kCountMax = 1e9;
constexpr double kSecondsMax = 1.3e6;  // 15 days; the trace of 2021 has 14

/// Lines with their numbers, without CR; words between commas. Nothing in these files is quoted.
class CsvLines {
 public:
  CsvLines(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  /// False at the end or when a line is too long; then wrong() has more.
  bool next() {
    if (rest_.empty() || too_long_) {
      return false;
    }
    const auto end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    ++number_;
    if (line_.ends_with('\r')) {
      line_.remove_suffix(1);
    }
    too_long_ = line_.size() > kTraceLineBytesMax;
    return !too_long_;
  }
  void split(std::vector<std::string_view>& words) const {
    words.clear();
    std::string_view left = line_;
    for (;;) {
      const auto comma = left.find(',');
      words.push_back(left.substr(0, comma));
      if (comma == std::string_view::npos) {
        return;
      }
      left = left.substr(comma + 1);
    }
  }
  bool too_long() const { return too_long_; }
  UsageError wrong(const std::string& what) const {
    return {std::string(file_) + ":" + std::to_string(number_) + ": " + what};
  }

 private:
  std::string_view rest_;
  std::string_view file_;
  std::string_view line_;
  std::size_t number_ = 0;
  bool too_long_ = false;
};

UsageError line_too_long(const CsvLines& lines) {
  return lines.wrong("the line is longer than " + std::to_string(kTraceLineBytesMax) + " bytes");
}

std::string quoted(std::string_view word) {
  return "'" + std::string(word.substr(0, 40)) + "'";
}

std::optional<double> parse_count(std::string_view word) {
  const auto value = parse_real(word);
  return value && *value >= 0 && *value <= kCountMax ? value : std::nullopt;
}

bool belongs_to(LoadClass wanted, double requests_per_second) {
  return wanted == LoadClass::Any || is_high_load(requests_per_second) == (wanted == LoadClass::High);
}

constexpr std::string_view kNoRow = ": no row ";

UsageError no_such_row(std::string_view file, const TraceSelection& selection, std::uint64_t rows) {
  const char* which = selection.load == LoadClass::High  ? " of high load"
                      : selection.load == LoadClass::Low ? " of low load"
                                                         : "";
  return {std::string(file) + std::string(kNoRow) + std::to_string(selection.row) + which + "; it has " +
          std::to_string(rows)};
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

Parsed<PiecewiseRate> parse_2019(CsvLines& lines, std::vector<std::string_view>& words, std::string_view file,
                                 const TraceSelection& selection) {
  constexpr std::size_t kNames = 4;
  constexpr std::size_t kMinutesMax = 1440;
  const std::size_t columns = words.size();
  if (columns <= kNames || columns - kNames > kMinutesMax) {
    return lines.wrong("the header has " + std::to_string(columns - kNames) + " minutes, not 1 to 1440");
  }
  for (std::size_t i = kNames; i < columns; ++i) {
    const auto minute = parse_integer(words[i]);
    const auto before = i > kNames ? parse_integer(words[i - 1]) : std::nullopt;
    if (!minute || *minute > kMinutesMax || (before && *minute != *before + 1)) {
      return lines.wrong(quoted(words[i]) + " is not the next minute");
    }
  }
  std::uint64_t rows = 0;
  std::vector<double> rates;
  while (lines.next()) {
    lines.split(words);
    if (words.size() != columns) {
      return lines.wrong("has " + std::to_string(words.size()) + " columns, the header " +
                         std::to_string(columns));
    }
    rates.clear();
    for (std::size_t i = kNames; i < columns; ++i) {
      const auto count = parse_count(words[i]);
      if (!count) {
        return lines.wrong(quoted(words[i]) + " is not a number of invocations");
      }
      rates.push_back(*count / 60);
    }
    rows += belongs_to(selection.load, mean(rates));
    if (rows == selection.row) {
      return made_of(std::move(rates), 60, selection);
    }
  }
  if (lines.too_long()) {
    return line_too_long(lines);
  }
  return no_such_row(file, selection, rows);
}

Parsed<PiecewiseRate> parse_2021(CsvLines& lines, std::vector<std::string_view>& words, std::string_view file,
                                 const TraceSelection& selection) {
  constexpr std::size_t kColumns = 4;
  struct Function {
    std::size_t order;
    std::vector<double> starts_s;
  };
  std::map<std::string, Function, std::less<>> functions;
  double length_s = 1;
  while (lines.next()) {
    lines.split(words);
    if (words.size() != kColumns) {
      return lines.wrong("has " + std::to_string(words.size()) +
                         " columns, not app,func,end_timestamp,duration");
    }
    const auto end_s = parse_count(words[2]);
    const auto duration_s = parse_count(words[3]);
    if (!end_s || !duration_s || *end_s > 2 * kSecondsMax) {
      return lines.wrong(quoted(end_s && *end_s <= 2 * kSecondsMax ? words[3] : words[2]) +
                         " is not a time in seconds");
    }
    const double start_s = std::max(*end_s - *duration_s, 0.0);
    if (start_s >= kSecondsMax) {
      continue;
    }
    length_s = std::max(length_s, std::floor(start_s) + 1);
    const std::string key = std::string(words[0]) + "," + std::string(words[1]);
    auto& function = functions.try_emplace(key, Function{functions.size(), {}}).first->second;
    function.starts_s.push_back(start_s);
  }
  if (lines.too_long()) {
    return line_too_long(lines);
  }
  std::vector<const Function*> in_order(functions.size());
  for (const auto& [key, function] : functions) {
    in_order[function.order] = &function;
  }
  std::uint64_t rows = 0;
  for (const Function* function : in_order) {
    rows += belongs_to(selection.load, static_cast<double>(function->starts_s.size()) / length_s);
    if (rows == selection.row) {
      std::vector<double> rates(static_cast<std::size_t>(length_s), 0.0);
      for (const double start_s : function->starts_s) {
        rates[static_cast<std::size_t>(start_s)] += 1;
      }
      return made_of(std::move(rates), 1, selection);
    }
  }
  return no_such_row(file, selection, rows);
}

}  // namespace

bool says_no_such_row(const UsageError& error) {
  return error.message.find(kNoRow) != std::string::npos;
}

Parsed<PiecewiseRate> parse_azure_trace(std::string_view text, std::string_view file,
                                        const TraceSelection& selection) {
  CsvLines lines(text, file);
  if (!lines.next()) {
    return lines.too_long() ? line_too_long(lines) : UsageError{std::string(file) + ": is empty"};
  }
  std::vector<std::string_view> words;
  lines.split(words);
  constexpr std::string_view k2019[] = {"HashOwner", "HashApp", "HashFunction", "Trigger"};
  constexpr std::string_view k2021[] = {"app", "func", "end_timestamp", "duration"};
  if (words.size() >= 4 && std::equal(std::begin(k2019), std::end(k2019), words.begin())) {
    return parse_2019(lines, words, file, selection);
  }
  if (std::equal(std::begin(k2021), std::end(k2021), words.begin(), words.end())) {
    return parse_2021(lines, words, file, selection);
  }
  return lines.wrong("the header is neither of the Azure Functions trace of 2019 nor of 2021");
}

Parsed<PiecewiseRate> parse_series(std::string_view text, std::string_view file,
                                   const TraceSelection& selection) {
  CsvLines lines(text, file);
  if (!lines.next()) {
    return lines.too_long() ? line_too_long(lines) : UsageError{std::string(file) + ": is empty"};
  }
  std::vector<std::string_view> words;
  lines.split(words);
  const std::size_t columns = words.size();
  const auto column =
      static_cast<std::size_t>(std::find(words.begin(), words.end(), selection.column) - words.begin());
  if (column == columns) {
    return lines.wrong("no column '" + selection.column + "'");
  }
  std::vector<double> rates;
  while (lines.next()) {
    lines.split(words);
    if (words.size() != columns) {
      return lines.wrong("has " + std::to_string(words.size()) + " columns, the header " +
                         std::to_string(columns));
    }
    const auto count = parse_count(words[column]);
    if (!count) {
      return lines.wrong(quoted(words[column]) + " is not a number of requests");
    }
    if (rates.size() == kTracePiecesMax) {
      return lines.wrong("more than " + std::to_string(kTracePiecesMax) + " lines");
    }
    rates.push_back(*count / selection.step_s);
  }
  if (lines.too_long()) {
    return line_too_long(lines);
  }
  if (rates.empty()) {
    return UsageError{std::string(file) + ": has no rows"};
  }
  return made_of(std::move(rates), selection.step_s, selection);
}

}  // namespace flash
