#include "lab/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace flash::lab {
namespace {

constexpr double kWidth = 720, kCharacter = 6.6, kLine = 18;
constexpr int kColours = 10;

std::string at(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", v);
  return text;
}

std::string text_at(double x, double y, std::string_view anchor, const std::string& text,
                    std::string_view kind = "") {
  return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + std::string(anchor) + "\"" +
         (kind.empty() ? "" : " class=\"" + std::string(kind) + "\"") + ">" + escaped(text) + "</text>";
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view kind) {
  return "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" + at(y2) +
         "\" class=\"" + std::string(kind) + "\"/>";
}

std::string begin(double height, const std::string& title) {
  return "<svg viewBox=\"0 0 " + at(kWidth) + " " + at(height) +
         "\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\"><title>" + escaped(title) + "</title>\n";
}

/// One number of an axis to a place on the picture.
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  std::vector<double> ticks;

  double operator()(double v) const {
    const auto place = [this](double x) { return log ? std::log10(x) : x; };
    return from + (place(v) - place(low)) / (place(high) - place(low)) * (to - from);
  }
  bool shows(double v) const { return std::isfinite(v) && (!log || v > 0); }
};

/// Covers what is seen with round numbers.
Scale scale_of(double low, double high, bool log, int wanted, double from, double to) {
  Scale s;
  s.from = from;
  s.to = to;
  s.log = log;
  if (!(low <= high)) low = log ? 1 : 0, high = log ? 10 : 1;
  if (log) {
    s.low = std::pow(10, std::floor(std::log10(low)));
    s.high = std::pow(10, std::ceil(std::log10(high)));
    if (s.low >= s.high) s.high = 10 * s.low;
    const double decades = std::round(std::log10(s.high) - std::log10(s.low));
    const double each = std::ceil(decades / wanted);
    for (double d = 0; d <= decades + 0.5; d += each) s.ticks.push_back(s.low * std::pow(10, d));
    return s;
  }
  if (low == high) low -= std::abs(low) * 0.1 + 0.5, high += std::abs(high) * 0.1 + 0.5;
  s.ticks = nice_ticks(low, high, wanted);
  s.low = s.ticks.front();
  s.high = s.ticks.back();
  return s;
}

/// A tick's number with as many decimals as all of them need.
std::string tick_text(const Scale& s, double v) {
  if (s.log) {
    char text[32];
    std::snprintf(text, sizeof text, v >= 1e-3 && v < 1e6 ? "%.15g" : "%.0e", v);
    return text;
  }
  const double step = s.ticks[1] - s.ticks[0];
  if (std::max(std::abs(s.low), std::abs(s.high)) >= 1e6 || step < 1e-4) return digits(v);
  int decimals = 0;
  for (double unit = step; decimals < 5 && std::abs(unit - std::round(unit)) > 1e-6 * unit; unit *= 10)
    ++decimals;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, v);
  return text;
}

double width_of(const std::string& text) {
  return kCharacter * static_cast<double>(text.size());
}

/// Names with their colours, in as many rows as they need. Returns the height.
double legend(std::string& out, const std::vector<std::pair<std::string, int>>& names, double left) {
  double x = left, y = 16;
  for (const auto& [name, colour] : names) {
    const double width = 20 + width_of(name) + 16;
    if (x > left && x + width > kWidth) {
      x = left;
      y += kLine;
    }
    out += "<rect x=\"" + at(x) + "\" y=\"" + at(y - 10) +
           "\" width=\"12\" height=\"12\" rx=\"2\" class=\"f s" + std::to_string(colour) + "\"/>" +
           text_at(x + 18, y, "start", name);
    x += width;
  }
  return names.empty() ? 6 : y + 10;
}

/// Of the methods that are in many figures.
std::optional<int> own_colour(const std::string& name) {
  static constexpr std::pair<std::string_view, int> kOwn[] = {
      {"imitation", 0},   {"curve_model", 0}, {"flashd", 0},     {"flash", 1},
      {"aware", 1},       {"shared", 2},      {"vanilla", 2},    {"no_retraining", 2},
      {"true_params", 3}, {"vanilla_raw", 3}, {"scratch", 4},    {"unadapted", 4},
      {"tl", 5},          {"no_offline", 5},  {"tl_plus", 6},    {"persistence", 6},
      {"rule", 7},        {"rules", 7},       {"best_fixed", 8}, {"static", 8},
      {"converged", 9},   {"random", 6},      {"oracle", 3},     {"no_foresight", 9}};
  for (const auto& [known, colour] : kOwn)
    if (name == known) return colour;
  if (name.starts_with("libtorch")) return 5;
  return std::nullopt;
}

/// A colour of its own for each name, its usual one where that is free.
std::vector<int> colours(const std::vector<std::string>& names) {
  std::vector<int> out;
  std::array<bool, kColours> taken{};
  for (const std::string& name : names) {
    int c = colour_of(name);
    for (int i = 0; i < kColours && taken[static_cast<std::size_t>(c)]; ++i) c = (c + 1) % kColours;
    taken[static_cast<std::size_t>(c)] = true;
    out.push_back(c);
  }
  return out;
}

std::string path_of(const Series& s, const std::vector<double>& y, const Scale& across, const Scale& up) {
  std::string path;
  double before = 0;
  bool drawing = false;
  for (std::size_t i = 0; i < s.x.size() && i < y.size(); ++i) {
    if (!across.shows(s.x[i]) || !up.shows(y[i])) {
      drawing = false;
      continue;
    }
    const double px = across(s.x[i]), py = up(y[i]);
    if (drawing && s.steps) path += "L" + at(px) + " " + at(before);
    path += (drawing ? "L" : "M") + at(px) + " " + at(py);
    before = py;
    drawing = true;
  }
  return path;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string digits(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double size = std::abs(value);
  char text[64];
  if (size >= 1e7 || size < 1e-4) {
    std::snprintf(text, sizeof text, "%.2e", value);
    return text;
  }
  const int whole = static_cast<int>(std::floor(std::log10(size))) + 1;
  std::snprintf(text, sizeof text, "%.*f", std::clamp(3 - whole, 0, 6), value);
  return text;
}

std::vector<double> nice_ticks(double low, double high, int wanted) {
  const double raw = std::max((high - low) / std::max(1, wanted), 1e-12 * std::max(1.0, std::abs(high)));
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 2.5, 5.0})
    if (nice * power >= raw * 0.999) {
      step = nice * power;
      break;
    }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double k = first; k <= last && ticks.size() < 100; ++k) ticks.push_back(k == 0 ? 0 : k * step);
  if (ticks.size() < 2) ticks.push_back(ticks.empty() ? 1 : ticks.back() + step);
  return ticks;
}

int colour_of(const std::string& name) {
  if (const auto own = own_colour(name)) return *own;
  unsigned sum = 0;
  for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
  return static_cast<int>(sum % kColours);
}

std::string svg(const XyChart& chart) {
  constexpr double kLeft = 64, kRight = 16, kPlot = 300;
  std::vector<std::string> names;
  for (const Series& s : chart.series) names.push_back(s.name);
  const std::vector<int> colour = colours(names);
  std::vector<std::pair<std::string, int>> keys;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) keys.emplace_back(names[i], colour[i]);
  std::string out;
  const double top = legend(out, keys, kLeft) + kLine;

  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  const auto see = [](double v, bool log, double& low, double& high) {
    if (!std::isfinite(v) || (log && !(v > 0))) return;
    low = std::min(low, v);
    high = std::max(high, v);
  };
  for (const Series& s : chart.series) {
    for (double v : s.x) see(v, chart.log_x, x_low, x_high);
    for (const auto* column : {&s.y, &s.lo, &s.hi})
      for (double v : *column) see(v, chart.log_y, y_low, y_high);
  }
  if (chart.y_low) see(*chart.y_low, chart.log_y, y_low, y_high);
  if (chart.y_high) see(*chart.y_high, chart.log_y, y_low, y_high);
  const Scale across = scale_of(x_low, x_high, chart.log_x, 8, kLeft, kWidth - kRight);
  const Scale up = scale_of(y_low, y_high, chart.log_y, 6, top + kPlot, top);

  out += text_at(kLeft, top - 8, "start", chart.y_title, "axis");
  for (double t : up.ticks) {
    out += line_at(kLeft, up(t), kWidth - kRight, up(t), "grid");
    out += text_at(kLeft - 8, up(t) + 4, "end", tick_text(up, t));
  }
  for (double t : across.ticks) {
    out += line_at(across(t), top + kPlot, across(t), top + kPlot + 5, "tick");
    out += text_at(across(t), top + kPlot + 20, "middle", tick_text(across, t));
  }
  out += line_at(kLeft, top + kPlot, kWidth - kRight, top + kPlot, "tick");
  if (up.low < 0 && up.high > 0 && !up.log) out += line_at(kLeft, up(0), kWidth - kRight, up(0), "zero");
  out += text_at((kLeft + kWidth - kRight) / 2, top + kPlot + 42, "middle", chart.x_title, "axis");
  if (chart.diagonal) {
    const double low = std::max(across.low, up.low), high = std::min(across.high, up.high);
    if (low < high) out += line_at(across(low), up(low), across(high), up(high), "zero");
  }
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    const std::string kind = "s" + std::to_string(colour[i]);
    if (!s.lo.empty() && s.lo.size() == s.hi.size()) {
      Series back = s;
      std::reverse(back.x.begin(), back.x.end());
      std::vector<double> lo = s.lo;
      std::reverse(lo.begin(), lo.end());
      const std::string forth = path_of(s, s.hi, across, up), home = path_of(back, lo, across, up);
      if (!forth.empty() && !home.empty() && forth.find('M', 1) == std::string::npos &&
          home.find('M', 1) == std::string::npos)
        out += "<path d=\"" + forth + "L" + home.substr(1) + "Z\" class=\"band " + kind + "\"/>";
    }
    if (s.points) {
      for (std::size_t k = 0; k < s.x.size() && k < s.y.size(); ++k)
        if (across.shows(s.x[k]) && up.shows(s.y[k]))
          out += "<circle cx=\"" + at(across(s.x[k])) + "\" cy=\"" + at(up(s.y[k])) +
                 "\" r=\"3.5\" class=\"dot " + kind + "\"/>";
    } else {
      out += "<path d=\"" + path_of(s, s.y, across, up) + "\" class=\"l " + kind + "\"/>";
    }
  }
  return begin(top + kPlot + 52, chart.title) + out + "</svg>\n";
}

std::string svg(const BarChart& chart) {
  constexpr double kBar = 16, kGap = 12, kRight = 64;
  const bool by_group = chart.series.size() <= 1;
  std::vector<int> colour = colours(chart.series);
  if (by_group) {  // names stand beside their bars: two may have one colour
    colour.clear();
    for (const std::string& g : chart.groups) colour.push_back(own_colour(g).value_or(0));
  }
  std::vector<std::pair<std::string, int>> keys;
  if (!by_group)
    for (std::size_t i = 0; i < chart.series.size(); ++i) keys.emplace_back(chart.series[i], colour[i]);
  std::string out;
  const double top = legend(out, keys, 0) + 6;
  double longest = 0;
  for (const std::string& g : chart.groups) longest = std::max(longest, width_of(g));
  const double left = std::min(longest + 16, kWidth / 2);

  double low = 0, high = 0;
  const auto see = [&](double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  };
  for (const auto& group : chart.values)
    for (const Interval& i : group) see(i.mean), see(i.lo), see(i.hi);
  if (chart.aim) see(*chart.aim);
  const Scale across = scale_of(low, high, false, 7, left, kWidth - kRight);
  const double each = (by_group ? 1.0 : static_cast<double>(chart.series.size())) * kBar + kGap;
  const double bottom = top + each * static_cast<double>(chart.groups.size());
  for (double t : across.ticks) {
    out += line_at(across(t), top, across(t), bottom, "grid");
    out += text_at(across(t), bottom + 16, "middle", tick_text(across, t));
  }
  for (std::size_t g = 0; g < chart.groups.size() && g < chart.values.size(); ++g) {
    const double y = top + each * static_cast<double>(g) + kGap / 2;
    out += text_at(left - 8, y + (each - kGap) / 2 + 4, "end", chart.groups[g]);
    for (std::size_t s = 0; s < chart.values[g].size(); ++s) {
      const Interval& v = chart.values[g][s];
      if (!std::isfinite(v.mean)) continue;
      const double at_y = y + static_cast<double>(s) * kBar;
      const double from = std::min(across(0), across(v.mean)), to = std::max(across(0), across(v.mean));
      const int c = by_group ? colour[g] : colour[std::min(s, colour.size() - 1)];
      out += "<rect x=\"" + at(from) + "\" y=\"" + at(at_y + 1) + "\" width=\"" +
             at(std::max(1.0, to - from)) + "\" height=\"" + at(kBar - 2) + "\" class=\"f s" +
             std::to_string(c) + "\"/>";
      double right = std::max(to, across(0));
      const double middle = at_y + kBar / 2;
      if (std::isfinite(v.lo) && std::isfinite(v.hi) && v.hi > v.lo) {
        out += line_at(across(v.lo), middle, across(v.hi), middle, "error");
        for (double end : {v.lo, v.hi})
          out += line_at(across(end), middle - 4, across(end), middle + 4, "error");
        right = std::max(right, across(v.hi));
      }
      out += text_at(right + 6, middle + 4, "start", digits(v.mean), "value");
    }
  }
  out += line_at(across(0), top, across(0), bottom, "zero");
  if (chart.aim) out += line_at(across(*chart.aim), top, across(*chart.aim), bottom, "aim");
  out += text_at((left + kWidth - kRight) / 2, bottom + 36, "middle", chart.x_title, "axis");
  return begin(bottom + 46, chart.title) + out + "</svg>\n";
}

}  // namespace flash::lab
