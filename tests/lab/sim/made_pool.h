// Applications for tests, by hand: what a pool needs to be interesting, without the generator's ranges.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/random.h"
#include "lab/sim/pair.h"

namespace flash::made {

struct Work {
  Application application;
  RequestCost cost;
};

inline Work work(double cycles_ms = 5, double stall_ms = 1, std::string trace = "flat:40") {
  Work w;
  w.application.name = "made";
  w.application.workers = 4;
  w.application.memory_mib = 200;
  w.application.memory_per_request_kib = 512;
  w.application.service_cv = 0.3;
  w.application.slo_p99_ms = 60;
  w.application.trace = std::move(trace);
  w.cost.cycles = cycles_ms * 3e6;  // of a core at 3 GHz
  w.cost.stall_s = stall_ms / 1000;
  return w;
}

inline Environment node(int cores = 4) {
  Environment e = processors()[2];
  e.cores = cores;
  e.memory_mib = 8192;
  e.cycles_factor = e.stall_factor = 1;
  e.noise = 0.005;
  return e;
}

inline Pair pair(const Work& w, const Environment& e, Task task, PairOptions options = {}) {
  options.task = task;
  return Pair::make(w.application, w.cost, e, options).value();
}

inline double log_uniform(Random& r, double low, double high) {
  return low * std::exp(r.uniform() * std::log(high / low));
}

/// The n-th of a seed.
inline Work nth(std::uint64_t seed, std::uint64_t n) {
  Random r = Random(seed).fork(n);
  Work w;
  const double service_ms = log_uniform(r, 1, 60), sensitive = r.uniform(0.15, 1);
  w.cost.cycles = service_ms * sensitive * 3e6;
  w.cost.stall_s = service_ms * (1 - sensitive) / 1000;
  w.cost.off_cpu_s = r.uniform() < 0.4 ? service_ms * r.uniform(0, 2) / 1000 : 0;
  Application& a = w.application;
  a.name = "made-" + std::to_string(n);
  a.workers = 1 << r.below(4);
  a.memory_mib = log_uniform(r, 30, 1500);
  a.hot_share = r.uniform(0.3, 0.9);
  a.memory_per_request_kib = log_uniform(r, 16, 8192);
  a.service_cv = r.uniform(0.05, 0.9);
  a.burst = r.uniform() < 0.4 ? 1 : log_uniform(r, 1.5, 8);
  const double alone_ms = service_ms + 1000 * w.cost.off_cpu_s;
  a.slo_p99_ms = alone_ms * log_uniform(r, 3, 15) + 5;
  const double most = a.workers * 1000 / service_ms * r.uniform(0.25, 0.8);
  char text[100];
  const double low = most * r.uniform(0.1, 0.6);
  if (r.uniform() < 0.6)
    std::snprintf(text, sizeof text, "sine:%.2f,%.2f,%.0f", low, most, r.uniform(60, 900));
  else
    std::snprintf(text, sizeof text, "step:%.2f,%.2f,%.0f", low, most, r.uniform(20, 200));
  a.trace = text;
  return w;
}

}  // namespace flash::made
