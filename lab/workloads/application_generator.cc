// The generator of FLASH A.3 and AWARE 5.1. docs/APPLICATIONS.md has the ranges as a table.
#include <algorithm>
#include <cmath>
#include <random>

#include "lab/workloads/application.h"
#include "lab/workloads/trace.h"

namespace flash {

namespace {

/// Draws that mean the same with every standard library.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t n) {
    std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                           static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32)};
    random_.seed(sequence);
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  double log_uniform(double low, double high) { return std::exp(uniform(std::log(low), std::log(high))); }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform(0, static_cast<double>(count)));
  }
  template <class Choices>
  auto one_of(const Choices& choices) {
    return choices[below(std::size(choices))];
  }

 private:
  std::mt19937_64 random_;
};

double rounded(double value, int digits) {
  if (value == 0) {
    return 0;
  }
  const double unit = std::pow(10.0, digits - 1 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * unit) / unit;
}

bool is_memory_bound(const Segment& segment) {
  return segment.profile.stall_share > 0.3;
}
bool waits(const Segment& segment) {
  return segment.profile.off_cpu_us + segment.profile.off_cpu_us_per > 0;
}

double payload_of(const Segment& segment, bool large, Draw& draw) {
  const auto choices = payload_choices(segment, large);
  if (!choices.empty()) {
    return draw.one_of(choices);
  }
  const double factors[] = {0.5, 1.0, 2.0, 4.0};
  return std::round(static_cast<double>(segment.payload_default) * draw.one_of(factors));
}

/// How often the segments of a group are done so that together they take `wanted_us`.
void share_out(std::vector<SegmentUse*>& group, double wanted_us, bool by_wait, double hot_mib, Draw& draw) {
  std::vector<double> weights;
  double sum = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    weights.push_back(draw.uniform(0.2, 1));
    sum += weights.back();
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    const UnitCost unit = unit_cost(*group[i]->segment, group[i]->payload, hot_mib);
    const double unit_us = by_wait ? unit.off_cpu_us : unit.cpu_us;
    // How long a disk takes differs between machines by far more than how long a processor does.
    const double most = by_wait ? 8 : 1e6;
    group[i]->count =
        static_cast<int>(std::clamp(std::round(wanted_us * weights[i] / sum / unit_us), 1.0, most));
  }
}

void draw_segments(Application& application, Draw& draw) {
  const auto pool = segments();
  const bool large = draw.chance(0.25);
  const std::size_t count = 1 + draw.below(6);
  for (std::size_t i = 0; i < count; ++i) {
    const Segment& segment = pool[draw.below(pool.size())];
    application.segments.push_back({&segment, payload_of(segment, large, draw), 1});
  }
  // 2 of 16 segments wait for memory: left to chance alone, most applications would gain the same from a
  // higher frequency. Six in ten get a memory-bound part, and how much of the time it takes is drawn.
  const double cpu_us = draw.log_uniform(500, 20'000);
  const double memory_share = draw.chance(0.6) ? draw.uniform(0.1, 0.98) : 0;
  const double wait_us = draw.log_uniform(200, 10'000);
  const auto any = [&](auto is) {
    return std::any_of(application.segments.begin(), application.segments.end(),
                       [&](const SegmentUse& use) { return is(*use.segment); });
  };
  const auto add = [&](auto is) {
    std::vector<const Segment*> fitting;
    for (const auto& segment : pool) {
      if (is(segment)) {
        fitting.push_back(&segment);
      }
    }
    const Segment& segment = *draw.one_of(fitting);
    application.segments.push_back({&segment, payload_of(segment, large, draw), 1});
  };
  if (memory_share > 0 && !any(is_memory_bound)) {
    add([](const Segment& s) { return s.profile.stall_share > 0.8; });  // the widest range of stalls
  }
  const auto computes = [](const Segment& s) { return !is_memory_bound(s) && !waits(s); };
  if (!any(computes)) {
    add(computes);  // no request is answered without computing
  }
  std::vector<SegmentUse*> computing;
  std::vector<SegmentUse*> memory_bound;
  std::vector<SegmentUse*> waiting;
  for (auto& use : application.segments) {
    (waits(*use.segment)             ? waiting
     : is_memory_bound(*use.segment) ? memory_bound
                                     : computing)
        .push_back(&use);
  }
  const double hot_mib = application.memory_mib * application.hot_share;
  const double share = memory_bound.empty() ? 0 : std::max(memory_share, 0.1);
  share_out(computing, cpu_us * (1 - share), false, hot_mib, draw);
  share_out(memory_bound, cpu_us * share, false, hot_mib, draw);
  share_out(waiting, wait_us, true, hot_mib, draw);
}

/// `peak`: requests per second that the trace reaches.
std::string draw_trace(double peak, Draw& draw) {
  const double high = rounded(peak, 3);
  const double low = rounded(peak / draw.log_uniform(1.5, 10), 3);
  const auto text = [](double value) { return number_text(rounded(value, 3)); };
  const std::string both = text(low) + "," + text(high);
  const double kind = draw.uniform(0, 1);
  if (kind < 0.1) {
    return "flat:" + text(draw.uniform(low, high));
  }
  if (kind < 0.25) {
    return "step:" + both + "," + text(draw.log_uniform(15, 120));
  }
  if (kind < 0.35) {
    return "sine:" + both + "," + text(draw.log_uniform(40, 300));
  }
  if (kind < 0.65) {
    return "diurnal:" + both + "," + text(draw.log_uniform(120, 900));
  }
  return "bursty:" + both + "," + text(draw.log_uniform(5, 60)) + "," + text(draw.log_uniform(1, 20)) + "," +
         std::to_string(draw.below(1'000'000));
}

constexpr double kCores = 4;  // of FLASH A.3's nodes

/// A trace that reaches a part of what the application can do.
std::string draw_trace(const Application& a, const RequestCost& cost, Draw& draw) {
  const double cpu_s = cost.cycles / kReferenceHz + cost.stall_s;
  const double capacity = std::min(a.workers / (cpu_s + cost.off_cpu_s), kCores / cpu_s);
  return draw_trace(capacity * draw.uniform(0.2, 0.85), draw);
}

void draw_memory(Application& a, Draw& draw) {
  a.memory_mib = rounded(draw.log_uniform(32, 512), 3);
  a.hot_share = rounded(draw.uniform(0.1, 0.95), 2);
}

/// All but memory and segments.
void draw_rest(Application& a, Draw& draw) {
  const int worker_choices[] = {1, 2, 4, 8};
  a.workers = draw.one_of(worker_choices);
  a.memory_per_request_kib = rounded(draw.log_uniform(16, 1024), 2);
  a.service_cv = rounded(draw.log_uniform(0.05, 1.5), 2);
  a.burst = draw.chance(0.3) ? 1 : rounded(draw.log_uniform(1.2, 30), 2);

  const RequestCost cost = request_cost(a);
  const double cpu_s = cost.cycles / kReferenceHz + cost.stall_s;
  const double request_s = cpu_s + cost.off_cpu_s;
  const double workers = std::min<double>(a.workers, kCores);
  // What a request and a burst of usual size take at full speed, times what the objective leaves as room.
  const double usual_s = request_s * (1 + 2.33 * a.service_cv) + (a.burst - 1) * 2 * request_s / workers;
  a.slo_p99_ms = rounded(std::max(1e3 * usual_s * draw.log_uniform(1.5, 6), 5.0), 2);
  a.trace = draw_trace(a, cost, draw);
}

Application generate_application(std::uint64_t seed, std::uint64_t n) {
  Draw draw(seed, n);
  Application a;
  a.name = "app-" + std::to_string(seed) + "-" + std::to_string(n);
  draw_memory(a, draw);
  draw_segments(a, draw);
  draw_rest(a, draw);
  return a;
}

}  // namespace

std::string generate_trace(const Application& application, std::uint64_t seed) {
  Draw draw(seed, 0);
  return draw_trace(application, request_cost(application), draw);
}

Application redrawn(const Application& application, std::uint64_t seed) {
  Draw draw(seed, 0);
  Application a = application;
  draw_memory(a, draw);
  draw_rest(a, draw);
  return a;
}

std::vector<Application> generate_applications(std::size_t count, std::uint64_t seed) {
  std::vector<Application> pool;
  pool.reserve(count);
  for (std::size_t n = 0; n < count; ++n) {
    pool.push_back(generate_application(seed, n));
  }
  return pool;
}

}  // namespace flash
