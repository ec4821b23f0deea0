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

#include "tests/support/introspection.h"
#include "tests/support/private_bus.h"

namespace flash::sync {
namespace {

using testing::HasSubstr;

class BusServiceTest : public testing::Test {
 protected:
  BusServiceTest() : bus_(FLASH_SOURCE_DIR) { setenv("DBUS_SYSTEM_BUS_ADDRESS", bus_.address().c_str(), 1); }
  ~BusServiceTest() override { unsetenv("DBUS_SYSTEM_BUS_ADDRESS"); }

  BusCallbacks callbacks() {
    return {[this] { return state_; },
            [this](const coordinator::FleetQuestion& q) {
              asked_.push_back(q);
              return !away_;
            },
            [this](int, const std::string& text) { said_ += text + "\n"; }};
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
  std::vector<coordinator::FleetQuestion> asked_;
  bool away_ = false;
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
  BusService second(
      {[other] { return other; }, nullptr, [&said](int, const std::string& text) { said += text; }});
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

/// "TOTAL NODE TARGET ..." of the rows that came, or the error.
std::string fleet(const fake::PrivateBus& bus, const char* what, const char* text, std::uint64_t offset) {
  const auto client = bus.connect();
  sd_bus_error error = SD_BUS_ERROR_NULL;
  sd_bus_message* reply = nullptr;
  std::string out;
  if (sd_bus_call_method(client.get(), kBusName, kBusPath, kBusInterface, "Fleet", &error, &reply, "sst",
                         what, text, offset) < 0) {
    out = std::string(error.name) + ": " + error.message;
    sd_bus_error_free(&error);
    return out;
  }
  std::uint64_t total = 0, agents = 0, serving = 0, time = 0;
  double reward = 0, fallback = 0;
  const char *node = "", *pool = "", *target = "", *application = "", *task = "", *stage = "";
  sd_bus_message_read(reply, "t", &total);
  out = std::to_string(total);
  sd_bus_message_enter_container(reply, 'a', "(ssssssttddt)");
  while (sd_bus_message_read(reply, "(ssssssttddt)", &node, &pool, &target, &application, &task, &stage,
                             &agents, &serving, &reward, &fallback, &time) > 0)
    out += std::string(" ") + node + " " + target + " " + stage + " " + std::to_string(reward);
  sd_bus_message_unref(reply);
  return out;
}

TEST_F(BusServiceTest, AsksTheCoordinatorForAPage) {
  BusService service(callbacks());
  run_for_a_while(service);
  auto answer = std::async(std::launch::async, [&] { return fleet(bus_, "agents", "web", 50); });
  while (asked_.empty()) service.run(now_);
  EXPECT_TRUE(asked_[0].agents);
  EXPECT_EQ(asked_[0].text, "web");
  EXPECT_EQ(asked_[0].offset, 50u);
  coordinator::FleetRow good{.node = "n1", .pool = "p", .target = "web.service", .application = "shop"};
  good.reward = 0.5;
  coordinator::FleetRow strange = good;
  strange.target = "\xff";
  service.answered({asked_[0].id + 1, 7, {}});  // of another question
  service.answered({asked_[0].id, 52, {good, strange}});
  service.run(now_);
  EXPECT_EQ(meanwhile(service, [&] { return answer.get(); }), "52 n1 web.service initialized 0.500000");
}

TEST_F(BusServiceTest, SaysWhyThereIsNoPage) {
  BusService service(callbacks());
  run_for_a_while(service);
  EXPECT_THAT(meanwhile(service, [&] { return fleet(bus_, "pods", "", 0); }), HasSubstr("InvalidArgs"));
  EXPECT_THAT(meanwhile(service, [&] { return fleet(bus_, "nodes", "", UINT64_MAX); }), HasSubstr("offset"));
  EXPECT_THAT(meanwhile(service, [&] { return fleet(bus_, "nodes", "a\nb", 0); }), HasSubstr("text"));
  away_ = true;
  EXPECT_THAT(meanwhile(service, [&] { return fleet(bus_, "nodes", "", 0); }), HasSubstr("not connected"));
  away_ = false;
  asked_.clear();
  auto answer = std::async(std::launch::async, [&] { return fleet(bus_, "nodes", "", 0); });
  while (asked_.empty()) service.run(now_);
  now_ += std::chrono::seconds(11);
  EXPECT_THAT(meanwhile(service, [&] { return answer.get(); }), HasSubstr("does not answer"));
}

TEST_F(BusServiceTest, SixteenCallsMayWait) {
  BusService service(callbacks());
  run_for_a_while(service);
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 16; ++i)
    answers.push_back(std::async(std::launch::async, [&] { return fleet(bus_, "nodes", "", 0); }));
  while (asked_.size() < answers.size()) service.run(now_);
  EXPECT_LE(service.run(now_), std::chrono::seconds(1));  // somebody waits
  EXPECT_THAT(meanwhile(service, [&] { return fleet(bus_, "nodes", "", 0); }), HasSubstr("LimitsExceeded"));
  now_ += std::chrono::seconds(11);
  for (auto& answer : answers)
    EXPECT_THAT(meanwhile(service, [&] { return answer.get(); }), HasSubstr("does not answer"));
}

std::string introspection(const fake::PrivateBus& bus) {
  const auto client = bus.connect();
  sd_bus_message* reply = nullptr;
  const char* xml = "";
  if (sd_bus_call_method(client.get(), kBusName, kBusPath, "org.freedesktop.DBus.Introspectable",
                         "Introspect", nullptr, &reply, "") >= 0)
    sd_bus_message_read(reply, "s", &xml);
  std::string out = xml;
  sd_bus_message_unref(reply);
  return out;
}

/// "Fleet (s what) \(-> t total", "Node (s)" of the page's section of the interface.
std::set<std::string> documented_members() {
  std::stringstream page;
  page << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/docs/man/org.flashd.Sync.5").rdbuf();
  std::set<std::string> out;
  const std::regex properties(R"((\w+) +(\([a-z]+\))(?=,|$))");
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(".SH ")) inside = line.find(kBusInterface) != std::string::npos;
    if (!inside || !line.starts_with(".BR ")) continue;
    line = std::regex_replace(line.substr(4), std::regex("\""), "");
    line = std::regex_replace(line, std::regex(" +"), " ");
    std::sregex_iterator i(line.begin(), line.end(), properties), end;
    if (i == end) out.insert(line);
    for (; i != end; ++i) out.insert((*i)[1].str() + " " + (*i)[2].str());
  }
  return out;
}

TEST_F(BusServiceTest, TheManPageHasEveryMemberAndNoOther) {
  BusService service(callbacks());
  run_for_a_while(service);
  std::set<std::string> said;
  for (const std::string& line :
       members(meanwhile(service, [&] { return introspection(bus_); }), kBusInterface)) {
    std::istringstream words(line);
    std::string kind, name, type;
    words >> kind >> name >> type;
    said.insert(name + " " + (kind == "property" ? "(" + type + ")" : arguments_in_roff(line)));
  }
  EXPECT_TRUE(said.contains("Node (s)"));
  EXPECT_EQ(documented_members(), said);
}

}  // namespace
}  // namespace flash::sync
