#include "lab/report/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "lab/report/svg.h"

namespace flash::lab {

std::string cell(const Interval& i) {
  if (!std::isfinite(i.mean)) return "-";
  if (!(i.hi > i.lo))
    return i.mean == std::round(i.mean) ? std::to_string(std::llround(i.mean)) : digits(i.mean);
  return digits(i.mean) + " [" + digits(i.lo) + ", " + digits(i.hi) + "]";
}

std::optional<Value> inner(const Value& from, std::string_view path) {
  const auto slash = path.find('/');
  const auto value = from.find(std::string(path.substr(0, slash)));
  if (!value || slash == std::string_view::npos) return value;
  return inner(*value, path.substr(slash + 1));
}

namespace {

/// A picture per measure that any of the ways has, the table of all at the last. `found(i, key)`: the i-th
/// way's interval, or nothing.
Result<std::vector<Figure>> bars(const Members& ways, std::span<const Measure> measures,
                                 const std::function<std::optional<Value>(std::size_t, const char*)>& found) {
  std::vector<Figure> out;
  Table table{{""}, {}};
  for (const auto& [name, way] : ways) table.rows.push_back({name});
  for (const Measure& m : measures) {
    BarChart chart{m.caption, m.title, {}, {""}, {}, std::nullopt};
    std::vector<std::string> column;
    for (std::size_t k = 0; k < ways.size(); ++k) {
      Interval i{kNone, kNone, kNone};
      if (const auto value = found(k, m.key)) {
        FLASH_TRY(i, value->interval());
      }
      column.push_back(cell(i));
      if (!std::isfinite(i.mean)) continue;
      chart.groups.push_back(ways[k].first);
      chart.values.push_back({i});
    }
    if (chart.groups.empty()) continue;
    table.head.push_back(m.title);
    for (std::size_t r = 0; r < column.size(); ++r) table.rows[r].push_back(column[r]);
    out.push_back({m.caption, svg(chart), {}});
  }
  if (!out.empty()) out.back().table = std::move(table);
  return out;
}

}  // namespace

Result<std::vector<Figure>> bars_of(const Value& ways, std::span<const Measure> measures) {
  FLASH_TRY(const Members all, ways.members());
  return bars(all, measures, [&](std::size_t k, const char* key) { return inner(all[k].second, key); });
}

Result<std::vector<Figure>> bars_by_measure(const Value& result, std::span<const Measure> measures) {
  FLASH_TRY(const Value first, result.at(measures.front().key));
  FLASH_TRY(const Members all, first.members());
  return bars(all, measures, [&](std::size_t k, const char* key) {
    const auto measure = inner(result, key);
    return measure ? measure->find(all[k].first) : std::nullopt;
  });
}

Result<Figure> grouped(const Value& groups, const std::string& key, const std::string& title,
                       std::string caption) {
  FLASH_TRY(const Members all, groups.members());
  BarChart chart{caption, title, {}, {}, {}, std::nullopt};
  std::vector<std::map<std::string, Interval>> found;
  for (const auto& [group, value] : all) {
    FLASH_TRY(const Members ways, value.members());
    auto& row = found.emplace_back();
    for (const auto& [name, way] : ways) {
      const auto at = key.empty() ? std::optional<Value>(way) : way.find(key);
      if (!at || (key.empty() && !at->is_object())) continue;
      FLASH_TRY(row[name], at->interval());
      if (std::find(chart.series.begin(), chart.series.end(), name) == chart.series.end())
        chart.series.push_back(name);
    }
    chart.groups.push_back(group);
  }
  Table table{{""}, {}};
  table.head.insert(table.head.end(), chart.series.begin(), chart.series.end());
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    auto& row = table.rows.emplace_back();
    row.push_back(chart.groups[g]);
    auto& values = chart.values.emplace_back();
    for (const std::string& name : chart.series) {
      const auto it = found[g].find(name);
      values.push_back(it == found[g].end() ? Interval{kNone, kNone, kNone} : it->second);
      row.push_back(cell(values.back()));
    }
  }
  return Figure{std::move(caption), svg(chart), std::move(table)};
}

Result<Figure> lines(const Members& curves, double first, const std::string& x_title,
                     const std::string& y_title, std::string caption) {
  XyChart chart;
  chart.title = caption;
  chart.x_title = x_title;
  chart.y_title = y_title;
  Table table{{"", "first", "a quarter", "half", "last"}, {}};
  for (const auto& [name, value] : curves) {
    FLASH_TRY(const std::vector<Interval> steps, value.intervals());
    if (steps.empty()) continue;
    Series s;
    s.name = name;
    bool band = false;
    for (std::size_t k = 0; k < steps.size(); ++k) {
      s.x.push_back(first + static_cast<double>(k));
      s.y.push_back(steps[k].mean);
      s.lo.push_back(steps[k].lo);
      s.hi.push_back(steps[k].hi);
      band = band || steps[k].hi > steps[k].lo;
    }
    if (!band) s.lo.clear(), s.hi.clear();
    const std::size_t n = steps.size();
    table.rows.push_back(
        {name, cell(steps[0]), cell(steps[(n - 1) / 4]), cell(steps[(n - 1) / 2]), cell(steps[n - 1])});
    chart.series.push_back(std::move(s));
  }
  return Figure{std::move(caption), svg(chart), std::move(table)};
}

Result<Table> rows_of(const Value& list, std::span<const std::pair<const char*, const char*>> columns) {
  FLASH_TRY(const Members all, list.members());
  Table table;
  for (const auto& [path, title] : columns) table.head.emplace_back(title);
  for (const auto& [index, row] : all) {
    auto& cells = table.rows.emplace_back();
    for (const auto& [path, title] : columns) {
      Interval i{kNone, kNone, kNone};
      if (const auto value = inner(row, path)) {
        FLASH_TRY(i, value->interval());
      }
      cells.push_back(cell(i));
    }
  }
  return table;
}

Result<void> add_differences(Figures& out, const Value& result, const std::string& key,
                             const std::string& title, const std::string& caption) {
  const auto found = result.find(key);
  if (!found) return {};
  FLASH_TRY(const Members all, found->members());
  BarChart chart{caption, title, {}, {""}, {}, std::nullopt};
  Table table{{"", title, "excludes zero"}, {}};
  for (const auto& [name, value] : all) {
    FLASH_TRY(const Interval i, value.interval());
    chart.groups.push_back(name);
    chart.values.push_back({i});
    table.rows.push_back({name, cell(i), i.lo > 0 || i.hi < 0 ? "yes" : "no"});
  }
  if (!all.empty()) out.figures.push_back({caption, svg(chart), std::move(table)});
  return {};
}

Result<void> add_shown(Figures& out, const Value& result) {
  const auto found = result.find("must_show");
  if (!found) return {};
  FLASH_TRY(const Members all, found->members());
  for (const auto& [name, value] : all) {
    if (!value.is_boolean()) return value.wrong("neither true nor false");
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    out.shown.push_back({words, value.is_true()});
  }
  return {};
}

void append(Figures& out, std::vector<Figure> more) {
  for (Figure& f : more) out.figures.push_back(std::move(f));
}

}  // namespace flash::lab
