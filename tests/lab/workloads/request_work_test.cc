#include "lab/workloads/request_work.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

namespace flash {
namespace {

std::uint64_t units_done = 0;

std::uint64_t payload_done = 0;

std::uint64_t count_units(SegmentScratch&, std::uint64_t payload) {
  payload_done += payload;
  return ++units_done;
}

const Segment kWhole = {"whole", "units", 1, 1, 1, count_units, {10, 0, 0, 0, 0}, ""};
const Segment kDivisible = {"divisible", "units", 1, 1, 2, count_units, {0, 1, 0, 0, 0}, ""};

Application counted(int count, double cv) {
  Application a;
  a.name = "a";
  a.segments = {{&kWhole, 1, count}};
  a.service_cv = cv;
  return a;
}

struct Moments {
  double mean = 0;
  double cv = 0;
};

Moments work_of(const Application& application, int requests) {
  const WorkingSet memory(0, 0);
  const std::atomic<bool> never{false};
  RequestWork work(application, memory, 5);
  double sum = 0, squares = 0;
  for (int i = 0; i < requests; ++i) {
    units_done = 0;
    work.run(never);
    sum += static_cast<double>(units_done);
    squares += static_cast<double>(units_done * units_done);
  }
  const double mean = sum / requests;
  return {mean, std::sqrt(squares / requests - mean * mean) / mean};
}

TEST(RequestWork, DoesTheSameEachTimeWithoutVariation) {
  const Moments m = work_of(counted(7, 0), 100);
  EXPECT_EQ(m.mean, 7);
  EXPECT_EQ(m.cv, 0);
}

TEST(RequestWork, VariesByTheCoefficientOfVariationAroundTheCount) {
  const Moments m = work_of(counted(1000, 0.5), 20'000);
  EXPECT_NEAR(m.mean, 1000, 15);  // four deviations of the mean
  EXPECT_NEAR(m.cv, 0.5, 0.03);
}

TEST(RequestWork, DoesAUnitMoreOrLessWhereUnitsCannotBeDivided) {
  EXPECT_NEAR(work_of(counted(1, 0.3), 20'000).mean, 1, 0.02);
}

TEST(RequestWork, DividesAUnitByItsPayload) {
  Application application = counted(1, 0.3);
  application.segments = {{&kDivisible, 1000, 1}};
  const WorkingSet memory(0, 0);
  const std::atomic<bool> never{false};
  RequestWork work(application, memory, 5);
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) {
    units_done = payload_done = 0;
    work.run(never);
    ASSERT_GE(units_done, 1U);
    // Whole units of 1000 first; the work of a payload is its square.
    const auto whole = static_cast<double>(payload_done / 1000);
    const double left = static_cast<double>(payload_done % 1000) / 1000;
    sum += whole + left * left;
  }
  EXPECT_NEAR(sum / 20'000, 1, 0.02);
}

TEST(RequestWork, StopsWithinAUnit) {
  const WorkingSet memory(0, 0);
  const std::atomic<bool> stopped{true};
  const Application application = counted(1000, 0);
  RequestWork work(application, memory, 1);
  units_done = 0;
  work.run(stopped);
  EXPECT_EQ(units_done, 0U);
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(RequestMemory, IsThereWhileHeldAndGoneAfterwards) {
  constexpr std::uint64_t kBytes = 32U << 20;
  const std::uint64_t before = resident_bytes();
  {
    RequestMemory held(kBytes);
    RequestMemory taken(std::move(held));
    EXPECT_GT(resident_bytes(), before + kBytes / 2);
  }
  EXPECT_LT(resident_bytes(), before + kBytes / 2);
}

TEST(WorkingSet, WritesEveryHotPageWithinARoundAndLeavesTheRowsAlone) {
  constexpr std::size_t kPages = 100;
  WorkingSet memory(kPages * kPageBytes, 0);
  std::vector<std::uint8_t> before(memory.hot().begin(), memory.hot().end());
  for (std::size_t i = 0; i < 3 * kCallsPerRound; ++i) {
    memory.touch();
  }
  std::size_t written = 0;
  for (std::size_t page = 0; page < kPages; ++page) {
    written += memory.hot()[page * kPageBytes] != before[page * kPageBytes];
    for (std::size_t i = kTouchedBytes; i < kPageBytes; ++i) {
      ASSERT_EQ(memory.hot()[page * kPageBytes + i], before[page * kPageBytes + i]);
    }
  }
  EXPECT_GT(written, kPages * 9 / 10);  // one may have got the value it had
}

TEST(WorkingSet, IsWrittenAndReadByManyThreadsAtATime) {
  WorkingSet memory(64 * kPageBytes, 64 * kPageBytes);
  const Segment& lookup = *std::get<const Segment*>(find_segment("table-lookup"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      SegmentScratch scratch;
      scratch.memory = memory.hot();
      for (int n = 0; n < 50; ++n) {
        memory.touch();
        lookup.run_unit(scratch, 100);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace flash
