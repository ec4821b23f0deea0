#include "workloads/trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace flash {

using Parameters = std::vector<double>;

struct TraceKind {
  std::string_view name;
  std::vector<std::string_view> parameters;  // the last one of a periodic kind is a time
  bool periodic;
  double (*rate)(const Parameters&, double t_s);
  double (*integral)(const Parameters&, double t_s);
};

namespace {

constexpr double kRateMax = 1e6;

const std::vector<TraceKind>& trace_kinds() {
  static const std::vector<TraceKind> kinds = {
      {"flat",
       {"rate"},
       false,  //
       [](const Parameters& p, double) { return p[0]; },
       [](const Parameters& p, double t_s) { return p[0] * t_s; }},
      {"step",
       {"low", "high", "hold_s"},
       true,
       [](const Parameters& p, double t_s) { return std::fmod(t_s, 2 * p[2]) < p[2] ? p[0] : p[1]; },
       [](const Parameters& p, double t_s) {
         const double cycles = std::floor(t_s / (2 * p[2]));
         const double rest = t_s - cycles * 2 * p[2];
         return cycles * (p[0] + p[1]) * p[2] + p[0] * std::min(rest, p[2]) +
                p[1] * std::max(rest - p[2], 0.0);
       }},
      {"sine",
       {"low", "high", "period_s"},
       true,
       [](const Parameters& p, double t_s) {
         return p[0] + (p[1] - p[0]) * (1 - std::cos(2 * std::numbers::pi * t_s / p[2])) / 2;
       },
       [](const Parameters& p, double t_s) {
         const double omega = 2 * std::numbers::pi / p[2];
         return p[0] * t_s + (p[1] - p[0]) / 2 * (t_s - std::sin(omega * t_s) / omega);
       }},
  };
  return kinds;
}

std::string spelling(const TraceKind& kind) {
  std::string text = std::string(kind.name) + ":";
  for (std::size_t i = 0; i < kind.parameters.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::string(kind.parameters[i]);
  }
  return text;
}

}  // namespace

Parsed<Trace> Trace::parse(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto& kinds = trace_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const TraceKind& k) { return k.name == name; });
  if (kind == kinds.end()) {
    return UsageError{"unknown trace '" + std::string(name) + "'; known: " + describe_traces()};
  }
  Trace trace;
  trace.kind_ = &*kind;
  trace.text_ = text;
  std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  for (std::size_t i = 0; i < kind->parameters.size(); ++i) {
    const bool last = i + 1 == kind->parameters.size();
    const auto comma = rest.find(',');
    if (rest.empty() || (last != (comma == std::string_view::npos))) {
      return UsageError{"a trace of this kind is spelt " + spelling(*kind)};
    }
    const std::string_view word = rest.substr(0, comma);
    const auto value = parse_real(word);
    const bool is_time = last && kind->periodic;
    if (!value || *value < 0 || *value > kRateMax || (is_time && *value < 0.01)) {
      return UsageError{"'" + std::string(word) + "' is not a usable " + std::string(kind->parameters[i]) +
                        " in " + spelling(*kind)};
    }
    trace.parameters_.push_back(*value);
    rest = last ? std::string_view() : rest.substr(comma + 1);
  }
  return trace;
}

Trace Trace::flat(double rate) {
  Trace trace;
  trace.kind_ = &trace_kinds().front();
  trace.parameters_ = {rate};
  trace.text_ = "flat:" + number_text(rate);
  return trace;
}

Parsed<Trace> parse_flat_rate(std::string_view text) {
  const auto rate = parse_real(text);
  if (!rate || *rate < 0 || *rate > kRateMax) {
    return UsageError{"'" + std::string(text) + "' is not a rate from 0 to 1000000 per second"};
  }
  return Trace::flat(*rate);
}

double Trace::rate_at(double t_s) const {
  return kind_->rate(parameters_, t_s);
}
double Trace::arrivals_until(double t_s) const {
  return kind_->integral(parameters_, t_s);
}

std::string describe_traces() {
  std::string text;
  for (const auto& kind : trace_kinds()) {
    text += (text.empty() ? "" : " | ") + spelling(kind);
  }
  return text;
}

Parsed<Arrivals> parse_arrivals(std::string_view text) {
  if (text == "even") {
    return Arrivals::Even;
  }
  if (text == "poisson") {
    return Arrivals::Poisson;
  }
  return UsageError{"'" + std::string(text) + "' is neither even nor poisson"};
}

ArrivalSchedule::ArrivalSchedule(Trace trace, double seconds, Arrivals arrivals, std::uint64_t seed)
    : trace_(std::move(trace)), seconds_(seconds), arrivals_(arrivals), random_(seed) {}

std::optional<double> ArrivalSchedule::next() {
  const double wanted =
      integral_ + (arrivals_ == Arrivals::Even ? 1.0 : std::exponential_distribution<double>(1.0)(random_));
  // The integral never falls, so it is inverted by bisection; its kinds need no inverse of their own.
  double low = last_s_;
  double high = last_s_ + 0.01;
  while (trace_.arrivals_until(high) < wanted) {
    if (high >= seconds_) {
      return std::nullopt;
    }
    low = high;
    high += 2 * (high - last_s_);
  }
  for (int i = 0; i < 60 && high - low > 1e-9; ++i) {
    const double middle = (low + high) / 2;
    (trace_.arrivals_until(middle) < wanted ? low : high) = middle;
  }
  if (high >= seconds_) {
    return std::nullopt;
  }
  integral_ = wanted;
  last_s_ = high;
  return high;
}

}  // namespace flash
