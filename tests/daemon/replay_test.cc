// What a loop decided and a journal recorded, replayed: the same model gives the same decisions, another one
// gives differences that are explained.
#include "daemon/replay.h"
#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/random.h"
#include "core/tensor_file.h"
#include "daemon/journal.h"
#include "policy/action_space.h"
#include "policy/control_loop.h"
#include "policy/observation_space.h"
#include "tests/support/fake_actuator.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr TargetId kWeb{TargetKind::Cgroup, 11};
constexpr TargetId kCpus{TargetKind::CpuSet, 13};
constexpr std::uint64_t kSteps = 60;

/// A policy with random weights: its output depends on every entry of the state.
PolicySnapshot random_policy(Task task, std::uint64_t seed, std::uint64_t version, bool critic) {
  Random random(seed);
  const auto layer = [&random](int inputs, int outputs, Activation activation) {
    DenseLayer l{inputs, outputs, {}, {}, activation};
    for (int i = 0; i < inputs * outputs; ++i) l.weights.push_back(static_cast<float>(random.uniform(-1, 1)));
    for (int i = 0; i < outputs; ++i) l.bias.push_back(static_cast<float>(random.uniform(-0.5, 0.5)));
    return l;
  };
  PolicySnapshot p;
  p.task = task;
  p.version = version;
  p.algorithm = task == Task::ResourceLimits ? "ddpg" : "q-learning";
  p.model = "seed " + std::to_string(seed);
  p.expires = WallTime(std::chrono::seconds(1'700'086'400));
  const int states = state_dim(task), actions = action_dim(task);
  p.mean.assign(static_cast<std::size_t>(states), 0.5F);
  p.scale.assign(static_cast<std::size_t>(states), 0.5F);
  p.embedding = {0.25F, -0.5F};
  p.actor = {layer(states + 2, 40, Activation::Relu),
             layer(40, actions, task == Task::ResourceLimits ? Activation::Tanh : Activation::Linear)};
  if (critic) {
    const int rest = task == Task::ResourceLimits ? actions : 0;
    p.critic = {layer(states + 2 + rest, 40, Activation::Relu),
                layer(40, task == Task::ResourceLimits ? 1 : actions, Activation::Linear)};
    p.value_offset = 40;
    p.value_scale = 5;
  }
  return p;
}

/// A policy that decides otherwise than `p` in whatever state: limits on the other side of the middle; of the
/// frequencies the one that is half of the range away.
PolicySnapshot opposite(PolicySnapshot p, std::uint64_t version) {
  p.version = version;
  p.model += ", opposite";
  DenseLayer& last = p.actor.back();
  if (p.task == Task::ResourceLimits) {
    for (float& w : last.weights) w = -w;
    for (float& b : last.bias) b = -b;
  } else {
    const int half = last.outputs / 2;
    std::ranges::rotate(last.weights, last.weights.begin() + half * last.inputs);
    std::ranges::rotate(last.bias, last.bias.begin() + half);
  }
  return p;
}

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    char name[] = "/tmp/flashd-replay-XXXXXX";
    folder_ = mkdtemp(name);
    journal_.configure({true, 1 << 24, journal()});
  }
  ~ReplayTest() override { fs::remove_all(folder_); }

  std::string journal() const { return folder_ + "/journal"; }
  std::string model(const PolicySnapshot& p, const std::string& name = "model") {
    const std::string path = folder_ + "/" + name;
    const auto written = write_tensor_file(path, to_tensor_file(p));
    EXPECT_TRUE(written);
    return path;
  }

  /// Runs a loop in control under `policy` and records it. Load and latency come from a fixed seed.
  void record(const PolicySnapshot& policy) {
    fake::FakeActuator actuator;
    Random random(7);
    fake::FakeCollector collector([&random](Now, TargetId id, Observation& o) {
      o[Signal::CpuUsage] = Sample::good(random.uniform(0.2, 1.5));
      o[Signal::LatencyP99] = Sample::good(random.uniform(2, 12));
      o[Signal::RequestRate] = Sample::good(random.uniform(50, 500));
      o[Signal::Instructions] = Sample::good(random.uniform(1e9, 4e9));
      if (id.kind == TargetKind::CpuSet) return;
      o[Signal::CpuLimit] = Sample::good(2);
      o[Signal::MemoryUsage] = o[Signal::MemoryWorkingSet] = Sample::good(random.uniform(1e8, 5e8));
    });
    LoopOptions options;
    options.episode_steps = 5;
    options.capacity.cores = 4;
    options.capacity.memory_bytes = 4e9;
    ControlLoop loop(options, {&collector}, actuator, {});
    auto rule = std::make_shared<Rule>();
    rule->name = "r";
    rule->task = policy.task;
    rule->mode = Mode::Control;
    rule->mode_given = true;
    rule->slo.latency_p99_ms = 10;
    rule->profile.bootstrap = false;
    rule->profile.worse_than_fallback = 1e9;  // this test is not about the life cycle
    rule->exploration.fallback_share = rule->exploration.online_share = 0;
    Target target;
    target.id = policy.task == Task::ResourceLimits ? kWeb : kCpus;
    target.name = policy.task == Task::ResourceLimits ? "web" : "cpus 0-1";
    target.application = "shop";
    target.rule = "r";
    if (policy.task == Task::ResourceLimits) {
      target.cgroup = "/machine/web";
      actuator.offer(kWeb, KnobKind::CpuLimit, 1.0, 0.01, 4.0);
      actuator.offer(kWeb, KnobKind::MemoryLimit, 1e9, 4096, 4e9);
    } else {
      target.cpus = {0, 1};
      actuator.offer(kCpus, KnobKind::CpuFrequency, 2e6, 1e6, 3e6, {1.0e6, 1.3e6, 1.9e6, 2.5e6, 3.0e6});
    }
    Now now{std::chrono::seconds(100), WallTime(std::chrono::seconds(1'700'000'000))};
    ASSERT_TRUE(loop.add_target(now, target, rule));
    const auto offered = loop.offer_snapshot(now, target.id, std::make_shared<const PolicySnapshot>(policy));
    ASSERT_TRUE(offered) << offered.error().message();
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      now.mono += std::chrono::seconds(1);
      now.wall += std::chrono::seconds(1);
      loop.tick(now);
      const Decision& d = loop.history(target.id)->back();
      learned_ += d.controller == Controller::Learned;
      journal_.add(d, target);
      journal_.flush(now);
    }
  }

  std::string folder_;
  DecisionJournal journal_;
  std::uint64_t learned_ = 0;
};

class ReplayOfTask : public ReplayTest, public testing::WithParamInterface<Task> {};

TEST_P(ReplayOfTask, TheModelThatDecidedDecidesTheSameAgainExactly) {
  const PolicySnapshot policy = random_policy(GetParam(), 1, 3, true);
  record(policy);
  ASSERT_GT(learned_, kSteps / 2);
  const auto report = replay({journal(), model(policy), "", 10});
  ASSERT_TRUE(report) << report.error().message();
  const ReplayCount& learned = report->by_controller[static_cast<std::size_t>(Controller::Learned)];
  EXPECT_EQ(learned.decisions, learned_);
  EXPECT_EQ(learned.differ, 0u);
  EXPECT_EQ(report->all.decisions, kSteps);
  for (const ReplayDifference& d : report->largest) EXPECT_NE(d.entry.controller, Controller::Learned);
  // Exactly, not within the tolerance: once more, with the learned decisions alone.
  const std::string path = folder_ + "/learned.jsonl";
  std::ofstream only(path);
  std::ifstream all(journal() + "/decisions.jsonl");
  for (std::string line; std::getline(all, line);)
    if (nlohmann::json::parse(line)["controller"] == "learned") only << line << "\n";
  only.close();
  const auto exact = replay({path, model(policy), "", 10});
  ASSERT_TRUE(exact) << exact.error().message();
  for (const auto& [id, knob] : exact->knobs) EXPECT_EQ(knob.max, 0) << knob_name(id);
  EXPECT_EQ(exact->recorded_value, exact->replayed_value);
  EXPECT_EQ(exact->valued, learned_);
  if (GetParam() == Task::CpuFrequency) {
    EXPECT_EQ(exact->same_level, learned_);
  }
}

TEST_P(ReplayOfTask, AnotherModelDiffersAndTheLargestDifferencesComeFirstWithTheirReason) {
  const PolicySnapshot recorded = random_policy(GetParam(), 1, 3, true);
  record(recorded);
  const std::string other = model(opposite(recorded, 4));
  const auto report = replay({journal(), other, "", 5});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_GT(report->all.differ, kSteps / 2);
  EXPECT_EQ(report->version, 4u);
  ASSERT_EQ(report->largest.size(), 5u);
  for (std::size_t i = 0; i < report->largest.size(); ++i) {
    const ReplayDifference& d = report->largest[i];
    if (i > 0) {
      EXPECT_LE(d.distance, report->largest[i - 1].distance);
    }
    EXPECT_NE(d.recorded[d.knob], d.replayed[d.knob]);
    EXPECT_FALSE(d.attributions.empty());
    for (std::size_t k = 1; k < d.attributions.size(); ++k)
      EXPECT_GE(std::abs(d.attributions[k - 1].weight), std::abs(d.attributions[k].weight));
    EXPECT_TRUE(std::isfinite(d.recorded_value));
    EXPECT_NE(d.recorded_value, d.replayed_value);
  }
  const auto none = replay({journal(), other, "", 0});
  EXPECT_TRUE(none->largest.empty());
  EXPECT_EQ(none->all.differ, report->all.differ);
}

TEST_P(ReplayOfTask, AModelOfTheOtherTaskIsRefused) {
  record(random_policy(GetParam(), 1, 3, false));
  const Task other = GetParam() == Task::ResourceLimits ? Task::CpuFrequency : Task::ResourceLimits;
  const auto report = replay({journal(), model(random_policy(other, 1, 3, false)), "", 10});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("for the task " + std::string(to_string(other))));
}

INSTANTIATE_TEST_SUITE_P(Tasks, ReplayOfTask, testing::Values(Task::ResourceLimits, Task::CpuFrequency),
                         [](const auto& p) {
                           return p.param == Task::ResourceLimits ? std::string("Limits") : "Frequency";
                         });

TEST_F(ReplayTest, AModelOfAnotherShapeIsRefusedWithThePartThatIsWrong) {
  record(random_policy(Task::ResourceLimits, 1, 3, false));
  PolicySnapshot p = random_policy(Task::ResourceLimits, 1, 3, false);
  p.actor.front().inputs -= 1;
  p.actor.front().weights.resize(static_cast<std::size_t>(p.actor.front().inputs * p.actor.front().outputs));
  const auto report = replay({journal(), model(p), "", 10});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("/model"));
  EXPECT_THAT(report.error().message(), HasSubstr("actor"));
}

TEST_F(ReplayTest, WhatIsNoModelOrNoJournalIsSaid) {
  record(random_policy(Task::ResourceLimits, 1, 3, false));
  std::ofstream(folder_ + "/text") << "hello";
  EXPECT_THAT(replay({journal(), folder_ + "/text", "", 10}).error().message(), HasSubstr("/text"));
  EXPECT_TRUE(
      replay({journal(), folder_ + "/none", "", 10}).error().is(std::errc::no_such_file_or_directory));
  const std::string good = model(random_policy(Task::ResourceLimits, 1, 3, false));
  EXPECT_THAT(replay({folder_ + "/nowhere", good, "", 10}).error().message(), HasSubstr("/nowhere"));
  EXPECT_THAT(replay({folder_, good, "", 10}).error().message(), HasSubstr("has no journal"));
  std::ofstream(journal() + "/decisions.jsonl", std::ios::app) << "{\"seq\":}\n";
  EXPECT_THAT(replay({journal(), good, "", 10}).error().message(),
              HasSubstr("decisions.jsonl:61: not a JSON object"));
}

TEST_F(ReplayTest, OnlyTheTargetThatIsAskedForIsReplayed) {
  record(random_policy(Task::ResourceLimits, 1, 3, false));
  const std::string path = model(random_policy(Task::ResourceLimits, 1, 3, false));
  for (const char* name : {"web", "limits_11", "/machine/web", "shop"})
    EXPECT_EQ(replay({journal(), path, name, 10})->all.decisions, kSteps) << name;
  const auto report = replay({journal(), path, "db", 10});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("has no decision of target 'db'; it has web"));
}

TEST_F(ReplayTest, WithoutACriticThereAreNoValues) {
  const PolicySnapshot policy = random_policy(Task::ResourceLimits, 1, 3, false);
  record(policy);
  const auto report = replay({journal(), model(policy), "", 10});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->valued, 0u);
  EXPECT_TRUE(to_json(*report)["critic"].is_null());
}

TEST_F(ReplayTest, TheCriticsValuesAreThoseOfTheTwoActions) {
  // A critic that is the CPU action itself: what it says of an action can be told by hand.
  PolicySnapshot policy = random_policy(Task::ResourceLimits, 1, 3, false);
  record(policy);
  DenseLayer sum{state_dim(Task::ResourceLimits) + 2 + 2, 1, {}, {0}, Activation::Linear};
  sum.weights.assign(static_cast<std::size_t>(sum.inputs), 0);
  sum.weights[static_cast<std::size_t>(sum.inputs) - 2] = 1;
  PolicySnapshot other = random_policy(Task::ResourceLimits, 5, 4, false);
  other.critic = {sum};
  other.value_offset = 10;
  other.value_scale = 2;
  const auto report = replay({journal(), model(other), "", 3});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_FALSE(report->largest.empty());
  const ReplayDifference& d = report->largest[0];
  const KnobRange range{d.entry.contexts[0].lower, d.entry.contexts[0].upper};
  ASSERT_EQ(d.entry.contexts[0].knob, KnobKind::CpuLimit);
  EXPECT_NEAR(d.recorded_value, 10 + 2 * to_unit(d.recorded[KnobKind::CpuLimit], range), 1e-5);
  EXPECT_NEAR(d.replayed_value, 10 + 2 * to_unit(d.replayed[KnobKind::CpuLimit], range), 1e-5);
}

TEST_F(ReplayTest, AttributionIsGradientTimesInput) {
  // Linear, one output per limit: the weight times the normalised entry is what it adds to the output.
  PolicySnapshot recorded = random_policy(Task::ResourceLimits, 1, 3, false);
  record(recorded);
  PolicySnapshot p = random_policy(Task::ResourceLimits, 1, 4, false);
  DenseLayer one{state_dim(Task::ResourceLimits) + 2, 2, {}, {0, 0}, Activation::Linear};
  one.weights.assign(static_cast<std::size_t>(one.inputs * 2), 0);
  one.weights[2] = one.weights[static_cast<std::size_t>(one.inputs) + 2] = 1.5F;  // cpu_utilization
  p.actor = {one};
  const auto report = replay({journal(), model(p), "", 1});
  ASSERT_TRUE(report) << report.error().message();
  const Attribution& top = report->largest.at(0).attributions.at(0);
  EXPECT_EQ(top.entry, "cpu_utilization");
  EXPECT_NEAR(top.weight, 1.5 * (top.value - 0.5) / 0.5, 1e-2);
}

TEST_F(ReplayTest, SaysItInWordsAndAsJsonWithStableKeys) {
  record(random_policy(Task::ResourceLimits, 1, 3, true));
  const auto report = replay({journal(), model(random_policy(Task::ResourceLimits, 2, 4, true)), "", 2});
  ASSERT_TRUE(report);
  const std::string text = to_text(*report);
  EXPECT_THAT(text, HasSubstr("60 decisions replayed with policy version 4 (ddpg)"));
  EXPECT_THAT(text, HasSubstr("cpu-limit: "));
  EXPECT_THAT(text, HasSubstr("critic"));
  EXPECT_THAT(text, HasSubstr("because of"));
  const nlohmann::json j = to_json(*report);
  for (const char* key : {"model", "journal", "decisions", "differ", "explored", "not_trusted", "controllers",
                          "knobs", "level_agreement", "critic", "not_replayed", "largest"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_EQ(j["controllers"]["learned"]["decisions"], learned_);
  EXPECT_GT(j["knobs"]["cpu-limit"]["mean_difference"], 0.0);
  EXPECT_EQ(j["largest"][0]["target"], "web");
}

TEST_F(ReplayTest, TheProgramEndsAsItsManPageSays) {
  record(random_policy(Task::ResourceLimits, 1, 3, true));
  const auto flashd = [this](const std::string& arguments, std::string& out) {
    const std::string path = folder_ + "/out";
    const int status = std::system(
        (std::string(FLASH_BINARY_DIR) + "/bin/flashd " + arguments + " >" + path + " 2>&1").c_str());
    std::ifstream in(path);
    out.assign(std::istreambuf_iterator<char>(in), {});
    return WEXITSTATUS(status);
  };
  std::string out;
  const std::string other = model(random_policy(Task::ResourceLimits, 2, 4, true));
  EXPECT_EQ(flashd("--replay " + journal() + " --model " + other + " --json --largest 1", out), 0)
      << "decisions that differ are no failure";
  const auto report = nlohmann::json::parse(out, nullptr, false);
  EXPECT_EQ(report["decisions"], kSteps);
  EXPECT_EQ(report["largest"].size(), 1u);
  EXPECT_EQ(flashd("--replay " + journal() + " --model " + other, out), 0);
  EXPECT_THAT(out, HasSubstr("60 decisions replayed"));
  EXPECT_EQ(flashd("--replay " + journal() + " --model /nonexistent", out), 1);
  EXPECT_THAT(out, HasSubstr("flashd: "));
  EXPECT_EQ(flashd("--replay " + journal(), out), 2);
}

TEST_F(ReplayTest, ATerminalSeesNoEscapesOfAJournal) {
  record(random_policy(Task::ResourceLimits, 1, 3, true));
  std::ifstream in(journal() + "/decisions.jsonl");
  std::ofstream out(folder_ + "/evil.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto d = nlohmann::json::parse(line);
    d["target"]["name"] = "web\x1b[2J";
    d["time"] = "\x1b[31m";
    out << d.dump() << "\n";
  }
  out.close();
  const auto report =
      replay({folder_ + "/evil.jsonl", model(random_policy(Task::ResourceLimits, 2, 4, true)), "", 2});
  ASSERT_TRUE(report);
  EXPECT_EQ(to_text(*report).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace flash
