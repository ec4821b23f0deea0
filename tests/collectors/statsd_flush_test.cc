// Applications whose clients send what they count once per flush interval: no tick without a line is "no
// request". Each row sends 100 requests/s of 180 ms in its own way; none of them is ever idle.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "collectors/statsd_collector.h"

namespace flash {
namespace {

constexpr TargetId kWeb{TargetKind::Cgroup, 1};

enum class Latency { AtOnce, WithTheCounter, None };

struct Client {
  const char* name;
  double flush_s;                    // of each worker
  std::vector<double> phases = {0};  // of the workers: each sends its share
  Latency latency = Latency::AtOnce;
  bool counter = true;
  double tick_s = 1;
  double jitter_s = 0;  // a flush comes so much late, at times
  double off = 30;      // how far the mean of the rates, each held till the next, may be off
};

/// One run: time goes by in steps of 10 ms.
class Sending {
 public:
  explicit Sending(const Client& client) : is(client) {
    statsd = std::move(*StatsdCollector::open({}));
    Target t;
    t.id = kWeb;
    t.application = "web";
    statsd->track(t);
    sent_s.assign(is.phases.size(), 0);
    for (double phase : is.phases) next_s.push_back(0.005 + phase);
  }
  /// The next tick's observation.
  const Observation& tick(bool requests = true) {
    for (double end = now_s + is.tick_s; now_s < end - 1e-9; now_s += 0.01) {
      if (!requests) continue;
      if (is.latency == Latency::AtOnce) send("latency:180|ms");
      for (std::size_t w = 0; w < next_s.size(); ++w)
        if (now_s >= next_s[w]) flush(w);
    }
    statsd->collect({from_seconds(100 + now_s), {}}, table);
    return table[kWeb];
  }
  double now_s = 0;

 private:
  void send(const std::string& line) { statsd->ingest(line + "|#app:web"); }
  void flush(std::size_t w) {
    const double share = 100 * (now_s - sent_s[w]) / static_cast<double>(next_s.size());
    const int n = std::max(1, static_cast<int>(std::lround(share)));
    sent_s[w] = now_s;
    if (is.counter) send("requests:" + std::to_string(n) + "|c");
    if (is.latency == Latency::WithTheCounter) {
      std::string line = "latency";
      for (int i = 0; i < n; ++i) line += ":180";
      send(line + "|d");
    }
    next_s[w] += is.flush_s + (++flushes % 3 == 0 ? is.jitter_s : 0);
  }

  const Client& is;
  std::unique_ptr<StatsdCollector> statsd;
  std::vector<double> sent_s, next_s;
  int flushes = 0;
  ObservationTable table{{kWeb, {}}};
};

class Flushing : public testing::TestWithParam<Client> {};

TEST_P(Flushing, IsNeverIdleAndItsRateIsSpreadOverTheInterval) {
  const Client& client = GetParam();
  Sending run(client);
  bool heard = false;
  double sum = 0;
  int rates = 0, trusted = 0;
  while (run.now_s < 300) {
    const Observation& o = run.tick();
    const Sample& rate = o[Signal::RequestRate];
    SCOPED_TRACE(std::to_string(run.now_s) + " s, rate " + std::to_string(rate.value) + " " +
                 std::string(to_string(rate.validity)));
    ASSERT_FALSE(rate.usable() && rate.value == 0);
    heard = heard || o[Signal::LatencyP99].usable();
    if (client.latency != Latency::None && heard) {
      ASSERT_TRUE(o[Signal::LatencyP99].usable());
      ASSERT_NEAR(o[Signal::LatencyP99].value, 180, 2);
    }
    if (rate.trusted() && run.now_s > 30) {
      ASSERT_GT(rate.value, 45);
      ASSERT_LT(rate.value, 210);
      ++trusted;
    }
    if (run.now_s > 150) sum += rate.value, ++rates;
  }
  EXPECT_NEAR(sum / rates, 100, client.off);
  if (client.flush_s <= 2 * client.tick_s && client.phases.size() == 1) {
    EXPECT_GT(trusted, 150 / client.tick_s) << "learned from";
  }
  // It dies: what it said is stale, then there is nothing, and that is known.
  for (int ticks = 0; ++ticks;) {
    ASSERT_LT(ticks, 2000);
    const Observation& o = run.tick(false);
    if (!o[Signal::RequestRate].trusted() || o[Signal::RequestRate].value != 0) continue;
    if (o[Signal::LatencyP99].usable()) continue;
    EXPECT_GT(ticks * client.tick_s, client.flush_s / static_cast<double>(client.phases.size()))
        << "not before it would have spoken again";
    break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Clients, Flushing,
    testing::Values(
        Client{"every_tick", 1}, Client{"twice_per_tick", 0.5}, Client{"at_once", 0.01},
        Client{"every_2_s", 2}, Client{"every_2_s_late", 2, {0}, Latency::AtOnce, true, 1, 0.3},
        Client{"every_1_s_late", 1, {0}, Latency::AtOnce, true, 1, 0.02}, Client{"every_1_5_s", 1.5},
        Client{"every_3_s", 3}, Client{"every_10_s", 10}, Client{"every_30_s", 30}, Client{"every_60_s", 60},
        Client{"every_10_s_late", 10, {0}, Latency::AtOnce, true, 1, 1.5},
        Client{"latencies_too_every_2_s", 2, {0}, Latency::WithTheCounter},
        Client{"latencies_too_every_10_s", 10, {0}, Latency::WithTheCounter},
        Client{"latencies_alone_every_2_s", 2, {0}, Latency::WithTheCounter, false},
        Client{"latencies_alone_every_10_s", 10, {0}, Latency::WithTheCounter, false},
        Client{"counters_alone_every_10_s", 10, {0}, Latency::None},
        Client{"four_workers_of_10_s_in_a_row", 10, {0, 1, 2, 3}, Latency::WithTheCounter, true, 1, 0, 150},
        Client{"four_workers_of_10_s_evenly", 10, {0, 2.5, 5, 7.5}, Latency::WithTheCounter},
        Client{"two_workers_of_2_s", 2, {0, 1}}, Client{"short_ticks", 2, {0}, Latency::AtOnce, true, 0.1},
        Client{"long_ticks", 10, {0}, Latency::AtOnce, true, 5},
        Client{"ticks_longer_than_the_interval", 2, {0}, Latency::WithTheCounter, true, 5}),
    [](const auto& info) { return std::string(info.param.name); });

/// What is said tick by tick ("" : nothing), and the last tick's rate.
struct Said {
  const char* name;
  std::vector<const char*> ticks;
  Validity validity;
  double rate;
};

class LastRate : public testing::TestWithParam<Said> {};

TEST_P(LastRate, IsNoZeroThatIsNotKnown) {
  auto statsd = std::move(*StatsdCollector::open({}));
  Target t;
  t.id = kWeb;
  t.application = "web";
  statsd->track(t);
  ObservationTable table{{kWeb, {}}};
  Duration now = std::chrono::seconds(100);
  statsd->collect({now, {}}, table);
  for (const char* lines : GetParam().ticks) {
    statsd->ingest(lines);
    statsd->collect({now += std::chrono::seconds(1), {}}, table);
  }
  const Sample& rate = table[kWeb][Signal::RequestRate];
  EXPECT_EQ(to_string(rate.validity), to_string(GetParam().validity));
  EXPECT_EQ(rate.value, GetParam().rate);
}

std::vector<const char*> times(int n, std::vector<const char*> ticks, std::vector<const char*> then = {}) {
  std::vector<const char*> all;
  for (; n > 0; --n) all.insert(all.end(), ticks.begin(), ticks.end());
  all.insert(all.end(), then.begin(), then.end());
  return all;
}

constexpr const char* kTen = "requests:10|c|#app:web";
constexpr const char* kZero = "requests:0|c|#app:web";
constexpr const char* kSlow = "latency:180|ms|#app:web";
constexpr const char* kNothing = "";

INSTANTIATE_TEST_SUITE_P(
    Applications, LastRate,
    testing::Values(
        Said{"never_heard", {kNothing, kNothing}, Validity::Missing, 0},
        Said{"its_first_word", {kTen}, Validity::Missing, 0},
        Said{"its_second_word", {kTen, kTen}, Validity::Good, 10},
        Said{"once_then_nothing", times(1, {kTen}, times(100, {kNothing})), Validity::Missing, 0},
        Said{"once_then_nothing_for_long", times(1, {kTen}, times(150, {kNothing})), Validity::Good, 0},
        Said{"one_silent_tick", times(20, {kTen}, {kNothing}), Validity::Stale, 10},
        Said{"three_silent_ticks", times(20, {kTen}, times(3, {kNothing})), Validity::Good, 0},
        Said{"one_silent_tick_of_many_workers", times(20, {kTen, kTen, kNothing}, {kTen, kNothing}),
             Validity::Good, 5},
        Said{"explicit_zero_of_an_idle_one", {kZero}, Validity::Missing, 0},
        Said{"explicit_zeros_of_an_idle_one", {kZero, kZero}, Validity::Good, 0},
        Said{"explicit_zeros_every_10_s", times(3, {kZero, "", "", "", "", "", "", "", "", ""}),
             Validity::Good, 0},
        Said{"an_explicit_zero_after_some", times(20, {kTen}, {kZero}), Validity::Degraded, 0},
        Said{"explicit_zeros_after_some", times(20, {kTen}, {kZero, kZero}), Validity::Good, 0},
        Said{"a_zero_of_another_worker", times(20, {kTen, kZero}), Validity::Degraded, 0},
        Said{"a_zero_while_latencies_come", times(20, {"requests:0|c|#app:web\nlatency:180|ms|#app:web"}),
             Validity::Degraded, 0},
        Said{"a_counter_heard_once_and_latencies", times(1, {kTen}, times(200, {kSlow})), Validity::Good, 1},
        Said{"a_counter_that_stopped_and_latencies",
             times(20, {"requests:1|c|#app:web\nlatency:180|ms|#app:web"}, times(20, {kSlow})),
             Validity::Good, 1},
        Said{"gauges_alone", times(20, {"fuel:1|g|#app:web"}), Validity::Missing, 0},
        Said{"other_counters_alone", times(20, {"bytes:1|c|#app:web"}), Validity::Missing, 0},
        Said{"errors_alone", times(20, {"errors:1|c|#app:web"}), Validity::Missing, 0},
        Said{"a_negative_count", times(20, {"requests:-5|c|#app:web"}), Validity::Good, -5}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(StatsdFlush, ErrorsAreSpreadAsRequestsAre) {
  auto statsd = std::move(*StatsdCollector::open({}));
  Target t;
  t.id = kWeb;
  t.application = "web";
  statsd->track(t);
  ObservationTable table{{kWeb, {}}};
  Duration now = std::chrono::seconds(100);
  for (int i = 0; i < 40; ++i) {
    if (i % 2 == 0) statsd->ingest("requests:200|c|#app:web\nerrors:4|c|#app:web");
    statsd->collect({now += std::chrono::seconds(1), {}}, table);
    if (i < 2) continue;
    EXPECT_EQ(table[kWeb][Signal::ErrorRate].value, 2) << i;
    EXPECT_EQ(table[kWeb][Signal::RequestRate].value, 100) << i;
    EXPECT_TRUE(table[kWeb][Signal::RequestRate].trusted()) << i;
  }
}

}  // namespace
}  // namespace flash
