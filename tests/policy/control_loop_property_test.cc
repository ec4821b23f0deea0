// Properties under random observations: bounds always hold, and the same inputs give the same decisions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "policy/control_loop.h"
#include "policy/decision_json.h"
#include "policy/observation_space.h"
#include "tests/policy/fixtures.h"
#include "tests/support/fake_actuator.h"

namespace flash {
namespace {

using fake::FakeActuator;
using fake::FakeCollector;

constexpr TargetId kLimits{TargetKind::Cgroup, 1};
constexpr TargetId kFrequency{TargetKind::CpuSet, 2};

struct RandomWorld {
  explicit RandomWorld(std::uint32_t seed) : random(seed) {
    actuator.offer(kLimits, KnobKind::CpuLimit, kUnlimited, 0.01);
    actuator.offer(kLimits, KnobKind::MemoryLimit, kUnlimited, 4096);
    actuator.offer(kFrequency, KnobKind::CpuFrequency, 2.2e6, 1e6, 3e6,
                   {1.0e6, 1.4e6, 1.8e6, 2.2e6, 2.6e6, 3.0e6});
    LoopOptions o;
    o.episode_steps = 50;
    o.capacity = {8, 8192 * kMiB, 0.5, 512 * kMiB};
    o.history = 4;
    loop = std::make_unique<ControlLoop>(o, std::vector<Collector*>{&collector}, actuator, LoopEvents{});

    auto limits = std::make_shared<Rule>();
    limits->name = "limits";
    limits->mode = Mode::Control;
    limits->mode_given = true;
    limits->limits[KnobKind::CpuLimit].min = 0.2;
    limits->limits[KnobKind::CpuLimit].max = 3;
    limits->limits[KnobKind::MemoryLimit].min = 64 * kMiB;
    limits->limits[KnobKind::MemoryLimit].max = 2048 * kMiB;
    limits->slo.latency_p99_ms = 20;
    limits->profile = {true, 0.2, 0.3, 0.5, 2};
    Target t;
    t.id = kLimits;
    t.name = "service";
    EXPECT_TRUE(loop->add_target(now(), t, limits));

    auto frequency = std::make_shared<Rule>(*limits);
    frequency->name = "frequency";
    frequency->task = Task::CpuFrequency;
    frequency->frequency.min_khz = 1.4e6;
    frequency->frequency.max_khz = 2.6e6;
    t.id = kFrequency;
    t.name = "cpus";
    t.cpus = {0, 1};
    EXPECT_TRUE(loop->add_target(now(), t, frequency));
  }

  Now now() const { return {from_seconds(time), WallTime(from_seconds(1.7e9 + time))}; }
  double uniform(double a, double b) { return std::uniform_real_distribution<double>(a, b)(random); }

  /// Any value a collector could come up with, and some that none should.
  void fill(Observation& o) {
    // Calm for so long that the policy's random misses fade and the guard "objective" lets go of it.
    if (static_cast<int>(time) / 5000 % 3 == 2) return calm(o);
    for (const auto& row : signal_table()) {
      Sample& s = o[row.signal];
      s.validity = uniform(0, 1) < 0.9 ? Validity::Good : static_cast<Validity>(random() % 6);
      const double dice = uniform(0, 1);
      if (dice < 0.01)
        s.value = std::numeric_limits<double>::quiet_NaN();
      else if (dice < 0.02)
        s.value = std::numeric_limits<double>::infinity();
      else if (dice < 0.03)
        s.value = -1;
      else if (row.unit == "bytes")
        s.value = std::exp(uniform(0, 25));
      else
        s.value = uniform(0, 1) < 0.5 ? uniform(0, 1) : std::exp(uniform(-5, 8));
    }
  }

  /// Nothing wrong anywhere: the times when decisions may be varied.
  void calm(Observation& o) {
    o = Observation{};
    o[Signal::CpuUsage] = Sample::good(uniform(0.15, 0.3));
    o[Signal::CpuThrottled] = Sample::good(0);
    o[Signal::MemoryWorkingSet] = Sample::good(uniform(90, 100) * kMiB);
    o[Signal::Instructions] = Sample::good(1e9);
    o[Signal::LatencyP99] = Sample::good(uniform(2, 8));
    o[Signal::RequestRate] = Sample::good(uniform(90, 100));
  }

  /// A random network, now and then one with weights that no learner should send.
  std::shared_ptr<PolicySnapshot> random_policy(Task task) {
    auto p = std::make_shared<PolicySnapshot>();
    const int dim = state_dim(task);
    p->task = task;
    p->estimate.given = true;
    p->version = ++version;
    p->expires = now().wall + from_seconds(uniform(0, 200));
    p->mean.assign(static_cast<std::size_t>(dim), 0);
    p->scale.assign(static_cast<std::size_t>(dim), 1);
    // Mostly sane, at times as large as a snapshot may be, at times what none should hold.
    const double dice = uniform(0, 1);
    const double size = dice < 0.1 ? 1e37 : dice < 0.5 ? 1e6 : 3;
    p->exploration = {static_cast<float>(uniform(0, 2)), static_cast<float>(uniform(0, 1e6))};
    const auto layer = [&](int inputs, int outputs, Activation f) {
      DenseLayer l;
      l.inputs = inputs;
      l.outputs = outputs;
      l.activation = f;
      for (int i = 0; i < inputs * outputs; ++i)
        l.weights.push_back(static_cast<float>(uniform(-size, size)));
      for (int i = 0; i < outputs; ++i) l.bias.push_back(static_cast<float>(uniform(-size, size)));
      return l;
    };
    p->actor = {layer(dim, 4, Activation::Tanh),
                layer(4, action_dim(task), uniform(0, 1) < 0.5 ? Activation::Tanh : Activation::Linear)};
    return p;
  }

  void step() {
    time += 1;
    if (random() % 40 == 0) {
      static_cast<void>(loop->offer_snapshot(now(), kLimits, random_policy(Task::ResourceLimits)));
      static_cast<void>(loop->offer_snapshot(now(), kFrequency, random_policy(Task::CpuFrequency)));
    }
    loop->tick(now());
  }

  std::mt19937 random;
  double time = 0;
  std::uint64_t version = 0;
  FakeActuator actuator;
  FakeCollector collector{[this](Now, TargetId, Observation& o) { fill(o); }};
  std::unique_ptr<ControlLoop> loop;
};

bool within(double v, double lower, double upper) {
  return v >= lower * (1 - 1e-9) && v <= upper * (1 + 1e-9);
}

TEST(ControlLoopProperty, KnobsNeverLeaveTheirBoundsUnderRandomObservations) {
  RandomWorld w(42);
  int learned = 0, writes = 0, explored = 0, accepted_huge = 0;
  for (int i = 0; i < 100000; ++i) {
    w.step();
    for (const KnobChange& c : w.actuator.written) {
      ++writes;
      // Where a cgroup above allows less than the rule's least, that is all there is.
      const Observation& seen = w.loop->history(kLimits)->back().observation;
      const double cores = seen[Signal::CpuCeiling].value_or(kUnlimited);
      const double bytes = seen[Signal::MemoryCeiling].value_or(kUnlimited);
      switch (c.kind.kind) {
        case KnobKind::CpuLimit:
          ASSERT_TRUE(within(c.value, std::min(0.2, std::max(0.01, std::floor(cores * 100) / 100)),
                             std::max(0.01, std::min(3.0, cores))))
              << c.value << " in step " << i;
          // systemd keeps whole percents; anything finer changes at daemon-reload.
          ASSERT_NEAR(c.value * 100, std::round(c.value * 100), 1e-6) << "in step " << i;
          break;
        case KnobKind::MemoryLimit:
          ASSERT_TRUE(within(c.value, std::min(64.0 * kMiB, bytes), 2048 * kMiB))
              << c.value << " in step " << i;
          break;
        case KnobKind::CpuFrequency:
          ASSERT_TRUE(c.value == 1.4e6 || c.value == 1.8e6 || c.value == 2.2e6 || c.value == 2.6e6)
              << c.value << " in step " << i;
          break;
      }
    }
    w.actuator.written.clear();
    for (TargetId id : {kLimits, kFrequency}) {
      const Decision& d = w.loop->history(id)->back();
      if (d.controller == Controller::Learned) {
        ++learned;
        for (const DenseLayer& layer : w.loop->view(id)->snapshot->actor)
          if (std::abs(layer.weights[0]) > 1e3F) {
            ++accepted_huge;
            break;
          }
      }
      if (d.explored) ++explored;
      ASSERT_TRUE(std::isfinite(d.reward.value));
      ASSERT_TRUE(d.reward.slo_preservation >= 0 && d.reward.slo_preservation <= 1);
      ASSERT_TRUE(d.reward.value >= 0 && d.reward.value <= 1 + 1e-9) << d.reward.value;
    }
  }
  EXPECT_GT(learned, 1000) << "the learned policy never had the seat: the test shows nothing";
  EXPECT_GT(writes, 1000);
  EXPECT_GT(accepted_huge, 1000) << "no policy of huge weights ever decided: the test shows nothing of them";
  EXPECT_GT(explored, 100);
}

TEST(ControlLoopProperty, OffersAtTenThousandPerSecondChangeNothingThatOneWouldNot) {
  RandomWorld w(5);
  for (int i = 0; i < 20; ++i) w.step();
  const SnapshotCounters first = w.loop->view(kLimits)->snapshots;
  for (std::uint64_t tick = 0; tick < 5; ++tick) {
    for (int i = 0; i < 10000; ++i)
      static_cast<void>(w.loop->offer_snapshot(w.now(), kLimits, w.random_policy(Task::ResourceLimits)));
    EXPECT_LE(w.loop->view(kLimits)->snapshots.accepted, first.accepted + tick + 1);
    w.time += 1;
    w.loop->tick(w.now());
  }
  const SnapshotCounters c = w.loop->view(kLimits)->snapshots;
  EXPECT_EQ(c.offered, first.offered + 50000);
  EXPECT_EQ(c.accepted + c.refusals() - c.withdrawn, c.offered);
  // At most PolicySeat::kLookedAt of them were looked at per tick.
  EXPECT_GE(c.refused[static_cast<std::size_t>(SnapshotRefusal::TooMany)],
            50000u - 5u * PolicySeat::kLookedAt);
}

TEST(ControlLoopProperty, TheSameInputsGiveTheSameDecisions) {
  RandomWorld a(7), b(7), other(8);
  bool differs = false;
  for (int i = 0; i < 500; ++i) {
    a.step();
    b.step();
    other.step();
    for (TargetId id : {kLimits, kFrequency}) {
      const auto text = [id](RandomWorld& w) {
        return to_json_text(w.loop->history(id)->back(), *w.loop->view(id)->target);
      };
      ASSERT_EQ(text(a), text(b)) << "step " << i;
      differs = differs || text(a) != text(other);
    }
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace flash
