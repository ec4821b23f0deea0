// Purpose: the trainer with real agents and a clock in the test's hands, for agents alone and in groups.
// Ownership: a folder of its own, removed at the end.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_file.h"
#include "learner/trainer.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/learner/learner_fixtures.h"

namespace flash {

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    hello_.epoch = 7;
    hello_.settings.learning_starts = 20;
    hello_.settings.offline_updates = 30;
    hello_.settings.updates_per_step = 2;
    hello_.settings.publish_interval_s = 10;
    hello_.settings.snapshot_lifetime_s = 100;
    hello_.settings.replay_steps = 200;
    start();
  }
  void start() {
    trainer_.reset();
    store_.reset();
    store_ = std::make_unique<TrajectoryStore>(*TrajectoryStore::open(folder_.path() + "/t.sqlite", nullptr));
    options_.clock = [this] { return now_.mono; };
    trainer_ = std::make_unique<Trainer>(options_, *Checkpoints::open(folder_.path()), *store_,
                                         [this](const Event& e) { said_.push_back(e.message); });
    trainer_->configure(hello_);
  }
  void announce_agent(link::Announce a = announce()) {
    runs_[a.agent] = store_->begin_run(a, hello_.epoch)->id;
    trainer_->announce(a, runs_[a.agent], now_);
  }
  /// Steps first..last as a session hands them over: stored, then taken.
  void live(std::uint64_t first, std::uint64_t last, Stage stage, const std::string& agent = "limits_1") {
    for (std::uint64_t i = first; i <= last; ++i) {
      link::Step s = step(i, 10, stage);
      s.agent = agent;
      s.action = {static_cast<float>(i % 7) / 7, -static_cast<float>(i % 3) / 3};
      s.reward = s.action[0];
      s.controller =
          stage == Stage::Online || stage == Stage::Serving ? Controller::Learned : Controller::Fallback;
      const std::vector<TrajectoryStore::Entry> entries = {{runs_.at(agent), &s}};
      ASSERT_TRUE(store_->append(entries));
      trainer_->take(s, now_);
    }
  }
  int work() {
    int slices = 0;
    while (trainer_->work(now_)) ++slices;
    return slices;
  }
  void wait(std::chrono::seconds s) {
    now_.mono += s;
    now_.wall += s;
  }
  std::vector<PolicySnapshot> offers() {
    std::vector<PolicySnapshot> out;
    for (const link::Offer& o : trainer_->take_offers())
      out.push_back(*to_policy(*decode_tensor_file(o.policy)));
    return out;
  }
  link::Status status(const std::string& agent = "limits_1") {
    for (const link::Status& s : trainer_->statuses())
      if (s.agent == agent) return s;
    return {};
  }

  TemporaryFolder folder_;
  link::HelloDown hello_;
  Now now_{std::chrono::hours(1), WallTime(std::chrono::hours(400'000))};
  TrainerOptions options_;
  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<Trainer> trainer_;
  std::map<std::string, RunId> runs_;
  std::vector<std::string> said_;
};

}  // namespace flash
