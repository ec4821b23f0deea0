#include "link/seqpacket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "link/messages.h"

namespace flash::link {
namespace {

class LinkSocket : public testing::Test {
 protected:
  LinkSocket() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/learner.sock";
  }
  ~LinkSocket() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

void wait_readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, 10000), 1);
}

/// Both ends in this process.
struct Pair {
  explicit Pair(const std::string& path) {
    auto made = Listener::listen(path, std::nullopt);
    EXPECT_TRUE(made);
    listener = std::move(*made);
    auto near = Connection::connect(path);
    EXPECT_TRUE(near);
    client = std::move(*near);
    auto far = listener.accept();
    EXPECT_TRUE(far && *far);
    server = std::move(**far);
  }
  Listener listener;
  Connection client, server;
};

TEST_F(LinkSocket, TheSocketIsTheOwnersAlone) {
  auto listener = Listener::listen(path_, std::nullopt);
  ASSERT_TRUE(listener) << listener.error().message();
  struct stat st = {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(LinkSocket, AGroupMayUseIt) {
  auto listener = Listener::listen(path_, getgid());
  ASSERT_TRUE(listener) << listener.error().message();
  struct stat st = {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0660u);
  EXPECT_EQ(st.st_gid, getgid());
}

TEST_F(LinkSocket, APathInUseIsRefusedAStaleOneIsReplaced) {
  {
    auto listener = Listener::listen(path_, std::nullopt);
    ASSERT_TRUE(listener);
    auto second = Listener::listen(path_, std::nullopt);
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().is(std::errc::address_in_use));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  // What a killed daemon leaves: a socket file without a listener.
  const int stale = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path_.c_str());
  ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(stale);
  EXPECT_TRUE(Listener::listen(path_, std::nullopt));
}

TEST_F(LinkSocket, AFileThatIsNoSocketStays) {
  std::ofstream(path_) << "precious";
  auto listener = Listener::listen(path_, std::nullopt);
  ASSERT_FALSE(listener);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(LinkSocket, NobodyListeningIsAnErrorThatSaysSo) {
  auto none = Connection::connect(path_);
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().is(std::errc::no_such_file_or_directory));
  auto longer = Connection::connect("/" + std::string(200, 'a'));
  ASSERT_FALSE(longer);
  EXPECT_TRUE(longer.error().is(std::errc::filename_too_long));
}

TEST_F(LinkSocket, MessagesKeepTheirBoundariesUpToTheLongest) {
  Pair pair(path_);
  for (std::size_t size : {std::size_t{1}, std::size_t{5000}, kMaxMessage}) {
    const std::string message(size, 'x');
    auto sent = pair.client.send(message);
    ASSERT_TRUE(sent) << sent.error().message();
    ASSERT_EQ(*sent, SendStatus::Sent);
    auto got = pair.server.receive();
    ASSERT_TRUE(got && *got);
    EXPECT_EQ(**got, message);
  }
  auto nothing = pair.server.receive();
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->has_value());
  EXPECT_TRUE(pair.client.send(std::string(kMaxMessage + 1, 'x')).error().is(std::errc::message_size));
}

TEST_F(LinkSocket, AMessageBeyondTheBoundIsAnErrorAndTheNextOneIsRead) {
  Pair pair(path_);
  const std::string huge(kMaxMessage + 1, 'x');
  ASSERT_EQ(::send(pair.client.fd(), huge.data(), huge.size(), 0), static_cast<ssize_t>(huge.size()));
  ASSERT_TRUE(pair.client.send("next"));
  auto got = pair.server.receive();
  ASSERT_FALSE(got);
  EXPECT_TRUE(got.error().is(std::errc::message_size));
  auto next = pair.server.receive();
  ASSERT_TRUE(next && *next);
  EXPECT_EQ(**next, "next");
}

TEST_F(LinkSocket, AFullSocketIsNoErrorAndDropsNothing) {
  Pair pair(path_);
  std::size_t sent = 0;
  while (true) {
    auto status = pair.client.send(std::to_string(sent));
    ASSERT_TRUE(status);
    if (*status == SendStatus::Full) break;
    ++sent;
    ASSERT_LT(sent, 1000000u);
  }
  EXPECT_GT(sent, 0u);
  for (std::size_t i = 0; i < sent; ++i) {
    auto got = pair.server.receive();
    ASSERT_TRUE(got && *got);
    ASSERT_EQ(**got, std::to_string(i));
  }
  EXPECT_EQ(*pair.client.send("again"), SendStatus::Sent);
}

TEST_F(LinkSocket, APeerThatIsGoneIsNoticedAtBothCalls) {
  Pair pair(path_);
  pair.client.close();
  auto got = pair.server.receive();
  ASSERT_FALSE(got);
  EXPECT_TRUE(got.error().is(std::errc::connection_reset));
  auto sent = pair.server.send("x");
  ASSERT_FALSE(sent);
  EXPECT_TRUE(sent.error().is(std::errc::broken_pipe));
}

TEST_F(LinkSocket, AnotherProcessIsKnownByItsCredentials) {
  auto listener = Listener::listen(path_, std::nullopt);
  ASSERT_TRUE(listener);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto connection = Connection::connect(path_);
    if (!connection || !connection->send("hello")) _exit(1);
    pollfd p = {connection->fd(), POLLIN, 0};
    poll(&p, 1, 10000);
    auto answer = connection->receive();
    _exit(answer && *answer && **answer == "welcome" ? 0 : 2);
  }
  wait_readable(listener->fd());
  auto accepted = listener->accept();
  ASSERT_TRUE(accepted && *accepted);
  Connection& server = **accepted;
  auto peer = server.peer();
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, child);
  EXPECT_EQ(peer->uid, getuid());
  EXPECT_EQ(peer->gid, getgid());
  wait_readable(server.fd());
  auto got = server.receive();
  ASSERT_TRUE(got && *got);
  EXPECT_EQ(**got, "hello");
  ASSERT_TRUE(server.send("welcome"));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace flash::link
