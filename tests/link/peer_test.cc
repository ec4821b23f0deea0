#include "link/peer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace flash::link::peer_test {
namespace {

using namespace std::chrono_literals;
using Door = Server::Door;
using Way = Client::Way;

Now at(double s) {
  return {from_seconds(s), {}};
}

std::string anybody(const Connection&) {
  return {};
}

bool readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

class Peers : public testing::Test {
 protected:
  Peers() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/a.sock";
  }
  ~Peers() override { std::filesystem::remove_all(folder_); }

  Connection caller() const {
    auto made = Connection::connect(path_);
    EXPECT_TRUE(made) << made.error().message();
    return std::move(*made);
  }
  Client client(Duration first = 1s, Duration longest = 8s) const {
    return Client({.socket = path_, .listener = {}, .retry_first = first, .retry_longest = longest},
                  Random(1));
  }

  std::string folder_, path_;
};

TEST_F(Peers, AServerSaysOnceWhyItDoesNotListenAndTriesAgain) {
  path_ = folder_ + "/later/a.sock";
  Server server({});
  ASSERT_TRUE(server.listen_due(at(0)));
  EXPECT_FALSE(server.listen(at(0), path_, {}));
  EXPECT_NE(server.trouble(), "");
  EXPECT_FALSE(server.listen_due(at(4)));
  ASSERT_TRUE(server.listen_due(at(5)));
  EXPECT_TRUE(server.listen(at(5), path_, {})) << "the same was said before";
  EXPECT_NE(server.trouble(), "");
  std::filesystem::create_directory(folder_ + "/later");
  EXPECT_TRUE(server.listen(at(10), path_, {}));
  EXPECT_EQ(server.trouble(), "");
  EXPECT_FALSE(server.listen_due(at(100)));
  server.stop_listening();
  EXPECT_TRUE(server.listen_due(at(10)));
  EXPECT_FALSE(Connection::connect(path_));
}

TEST_F(Peers, OnePeerComesInAndAllOthersAreToldApart) {
  Server server({});
  EXPECT_EQ(server.accept(at(0), anybody).door, Door::Nobody);
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  EXPECT_EQ(server.accept(at(0), anybody).door, Door::Nobody);

  const Connection stranger = caller();
  EXPECT_TRUE(readable(server.fd()));
  const auto refused = server.accept(at(0), [](const Connection&) { return std::string("a stranger"); });
  EXPECT_EQ(refused.door, Door::Refused);
  EXPECT_EQ(refused.why, "a stranger");
  EXPECT_FALSE(server.open());

  const Connection first = caller(), second = caller();
  EXPECT_EQ(server.accept(at(0), anybody).door, Door::In);
  EXPECT_TRUE(server.open());
  const auto more = server.accept(at(0), anybody);
  EXPECT_EQ(more.door, Door::OneTooMany);
  EXPECT_EQ(more.why, std::to_string(getpid()));

  server.close();
  server.back_off(at(1), 2s);
  const Connection early = caller();
  EXPECT_EQ(server.accept(at(2), anybody).door, Door::TooEarly);
  EXPECT_EQ(server.back_off_left(at(2)), 1s);
  EXPECT_EQ(server.back_off_left(at(9)), 0s);
  const Connection again = caller();
  EXPECT_EQ(server.accept(at(3), anybody).door, Door::In);
}

TEST_F(Peers, MorePeersThanAreLookedAtWaitForTheNextTickAndWakeNobody) {
  Server server({.peers_per_s = 2});
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  std::vector<Connection> callers;
  for (int i = 0; i < 4; ++i) callers.push_back(caller());
  const auto nobody = [](const Connection&) { return std::string("no"); };
  EXPECT_EQ(server.accept(at(0), nobody).door, Door::Refused);
  EXPECT_EQ(server.accept(at(0), nobody).door, Door::Refused);
  EXPECT_EQ(server.accept(at(0), nobody).door, Door::Nobody);
  EXPECT_FALSE(readable(server.fd()));
  EXPECT_EQ(server.accept(at(10), nobody).door, Door::Nobody) << "not before hear_again()";
  server.hear_again();
  EXPECT_TRUE(readable(server.fd()));
  EXPECT_EQ(server.accept(at(10), nobody).door, Door::Refused);
}

TEST_F(Peers, WhoSaysNoHelloIsLateAndWhoSaysTooMuchIsFlooding) {
  Server server({.hello_timeout = 10s});
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  EXPECT_FALSE(server.hello_late(at(99), false)) << "nobody is connected";
  const Connection peer = caller();
  ASSERT_EQ(server.accept(at(1), anybody).door, Door::In);
  EXPECT_FALSE(server.hello_late(at(11), false));
  EXPECT_TRUE(server.hello_late(at(11.5), false));
  EXPECT_FALSE(server.hello_late(at(11.5), true));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(server.may_say(at(1), 3));
  EXPECT_FALSE(server.may_say(at(1), 3));
  EXPECT_TRUE(server.may_say(at(2), 3, 3));
  EXPECT_FALSE(server.may_say(at(2), 3));
}

TEST_F(Peers, WhatWakesTheServerIsWhatItAskedFor) {
  Server server({});
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  Connection peer = caller();
  ASSERT_EQ(server.accept(at(0), anybody).door, Door::In);
  EXPECT_FALSE(readable(server.fd()));
  server.rearm(true, true);
  EXPECT_TRUE(readable(server.fd())) << "it can be written to";
  server.rearm(true, false);
  EXPECT_FALSE(readable(server.fd()));
  ASSERT_TRUE(peer.send("x"));
  EXPECT_TRUE(readable(server.fd()));
  server.rearm(false, false);
  EXPECT_FALSE(readable(server.fd()));
}

TEST_F(Peers, WhatWaitsIsSaidAsFarAsItGoes) {
  Server server({});
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  Connection peer = caller();
  ASSERT_EQ(server.accept(at(0), anybody).door, Door::In);
  int left = 5;
  const auto due = [&] { return left > 0; };
  const auto say = [&]() -> Result<SendStatus> {
    FLASH_TRY(const SendStatus status, server.connection().send("x"));
    if (status == SendStatus::Sent) --left;
    return status;
  };
  EXPECT_TRUE(say_all(server.connection(), 2, due, say));
  EXPECT_EQ(left, 3);
  EXPECT_TRUE(say_all(server.connection(), 100, due, say));
  EXPECT_EQ(left, 0);
  left = 1'000'000;
  EXPECT_TRUE(say_all(server.connection(), 1'000'000, due, say)) << "nobody reads: it stops, and waits";
  EXPECT_GT(left, 0);
  peer.close();
  EXPECT_FALSE(say_all(server.connection(), 1, due, say));
}

TEST_F(Peers, AClientTriesEverLaterAndSoonAgainAfterItWorked) {
  Client c = client();
  EXPECT_EQ(c.connect(at(0)).way, Way::Unreachable);
  EXPECT_GE(c.until_retry(at(0)), 500ms);
  EXPECT_LE(c.until_retry(at(0)), 1s);
  EXPECT_EQ(c.connect(at(0.4)).way, Way::NotYet);
  EXPECT_EQ(c.connect(at(1)).way, Way::Unreachable);
  EXPECT_GE(c.until_retry(at(1)), 1s);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(c.connect(at(10 * i)).way, Way::Unreachable);
  EXPECT_LE(c.until_retry(at(90)), 8s);
  EXPECT_GE(c.until_retry(at(90)), 4s);

  Server server({});
  ASSERT_TRUE(server.listen(at(0), path_, {}));
  EXPECT_EQ(c.connect(at(100)).way, Way::Connected);
  EXPECT_EQ(c.connect(at(200)).way, Way::NotYet);
  EXPECT_FALSE(c.hello_late(at(109), false));
  EXPECT_TRUE(c.hello_late(at(110), false));
  EXPECT_FALSE(c.hello_late(at(110), true));
  c.settle(at(101));
  c.close(at(101));
  EXPECT_EQ(c.fd(), -1);
  EXPECT_GE(c.until_retry(at(101)), 4s) << "it worked for a moment only";
  EXPECT_EQ(c.connect(at(120)).way, Way::Connected);
  c.settle(at(128));
  c.close(at(128));
  EXPECT_LE(c.until_retry(at(128)), 1s);
}

}  // namespace
}  // namespace flash::link::peer_test
