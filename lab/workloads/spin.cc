#include "lab/workloads/spin.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <ostream>
#include <thread>

#include "lab/workloads/net.h"
#include "lab/workloads/report.h"
#include "lab/workloads/statsd.h"
#include "lab/workloads/text_file.h"

namespace flash {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto kFlushPeriod = std::chrono::milliseconds(100);

class Spinner {
 public:
  Spinner(const SpinOptions& options, StatsdEmitter& statsd, RunRecorder& recorder)
      : options_(options), statsd_(statsd), recorder_(recorder), start_(steady_clock::now()) {}

  /// Returns the seconds it ran.
  double run(const UniqueFd& stop_signals) {
    std::vector<std::thread> workers;
    for (std::uint64_t i = 0; i < options_.threads; ++i) {
      workers.emplace_back([this, i] { options_.trace ? work_on_arrivals(i + 1) : work_always(i + 1); });
    }
    make_arrivals(stop_signals);
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (auto& worker : workers) {
      worker.join();
    }
    statsd_.flush();
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      recorder_.dropped(now_s());
    }
    return now_s();
  }

 private:
  double now_s() const { return std::chrono::duration<double>(steady_clock::now() - start_).count(); }
  SteadyTime at(double t_s) const {
    return start_ + std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(t_s));
  }

  void make_arrivals(const UniqueFd& stop_signals) {
    const double seconds = options_.seconds > 0 ? options_.seconds : 1e9;
    std::optional<ArrivalSchedule> schedule;
    std::optional<double> arrival_s;
    if (options_.trace) {
      schedule.emplace(*options_.trace, seconds, options_.arrivals, options_.seed);
      arrival_s = schedule->next();
    }
    auto next_flush = start_ + kFlushPeriod;
    const auto end = at(seconds);
    while (steady_clock::now() < end) {
      auto until = std::min(next_flush, end);
      if (arrival_s) {
        until = std::min(until, at(*arrival_s));
      }
      if (wait_for_stop(stop_signals, until)) {
        return;
      }
      const auto now = steady_clock::now();
      if (now >= next_flush) {
        statsd_.flush();
        next_flush = now + kFlushPeriod;
      }
      const std::lock_guard lock(mutex_);
      for (; arrival_s && at(*arrival_s) <= now; arrival_s = schedule->next()) {
        recorder_.offered(now_s());
        waiting_.push_back(at(*arrival_s));
        wake_.notify_one();
      }
      const auto limit = std::chrono::duration<double, std::milli>(options_.drop_after_ms);
      for (; !waiting_.empty() && now - waiting_.front() > limit; waiting_.pop_front()) {
        recorder_.dropped(now_s());
      }
      recorder_.advance(now_s());
    }
  }

  void work_on_arrivals(std::uint64_t seed) {
    SegmentScratch scratch;
    scratch.seed = seed;
    for (;;) {
      SteadyTime intended;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_.load() || !waiting_.empty(); });
        if (stop_.load()) {
          return;
        }
        intended = waiting_.front();
        waiting_.pop_front();
      }
      do_job(intended, scratch);
    }
  }

  void work_always(std::uint64_t seed) {
    SegmentScratch scratch;
    scratch.seed = seed;
    while (!stop_.load()) {
      {
        const std::lock_guard lock(mutex_);
        recorder_.offered(now_s());
      }
      do_job(steady_clock::now(), scratch);
    }
  }

  void do_job(SteadyTime intended, SegmentScratch& scratch) {
    const auto checksum =
        run_units(*options_.segment, options_.segment->payload_default, options_.work, scratch, stop_);
    const bool interrupted = stop_.load();
    const auto latency = steady_clock::now() - intended;
    if (!interrupted) {
      statsd_.record(latency);
    }
    const std::lock_guard lock(mutex_);
    checksum_ ^= checksum;
    if (interrupted) {
      recorder_.dropped(now_s());
    } else {
      recorder_.completed(now_s(), latency);
    }
  }

  const SpinOptions& options_;
  StatsdEmitter& statsd_;
  RunRecorder& recorder_;  // under mutex_ while workers run
  SteadyTime start_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  std::deque<SteadyTime> waiting_;
  std::uint64_t checksum_ = 0;
};

}  // namespace

std::vector<OptionRow> option_rows(SpinOptions& o) {
  static const std::string trace_help =
      "jobs per second over time: " + describe_traces() + "; none: closed loop";
  return {
      {"--segment", "NAME", "kind of work (floating-point); calibrate lists them",
       parsed_into(o.segment, find_segment)},
      {"--work", "N", "units of work per job (100); calibrate says what 10 ms are",
       integer_into(o.work, 1, 10'000'000)},
      {"--threads", "N", "jobs worked on at a time (1)", integer_into(o.threads, 1, 256)},
      {"--trace", "TRACE", trace_help, parsed_into(o.trace, Trace::parse)},
      {"--rate", "R", "constant rate per second; short for --trace flat:R",
       parsed_into(o.trace, parse_flat_rate)},
      {"--seconds", "N", "duration; 0 is until SIGTERM (0)", real_into(o.seconds, 0, 1e7)},
      {"--arrivals", "even|poisson", "spacing around the rate (even)",
       parsed_into(o.arrivals, parse_arrivals)},
      {"--seed", "N", "of the poisson arrivals (1)", integer_into(o.seed, 0, UINT64_MAX)},
      {"--drop-after-ms", "X", "give up jobs not begun for so long (1000)",
       real_into(o.drop_after_ms, 1, 1e7)},
      {"--slo-ms", "X", "count what is slower (none)", real_into(o.slo_ms, 0, 1e7)},
      {"--statsd", "PATH|ADDRESS:PORT", "listener for latencies and counts (none)", text_into(o.statsd)},
      {"--app", "NAME", "application named in the metrics (flash-workload)",
       parsed_into(o.app, parse_app_name)},
      {"--json", "FILE", "write the report there; - for standard output", text_into(o.json)},
      {"--every-second", "", "print a line per second", flag_into(o.every_second)},
  };
}

int run(const SpinOptions& options, std::ostream& out, std::ostream& err) {
  auto statsd = StatsdEmitter::open(options.statsd, options.app);
  if (auto* error = std::get_if<UsageError>(&statsd)) {
    err << "flash-workload spin: --statsd: " << error->message << "\n";
    return 2;
  }
  const UniqueFd stop_signals = open_stop_signals();
  std::ostream& lines = options.json == "-" ? err : out;
  RunRecorder recorder(options.slo_ms, options.every_second ? &lines : nullptr);
  Spinner spinner(options, *std::get<std::unique_ptr<StatsdEmitter>>(statsd), recorder);
  const double seconds = spinner.run(stop_signals);
  RunReport report = recorder.finish(seconds);
  report.command = "spin";
  report.target = options.segment->name;
  report.trace = options.trace ? options.trace->text() : "closed";
  lines << summary_text(report) << std::flush;
  if (!options.json.empty()) {
    if (auto error = write_text(options.json, report_json(report), out)) {
      err << "flash-workload spin: " << error->message << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace flash
