#include "lab/workloads/statsd.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "lab/workloads/net.h"

namespace flash {
namespace {

using std::chrono::microseconds;

TEST(StatsdLine, IsATimerInMillisecondsWithTheApplicationTag) {
  EXPECT_EQ(statsd_timer_line(kLatencyMetric, microseconds(12'300), "shop"),
            "flash_request_latency:12.300|ms|#app:shop");
}

TEST(StatsdLine, IsACounterWithTheApplicationTag) {
  EXPECT_EQ(statsd_counter_line(kRequestsMetric, 5, "shop"), "flash_requests:5|c|#app:shop");
}

TEST(AppName, RejectsWhatWouldBreakTheLine) {
  for (const std::string_view bad : {"", "a|b", "a,b", "a#b", "a\nb", "a b", "a@b"}) {
    EXPECT_TRUE(std::holds_alternative<UsageError>(parse_app_name(bad))) << bad;
  }
  EXPECT_EQ(std::get<std::string>(parse_app_name("shop-1/web:2")), "shop-1/web:2");
}

/// A listener on a path that goes when the test ends.
class Listener {
 public:
  Listener() : path_(testing::TempDir() + "statsd-" + std::to_string(getpid()) + ".sock") {
    fd_ = UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    unlink(path_.c_str());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Listener() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::string receive() {
    char buffer[65536];
    const auto size = recv(fd_.get(), buffer, sizeof buffer, 0);
    return {buffer, size > 0 ? static_cast<std::size_t>(size) : 0};
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

std::unique_ptr<StatsdEmitter> emitter_to(const std::string& destination) {
  return std::get<std::unique_ptr<StatsdEmitter>>(StatsdEmitter::open(destination, "shop"));
}

TEST(StatsdEmitter, SendsTimersAndTheirCountInOnePacket) {
  Listener listener;
  const auto emitter = emitter_to(listener.path());
  emitter->record(microseconds(1500));
  emitter->record(microseconds(2500));
  emitter->flush();
  EXPECT_EQ(listener.receive(),
            "flash_request_latency:1.500|ms|#app:shop\nflash_request_latency:2.500|ms|#app:shop\n"
            "flash_requests:2|c|#app:shop");
  emitter->flush();
  EXPECT_EQ(listener.receive(), "");
}

std::size_t timers_in(const std::string& packet) {
  std::size_t timers = 0;
  for (auto at = packet.find("|ms|"); at != std::string::npos; at = packet.find("|ms|", at + 1)) {
    ++timers;
  }
  return timers;
}

TEST(StatsdEmitter, NeverExceedsThePacketAndLosesNoLine) {
  Listener listener;
  const auto emitter = emitter_to(listener.path());
  std::size_t timers = 0;
  for (int i = 0; i < 1000; ++i) {
    emitter->record(microseconds(i));  // more packets than the socket's queue holds; the rest waits
  }
  for (int flushes = 0; flushes < 100 && timers < 1000; ++flushes) {
    emitter->flush();
    for (std::string packet = listener.receive(); !packet.empty(); packet = listener.receive()) {
      EXPECT_LE(packet.size(), kStatsdPacketMax);
      timers += timers_in(packet);
    }
  }
  EXPECT_EQ(timers, 1000U);
  EXPECT_EQ(emitter->totals().packets_dropped, 0U);
}

TEST(StatsdEmitter, CountsPacketsNobodyTakesAndRecoversWhenSomebodyComes) {
  std::string path;
  {
    Listener gone;
    path = gone.path();
  }
  const auto emitter = emitter_to(path);
  emitter->record(microseconds(1));
  emitter->flush();
  EXPECT_EQ(emitter->totals().packets_dropped, 1U);
  Listener listener;
  emitter->record(microseconds(1));
  emitter->flush();
  EXPECT_NE(listener.receive(), "");
  EXPECT_EQ(emitter->totals().packets_sent, 1U);
}

TEST(StatsdEmitter, NeverWaitsForAListenerThatDoesNotRead) {
  Listener listener;
  const auto emitter = emitter_to(listener.path());
  for (int i = 0; i < 100'000; ++i) {
    emitter->record(microseconds(i));  // would hang here forever if it blocked
  }
  EXPECT_GT(emitter->totals().packets_dropped, 0U);
}

TEST(StatsdEmitter, RejectsADestinationThatIsNeitherPathNorAddress) {
  for (const std::string& bad :
       {std::string("statsd"), "/" + std::string(200, 'a'), std::string("localhost:8125")}) {
    EXPECT_TRUE(std::holds_alternative<UsageError>(StatsdEmitter::open(bad, "shop"))) << bad;
  }
}

}  // namespace
}  // namespace flash
