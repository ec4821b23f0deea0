#include "core/knob.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace flash::knob_test {
namespace {

/// A limit per device, that only this test knows.
struct ToyKnob {
  Registry<KnobTraits>::Addition row{kKnobs,
                                     {next_knob_kind(), "toy-limit", "toys", Task::ResourceLimits, 0.01}};
  KnobKind kind = row.row().kind;
  KnobId on(const std::string& device) const { return {kind, device}; }
};

TEST(KnobTable, EveryRowIsAtItsPlaceAndItsNameIsAKey) {
  for (std::size_t i = 0; i < kKnobs.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kKnobs[i].kind), i);
    EXPECT_EQ(kKnobs[i].name.find('/'), std::string_view::npos);
    EXPECT_FALSE(kKnobs[i].unit.empty());
    EXPECT_GT(kKnobs[i].tolerance, 0);
    EXPECT_EQ(knob_from_name(kKnobs[i].name), KnobId(kKnobs[i].kind));
  }
}

TEST(KnobTable, ARowIsThereForAsLongAsItsAddition) {
  const std::size_t before = kKnobs.size();
  {
    const ToyKnob toy;
    EXPECT_EQ(kKnobs.size(), before + 1);
    EXPECT_EQ(traits(toy.kind).unit, "toys");
    EXPECT_TRUE(same_setting(toy.on("a"), 100, 100.9));
    EXPECT_TRUE(knob_from_name("toy-limit"));
  }
  EXPECT_EQ(kKnobs.size(), before);
  EXPECT_FALSE(knob_from_name("toy-limit"));
}

TEST(KnobName, IsTheKindsNameWithoutAnInstance) {
  EXPECT_EQ(knob_name(KnobKind::CpuLimit), "cpu-limit");
  EXPECT_EQ(knob_name(KnobKind::MemoryLimit), "memory-limit");
  EXPECT_EQ(knob_name(KnobKind::CpuFrequency), "cpu-frequency");
}

TEST(KnobName, HasTheInstanceBehindASlashAndComesBack) {
  const ToyKnob toy;
  EXPECT_EQ(knob_name(toy.on("8:0")), "toy-limit/8:0");
  EXPECT_EQ(knob_name(toy.on("eth0.1")), "toy-limit/eth0.1");
  EXPECT_EQ(knob_name(toy.on("a/b c%\n\xff")), "toy-limit/a%2Fb%20c%25%0A%FF");
  for (const std::string device : {"8:0", "eth0", "a/b", "%", "%41", "\xc3\xbc", "x\ny", "-", "..", "\"'"}) {
    const auto back = knob_from_name(knob_name(toy.on(device)));
    ASSERT_TRUE(back) << device;
    EXPECT_EQ(*back, toy.on(device));
  }
}

TEST(KnobName, OfAKnobIsOneText) {
  const ToyKnob toy;
  for (const char* text : {"", "/", "toy-limit/", "toy-limit/%", "toy-limit/%4", "toy-limit/%41",
                           "toy-limit/%2f", "toy-limit/%ZZ", "toy-limit/a b", "toy-limit/a/b", "no-limit",
                           "no-limit/8:0", "toy-limit ", "Toy-limit"})
    EXPECT_FALSE(knob_from_name(text)) << text;
}

TEST(KnobText, IsExactForMessagesAndRoundedForExplanations) {
  const auto rounded = [](const KnobId& knob, double value) {
    std::string out;
    append_rounded(out, knob, value, "unknown");
    return out;
  };
  constexpr double kMi = 1024 * 1024, kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(exact_text(KnobKind::CpuLimit, 1.194, ""), "1.194 cores");
  EXPECT_EQ(rounded(KnobKind::CpuLimit, 1.194), "1.19 cores");
  EXPECT_EQ(exact_text(KnobKind::MemoryLimit, 64 * kMi, ""), "64 MiB");
  EXPECT_EQ(rounded(KnobKind::MemoryLimit, 9.96 * kMi), "10.0 MiB");
  EXPECT_EQ(rounded(KnobKind::MemoryLimit, 64.4 * kMi), "64 MiB");
  EXPECT_EQ(rounded(KnobKind::MemoryLimit, 10239 * kMi), "10239 MiB");
  EXPECT_EQ(rounded(KnobKind::MemoryLimit, 10240 * kMi), "10.0 GiB");
  EXPECT_EQ(exact_text(KnobKind::CpuFrequency, 2600000, ""), "2600 MHz");
  EXPECT_EQ(rounded(KnobKind::CpuFrequency, 2600000), "2.60 GHz");
  const ToyKnob toy;
  EXPECT_EQ(exact_text(toy.kind, 3, ""), "3 toys");
  EXPECT_EQ(rounded(toy.kind, 3), "3.00 toys");
  EXPECT_EQ(knob_words(toy.on("8:0")), "toy-limit of 8:0");
  EXPECT_EQ(knob_words(KnobKind::MemoryLimit), "memory limit");
  for (const auto& row : kKnobs) {
    EXPECT_EQ(exact_text(row.kind, kUnlimited, ""), "no limit");
    EXPECT_EQ(rounded(row.kind, kUnlimited), "no limit");
    EXPECT_EQ(exact_text(row.kind, kNaN, "nothing"), "nothing");
    EXPECT_EQ(rounded(row.kind, kNaN), "unknown");
  }
}

TEST(KnobId, OneOfAnInstanceIsNotTheOneWithout) {
  EXPECT_EQ(KnobId(KnobKind::CpuLimit), KnobKind::CpuLimit);
  EXPECT_NE(KnobId(KnobKind::CpuLimit, "a"), KnobKind::CpuLimit);
  EXPECT_NE(KnobId(KnobKind::CpuLimit, "a"), KnobId(KnobKind::CpuLimit, "b"));
  EXPECT_LT(KnobId(KnobKind::CpuLimit, "z"), KnobId(KnobKind::MemoryLimit));
  EXPECT_LT(KnobId(KnobKind::CpuLimit), KnobId(KnobKind::CpuLimit, "a"));
}

TEST(Action, SaysNothingOfAnyKnobAtFirst) {
  const ToyKnob fourth, fifth;
  const Action a;
  EXPECT_TRUE(a.empty());
  for (const auto& row : kKnobs) {
    EXPECT_FALSE(a.has(row.kind)) << row.name;
    EXPECT_FALSE(a.has(KnobId(row.kind, "x"))) << row.name;
  }
}

TEST(Action, KeepsAValuePerInstance) {
  const ToyKnob fourth, fifth;
  Action a;
  a.set(fifth.on("b"), 2);
  a.set(fifth.on("a"), 1);
  a.set(fifth.kind, 5);
  a.set(fourth.on("a"), 3);
  a.set(KnobKind::MemoryLimit, kUnlimited);
  EXPECT_EQ(a[fifth.on("a")], 1);
  EXPECT_EQ(a[fifth.on("b")], 2);
  EXPECT_EQ(a[fourth.on("a")], 3);
  EXPECT_EQ(a[fifth.kind], 5);
  EXPECT_FALSE(a.has(fourth.kind));
  EXPECT_FALSE(a.has(fourth.on("b")));
  std::vector<KnobId> seen;
  a.each([&seen](const KnobId& knob, double) { seen.push_back(knob); });
  EXPECT_EQ(seen, (std::vector<KnobId>{KnobKind::MemoryLimit, fourth.on("a"), fifth.kind, fifth.on("a"),
                                       fifth.on("b")}));
  a.clear(fifth.on("a"));
  EXPECT_FALSE(a.has(fifth.on("a")));
  EXPECT_TRUE(a.has(fifth.on("b")));
  for (const KnobId& knob : seen) a.clear(knob);
  EXPECT_TRUE(a.empty());
}

TEST(KnobMap, KeepsWhatItHasInOrder) {
  KnobMap<int> m;
  m[KnobKind::MemoryLimit] = 2;
  m[KnobKind::CpuLimit] = 1;
  m[KnobId(KnobKind::CpuLimit, "x")] = 3;
  std::vector<int> values;
  for (const auto& [knob, value] : m) values.push_back(value);
  EXPECT_EQ(values, (std::vector<int>{1, 3, 2}));
  EXPECT_EQ(m.find(KnobKind::CpuFrequency), nullptr);
  m.erase(KnobKind::CpuLimit);
  EXPECT_EQ(m.find(KnobKind::CpuLimit), nullptr);
  EXPECT_EQ(*m.find(KnobId(KnobKind::CpuLimit, "x")), 3);
}

}  // namespace
}  // namespace flash::knob_test
