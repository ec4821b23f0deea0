#include "lab/sim/node_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/sim/noise.h"

namespace flash {
namespace {

constexpr int kPeriods = 10;
constexpr double kPeriod_s = 1.0 / kPeriods;  // cpu.cfs_period_us
constexpr double kHeapRelease = 0.05;         // share of what is no longer needed, per second
constexpr double kRuntimeCores = 0.002;       // the process without requests
constexpr int kRestart_s = 2;
constexpr double kNeighbourEvery_s = 90;
constexpr double kNormalFrom = 16;  // arrivals per period beyond which a normal stands for the Poisson

/// Poisson of one mean by inversion, so that more load never means fewer arrivals.
class Poisson {
 public:
  explicit Poisson(double mean) : mean_(mean) {
    if (mean <= kNormalFrom) at_most_[0] = p_ = std::exp(-mean);
  }
  double draw(std::uint64_t bits) {
    if (mean_ > kNormalFrom) return std::max(0.0, std::trunc(mean_ + std::sqrt(mean_) * bell(bits) + 0.5));
    const double u = unit(bits);
    int n = 0;
    while (n < kMost && u > at_most_[n])
      if (++n > known_) extend();
    return n;
  }

 private:
  static constexpr int kMost = 64;
  void extend() {
    ++known_;
    p_ *= mean_ / known_;
    at_most_[known_] = at_most_[known_ - 1] + p_;
  }
  double mean_, p_ = 0;
  int known_ = 0;                          // the last n that at_most_ has
  std::array<double, kMost + 1> at_most_;  // P(N <= n)
};

/// The sum of `batches` geometric sizes of mean `burst`.
double batched(double batches, double burst, double log_more, std::uint64_t bits) {
  if (batches == 0 || burst <= 1) return batches;
  if (batches > 4)
    return std::max(
        batches, std::floor(batches * burst + std::sqrt(batches * burst * (burst - 1)) * bell(bits) + 0.5));
  double n = batches;
  for (int i = 0; i < static_cast<int>(batches); ++i) {
    const double u = (static_cast<double>((bits >> (16 * i)) & 0xffff) + 0.5) / 65536;
    n += std::floor(std::log(u) / log_more);
  }
  return n;
}

/// The tick's requests, in parts whose time in the system is about lognormal.
class Mixture {
 public:
  void add(double weight, double mean, double variance) {
    if (weight <= 0) return;
    if (size_ % 4 == 0) begin_four();
    total_ += weight;
    sum_ += weight * mean;
    const double s2 = std::log1p(variance / (mean * mean));
    weight_[size_] = static_cast<float>(weight);
    mu_[size_] = static_cast<float>(std::log(mean) - s2 / 2);
    sigma_[size_] = static_cast<float>(std::sqrt(s2));
    inverse_[size_] = 1 / (sigma_[size_] + 1e-6F);
    ++size_;
  }
  double total() const { return total_; }
  double mean() const { return total_ > 0 ? sum_ / total_ : 0; }

  /// The time that a share q of the requests exceeds, by bisection on its logarithm.
  double exceeded_by(double q) const {
    const auto z = static_cast<float>(normal_quantile_of_tail(q));
    float low = 1e9F, high = -1e9F;
    for (int i = 0; i < size_; ++i) {
      const float x = mu_[i] + sigma_[i] * z;
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    const auto wanted = static_cast<float>(q * total_);
    while (high - low > 4e-3F) {
      const float middle = (low + high) / 2;
      Four sum{};
      for (int k = 0; k < size_; k += 4)
        sum += four(weight_ + k) * normal_tail((middle - four(mu_ + k)) * four(inverse_ + k));
      const float above = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      (above > wanted ? low : high) = middle;
    }
    return std::exp((low + high) / 2);
  }

 private:
  void begin_four() {
    for (float* values : {weight_, mu_, sigma_, inverse_}) std::fill_n(values + size_, 4, 0.0F);
  }
  static Four four(const float* values) { return *reinterpret_cast<const Four*>(values); }
  static constexpr int kParts = 2 * kPeriods + 4;  // two per period, the quiet ones, padding
  // Read by fours: zero from their size to the next multiple of four.
  alignas(16) float weight_[kParts], mu_[kParts], sigma_[kParts], inverse_[kParts];
  int size_ = 0;
  double total_ = 0, sum_ = 0;
};

/// The share of requests above the value that a collector with n samples reports as p99: its rank is
/// floor(0.99 (n - 1)) from below, so the j-th from the top; the j-th greatest of n uniforms by Renyi's
/// representation (exponential spacings), from j = 4 on by its normal approximation.
double share_above_p99(double n, bool nearest, std::uint64_t a, std::uint64_t b) {
  const double j = nearest ? n - std::ceil(0.99 * n) + 1 : n - std::floor(0.99 * (n - 1));
  if (j > 3) {
    const double mean = j / (n + 1);
    return std::clamp(mean * (1 + bell(a) / std::sqrt(j)), 0.1 * mean, 0.9);
  }
  double log_u = 0;
  for (int i = 0; i < static_cast<int>(j); ++i) {
    const double u = (static_cast<double>((i == 0 ? a : i == 1 ? a << 32 : b) >> 32) + 0.5) * 0x1.0p-32;
    log_u += std::log(u) / (n - i);
  }
  return std::clamp(1 - std::exp(log_u), 1e-6, 1 - 1e-6);
}

void neighbour(const NodeParameters& p, Random& random, NodeState& s) {
  const double begin = random.uniform(), length = random.uniform(), strength = random.uniform();
  if (p.interference <= 0) return;
  if (s.neighbour_s > 0) {
    if (--s.neighbour_s == 0) s.neighbour = 0;
  } else if (begin < 1 / kNeighbourEvery_s) {
    s.neighbour_s = 5 + static_cast<int>(35 * length);
    s.neighbour = std::min(0.9, p.interference * (0.5 + strength));
  }
}

/// Reclaim below the limit, thrashing below the hot set, OOM far below it. Sets `s.slowdown`, which the next
/// tick's requests feel.
void memory(const NodeParameters& p, double limit, double most_in_system, NodeState& s, NodeTick& t) {
  const double live = most_in_system * p.per_request_bytes;
  s.heap_bytes = live > s.heap_bytes ? live : s.heap_bytes + kHeapRelease * (live - s.heap_bytes);
  const double wanted = p.resident_bytes + s.heap_bytes;
  t.memory_bytes = std::min(wanted, limit);
  s.slowdown = 1;
  // The cold share is page cache and goes without a cost; beyond it requests fault.
  const double hot = p.hot_bytes + s.heap_bytes;
  t.working_set_bytes = std::min(hot, limit);
  const double over = hot > limit ? (hot - limit) / hot : 0;
  if (over <= 0) return;
  const double stalled = 1 - 1 / (1 + 20 * over);
  s.slowdown = 1 / (1 - stalled);
  t.memory_stalled = 0.8 * stalled;
  t.memory_some = std::min(1.0, 2 * stalled);
  t.limit_hits = 10 + 1000 * stalled;
  if (over > 0.3) {
    t.oom_killed = true;
    s.restart_s = kRestart_s;
    t.refused += s.backlog;
    s.backlog = 0;
    s.completed_part = 0;
    s.heap_bytes = 0;
    s.slowdown = 1;
  }
}

}  // namespace

NodeTick advance(const NodeParameters& p, const NodeSettings& settings, double rate, Random random,
                 NodeState& s) {
  NodeTick t;
  neighbour(p, random, s);
  const std::uint64_t rank_a = random.next(), rank_b = random.next();

  // A request's CPU time and its wait without one.
  const double cycles_s = p.kilocycles / settings.khz;
  const double service = (cycles_s + p.stall_s) * (1 + s.neighbour);
  const double off_cpu = p.off_cpu_s + service * (s.slowdown - 1);
  const double parallel = std::min(p.cores, p.workers * service / (service + off_cpu));
  const double quota = std::min(settings.cpu_limit, p.cores);
  const bool limited = quota < parallel;
  const double able = std::min(parallel, quota) * kPeriod_s;  // CPU seconds per period

  // Waiting within a period, in a stationary queue (Sakasegawa's form of Allen-Cunneen, and the wait behind
  // the own batch), but no more than what builds up in one period: what lasts longer is the backlog's.
  const double rho = std::min(0.98, rate * service / parallel);
  const double servers = std::max(1.0, parallel);
  const double waits = std::pow(rho, std::sqrt(2 * (servers + 1)) - 1);
  const double beyond = p.burst > 1 ? (p.burst - 1) * std::pow(1 - 1 / p.burst, servers - 1) : 0;
  const double stationary =
      service / (servers * (1 - rho)) * (waits * (2 * p.burst - 1 + p.cv * p.cv) / 2 + (1 - waits) * beyond);
  const double builds =
      service / servers * std::sqrt(std::max(1.0, rate * kPeriod_s) * (2 * p.burst - 1 + p.cv * p.cv));
  const double wait = stationary > 0 ? stationary * builds / (stationary + builds) : 0;
  // Some wait (about exponentially long), the others do not.
  const double behind =
      p.burst > 1 ? beyond / p.burst : 0;  // share of requests behind `servers` of their batch
  const double chance = std::clamp(waits + behind - waits * behind, 0.01, 1.0);
  const double longer = wait / chance;
  const double wait_variance = wait * wait * (2 / chance - 1);
  const double own = service + off_cpu;
  const double own_variance = p.cv * p.cv * own * own + p.jitter * p.jitter * service * service;

  const double batches = rate * kPeriod_s / p.burst;
  Poisson arriving(batches);
  const double log_more = p.burst > 1 ? std::log(1 - 1 / p.burst) : -1;

  Mixture mixture;
  double quiet = 0;  // requests that met neither backlog nor throttling
  double most_in_system = 0;
  int throttled = 0;
  const double together = std::min(1.0, (own + wait) / kPeriod_s);  // of a period's arrivals, at one time
  for (int i = 0; i < kPeriods; ++i) {
    const std::uint64_t draw = random.next(), size = random.next(), effort = random.next();
    const double n = batched(arriving.draw(draw), p.burst, log_more, size);
    t.arrivals += n;
    if (s.restart_s > 0) {
      t.refused += n;
      continue;
    }
    const double before = s.backlog;
    const double in_system = before + n;
    if (in_system == 0) continue;
    most_in_system = std::max(most_in_system, before + std::max(n * together, std::min(n, p.burst)));
    const double each = service * std::max(0.2, 1 + p.cv * bell(effort) / std::sqrt(in_system));
    const double demand = in_system * each;
    const double done = std::min(demand, able);
    t.cpu_s += done;
    t.work += done / each;
    s.backlog = std::max(0.0, (demand - done) / each);
    if (s.backlog > p.queue_limit) {
      t.refused += s.backlog - p.queue_limit;
      s.backlog = p.queue_limit;
    }
    const bool short_of_quota = limited && demand > able;
    double gap = 0, carried = 0;
    if (short_of_quota) {
      ++throttled;
      const double running = std::min(parallel, std::max(1.0, in_system));
      // The quota is used up late in the period where work comes little by little, early where it is there at
      // once: a backlog, or a batch that makes up much of the period's work.
      const double early = kPeriod_s * std::max(0.0, 1 - quota / running),
                   late = kPeriod_s * (1 - able / demand);
      const double zero_shot = std::max(before / in_system, 1 / (1 + n / p.burst));
      gap = late < early ? late + (early - late) * zero_shot : early;
      carried = std::min(1.0, (s.backlog + running / 2) / in_system);
      t.throttled_s += gap * running;
    }
    if (n == 0) continue;
    if (before == 0 && !short_of_quota && s.backlog == 0) {
      quiet += n;
      continue;
    }
    // The backlog ahead: time to serve it, and under a quota the gaps of the periods that it lasts.
    const auto ahead = [&](double requests) {
      const double work = requests * each;
      const double gaps = limited ? std::max(0.0, work / able - 0.5) * (kPeriod_s - able / parallel) : 0;
      return work / parallel + gaps;
    };
    const double first = ahead(before), last = ahead(s.backlog);
    const double queued = (first + last) / 2, spread = (last - first) * (last - first) / 12;
    mixture.add(n * (1 - carried), own + wait + queued, own_variance + wait_variance + spread);
    if (carried > 0)
      mixture.add(n * carried, own + wait + queued + gap / 2,
                  own_variance + wait_variance + spread + gap * gap / 12);
  }
  mixture.add(quiet * (1 - chance), own, own_variance);
  mixture.add(quiet * chance, own + longer, own_variance + longer * longer);

  t.throttled_share = throttled / static_cast<double>(kPeriods);
  const double crowded = p.workers > p.cores ? waits : 0;
  t.cpu_wait_share = std::min(1.0, t.throttled_s + crowded * std::min(1.0, rho));
  t.cpu_s += kRuntimeCores;
  s.completed_part += t.work;
  t.completed = std::floor(s.completed_part + 1e-9);
  s.completed_part -= t.completed;
  if (mixture.total() > 0) {
    t.mean_ms = 1000 * mixture.mean();
    if (settings.median) t.p50_ms = 1000 * mixture.exceeded_by(0.5);
    const double n = std::max(1.0, t.completed);
    if (n < kFewRequests) {
      // The greatest and the second of n uniforms.
      const double first = std::log(unit_open(rank_a)) / n;
      const double second = n > 1 ? first + std::log(unit_open(rank_b)) / (n - 1) : first;
      t.top_ms[0] = 1000 * mixture.exceeded_by(std::clamp(1 - std::exp(first), 1e-6, 1 - 1e-6));
      t.top_ms[1] =
          n > 1 ? 1000 * mixture.exceeded_by(std::clamp(1 - std::exp(second), 1e-6, 1 - 1e-6)) : t.top_ms[0];
      t.p99_ms = t.top_ms[p.nearest_rank ? 0 : 1];
    } else {
      t.p99_ms = 1000 * mixture.exceeded_by(share_above_p99(n, p.nearest_rank, rank_a, rank_b));
    }
  }
  if (s.restart_s > 0) --s.restart_s;
  memory(p, settings.memory_limit, most_in_system, s, t);
  return t;
}

}  // namespace flash
