// Purpose: flashd's end of the learner's socket with a scripted learner at the other, on a real socket and
// made clocks.
// Ownership: a folder of its own, removed at the end.
// Thread rule: one thread.
#pragma once

#include <gmock/gmock.h>
#include <poll.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor_file.h"
#include "daemon/learner_link.h"
#include "link/seqpacket.h"
#include "policy/task.h"
#include "tests/daemon/web_target.h"

namespace flash {

inline void agent_added(LearnerLink& flashd, const Target& target) {
  flashd.agent_added(target, space_layout(task_spec(target.task()), {}));
}

inline std::string policy_bytes(std::uint64_t version) {
  PolicySnapshot p;
  p.version = version;
  p.algorithm = "td3+bc";
  p.expires = WallTime(std::chrono::hours(1000));
  p.mean.assign(7, 0.0f);
  p.scale.assign(7, 1.0f);
  p.actor = {DenseLayer{7, 2, std::vector<float>(14, 0.1f), {0, 0}, Activation::Tanh}};
  return encode(to_tensor_file(p));
}

class LearnerLinkTest : public testing::Test {
 protected:
  LearnerLinkTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder_ = mkdtemp(name);
    options.socket = folder_ + "/learner.sock";
    options.user = "root";
    open();
  }
  ~LearnerLinkTest() override { std::filesystem::remove_all(folder_); }

  void open() {
    LearnerCallbacks callbacks;
    callbacks.offer = [this](Now, TargetId id, std::shared_ptr<const PolicySnapshot> p) -> Result<void> {
      offered.emplace_back(id.value, p->version);
      lives.push_back(p->expires - now.wall);
      if (!refuse.empty() && (!refuses || *refuses == id.value))
        return Error(std::errc::invalid_argument, refuse);
      return {};
    };
    callbacks.log = [this](LearnerEvent event, const std::string& text) {
      log.push_back(std::string(to_string(event)) + ": " + text);
    };
    flashd.reset();
    flashd = std::make_unique<LearnerLink>(options, LearnerSession{"flashd 0.1.0", 77}, callbacks, bounds);
    flashd->tick(now);
  }

  /// As the event loop does it: as long as the descriptor is readable; says how often.
  int run() {
    int times = 0;
    while (times < 10000) {
      pollfd p = {flashd->fd(), POLLIN, 0};
      if (poll(&p, 1, 0) != 1) break;
      flashd->process(now);
      ++times;
    }
    return times;
  }
  /// A tick in which each of the targets decides once.
  void tick(std::vector<Target> targets = {web()}) {
    now.mono += std::chrono::seconds(1);
    now.wall += std::chrono::seconds(1);
    for (const Target& t : targets) {
      Decision d;
      d.seq = ++seq[t.id.value];
      d.at = now;
      d.learning.state = {1, 2, 3, 4, 5, 6, 7};
      d.learning.state_trusted = true;
      d.learning.action = {0.5f, -0.5f};
      flashd->decided(t, d);
    }
    flashd->tick(now);
    run();
  }

  link::Connection dial() {
    auto c = link::Connection::connect(options.socket);
    EXPECT_TRUE(c) << c.error().message();
    run();
    return std::move(*c);
  }
  void say(link::Connection& c, const link::Up& message) {
    ASSERT_TRUE(c.send(link::encode(message)));
    run();
  }
  /// A connected learner that has said Hello, and what it was told so far.
  link::Connection greet(const std::vector<link::Stored>& stored = {}) {
    link::Connection c = dial();
    say(c, link::HelloUp{"flash-learner 0.1.0", "OpenBLAS", 1});
    for (const auto& s : stored) say(c, s);
    return c;
  }
  static std::vector<link::Down> hear(link::Connection& c) {
    std::vector<link::Down> all;
    while (true) {
      auto got = c.receive();
      if (!got || !*got) return all;
      auto message = link::decode_down(**got);
      EXPECT_TRUE(message) << message.error().message();
      all.push_back(*message);
    }
  }
  static bool closed(link::Connection& c) {
    while (true) {
      auto got = c.receive();
      if (!got) return true;
      if (!*got) return false;
    }
  }
  static std::vector<std::uint64_t> seqs(const std::vector<link::Down>& messages) {
    std::vector<std::uint64_t> all;
    for (const link::Down& m : messages)
      if (const auto* steps = std::get_if<link::Steps>(&m))
        for (const auto& s : steps->steps) all.push_back(s.seq);
    return all;
  }

  std::string folder_;
  LearnerOptions options;
  LearnerBounds bounds;
  Now now{std::chrono::seconds(100), WallTime(std::chrono::seconds(1000))};
  std::map<std::uint64_t, std::uint64_t> seq;
  std::string refuse;
  std::optional<std::uint64_t> refuses;  // that agent alone
  std::vector<std::pair<std::uint64_t, std::uint64_t>> offered;
  std::vector<Duration> lives;  // of the policies that were offered
  std::vector<std::string> log;
  std::unique_ptr<LearnerLink> flashd;
};

}  // namespace flash
