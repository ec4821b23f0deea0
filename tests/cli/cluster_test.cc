// flashctl cluster against flash-sync's own service, on a bus of its own.
#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstdio>
#include <future>
#include <utility>

#include "core/json.h"
#include "sync/bus_service.h"
#include "tests/support/private_bus.h"

namespace flash::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class FlashctlClusterTest : public testing::Test {
 protected:
  FlashctlClusterTest() : bus_(FLASH_SOURCE_DIR) {
    setenv("DBUS_SYSTEM_BUS_ADDRESS", bus_.address().c_str(), 1);
    state_.version = "0.1.0";
  }
  ~FlashctlClusterTest() override { unsetenv("DBUS_SYSTEM_BUS_ADDRESS"); }

  void start() {
    service_ =
        std::make_unique<sync::BusService>(sync::BusCallbacks{[this] { return state_; },
                                                              [this](const coordinator::FleetQuestion& q) {
                                                                asked_.push_back(q);
                                                                return state_.connected;
                                                              },
                                                              [](int, const std::string&) {}});
    for (int i = 0; i < 50; ++i) {
      service_->run(std::chrono::hours(1));
      usleep(2000);
    }
  }
  /// What it prints, both streams; `exit_` is how it ended.
  std::string flashctl(const std::string& words) {
    const std::string command = std::string(FLASH_BINARY_DIR) + "/bin/flashctl " + words + " 2>&1";
    auto answer = std::async(std::launch::async, [&] {
      FILE* pipe = popen(command.c_str(), "r");
      std::string text;
      for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
      exit_ = WEXITSTATUS(pclose(pipe));
      return text;
    });
    while (answer.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
      if (service_) work();
    return answer.get();
  }

  /// Answers each question with a page of two agents, 52 in all.
  void work() {
    service_->run(std::chrono::hours(1));
    for (const auto& q : std::exchange(asked_, {})) {
      coordinator::FleetRow row{.node = "n" + std::to_string(q.offset),
                                .pool = "p",
                                .target = q.agents ? "web" : "",
                                .application = q.text};
      row.reward = 0.5;
      service_->answered({q.id, 52, {row, row}});
    }
  }

  fake::PrivateBus bus_;
  std::vector<coordinator::FleetQuestion> asked_;
  sync::BusState state_;
  std::unique_ptr<sync::BusService> service_;
  int exit_ = -1;
};

TEST_F(FlashctlClusterTest, SaysThatFlashSyncIsNotThere) {
  EXPECT_THAT(flashctl("cluster"), HasSubstr("flash-sync cannot be reached"));
  EXPECT_EQ(exit_, 3);
}

TEST_F(FlashctlClusterTest, SaysThatThereIsNoCoordinatorToSpeakTo) {
  start();
  EXPECT_EQ(flashctl("cluster"),
            "flash-sync   0.1.0\n"
            "flashd       not connected\n"
            "coordinator  none: flash-sync runs without --nats\n");
  EXPECT_EQ(exit_, 0);
  const json state = json::parse(flashctl("--json cluster status"));
  EXPECT_EQ(state["configured"], false);
  EXPECT_EQ(state["server"], json());
  EXPECT_EQ(state["node"], json());
}

TEST_F(FlashctlClusterTest, ShowsTheWayToTheFleet) {
  state_.configured = state_.connected = true;
  state_.server = "tls://hub:4222";
  state_.node = "n1";
  state_.pool = "web";
  state_.outbox = 7;
  state_.taken = 20;
  state_.confirmed = 13;
  state_.last_watermark_us = 1'700'000'000'000'000;
  state_.trouble = "permissions \x1b[31mviolation";
  start();
  const json state = json::parse(flashctl("cluster --json"));
  EXPECT_EQ(state["connected"], true);
  EXPECT_EQ(state["node"], "n1");
  EXPECT_EQ(state["outbox"], 7);
  EXPECT_EQ(state["taken"], 20);
  EXPECT_EQ(state["confirmed"], 13);
  EXPECT_THAT(std::string(state["last_watermark"]), testing::StartsWith("2023-11-14T22:13:20"));
  const std::string text = flashctl("cluster status");
  EXPECT_EQ(text,
            "flash-sync  0.1.0\n"
            "flashd      not connected\n"
            "server      tls://hub:4222, connected\n"
            "node        n1 in pool web\n"
            "outbox      7 records wait for the coordinator\n"
            "records     20 taken, 13 confirmed, 0 thinned out\n"
            "watermark   moved at 2023-11-14T22:13:20Z\n"
            "trouble     permissions ?[31mviolation\n");
}

TEST_F(FlashctlClusterTest, SaysWhatIsNotThereYet) {
  state_.configured = state_.flashd_connected = true;
  state_.server = "tls://hub:4222";
  state_.node = "n1";
  state_.pool = "web";
  state_.thinned = 3;
  start();
  EXPECT_EQ(flashctl("cluster status"),
            "flash-sync  0.1.0\n"
            "flashd      connected\n"
            "server      tls://hub:4222, not connected\n"
            "node        n1 in pool web\n"
            "outbox      0 records wait for the coordinator\n"
            "records     0 taken, 0 confirmed, 3 thinned out\n"
            "watermark   none since the start\n");
}

TEST_F(FlashctlClusterTest, ListsTheFleetPageByPage) {
  state_.connected = true;
  start();
  const json agents = json::parse(flashctl("cluster agents shop --json"));
  ASSERT_EQ(agents.size(), 4u);
  EXPECT_EQ(agents[0].at("node"), "n0");
  EXPECT_EQ(agents[3].at("node"), "n50");
  EXPECT_EQ(agents[0].at("target"), "web");
  EXPECT_EQ(agents[0].at("application"), "shop");  // what was asked for
  EXPECT_EQ(agents[0].at("reward_mean"), 0.5);
  EXPECT_EQ(agents[0].at("reward_fallback"), json());
  EXPECT_THAT(flashctl("cluster agents"), HasSubstr("STAGE"));
  const std::string nodes = flashctl("cluster nodes");
  EXPECT_THAT(nodes, HasSubstr("SERVING"));
  EXPECT_THAT(nodes, HasSubstr("n50"));
}

TEST_F(FlashctlClusterTest, SaysThatTheCoordinatorCannotBeAsked) {
  start();
  EXPECT_THAT(flashctl("cluster agents"), HasSubstr("not connected to the fleet's server"));
  EXPECT_EQ(exit_, 1);
}

TEST_F(FlashctlClusterTest, KnowsNoOtherWord) {
  EXPECT_THAT(flashctl("cluster nonsense"), HasSubstr("'nonsense' is not status, nodes or agents"));
  EXPECT_EQ(exit_, 2);
}

}  // namespace
}  // namespace flash::cli
