// org.flashd.Sync on a bus with a system bus' rules and the policy that is shipped.
#include "sync/bus_service.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <stdlib.h>

#include <fstream>
#include <future>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/private_bus.h"

namespace flash::sync {
namespace {

using testing::HasSubstr;

class BusServiceTest : public testing::Test {
 protected:
  BusServiceTest() : bus_(FLASH_SOURCE_DIR) { setenv("DBUS_SYSTEM_BUS_ADDRESS", bus_.address().c_str(), 1); }
  ~BusServiceTest() override { unsetenv("DBUS_SYSTEM_BUS_ADDRESS"); }

  BusCallbacks callbacks() {
    return {[this] { return state_; }, [this](int, const std::string& text) { said_ += text + "\n"; }};
  }
  /// Lets the service work while `ask` waits for it on another thread.
  template <class Ask>
  auto meanwhile(BusService& service, Ask ask) {
    auto answer = std::async(std::launch::async, ask);
    while (answer.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) service.run(now_);
    return answer.get();
  }
  void run_for_a_while(BusService& service) {
    for (int i = 0; i < 50; ++i) {
      service.run(now_);
      pollfd fds{service.fd(), service.events(), 0};
      poll(&fds, 1, 5);
    }
  }

  fake::PrivateBus bus_;
  BusState state_;
  std::string said_;
  Duration now_ = std::chrono::hours(1);
};

std::string text_property(const fake::PrivateBus& bus, const char* name) {
  char* text = nullptr;
  const auto client = bus.connect();
  const int r =
      sd_bus_get_property_string(client.get(), kBusName, kBusPath, kBusInterface, name, nullptr, &text);
  const std::string out = r < 0 ? std::string("error ") + strerror(-r) : text;
  free(text);
  return out;
}

std::uint64_t number_property(const fake::PrivateBus& bus, const char* name) {
  std::uint64_t value = 0;
  const auto client = bus.connect();
  sd_bus_get_property_trivial(client.get(), kBusName, kBusPath, kBusInterface, name, nullptr, 't', &value);
  return value;
}

TEST_F(BusServiceTest, SaysHowTheWayToTheFleetIs) {
  state_.server = "tls://hub:4222";
  state_.outbox = 7;
  BusService service(callbacks());
  run_for_a_while(service);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(meanwhile(service, [&] { return text_property(bus_, "Server"); }), "tls://hub:4222");
  EXPECT_EQ(meanwhile(service, [&] { return number_property(bus_, "Outbox"); }), 7u);
  state_.outbox = 8;
  EXPECT_EQ(meanwhile(service, [&] { return number_property(bus_, "Outbox"); }), 8u);
}

TEST_F(BusServiceTest, AnotherOneThatHasTheNameKeepsIt) {
  state_.node = "first";
  BusService first(callbacks());
  run_for_a_while(first);
  BusState other;
  other.node = "second";
  std::string said;
  BusService second({[other] { return other; }, [&said](int, const std::string& text) { said += text; }});
  run_for_a_while(second);
  EXPECT_EQ(meanwhile(first, [&] { return text_property(bus_, "Node"); }), "first");
}

TEST_F(BusServiceTest, WithoutABusItGoesOnAndTriesAgain) {
  setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere/bus", 1);
  BusService service(callbacks());
  EXPECT_EQ(service.run(now_), std::chrono::minutes(1));
  EXPECT_EQ(service.fd(), -1);
  EXPECT_THAT(said_, HasSubstr("no system bus"));
  setenv("DBUS_SYSTEM_BUS_ADDRESS", bus_.address().c_str(), 1);
  service.run(now_ + std::chrono::seconds(59));
  EXPECT_EQ(service.fd(), -1);
  now_ += std::chrono::seconds(61);
  run_for_a_while(service);
  EXPECT_EQ(meanwhile(service, [&] { return text_property(bus_, "Version"); }), "");
}

TEST(SyncBus, TheManPageHasEveryPropertyAndNoOther) {
  std::set<std::string> properties;
  for (const sd_bus_vtable* row = sync_vtable(); row->type != _SD_BUS_VTABLE_END; ++row)
    if (row->type == _SD_BUS_VTABLE_PROPERTY)
      properties.insert(std::string(row->x.property.member) + " (" + row->x.property.signature + ")");
  std::stringstream text;
  text << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/docs/man/org.flashd.Sync.5").rdbuf();
  std::set<std::string> documented;
  const std::regex pattern(R"((\w+) +(\([a-z]+\))(?=,|\n))");
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(".BR ")) continue;
    line = std::regex_replace(line, std::regex("\""), "") + "\n";
    for (std::sregex_iterator i(line.begin(), line.end(), pattern), end; i != end; ++i)
      documented.insert((*i)[1].str() + " " + (*i)[2].str());
  }
  EXPECT_EQ(documented, properties);
}

}  // namespace
}  // namespace flash::sync
