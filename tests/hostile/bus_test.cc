// What an unprivileged user of the bus, or a second flashd, could do to the one in control.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"

namespace flash::hostile {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// A connection of the attacker's; null where the bus takes no more.
sd_bus* dial(const std::string& address) {
  sd_bus* bus = nullptr;
  const char* name = nullptr;
  if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address.c_str()) < 0 ||
      sd_bus_set_bus_client(bus, 1) < 0 || sd_bus_start(bus) < 0 || sd_bus_get_unique_name(bus, &name) < 0) {
    sd_bus_unref(bus);
    return nullptr;
  }
  return bus;
}

sd_bus_message* call_of(sd_bus* bus, const char* path, const char* interface, const char* member) {
  sd_bus_message* m = nullptr;
  return sd_bus_message_new_method_call(bus, &m, kName, path, interface, member) < 0 ? nullptr : m;
}

class HostileBus : public ControlledHost {
 protected:
  void SetUp() override { set_up("hostile-bus"); }
  void start() {
    flashd_ = std::make_unique<Flashd>(
        std::vector<std::string>{"--config", config_, "--bus", bus_->address()}, folder_.path() + "/log");
    root_ = bus_->connect();
    ASSERT_TRUE(await([&] { return ticks() > 0 && cgroup_->knob() != original_; })) << flashd_->log();
  }
  std::uint64_t ticks() {
    std::uint64_t n = 0;
    (void)sd_bus_get_property_trivial(root_.get(), kName, kRoot, kManager, "Ticks", nullptr, 't', &n);
    return n;
  }
  /// As flashctl does it: a connection of its own. Empty if it was done, else why not; `ms`: how long it
  /// took.
  std::string root_call(const char* member, const char* types, double& ms, const char* a = nullptr,
                        std::uint64_t seconds = 0, const char* b = nullptr) {
    const auto begun = Clock::now();
    auto bus = bus_->connect();
    sd_bus_error error = SD_BUS_ERROR_NULL;
    int r = 0;
    if (std::strcmp(types, "sts") == 0)
      r = sd_bus_call_method(bus.get(), kName, kRoot, kManager, member, &error, nullptr, types, a, seconds,
                             b);
    else if (std::strcmp(types, "s") == 0)
      r = sd_bus_call_method(bus.get(), kName, kRoot, kManager, member, &error, nullptr, types, a);
    else
      r = sd_bus_call_method(bus.get(), kName, kRoot, kManager, member, &error, nullptr, "");
    ms = ms_since(begun);
    std::string why = r >= 0 ? "" : error.message ? error.message : std::strerror(-r);
    sd_bus_error_free(&error);
    return why;
  }
  /// Six times the kill switch, and a hold in between; all of it must be done. The longest in milliseconds.
  double operate() {
    double longest = 0, ms = 0;
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(root_call("Disable", "s", ms, "under attack"), "") << i;
      longest = std::max(longest, ms);
      EXPECT_EQ(root_call("Enable", "", ms), "") << i;
      longest = std::max(longest, ms);
      EXPECT_EQ(root_call("Hold", "sts", ms, "", 1, "under attack"), "") << i;
      longest = std::max(longest, ms);
      std::this_thread::sleep_for(100ms);
    }
    return longest;
  }
  void expect_restored() {
    EXPECT_EQ(flashd_->end(SIGTERM), 0);
    EXPECT_EQ(cgroup_->knob(), original_);
  }

  fake::BusPtr root_;
};

/// 100 connections that keep 120 changing calls each on their way.
void flood_with_changes(const std::string& address, const std::string& text) {
  std::vector<sd_bus*> all;
  for (int i = 0; i < 100; ++i)
    if (sd_bus* bus = dial(address)) all.push_back(bus);
  std::vector<int> waiting(all.size());
  const auto answered = [](sd_bus_message*, void* n, sd_bus_error*) {
    --*static_cast<int*>(n);
    return 0;
  };
  for (;;)
    for (std::size_t i = 0; i < all.size(); ++i) {
      while (waiting[i] < 120) {
        sd_bus_message* m = call_of(all[i], kRoot, kManager, "SetMode");
        (void)sd_bus_message_append(m, "ss", text.c_str(), "observe");
        if (sd_bus_call_async(all[i], nullptr, m, answered, &waiting[i], UINT64_MAX) >= 0) ++waiting[i];
        sd_bus_message_unref(m);
      }
      while (sd_bus_process(all[i], nullptr) > 0) {
      }
    }
}

// 6 of 6 calls of root's were refused, "too many calls wait for authorisation", and 14.6 MB were logged in
// ten seconds.
TEST_F(HostileBus, AFloodOfChangesDoesNotDenyTheKillSwitch) {
  start();
  const std::string address = bus_->address();
  Attacker attacker([&] { flood_with_changes(address, std::string(1000, 'x')); });
  std::this_thread::sleep_for(1s);
  const std::size_t log_before = flashd_->log().size();
  const auto begun = Clock::now();
  const double longest = operate();
  const std::uint64_t before = ticks();
  while (ms_since(begun) < 4000) std::this_thread::sleep_for(10ms);
  const double log_kb = static_cast<double>(flashd_->log().size() - log_before) / 1e3;
  std::printf("longest call of root's %.0f ms, log %.1f kB, peak %.0f MiB\n", longest, log_kb,
              flashd_->memory_mib("VmHWM"));
  EXPECT_TRUE(await([&] { return ticks() > before; })) << "flashd does not tick";
  EXPECT_LT(log_kb, 60) << "denied calls are logged at a rate";
  const std::string log_file = folder_.path() + "/log";
  expect_restored();
  EXPECT_THAT(text_of(log_file), HasSubstr("more calls of uid 65534"));
  EXPECT_THAT(text_of(log_file), HasSubstr("Disable('under attack') by uid 0"))
      << "what was done is logged, always";
}

/// Asks for the largest answers there are, and reads none.
void ask_and_never_read(const std::string& address, const std::string& agent) {
  std::vector<sd_bus*> all;
  for (int i = 0; i < 60; ++i)
    if (sd_bus* bus = dial(address)) all.push_back(bus);
  for (;;)
    for (sd_bus* bus : all)
      for (int i = 0; i < 20; ++i) {
        sd_bus_message* m = nullptr;
        if (i % 3 == 0) {
          m = call_of(bus, kRoot, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects");
        } else if (i % 3 == 1) {
          m = call_of(bus, agent.c_str(), "org.flashd.Agent1", "Why");
          (void)sd_bus_message_append(m, "u", 1000);
        } else {
          m = call_of(bus, kRoot, "org.freedesktop.DBus.Introspectable", "Introspect");
        }
        (void)sd_bus_send(bus, m, nullptr);  // not flushed: written as far as the socket takes it
        sd_bus_message_unref(m);
      }
}

// Memory went from 10 to 1,241 MiB in 24 s and stayed there; a hold of root's took 26 s.
TEST_F(HostileBus, AnswersThatNobodyReadsDoNotFillTheMemory) {
  std::vector<std::unique_ptr<OwnCgroup>> more;
  for (int i = 0; i < 40; ++i)
    more.push_back(std::make_unique<OwnCgroup>(*CgroupLayout::detect(HostRoot()),
                                               cgroup_->path() + "-" + std::to_string(i)));
  write_config(config_, cgroup_->path() + "*", folder_.path() + "/state");
  start();
  ASSERT_TRUE(await([&] { return ticks() > 60; }));
  const double before = flashd_->memory_mib("VmRSS");
  std::string agent;
  {
    sd_bus_message* reply = nullptr;
    const char* path = "";
    ASSERT_GE(sd_bus_call_method(root_.get(), kName, kRoot, kManager, "GetAgent", nullptr, &reply, "s",
                                 cgroup_->path().c_str()),
              0);
    (void)sd_bus_message_read(reply, "o", &path);
    agent = path;
    sd_bus_message_unref(reply);
  }
  const std::string address = bus_->address();
  double longest = 0, bus_itself = 0;
  {
    Attacker attacker([&] { ask_and_never_read(address, agent); });
    const auto begun = Clock::now();
    while (ms_since(begun) < 6000) {
      double ms = 0;
      const auto asked = Clock::now();
      (void)sd_bus_call_method(bus_->connect().get(), "org.freedesktop.DBus", "/org/freedesktop/DBus",
                               "org.freedesktop.DBus", "GetId", nullptr, nullptr, "");
      bus_itself = std::max(bus_itself, ms_since(asked));
      EXPECT_EQ(root_call("Hold", "sts", ms, "", 1, "under attack"), "");
      longest = std::max(longest, ms);
      std::this_thread::sleep_for(200ms);
    }
  }
  const std::uint64_t ticked = ticks();
  EXPECT_TRUE(await([&] { return ticks() > ticked + 5; }));
  const double peak = flashd_->memory_mib("VmHWM"), after = flashd_->memory_mib("VmRSS");
  std::printf(
      "memory %.0f MiB before, %.0f at the most, %.0f after; longest call of root's %.0f ms, of the bus "
      "itself %.0f ms\n",
      before, peak, after, longest, bus_itself);
  EXPECT_LT(peak, before + 54) << "bytes on their way are bounded";
  EXPECT_LT(after, before + 16) << "and given back";
  expect_restored();
}

// -- two in control

class TwoFlashd : public HostileBus {
 protected:
  /// The one in control has written; what it found is in its ledger.
  void start_first(const std::string& bus) {
    first_ = std::make_unique<Flashd>(std::vector<std::string>{"--config", config_, "--bus", bus},
                                      folder_.path() + "/log");
    ASSERT_TRUE(await([&] { return cgroup_->knob() != original_; })) << first_->log();
  }
  std::string other_config() {
    return write_config(folder_.path() + "/other.json", cgroup_->path(), folder_.path() + "/other");
  }
  void TearDown() override {
    first_.reset();
    HostileBus::TearDown();
  }
  std::unique_ptr<Flashd> first_;
};

// The second had no bus name, wrote on, and kept the first one's values as originals: after both had ended
// the limit stayed.
TEST_F(TwoFlashd, ASecondWithAnotherStateDirectoryEndsWithAMessage) {
  const std::string config = other_config();
  for (const std::string& bus : {bus_->address(), std::string("none")}) {
    start_first(bus);
    for (const std::string& second_bus : {bus_->address(), std::string("none")}) {
      Flashd second({"--config", config, "--bus", second_bus}, folder_.path() + "/second");
      EXPECT_EQ(second.wait(), 1) << bus << ", " << second_bus;
      EXPECT_THAT(second.log(),
                  HasSubstr("another flashd controls this host (pid " + std::to_string(first_->pid())));
      EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/other/ledger"));
    }
    EXPECT_EQ(first_->end(SIGTERM), 0);
    EXPECT_EQ(cgroup_->knob(), original_);
    first_.reset();
  }
}

// A look at what it would do is harmless.
TEST_F(TwoFlashd, ADryRunBesideItWritesNothing) {
  start_first(bus_->address());
  Flashd second({"--config", other_config(), "--bus", bus_->address(), "--dry-run"},
                folder_.path() + "/second");
  EXPECT_TRUE(await([&] { return second.log().find("started") != std::string::npos; })) << second.log();
  EXPECT_EQ(second.end(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/other"));
  EXPECT_EQ(first_->end(SIGTERM), 0);
  EXPECT_EQ(cgroup_->knob(), original_);
}

// The name is somebody else's, and the lock another: no write either.
TEST_F(TwoFlashd, WhereTheNameIsTakenNothingIsWritten) {
  auto owner = bus_->connect();
  ASSERT_GE(sd_bus_request_name(owner.get(), kName, 0), 0);
  const std::string lock = folder_.path() + "/lock";
  Flashd second({"--config", config_, "--bus", bus_->address(), "--lock", lock}, folder_.path() + "/second");
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.log(), HasSubstr("the bus name org.flashd is taken"));
  EXPECT_EQ(cgroup_->knob(), original_);
}

// After a crash the next one had another state directory: the crashed one's values became its originals, for
// good.
TEST_F(TwoFlashd, WhatOneWithAnotherStateDirectoryLeftIsPutBackFirst) {
  start_first("none");
  (void)first_->end(SIGKILL);
  ASSERT_NE(cgroup_->knob(), original_);
  Flashd second({"--config", other_config(), "--bus", "none"}, folder_.path() + "/second");
  EXPECT_TRUE(await([&] { return second.log().find("(written)") != std::string::npos; })) << second.log();
  EXPECT_THAT(second.log(), HasSubstr("the flashd before had its ledger in " + folder_.path() + "/state"));
  EXPECT_EQ(second.end(SIGTERM), 0);
  EXPECT_EQ(cgroup_->knob(), original_);
}

// The name goes with the bus; control does not, for the lock is held.
TEST_F(TwoFlashd, ABusThatGoesTakesTheNameButNotControl) {
  start();
  root_.reset();
  bus_.reset();
  EXPECT_TRUE(
      await([&] { return flashd_->log().find("the bus is gone; control goes on") != std::string::npos; }));
  const auto writes = [&] {
    const std::string log = flashd_->log();
    std::size_t n = 0;
    for (auto at = log.find("(written)"); at != std::string::npos; at = log.find("(written)", at + 1)) ++n;
    return n;
  };
  const std::size_t before = writes();
  cgroup_->rest();  // less is used: the limit follows
  EXPECT_TRUE(await([&] { return writes() > before; })) << flashd_->log();
  expect_restored();
}

}  // namespace
}  // namespace flash::hostile
