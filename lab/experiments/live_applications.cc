#include "lab/experiments/live_applications.h"

#include <algorithm>
#include <cmath>

#include "lab/workloads/trace.h"

namespace flash::lab {
namespace {

constexpr double kLooked_s = 3600;  // for a recorded trace's highest rate

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t comma = 0; comma != std::string::npos; from = comma + 1) {
    comma = text.find(',', from);
    parts.push_back(text.substr(from, comma == std::string::npos ? comma : comma - from));
  }
  return parts;
}

}  // namespace

std::vector<Application> live_candidates(std::uint64_t seed, std::size_t count) {
  std::vector<Application> chosen;
  for (Application& a : generate_applications(400, seed)) {
    const RequestCost cost = request_cost(a);
    const double cpu_s = cost.cycles / kReferenceHz + cost.stall_s;
    if (cpu_s < 0.001 || cpu_s > 0.010 || cost.off_cpu_s > cpu_s || a.workers < 2 || a.burst > 6 ||
        a.memory_mib > 256)
      continue;
    chosen.push_back(std::move(a));
    if (chosen.size() == count) break;
  }
  return chosen;
}

std::string trace_with_peak(const std::string& text, double peak) {
  const auto trace = Trace::parse(text);
  const auto* t = std::get_if<Trace>(&trace);
  if (t == nullptr) return text;
  double highest = 0;
  for (double s = 0; s < kLooked_s; s += 1) highest = std::max(highest, t->rate_at(s));
  if (!(highest > 0)) return text;
  const double factor = peak / highest;
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind == "azure" || kind == "series") return text + ",scale=" + number_text(factor);
  std::vector<std::string> parts = parts_of(text.substr(colon + 1));
  for (std::size_t i = 0; i < (kind == "flat" ? 1U : 2U) && i < parts.size(); ++i)
    parts[i] = number_text(std::max(0.1, std::round(std::stod(parts[i]) * factor * 100) / 100));
  std::string out = kind + ":";
  for (std::size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "," : "") + parts[i];
  return out;
}

std::vector<std::string> live_traces(std::uint64_t seed, std::size_t count, double within_s) {
  std::vector<std::string> traces;
  for (const Application& a : generate_applications(2000, seed)) {
    const auto trace = Trace::parse(a.trace);
    const auto* t = std::get_if<Trace>(&trace);
    if (t == nullptr) continue;
    double low = t->rate_at(0), high = low;
    for (double s = 0; s < within_s; s += 1) {
      low = std::min(low, t->rate_at(s));
      high = std::max(high, t->rate_at(s));
    }
    if (high < 1.4 * low && !a.trace.starts_with("flat:")) continue;  // shows nothing of what it is
    traces.push_back(a.trace);
    if (traces.size() == count) break;
  }
  return traces;
}

}  // namespace flash::lab
