// Purpose: flashd's end of the learner's socket for tests: announces agents, keeps every step until it is
// acknowledged, sends it again to whoever connects next, and notes what comes back.
// Ownership: owns the socket.
// Thread rule: one thread; never blocks.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/policy_snapshot.h"
#include "core/tensor_file.h"
#include "link/messages.h"
#include "link/seqpacket.h"
#include "tests/learner/learner_fixtures.h"

namespace flash {

class FakeFlashd {
 public:
  explicit FakeFlashd(std::string path, std::uint64_t epoch = 42) : path_(std::move(path)) {
    hello.software = "flashd test";
    hello.epoch = epoch;
    hello.period_s = 0.01;
    hello.episode_steps = 10;
    listen();
  }

  void listen() {
    auto listener = link::Listener::listen(path_, std::nullopt);
    ASSERT_TRUE(listener) << listener.error().message();
    listener_ = std::move(*listener);
  }
  void add(const link::Announce& agent) {
    agents.push_back(agent);
    if (greeted_) send(agent);
  }
  void step(link::Step s) {
    if (greeted_) send(link::Steps{{s}});
    unacknowledged[s.agent].push_back(std::move(s));
  }
  bool connected() const { return greeted_; }
  void hang_up() {
    connection_.close();
    outbox_.clear();
    greeted_ = false;
  }

  /// Accepts, reads all that is there, answers.
  void process() {
    if (auto fresh = listener_.accept(); fresh && *fresh) {
      hang_up();
      connection_ = std::move(**fresh);
      ++connections;
      send(hello);
      for (link::Announce& a : agents) {
        a.model_version = accepted.contains(a.agent) ? accepted[a.agent] : 0;
        send(a);
      }
    }
    flush();
    while (connection_.open()) {
      auto received = connection_.receive();
      if (!received) {
        hang_up();
        return;
      }
      if (!*received) return;
      auto message = link::decode_up(**received);
      ASSERT_TRUE(message) << message.error().message();
      take(*message);
    }
  }

  void send(const link::Down& message) {
    if (!connection_.open()) return;
    outbox_.push_back(link::encode(message));
    flush();
  }
  void send_raw(const std::string& bytes) { (void)connection_.send(bytes); }

  link::HelloDown hello;
  std::vector<link::Announce> agents;
  std::map<std::string, std::deque<link::Step>> unacknowledged;
  bool accept_offers = true;

  int connections = 0;
  std::optional<link::HelloUp> hello_up;
  std::map<std::string, std::uint64_t> acknowledged;
  std::map<std::string, std::uint64_t> accepted;  // versions
  std::vector<std::pair<std::string, PolicySnapshot>> offers;
  std::map<std::string, link::Status> status;

 private:
  void flush() {
    while (connection_.open() && !outbox_.empty()) {
      auto sent = connection_.send(outbox_.front());
      if (!sent) return hang_up();
      if (*sent == link::SendStatus::Full) return;
      outbox_.pop_front();
    }
  }
  void stored(const link::Stored& s) {
    auto& steps = unacknowledged[s.agent];
    while (!steps.empty() && steps.front().seq <= s.seq) steps.pop_front();
    acknowledged[s.agent] = std::max(acknowledged[s.agent], s.seq);
  }
  void take(const link::Up& message) {
    if (const auto* up = std::get_if<link::HelloUp>(&message)) {
      hello_up = *up;
      greeted_ = true;
      for (auto& [agent, steps] : unacknowledged)
        for (std::size_t at = 0; at < steps.size() && greeted_; at += 100) {
          link::Steps batch;
          for (std::size_t i = at; i < std::min(at + 100, steps.size()); ++i) batch.steps.push_back(steps[i]);
          send(batch);
        }
    } else if (const auto* s = std::get_if<link::Stored>(&message)) {
      stored(*s);
    } else if (const auto* ack = std::get_if<link::Acknowledge>(&message)) {
      for (const link::Stored& one : ack->stored) stored(one);
    } else if (const auto* offer = std::get_if<link::Offer>(&message)) {
      auto file = decode_tensor_file(offer->policy);
      ASSERT_TRUE(file) << file.error().message();
      auto policy = to_policy(*file);
      ASSERT_TRUE(policy) << policy.error().message();
      for (const std::string& agent : offer->agents) {
        if (accept_offers) accepted[agent] = policy->version;
        offers.emplace_back(agent, *policy);
        send(link::Verdict{agent, policy->version, accept_offers, accept_offers ? "" : "a test says no"});
      }
    } else if (const auto* s = std::get_if<link::Status>(&message)) {
      status[s->agent] = *s;
    }
  }

  std::string path_;
  link::Listener listener_;
  link::Connection connection_;
  std::deque<std::string> outbox_;
  bool greeted_ = false;
};

}  // namespace flash
