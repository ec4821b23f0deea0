// Pools: drawn, hidden, from files.
#include "lab/sim/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "lab/sim/world.h"
#include "policy/tasks/cpu_frequency.h"

namespace flash {
namespace {

Pool pool_of(PoolOptions options) {
  auto pool = make_pool(options);
  EXPECT_TRUE(pool) << pool.error().message();
  return std::move(*pool);
}

PoolOptions hidden(Task task, std::uint64_t seed = 3) {
  return {.task = task, .pairs = 40, .seed = seed, .kind = PoolKind::Hidden};
}

TEST(HiddenPool, IsTheSameForTheSameSeed) {
  const Pool a = pool_of(hidden(Task::CpuFrequency)), b = pool_of(hidden(Task::CpuFrequency)),
             c = pool_of(hidden(Task::CpuFrequency, 4));
  for (std::size_t i = 0; i < a.pairs.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(a.pairs[i].true_params(), b.pairs[i].true_params()));
    EXPECT_FALSE(std::ranges::equal(a.pairs[i].true_params(), c.pairs[i].true_params()));
  }
}

TEST(HiddenPool, PairsAreAboutEquallyBusyAndDifferInWhatOnlyTheirPastTells) {
  const Pool pool = pool_of(hidden(Task::ResourceLimits));
  const auto spread = [&](auto value) {
    double least = 1e300, most = -1e300;
    for (const Pair& p : pool.pairs) {
      least = std::min(least, static_cast<double>(value(p)));
      most = std::max(most, static_cast<double>(value(p)));
    }
    return std::pair(least, most);
  };
  const auto busy = spread([](const Pair& p) {
    double sum = 0;
    for (int t = 0; t < 600; ++t) sum += p.rate_at(t) / 600;
    const double service = p.service_s(p.environment().top_khz());
    return sum * std::max(service / p.parameters().cores,
                          (service + p.parameters().off_cpu_s) / p.parameters().workers);
  });
  EXPECT_GT(busy.first, 0.1);
  EXPECT_LT(busy.second, 0.55);
  const auto sensitivity = spread([](const Pair& p) { return p.true_params()[0]; });
  EXPECT_LT(sensitivity.first, 0);
  EXPECT_GT(sensitivity.second, 0.8);
  const auto burst = spread([](const Pair& p) { return p.parameters().burst; });
  EXPECT_EQ(burst.first, 1);
  EXPECT_GT(burst.second, 15);
  const auto room = spread([](const Pair& p) { return p.parameters().per_request_bytes; });
  EXPECT_GT(room.second / room.first, 100);
}

TEST(HiddenPool, TheStateDoesNotTellWhatTheFrequencyGains) {
  const Pool pool = pool_of(hidden(Task::CpuFrequency));
  for (const Pair& p : pool.pairs) {
    World world;
    world.reset(p, 100, 1);
    EXPECT_EQ(world.state()[0], 0);
    EXPECT_EQ(world.state()[1], 0);
    EXPECT_FLOAT_EQ(world.state()[6], static_cast<float>(kUnknownElasticity));
  }
}

TEST(HiddenPool, OnCpuFrequencyLoadsJumpAndManyObjectivesCannotBeHeld) {
  int short_of = 0;
  for (const Pair& p : pool_of(hidden(Task::CpuFrequency)).pairs) {
    double least = 1e300, most = 0;
    int jumps = 0;
    for (int t = 0; t < 3600; ++t) {
      least = std::min(least, p.rate_at(t));
      most = std::max(most, p.rate_at(t));
      jumps += p.rate_at(t) != p.rate_at(t + 1) ? 1 : 0;
    }
    EXPECT_GT(most / least, 1.4) << p.application().trace;
    EXPECT_LT(most / least, 6.1) << p.application().trace;
    EXPECT_GT(jumps, 10) << p.application().trace;
    const double service = p.service_s(p.environment().top_khz());
    EXPECT_LT(most * service / p.parameters().cores, 0.55) << "at the highest frequency there is room";
    // Without queueing, what a request takes that is slower than 99 of 100.
    const double own_ms =
        1000 * (service + p.parameters().off_cpu_s) * (1 + 2.33 * p.application().service_cv);
    short_of += own_ms > p.application().slo_p99_ms ? 1 : 0;
  }
  EXPECT_GT(short_of, 2);
  EXPECT_LT(short_of, 35);
  const Pool limits = pool_of(hidden(Task::ResourceLimits));
  EXPECT_TRUE(limits.pairs.front().application().trace.starts_with("sine:"));
}

TEST(HiddenPool, TakesFilesAsTheyAre) {
  const std::string path = testing::TempDir() + "flashd-hidden-pool.json";
  std::ofstream(path) << to_json_text(generate_applications(3, 9));
  PoolOptions options = hidden(Task::ResourceLimits);
  options.apps = path;
  options.pairs = 3;
  const Pool read = pool_of(options);
  const auto written = generate_applications(3, 9);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.pairs[i].application().trace, written[i].trace);
    EXPECT_EQ(read.pairs[i].application().burst, written[i].burst);
  }
  std::remove(path.c_str());
}

TEST(PoolKind, IsReadByItsName) {
  EXPECT_EQ(std::get<PoolKind>(parse_pool_kind("hidden")), PoolKind::Hidden);
  EXPECT_EQ(std::get<PoolKind>(parse_pool_kind("drawn")), PoolKind::Drawn);
  EXPECT_TRUE(std::holds_alternative<UsageError>(parse_pool_kind("Hidden")));
}

TEST(VariedPool, HasTheSameSegmentsAndEnvironmentsInOtherApplicationsCompanySizesAndUnderOtherLoads) {
  const Pool pool = pool_of({.task = Task::ResourceLimits, .pairs = 60, .seed = 5});
  const auto other = varied(pool, 9), again = varied(pool, 9);
  ASSERT_TRUE(other && again);
  ASSERT_EQ(other->pairs.size(), pool.pairs.size());
  std::vector<std::string> environments, theirs;
  std::size_t moved = 0, own_load = 0, less = 0, redrawn = 0, silent = 0, own_size = 0, larger = 0,
              other_application = 0;
  std::map<std::string, const Environment*> by_name;
  for (const Pair& p : pool.pairs) by_name[p.environment().name] = &p.environment();
  for (std::size_t i = 0; i < pool.pairs.size(); ++i) {
    const Pair &was = pool.pairs[i], &is = other->pairs[i];
    const Environment &node = is.environment(), &drawn = *by_name.at(node.name);
    EXPECT_NEAR(node.memory_mib / node.cores, drawn.memory_mib / drawn.cores, 1e-9);
    EXPECT_TRUE(node.cores >= 2 && node.cores <= 96) << node.cores;
    EXPECT_EQ(is.range(KnobKind::CpuLimit).upper, node.cores);
    EXPECT_EQ(node.cores, again->pairs[i].environment().cores);
    own_size += node.cores == drawn.cores ? 1 : 0;
    larger += node.cores > 24 ? 1 : 0;
    EXPECT_EQ(is.application().name, was.application().name);
    EXPECT_EQ(is.application().segments.size(), was.application().segments.size());
    other_application += is.application().memory_mib != was.application().memory_mib ? 1 : 0;
    EXPECT_EQ(is.application().memory_mib, again->pairs[i].application().memory_mib);
    EXPECT_EQ(is.application().trace, again->pairs[i].application().trace) << "the same for the same seed";
    environments.push_back(was.environment().name);
    theirs.push_back(is.environment().name);
    moved += was.environment().name != is.environment().name ? 1 : 0;
    const bool own = was.application().trace == is.application().trace;
    own_load += own && is.options().load == 1 ? 1 : 0;
    less += own && is.options().load < 1 ? 1 : 0;
    // Shapes that no other variation has.
    const std::string& trace = is.application().trace;
    redrawn += !own && (trace.starts_with("diurnal:") || trace.starts_with("sine:")) ? 1 : 0;
    double highest = 0, lowest = 1e300;
    for (int t = 0; t < 86400; t += 10) {
      highest = std::max(highest, is.rate_at(t));
      lowest = std::min(lowest, is.rate_at(t));
    }
    EXPECT_GT(highest, 0) << is.application().trace;
    silent += lowest == 0 ? 1 : 0;
  }
  std::ranges::sort(environments);
  std::ranges::sort(theirs);
  EXPECT_EQ(environments, theirs);
  EXPECT_GT(moved, 50U);
  EXPECT_GT(own_size, 15U);
  EXPECT_GT(larger, 5U) << "of 60 half have another size, a third of these above 24 cores";
  EXPECT_GT(own_load, 0U);
  EXPECT_GT(less, 0U);
  EXPECT_GT(other_application, 20U);
  EXPECT_LT(other_application, 40U);
  EXPECT_GT(redrawn, 5U) << "loads that the generator could have drawn";
  EXPECT_GT(silent, 3U) << "loads with nothing in between";
}

TEST(VariedPool, OfAHiddenPoolIsThatPool) {
  const Pool pool = pool_of(hidden(Task::ResourceLimits));
  const auto same = varied(pool, 9);
  ASSERT_TRUE(same);
  for (std::size_t i = 0; i < pool.pairs.size(); ++i) {
    EXPECT_EQ(same->pairs[i].application().trace, pool.pairs[i].application().trace);
    EXPECT_EQ(same->pairs[i].environment().name, pool.pairs[i].environment().name);
    EXPECT_EQ(same->pairs[i].environment().cores, pool.pairs[i].environment().cores);
  }
}

TEST(Pool, ABadLineOfATraceFileIsAnErrorWhereverItIs) {
  const std::string path = testing::TempDir() + "pool-traces.csv";
  const std::string head = "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,3,4\n";
  const auto with = [&](const std::string& text) {
    std::ofstream(path) << text;
    return make_pool({.pairs = 4, .traces = path});
  };
  const auto good = with(head + "o,a,g,http,5,6\n");
  ASSERT_TRUE(good) << good.error().message();
  const auto bad = with(head + "o,a,g,http,5,x\n");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message().find(":3: 'x'"), std::string::npos) << bad.error().message();
  std::remove(path.c_str());
}

TEST(Pool, SaysWhenPairsAreCopies) {
  EXPECT_EQ(words_of_copies(pool_of({.pairs = 3})), "");
  const std::string path = testing::TempDir() + "pool-envs.json";
  std::ofstream(path) << to_json_text(generate_environments(2, 5));
  const Pool drawn = pool_of({.pairs = 6, .envs = path});
  EXPECT_EQ(words_of_copies(drawn), "") << "six applications are different";
  const std::string apps = testing::TempDir() + "pool-apps.json";
  std::ofstream(apps) << to_json_text(generate_applications(3, 9));
  const Pool copied = pool_of({.pairs = 9, .apps = apps, .envs = path});
  EXPECT_EQ(copied.different, 6U);
  EXPECT_NE(words_of_copies(copied).find("9 pairs are 6"), std::string::npos);
  std::remove(path.c_str());
  std::remove(apps.c_str());
}

}  // namespace
}  // namespace flash
