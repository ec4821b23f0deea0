// Purpose: pictures and tables out of the parts that results have in common: intervals of several ways,
// curves, rows, differences. What an experiment makes of its own is report_figures.h.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "lab/report/report_data.h"

namespace flash::lab {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

struct Figure {
  std::string caption;
  std::string picture;  // SVG; empty: a table alone
  Table table;
};

struct Shown {
  std::string what;
  bool is = false;
};

struct Figures {
  std::vector<Figure> figures;
  std::vector<Shown> shown;
};

using Members = std::vector<std::pair<std::string, Value>>;
inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// "0.5 [0.25, 0.75]"; "-" for what is not there.
std::string cell(const Interval& i);

/// "a/b": b in a; nothing where either is not there.
std::optional<Value> inner(const Value& from, std::string_view path);

/// One measure of several ways, as a bar each.
struct Measure {
  const char* key;
  const char* title;  // of the axis, with its unit
  const char* caption;
};

/// Of ways {NAME: {KEY: interval}}: a picture per measure that any of them has, the table of all at the last.
Result<std::vector<Figure>> bars_of(const Value& ways, std::span<const Measure> measures);

/// The same of measures {KEY: {NAME: interval}}; the first measure says which ways there are.
Result<std::vector<Figure>> bars_by_measure(const Value& result, std::span<const Measure> measures);

/// Of {GROUP: {SERIES: {KEY: interval}}} (key empty: {SERIES: interval}).
Result<Figure> grouped(const Value& groups, const std::string& key, const std::string& title,
                       std::string caption);

/// Of {NAME: [number or interval by step]}: a line each, `first` being the first step's place.
Result<Figure> lines(const Members& curves, double first, const std::string& x_title,
                     const std::string& y_title, std::string caption);

/// Of a list of objects: a row each, the columns by path.
Result<Table> rows_of(const Value& list, std::span<const std::pair<const char*, const char*>> columns);

/// The differences {NAME: interval}: is the interval on one side of zero?
Result<void> add_differences(Figures& out, const Value& result, const std::string& key,
                             const std::string& title, const std::string& caption);

/// "must_show" of the result, if it has it: {NAME: true or false}.
Result<void> add_shown(Figures& out, const Value& result);

void append(Figures& out, std::vector<Figure> more);

}  // namespace flash::lab
