// Purpose: pictures of figures as inline SVG: lines with bands, points, bars with error bars. Colours are CSS
// classes of the page (s0 to s9), so that they follow its light or dark scheme; no script.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/interval.h"

namespace flash::lab {

/// Text as HTML and SVG take it.
std::string escaped(std::string_view text);
/// Three significant digits, as people write them; "-" for what is not finite.
std::string digits(double value);
/// Round numbers that cover [low, high], about `wanted` of them.
std::vector<double> nice_ticks(double low, double high, int wanted);

/// Which colour (0 to 9) a method has, the same in every figure.
int colour_of(const std::string& name);

struct Series {
  std::string name;
  std::vector<double> x, y;    // one size; points that are not finite are left out
  std::vector<double> lo, hi;  // a band; empty: none
  bool points = false;         // dots instead of a line
  bool steps = false;          // a line of steps (a distribution)
};

struct XyChart {
  std::string title;  // for those who cannot see it
  std::string x_title, y_title;
  std::vector<Series> series;
  std::optional<double> y_low, y_high;  // at least this range is shown
  bool log_x = false, log_y = false;    // only numbers above 0 are shown then
  bool diagonal = false;                // y = x
};

struct BarChart {
  std::string title, x_title;
  std::vector<std::string> groups;
  std::vector<std::string> series;            // within each group; one nameless: bars are coloured by group
  std::vector<std::vector<Interval>> values;  // [group][series]; not finite: no bar
  std::optional<double> aim;                  // a vertical line
};

std::string svg(const XyChart& chart);
/// Bars lie, so that names of any length are read.
std::string svg(const BarChart& chart);

}  // namespace flash::lab
