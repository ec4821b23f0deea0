#include "actuators/systemd_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "actuators/tuning_daemons.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kUnit = "sys/fs/cgroup/system.slice/web.service/";
const std::string kDropIns = "run/systemd/system.control/web.service.d/";

/// systemd's manager and the bus daemon's NameHasOwner at the other end of a socketpair, in a thread of its
/// own: it writes the cgroup's file and the drop-in as systemd 252 does.
class FakeSystemd {
 public:
  explicit FakeSystemd(FakeHost& host) : host_(host) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) std::abort();
    server_ = fds[1];
    thread_ = std::thread([this] { serve(); });
    sd_bus_new(&client_);
    sd_bus_set_fd(client_, fds[0], fds[0]);
    if (sd_bus_start(client_) < 0) std::abort();
  }
  ~FakeSystemd() {
    sd_bus_close(client_);
    sd_bus_unref(client_);
    thread_.join();
  }
  sd_bus* bus() { return client_; }

  std::atomic<bool> refuses{false};
  std::atomic<bool> silent{false};
  std::atomic<int> calls{0};
  std::string owned_name;  // set before the first call

 private:
  void serve() {
    sd_bus* bus = nullptr;
    sd_id128_t id{};
    sd_bus_new(&bus);
    sd_bus_set_fd(bus, server_, server_);
    sd_bus_set_server(bus, 1, id);
    sd_bus_set_anonymous(bus, 1);
    sd_bus_start(bus);
    sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager",
                             kManager, this);
    sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/DBus", "org.freedesktop.DBus", kDaemon, this);
    for (;;) {
      const int r = sd_bus_process(bus, nullptr);
      if (r < 0) break;
      if (r == 0 && sd_bus_wait(bus, 100'000) < 0) break;
    }
    sd_bus_unref(bus);
  }
  static int set_properties(sd_bus_message* m, void* data, sd_bus_error* error) {
    auto& self = *static_cast<FakeSystemd*>(data);
    ++self.calls;
    if (self.silent) return 1;
    if (self.refuses)
      return sd_bus_error_set(error, "org.freedesktop.systemd1.NoSuchUnit", "Unit web.service not loaded.");
    const char *unit = nullptr, *property = nullptr;
    int runtime = 0;
    std::uint64_t value = 0;
    if (sd_bus_message_read(m, "sb", &unit, &runtime) < 0 ||
        sd_bus_message_enter_container(m, 'a', "(sv)") < 0 ||
        sd_bus_message_enter_container(m, 'r', "sv") < 0 || sd_bus_message_read(m, "s", &property) < 0 ||
        sd_bus_message_read(m, "v", "t", &value) < 0 || !runtime || std::string(unit) != "web.service")
      return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, "not what systemd takes");
    const bool cpu = std::string(property) == "CPUQuotaPerSecUSec";
    const std::string name = cpu ? "CPUQuota" : property;
    const bool none = value == UINT64_MAX;
    char percent[32];
    std::snprintf(percent, sizeof percent, "%.2f%%", static_cast<double>(value) / 1e4);
    self.host_.write(kDropIns + "50-" + name + ".conf",
                     "# This is a drop-in\n[Service]\n" + name + "=" +
                         (cpu ? (none ? "" : percent) : (none ? "infinity" : std::to_string(value))) + "\n");
    if (std::filesystem::exists(self.host_.path() / kUnit)) {
      if (cpu)
        self.host_.write(kUnit + "cpu.max", none ? "max 100000\n" : std::to_string(value / 10) + " 100000\n");
      else
        self.host_.write(kUnit + "memory.high", none ? "max\n" : std::to_string(value) + "\n");
    }
    return sd_bus_reply_method_return(m, "");
  }
  static int has_owner(sd_bus_message* m, void* data, sd_bus_error*) {
    const char* name = nullptr;
    sd_bus_message_read(m, "s", &name);
    return sd_bus_reply_method_return(m, "b", name == static_cast<FakeSystemd*>(data)->owned_name);
  }
  static const sd_bus_vtable kManager[], kDaemon[];

  FakeHost& host_;
  int server_ = -1;
  sd_bus* client_ = nullptr;
  std::thread thread_;
};

const sd_bus_vtable FakeSystemd::kManager[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("SetUnitProperties", "sba(sv)", "", set_properties, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END};
const sd_bus_vtable FakeSystemd::kDaemon[] = {
    SD_BUS_VTABLE_START(0), SD_BUS_METHOD("NameHasOwner", "s", "b", has_owner, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END};

Target web() {
  Target t;
  t.id = {TargetKind::Cgroup, 3};
  t.name = t.unit = "web.service";
  t.cgroup = "/system.slice/web.service";
  t.owner = CgroupOwner::Systemd;
  return t;
}

class Systemd : public ::testing::Test {
 protected:
  Systemd()
      : host{cgroup_v2({dir("system.slice/web.service", {file("memory.high", "max\n")})})},
        systemd(host),
        driver(host.root(), *host.layout(), systemd.bus()),
        knobs(*driver.discover(web(), {})) {}
  const KnobRef& cpu() const { return knobs.at(0).ref; }
  const KnobRef& memory() const { return knobs.at(1).ref; }

  FakeHost host;
  FakeSystemd systemd;
  SystemdDriver driver;
  std::vector<KnobInfo> knobs;
};

TEST_F(Systemd, SetsRuntimePropertiesAndReadsTheFiles) {
  ASSERT_EQ(knobs.size(), 2u);
  EXPECT_EQ(knobs[0].blocked_by, "");
  EXPECT_GT(knobs[0].min_interval_s, 0.5);
  EXPECT_EQ(driver.read(cpu())->raw, "max 100000|none") << "no cpu.max yet: the controller is not enabled";
  const auto written = driver.write(cpu(), 0.5);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(host.read(kUnit + "cpu.max"), "50000 100000\n");
  EXPECT_EQ(driver.read(cpu())->value, 0.5);
  EXPECT_EQ(driver.read(cpu())->raw, "50000 100000|runtime");
  ASSERT_TRUE(driver.write(memory(), 1048576));
  EXPECT_EQ(driver.read(memory())->raw, "1048576|runtime");
}

TEST_F(Systemd, WritesWholePercentsBecauseThatIsWhatItsDropInKeeps) {
  ASSERT_TRUE(driver.write(cpu(), 0.13742));
  EXPECT_EQ(host.read(kUnit + "cpu.max"), "14000 100000\n");
  // An original goes back as it was.
  ASSERT_TRUE(driver.restore(cpu(), "13742 100000|none"));
  EXPECT_EQ(host.read(kUnit + "cpu.max"), "13742 100000\n");
}

TEST_F(Systemd, RestoreTakesOurDropInAwayWithoutATrace) {
  const auto original = driver.read(cpu())->raw;
  ASSERT_TRUE(driver.write(cpu(), 0.5));
  ASSERT_TRUE(driver.restore(cpu(), original));
  EXPECT_EQ(driver.read(cpu())->raw, original);
  EXPECT_EQ(host.read(kDropIns + "50-CPUQuota.conf"), "");
  struct stat st {};
  ASSERT_EQ(::stat((host.path() / (kDropIns + "50-CPUQuota.conf")).c_str(), &st), 0);
}

TEST_F(Systemd, ADropInThatWasThereBeforeStays) {
  ASSERT_TRUE(driver.write(memory(), 2097152));  // stands for systemctl set-property --runtime
  const auto original = driver.read(memory())->raw;
  ASSERT_TRUE(driver.write(memory(), 1048576));
  ASSERT_TRUE(driver.restore(memory(), original));
  EXPECT_EQ(driver.read(memory())->raw, "2097152|runtime");
  EXPECT_THAT(host.read(kDropIns + "50-MemoryHigh.conf"), HasSubstr("2097152"));
}

TEST_F(Systemd, APropertyOutlivesTheCgroupAndIsTakenBackAllTheSame) {
  const auto original = driver.read(cpu())->raw;
  ASSERT_TRUE(driver.write(cpu(), 0.5));
  host.remove("sys/fs/cgroup/system.slice/web.service");
  const auto stopped = driver.read(cpu());
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->value, 0.5) << "from the drop-in";
  EXPECT_FALSE(driver.write(cpu(), 0.6)) << "nothing is written to what does not run";
  ASSERT_TRUE(driver.restore(cpu(), original));
  const auto gone = driver.read(cpu());
  ASSERT_FALSE(gone);
  EXPECT_TRUE(vanished(gone.error()));
}

TEST_F(Systemd, ARestartedUnitIsTheSameKnob) {
  ASSERT_TRUE(driver.write(cpu(), 0.5));
  host.remove("sys/fs/cgroup/system.slice/web.service");
  host.write(kUnit + "cpu.max", "50000 100000\n");
  host.write(kUnit + "memory.high", "max\n");
  EXPECT_EQ(driver.read(cpu())->raw, "50000 100000|runtime");
  ASSERT_TRUE(driver.restore(cpu(), "max 100000|none"));
  EXPECT_EQ(host.read(kUnit + "cpu.max"), "max 100000\n");
}

TEST_F(Systemd, SaysWhatSystemdSaid) {
  systemd.refuses = true;
  const auto written = driver.write(cpu(), 0.5);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("Unit web.service not loaded."));
}

TEST_F(Systemd, IsNotAskedAgainForAWhileWhenItDoesNotAnswer) {
  SystemdDriver impatient(host.root(), *host.layout(), systemd.bus(),
                          {std::chrono::milliseconds(20), std::chrono::hours(1)});
  ASSERT_TRUE(impatient.write(cpu(), 0.5));
  systemd.silent = true;
  EXPECT_TRUE(impatient.write(cpu(), 0.6).error().is(std::errc::timed_out));
  systemd.silent = false;
  EXPECT_TRUE(impatient.write(cpu(), 0.7).error().is(std::errc::timed_out));
  EXPECT_TRUE(impatient.write(memory(), 1 << 30).error().is(std::errc::timed_out));
  EXPECT_EQ(systemd.calls, 2) << "each unit would cost its own wait";
}

TEST_F(Systemd, WithoutABusKnobsAreReadAndBlocked) {
  driver.set_bus(nullptr);
  const auto found = *driver.discover(web(), {});
  EXPECT_THAT(found[0].blocked_by, HasSubstr("no system bus"));
  EXPECT_TRUE(driver.read(found[1].ref));
  EXPECT_FALSE(driver.write(found[1].ref, 1048576));
}

TEST_F(Systemd, OnlySystemdsOwnAreItsBusiness) {
  Target t = web();
  t.owner = CgroupOwner::Delegated;
  EXPECT_THAT(*driver.discover(t, {}), IsEmpty());
}

TEST_F(Systemd, RefusesAnOriginalThatIsNone) {
  for (const char* bad : {"", "max", "lots|none"}) EXPECT_FALSE(driver.restore(memory(), bad)) << bad;
}

TEST(DropInValue, ReadsWhatSystemdWrites) {
  const auto cpu = [](std::string_view text) { return drop_in_value(text, KnobKind::CpuLimit, "CPUQuota"); };
  EXPECT_EQ(cpu("[Service]\nCPUQuota=150.50%\n"), 1.505);
  EXPECT_EQ(cpu("[Service]\nCPUQuota=\n"), kUnlimited);
  EXPECT_EQ(cpu("[Service]\nCPUQuotaPeriodSec=1\n"), std::nullopt);
  EXPECT_EQ(cpu("CPUQuota=much%\n"), std::nullopt);
  EXPECT_EQ(cpu("CPUQuota=50\n"), std::nullopt);
  EXPECT_EQ(drop_in_value("MemoryHigh=4096", KnobKind::MemoryLimit, "MemoryHigh"), 4096);
  EXPECT_EQ(drop_in_value("MemoryHigh=infinity", KnobKind::MemoryLimit, "MemoryHigh"), kUnlimited);
}

TEST(TuningDaemons, AreSeenByTheNamesTheyOwn) {
  FakeHost host{proc({})};
  for (const char* name : {"net.hadess.PowerProfiles", "org.freedesktop.UPower.PowerProfiles",
                           "com.redhat.tuned", "org.freedesktop.thermald"}) {
    FakeSystemd bus(host);
    bus.owned_name = name;
    EXPECT_THAT(TuningDaemons(bus.bus()).in_charge(), HasSubstr(name));
  }
  FakeSystemd bus(host);
  EXPECT_EQ(TuningDaemons(bus.bus()).in_charge(), "");
  EXPECT_EQ(TuningDaemons(nullptr).in_charge(), "");
}

}  // namespace
}  // namespace flash
