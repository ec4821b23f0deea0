#include "actuators/limit_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actuators/cgroup_driver.h"
#include "actuators/systemd_driver.h"
#include "host/parse.h"
#include "tests/support/fake_host.h"

namespace flash::limit_files_test {
namespace {

using ::testing::HasSubstr;

TEST(LimitFiles, EveryRowCanBeReadWrittenAndManaged) {
  for (const LimitFile& row : limit_files) {
    SCOPED_TRACE(traits(row.knob).name);
    EXPECT_EQ(traits(row.knob).task, Task::ResourceLimits);
    EXPECT_EQ(limit_file(row.knob), &row);
    EXPECT_TRUE(row.v1.value || row.v2.value);
    EXPECT_TRUE(row.parse && row.print);
    EXPECT_EQ(row.instances == nullptr, row.line == nullptr);
    EXPECT_TRUE(Rule{}.limits[row.knob].manage) << "what is not asked for is managed by default";
  }
  EXPECT_EQ(limit_file(KnobKind::CpuFrequency), nullptr);
}

TEST(LimitFiles, SayTheSameInBothVersions) {
  const LimitFile& cpu = *limit_file(KnobKind::CpuLimit);
  const LimitText v1{CgroupVersion::V1, {}, "150000\n", "100000\n"},
      v2{CgroupVersion::V2, {}, "75000 50000\n", {}};
  EXPECT_EQ(*cpu.parse(v1), 1.5);
  EXPECT_EQ(*cpu.parse(v2), 1.5);
  EXPECT_EQ(*cpu.print(0.5, v1), "50000");
  EXPECT_EQ(*cpu.print(0.5, v2), "25000 50000");
  EXPECT_EQ(*cpu.print(kUnlimited, v1), "-1");
  EXPECT_EQ(*cpu.print(kUnlimited, v2), "max 50000");
  EXPECT_EQ(*cpu.print(0.0001, v2), "1000 50000") << "the kernel's least quota";
  EXPECT_EQ(cpu.least(v1), 0.01);
  EXPECT_EQ(cpu.least(v2), 0.02);
  EXPECT_FALSE(cpu.print(1, {CgroupVersion::V2, {}, "max", {}})) << "no period";
  const LimitFile& memory = *limit_file(KnobKind::MemoryLimit);
  EXPECT_EQ(*memory.parse({CgroupVersion::V2, {}, "max\n", {}}), kUnlimited);
  EXPECT_EQ(*memory.parse({CgroupVersion::V1, {}, "9223372036854771712\n", {}}), kUnlimited);
  EXPECT_EQ(*memory.print(kUnlimited, {CgroupVersion::V1, {}, {}, {}}), "-1");
  EXPECT_EQ(*memory.print(kUnlimited, {CgroupVersion::V2, {}, {}, {}}), "max");
  EXPECT_EQ(*memory.print(1e12, {CgroupVersion::V2, {}, {}, {}}), "1000000000000");
}

TEST(KnobCouplings, RankIsThePlaceInTheChain) {
  EXPECT_EQ(coupling_rank(KnobKind::CpuLimit), 0);
  const Registry<KnobCoupling>::Addition upper(knob_couplings,
                                               {KnobKind::MemoryLimit, KnobKind::CpuFrequency});
  const Registry<KnobCoupling>::Addition lower(knob_couplings, {KnobKind::CpuLimit, KnobKind::MemoryLimit});
  EXPECT_EQ(coupling_rank(KnobKind::CpuLimit), 0);
  EXPECT_EQ(coupling_rank(KnobKind::MemoryLimit), 1);
  EXPECT_EQ(coupling_rank(KnobKind::CpuFrequency), 2);
  const Registry<KnobCoupling>::Addition circle(knob_couplings, {KnobKind::CpuFrequency, KnobKind::CpuLimit});
  EXPECT_GT(coupling_rank(KnobKind::CpuLimit), 0) << "a circle is no endless loop";
}

/// A toy: two devices in one file, "8:0 rate=max" and so on, as io.max has them.
std::string toy_line(std::string_view text, std::string_view device) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    if (two_words(text.substr(0, end)).first == device) return std::string(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::string(device) + " rate=max";
}
Result<double> toy_parse(const LimitText& t) {
  const auto rate = two_words(t.value).second;
  if (rate == "rate=max") return kUnlimited;
  FLASH_TRY(const auto value, parse_u64(rate.substr(std::min<std::size_t>(5, rate.size()))));
  return static_cast<double>(value);
}
Result<std::string> toy_print(double value, const LimitText& t) {
  return std::string(t.instance) + " rate=" + std::to_string(static_cast<int>(value));
}

struct ToyLimit {
  Registry<KnobTraits>::Addition traits{kKnobs,
                                        {next_knob_kind(), "toy-rate", "toys", Task::ResourceLimits, 0.01}};
  KnobKind kind = traits.row().kind;
  Registry<LimitFile>::Addition file{limit_files, row(kind)};
  static LimitFile row(KnobKind kind) {
    LimitFile f{};
    f.knob = kind;
    f.controller = CgroupController::Memory;
    f.controller_name = "memory";
    f.v2.value = "memory.toy";
    f.parse = toy_parse;
    f.print = toy_print;
    f.instances = [](const std::string&) { return std::vector<std::string>{"8:0", "8:16"}; };
    f.line = toy_line;
    return f;
  }
};

Target toy_target(CgroupOwner owner) {
  Target t;
  t.id = {TargetKind::Cgroup, 7};
  t.name = t.cgroup = "/app.service";
  t.owner = owner;
  return t;
}

FakeHost toy_host() {
  return FakeHost{
      cgroup_v2({dir("app.service", {file("cpu.max", "max 100000\n"), file("memory.high", "max\n"),
                                     file("memory.toy", "8:16 rate=7\n")})})};
}

TEST(LimitFiles, ARowWithInstancesIsAKnobPerInstance) {
  const ToyLimit toy;
  FakeHost host = toy_host();
  CgroupDriver driver(host.root(), *host.layout());
  const auto found = driver.discover(toy_target(CgroupOwner::Unmanaged), Rule{});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 4u);
  const KnobRef &first = (*found)[2].ref, &second = (*found)[3].ref;
  EXPECT_EQ(knob_name(first.kind), "toy-rate/8:0");
  EXPECT_EQ(knob_name(second.kind), "toy-rate/8:16");
  EXPECT_EQ(driver.read(first)->value, kUnlimited);
  EXPECT_EQ(driver.read(second)->value, 7);
  const auto before = driver.read(second)->raw;
  EXPECT_EQ(before, "8:16 rate=7");
  ASSERT_TRUE(driver.write(second, 9));
  EXPECT_EQ(host.read("sys/fs/cgroup/app.service/memory.toy"), "8:16 rate=9");
  EXPECT_EQ(driver.read(second)->value, 9);
  ASSERT_TRUE(driver.restore(second, before));
  EXPECT_EQ(driver.read(second)->value, 7);
  driver.close(second);
  EXPECT_EQ(driver.read(first)->value, kUnlimited) << "the other one is still open";
}

TEST(LimitFiles, WhatSystemdHasNoWordForIsReadAndBlocked) {
  const ToyLimit toy;
  FakeHost host = toy_host();
  SystemdDriver driver(host.root(), *host.layout(), nullptr);
  const auto found = driver.discover(toy_target(CgroupOwner::Systemd), Rule{});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 4u);
  const KnobRef& ref = (*found)[3].ref;
  EXPECT_FALSE((*found)[3].blocked_by.empty());
  ASSERT_TRUE(driver.read(ref));
  EXPECT_EQ(driver.read(ref)->value, 7);
  EXPECT_THAT(driver.write(ref, 9).error().message(), HasSubstr("no property for toy-rate/8:16"));
  EXPECT_FALSE(driver.restore(ref, "8:16 rate=9|none"));
  driver.close(ref);
}

}  // namespace
}  // namespace flash::limit_files_test
