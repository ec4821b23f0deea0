#include "lab/workloads/trace.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lab/workloads/trace_file.h"

namespace flash {

using Parameters = std::vector<double>;

enum class ParameterType { Rate, Time, Seed };

struct TraceParameter {
  std::string_view name;
  ParameterType type;
};

struct TraceKind {
  std::string_view name;
  std::vector<TraceParameter> parameters;
  /// Null for kinds that are made of pieces.
  double (*rate)(const Parameters&, double t_s);
  double (*integral)(const Parameters&, double t_s);
  double (*period_s)(const Parameters&);
  PiecewiseRate (*pieces)(const Parameters&);
  /// Not null for kinds that are read from a file and have options instead of parameters.
  Parsed<PiecewiseRate> (*recorded)(CsvReader& rows, const TraceSelection&) = nullptr;
  std::string_view options = {};
};

namespace {

constexpr double kTimeMinS = 0.01;
constexpr double kSeedMax = 4294967295.0;
constexpr double kTimeMaxS = 1e7;

/// 512 pairs: of a mean of ten seconds together that is more than an hour before it repeats.
PiecewiseRate bursts(const Parameters& p) {
  constexpr int kPairs = 512;
  std::mt19937_64 random(static_cast<std::uint64_t>(p[4]));
  // The standard's distributions differ between libraries; a seed must mean the same everywhere.
  const auto exponential = [&random](double mean) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    return std::max(-mean * std::log(uniform), mean * 0.01);
  };
  std::vector<double> rates;
  std::vector<double> durations_s;
  for (int i = 0; i < kPairs; ++i) {
    rates.insert(rates.end(), {p[0], p[1]});
    durations_s.push_back(exponential(p[2]));
    durations_s.push_back(exponential(p[3]));
  }
  return {std::move(rates), durations_s};
}

const std::vector<TraceKind>& trace_kinds() {
  constexpr auto kRate = ParameterType::Rate;
  constexpr auto kTime = ParameterType::Time;
  static const std::vector<TraceKind> kinds = {
      {"flat",
       {{"rate", kRate}},
       [](const Parameters& p, double) { return p[0]; },
       [](const Parameters& p, double t_s) { return p[0] * t_s; },
       [](const Parameters&) { return 1.0; },
       nullptr},
      {"step",
       {{"low", kRate}, {"high", kRate}, {"hold_s", kTime}},
       [](const Parameters& p, double t_s) { return std::fmod(t_s, 2 * p[2]) < p[2] ? p[0] : p[1]; },
       [](const Parameters& p, double t_s) {
         const double cycles = std::floor(t_s / (2 * p[2]));
         const double rest = t_s - cycles * 2 * p[2];
         return cycles * (p[0] + p[1]) * p[2] + p[0] * std::min(rest, p[2]) +
                p[1] * std::max(rest - p[2], 0.0);
       },
       [](const Parameters& p) { return 2 * p[2]; },
       nullptr},
      {"sine",
       {{"low", kRate}, {"high", kRate}, {"period_s", kTime}},
       [](const Parameters& p, double t_s) {
         return p[0] + (p[1] - p[0]) * (1 - std::cos(2 * std::numbers::pi * t_s / p[2])) / 2;
       },
       [](const Parameters& p, double t_s) {
         const double omega = 2 * std::numbers::pi / p[2];
         return p[0] * t_s + (p[1] - p[0]) / 2 * (t_s - std::sin(omega * t_s) / omega);
       },
       [](const Parameters& p) { return p[2]; },
       nullptr},
      {"diurnal",
       {{"low", kRate}, {"high", kRate}, {"day_s", kTime}},
       // sin^4(x / 2) = (3 - 4 cos x + cos 2x) / 8
       [](const Parameters& p, double t_s) {
         const double x = 2 * std::numbers::pi * t_s / p[2];
         return p[0] + (p[1] - p[0]) * (3 - 4 * std::cos(x) + std::cos(2 * x)) / 8;
       },
       [](const Parameters& p, double t_s) {
         const double omega = 2 * std::numbers::pi / p[2];
         const double x = omega * t_s;
         return p[0] * t_s + (p[1] - p[0]) / 8 * (3 * x - 4 * std::sin(x) + std::sin(2 * x) / 2) / omega;
       },
       [](const Parameters& p) { return p[2]; },
       nullptr},
      {"bursty",
       {{"low", kRate}, {"high", kRate}, {"off_s", kTime}, {"on_s", kTime}, {"seed", ParameterType::Seed}},
       nullptr,
       nullptr,
       nullptr,
       bursts},
      {"azure",
       {},
       nullptr,
       nullptr,
       nullptr,
       nullptr,
       azure_trace,
       "FILE[,row=N][,load=high|low][,scale=X][,speedup=X]"},
      {"series",
       {},
       nullptr,
       nullptr,
       nullptr,
       nullptr,
       series,
       "FILE,column=NAME[,step_s=S][,scale=X][,speedup=X]"},
  };
  return kinds;
}

std::string spelling(const TraceKind& kind) {
  std::string text = std::string(kind.name) + ":" + std::string(kind.options);
  for (std::size_t i = 0; i < kind.parameters.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::string(kind.parameters[i].name);
  }
  return text;
}

/// A word of NAME=VALUE after the file's name. False: not an option of this kind, or not a value of it.
bool apply_option(const TraceKind& kind, std::string_view word, TraceSelection& selection) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) {
    return false;
  }
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  const auto number_into = [value](double& out, double low, double high) {
    const auto number = parse_real(value);
    out = number.value_or(0);
    return number && *number >= low && *number <= high;
  };
  const bool azure = kind.name == "azure";
  if (name == "scale") {
    return number_into(selection.scale, 0, 1e6);
  }
  if (name == "speedup") {
    return number_into(selection.speedup, 0.001, 1e6);
  }
  if (azure && name == "row") {
    const auto row = parse_integer(value);
    selection.row = row.value_or(0);
    return selection.row >= 1;
  }
  if (azure && name == "load" && (value == "high" || value == "low")) {
    selection.load = value == "high" ? LoadClass::High : LoadClass::Low;
    return true;
  }
  if (!azure && name == "column" && !value.empty()) {
    selection.column = value;
    return true;
  }
  return !azure && name == "step_s" && number_into(selection.step_s, kTimeMinS, kTimeMaxS);
}

bool usable(double value, ParameterType type) {
  switch (type) {
    case ParameterType::Rate:
      return value >= 0 && value <= kTraceRateMax;
    case ParameterType::Time:
      return value >= kTimeMinS && value <= kTimeMaxS;
    case ParameterType::Seed:
      return value >= 0 && value <= kSeedMax && value == std::floor(value);
  }
  return false;
}

struct Spelt {
  const TraceKind* kind = nullptr;
  Parameters parameters;
  std::string file;
  TraceSelection selection;
};

Parsed<Spelt> parse_recorded(const TraceKind& kind, std::string_view rest) {
  constexpr std::size_t kNameMax = 4096;
  Spelt spelt;
  spelt.kind = &kind;
  auto comma = rest.find(',');
  spelt.file = rest.substr(0, comma);
  if (spelt.file.empty() || spelt.file.size() > kNameMax || spelt.file.find('\0') != std::string::npos) {
    return UsageError{"a trace of this kind is spelt " + spelling(kind)};
  }
  while (comma != std::string_view::npos) {
    rest = rest.substr(comma + 1);
    comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (!apply_option(kind, word, spelt.selection)) {
      return UsageError{"'" + std::string(word) + "' is not usable in " + spelling(kind)};
    }
  }
  if (kind.name == "series" && spelt.selection.column.empty()) {
    return UsageError{"a trace of this kind is spelt " + spelling(kind)};
  }
  return spelt;
}

Parsed<Spelt> parse_spelling(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto& kinds = trace_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const TraceKind& k) { return k.name == name; });
  if (kind == kinds.end()) {
    return UsageError{"unknown trace '" + std::string(name) + "'; known: " + describe_traces()};
  }
  Spelt spelt;
  spelt.kind = &*kind;
  std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (kind->recorded != nullptr) {
    return parse_recorded(*kind, rest);
  }
  for (std::size_t i = 0; i < kind->parameters.size(); ++i) {
    const bool last = i + 1 == kind->parameters.size();
    const auto comma = rest.find(',');
    if (rest.empty() || (last != (comma == std::string_view::npos))) {
      return UsageError{"a trace of this kind is spelt " + spelling(*kind)};
    }
    const std::string_view word = rest.substr(0, comma);
    const auto value = parse_real(word);
    if (!value || !usable(*value, kind->parameters[i].type)) {
      return UsageError{"'" + std::string(word) + "' is not a usable " +
                        std::string(kind->parameters[i].name) + " in " + spelling(*kind)};
    }
    spelt.parameters.push_back(*value);
    rest = last ? std::string_view() : rest.substr(comma + 1);
  }
  return spelt;
}

}  // namespace

Parsed<Trace> Trace::parse(std::string_view text) {
  auto parsed = parse_spelling(text);
  if (auto* error = std::get_if<UsageError>(&parsed)) {
    return std::move(*error);
  }
  auto& spelt = std::get<Spelt>(parsed);
  Trace trace;
  trace.kind_ = spelt.kind;
  trace.parameters_ = std::move(spelt.parameters);
  trace.text_ = text;
  if (trace.kind_->pieces != nullptr) {
    trace.pieces_ = std::make_shared<PiecewiseRate>(trace.kind_->pieces(trace.parameters_));
  }
  if (trace.kind_->recorded != nullptr) {
    auto rows = CsvReader::open(spelt.file);
    if (!rows) {
      return UsageError{rows.error().message()};
    }
    auto rate = trace.kind_->recorded(*rows, spelt.selection);
    if (auto* error = std::get_if<UsageError>(&rate)) {
      return std::move(*error);
    }
    trace.pieces_ = std::make_shared<PiecewiseRate>(std::get<PiecewiseRate>(std::move(rate)));
  }
  return trace;
}

Applied check_trace(std::string_view text) {
  auto spelt = parse_spelling(text);
  if (auto* error = std::get_if<UsageError>(&spelt)) {
    return std::move(*error);
  }
  return std::nullopt;
}

std::string trace_of_other_load(std::string_view text) {
  constexpr double kFactor = 4;
  std::string result(text);
  const auto spelt = std::get<Spelt>(parse_spelling(text));
  if (spelt.selection.load != LoadClass::Any) {
    const bool high = spelt.selection.load == LoadClass::High;
    const std::string_view from = high ? ",load=high" : ",load=low";
    return result.replace(result.rfind(from), from.size(), high ? ",load=low" : ",load=high");
  }
  const auto parsed = Trace::parse(text);
  const auto* trace = std::get_if<Trace>(&parsed);
  if (trace == nullptr) {
    return result;
  }
  const double factor = is_high_load(trace->mean_rate()) ? 1 / kFactor : kFactor;
  if (spelt.kind->recorded != nullptr) {
    return result + ",scale=" + number_text(std::min(spelt.selection.scale * factor, kTraceRateMax));
  }
  result = std::string(spelt.kind->name) + ":";
  for (std::size_t i = 0; i < spelt.parameters.size(); ++i) {
    double value = spelt.parameters[i];
    if (spelt.kind->parameters[i].type == ParameterType::Rate) {
      value = std::min(value * factor, kTraceRateMax);
    }
    result += (i == 0 ? "" : ",") + number_text(value);
  }
  return result;
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
  if (!rate || *rate < 0 || *rate > kTraceRateMax) {
    return UsageError{"'" + std::string(text) + "' is not a rate from 0 to 1000000 per second"};
  }
  return Trace::flat(*rate);
}

double Trace::rate_at(double t_s) const {
  return pieces_ ? pieces_->rate_at(t_s) : kind_->rate(parameters_, t_s);
}
double Trace::arrivals_until(double t_s) const {
  return pieces_ ? pieces_->integral(t_s) : kind_->integral(parameters_, t_s);
}
double Trace::mean_rate() const {
  const double period_s = pieces_ ? pieces_->period_s() : kind_->period_s(parameters_);
  return arrivals_until(period_s) / period_s;
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

ArrivalSchedule::ArrivalSchedule(Trace trace, double seconds, Arrivals arrivals, std::uint64_t seed,
                                 double burst)
    : trace_(std::move(trace)), seconds_(seconds), arrivals_(arrivals), random_(seed), burst_(burst) {}

std::optional<double> ArrivalSchedule::next() {
  if (together_ > 0) {
    --together_;
    return last_s_;
  }
  const double step = arrivals_ == Arrivals::Even ? 1.0 : std::exponential_distribution<double>(1.0)(random_);
  const double wanted = integral_ + step * burst_;
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
  if (burst_ > 1) {
    together_ = std::geometric_distribution<std::uint64_t>(1 / burst_)(random_);
  }
  return high;
}

}  // namespace flash
