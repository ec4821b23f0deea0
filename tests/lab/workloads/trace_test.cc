#include "lab/workloads/trace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flash {
namespace {

Trace trace_of(std::string_view text) {
  return std::get<Trace>(Trace::parse(text));
}

std::vector<double> arrivals(ArrivalSchedule schedule) {
  std::vector<double> times;
  while (const auto t = schedule.next()) {
    times.push_back(*t);
  }
  return times;
}

TEST(Trace, StepHoldsLowThenHigh) {
  const Trace trace = trace_of("step:10,60,5");
  EXPECT_DOUBLE_EQ(trace.rate_at(0), 10);
  EXPECT_DOUBLE_EQ(trace.rate_at(4.99), 10);
  EXPECT_DOUBLE_EQ(trace.rate_at(5), 60);
  EXPECT_DOUBLE_EQ(trace.rate_at(10), 10);
  EXPECT_DOUBLE_EQ(trace.rate_at(17), 60);
}

TEST(Trace, SineStartsLowAndIsHighAfterHalfAPeriod) {
  const Trace trace = trace_of("sine:10,60,20");
  EXPECT_NEAR(trace.rate_at(0), 10, 1e-9);
  EXPECT_NEAR(trace.rate_at(10), 60, 1e-9);
  EXPECT_NEAR(trace.rate_at(5), 35, 1e-9);
}

TEST(Trace, DiurnalHasALongNightAndItsPeakAtNoon) {
  const Trace trace = trace_of("diurnal:10,60,24");
  EXPECT_NEAR(trace.rate_at(0), 10, 1e-9);
  EXPECT_NEAR(trace.rate_at(12), 60, 1e-9);
  EXPECT_NEAR(trace.rate_at(6), 10 + 50.0 / 4, 1e-9);
  EXPECT_NEAR(trace.mean_rate(), 10 + 50.0 * 3 / 8, 1e-9);
}

TEST(Trace, BurstyIsLowAndHighInTurnForTimesOfTheirMeans) {
  const Trace trace = trace_of("bursty:2,40,8,2,7");
  double high_s = 0, changes = 0, before = trace.rate_at(0);
  constexpr double kSeconds = 5000;
  for (double t = 0; t < kSeconds; t += 0.01) {
    const double rate = trace.rate_at(t);
    EXPECT_TRUE(rate == 2 || rate == 40) << rate;
    high_s += rate == 40 ? 0.01 : 0;
    changes += rate != before;
    before = rate;
  }
  EXPECT_EQ(trace.rate_at(0), 2);
  EXPECT_NEAR(high_s / kSeconds, 0.2, 0.03);
  EXPECT_NEAR(changes, 2 * kSeconds / 10, 150);
  EXPECT_NEAR(trace.mean_rate(), 2 + 38 * 0.2, 1.2);
  EXPECT_NE(trace_of("bursty:2,40,8,2,8").arrivals_until(100), trace.arrivals_until(100));
  EXPECT_EQ(trace_of("bursty:2,40,8,2,7").arrivals_until(1234), trace.arrivals_until(1234));
}

TEST(Trace, MeanIsThatOfAPeriod) {
  EXPECT_DOUBLE_EQ(trace_of("flat:30").mean_rate(), 30);
  EXPECT_DOUBLE_EQ(trace_of("step:10,60,5").mean_rate(), 35);
  EXPECT_NEAR(trace_of("sine:10,60,5").mean_rate(), 35, 1e-9);
}

TEST(Trace, IntegralIsThatOfTheRate) {
  for (const char* text : {"flat:30", "step:10,60,3", "sine:5,80,7", "diurnal:5,80,7", "bursty:1,50,2,1,9"}) {
    const Trace trace = trace_of(text);
    double sum = 0;
    constexpr double kStep = 1e-3;
    for (int i = 0; i < 20'000; ++i) {
      sum += trace.rate_at((i + 0.5) * kStep) * kStep;
    }
    EXPECT_NEAR(trace.arrivals_until(20), sum, sum * 1e-3) << text;
  }
}

TEST(Trace, RejectsUnknownKinds) {
  EXPECT_EQ(std::get<UsageError>(Trace::parse("ramp:1,2,3")).message,
            "unknown trace 'ramp'; known: flat:rate | step:low,high,hold_s | sine:low,high,period_s | "
            "diurnal:low,high,day_s | bursty:low,high,off_s,on_s,seed | "
            "azure:FILE[,row=N][,load=high|low][,scale=X][,speedup=X] | "
            "series:FILE,column=NAME[,step_s=S][,scale=X][,speedup=X]");
}

TEST(Trace, RejectsTooFewTooManyAndImpossibleParameters) {
  for (const char* bad :
       {"step", "step:", "step:1", "step:1,2", "step:1,2,3,4", "step:1,,3", "step:a,2,3", "step:-1,2,3",
        "sine:1,2,0", "flat:1e9", "flat:2000000", "flat:nan", "step:1,2,3,"}) {
    EXPECT_TRUE(std::holds_alternative<UsageError>(Trace::parse(bad))) << bad;
  }
}

TEST(Trace, NamesTheParameterThatIsWrong) {
  EXPECT_EQ(std::get<UsageError>(Trace::parse("step:1,x,3")).message,
            "'x' is not a usable high in step:low,high,hold_s");
}

TEST(ArrivalSchedule, SpacesAFlatRateEvenly) {
  const auto times = arrivals(ArrivalSchedule(trace_of("flat:4"), 2, Arrivals::Even, 1));
  ASSERT_EQ(times.size(), 7U);  // the eighth would be at the end itself
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(times[i], static_cast<double>(i + 1) / 4, 1e-6);
  }
}

TEST(ArrivalSchedule, FollowsTheStep) {
  const auto times = arrivals(ArrivalSchedule(trace_of("step:10,100,1"), 2, Arrivals::Even, 1));
  const auto low = std::count_if(times.begin(), times.end(), [](double t) { return t < 1.0001; });
  EXPECT_NEAR(static_cast<double>(low), 10, 1);
  EXPECT_NEAR(static_cast<double>(times.size()) - static_cast<double>(low), 100, 1);
}

TEST(ArrivalSchedule, SkipsTimeWithoutLoad) {
  const auto times = arrivals(ArrivalSchedule(trace_of("step:0,10,5"), 9.95, Arrivals::Even, 1));
  ASSERT_FALSE(times.empty());
  EXPECT_GE(times.front(), 5);
  EXPECT_TRUE(arrivals(ArrivalSchedule(trace_of("flat:0"), 1e9, Arrivals::Even, 1)).empty());
}

TEST(ArrivalSchedule, PoissonKeepsTheMeanAndRepeatsForASeed) {
  const Trace trace = trace_of("flat:100");
  const auto first = arrivals(ArrivalSchedule(trace, 100, Arrivals::Poisson, 3));
  EXPECT_NEAR(static_cast<double>(first.size()), 10'000, 400);  // four deviations
  EXPECT_EQ(first, arrivals(ArrivalSchedule(trace, 100, Arrivals::Poisson, 3)));
  EXPECT_NE(first, arrivals(ArrivalSchedule(trace, 100, Arrivals::Poisson, 4)));
  double squares = 0;
  for (std::size_t i = 1; i < first.size(); ++i) {
    squares += std::pow(first[i] - first[i - 1], 2);
  }
  // An exponential gap of mean m has mean square 2 m^2; an even one m^2.
  EXPECT_NEAR(squares / static_cast<double>(first.size()), 2e-4, 3e-5);
}

TEST(ArrivalSchedule, BurstsAreGeometricGroupsAndKeepTheRate) {
  const auto times = arrivals(ArrivalSchedule(trace_of("flat:100"), 400, Arrivals::Poisson, 3, 5));
  EXPECT_NEAR(static_cast<double>(times.size()), 40'000, 2500);
  std::vector<double> sizes;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (i == 0 || times[i] != times[i - 1]) {
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  const auto groups = static_cast<double>(sizes.size());
  EXPECT_NEAR(static_cast<double>(times.size()) / groups, 5, 0.3);
  // A fifth of the groups are of one request.
  EXPECT_NEAR(static_cast<double>(std::count(sizes.begin(), sizes.end(), 1)) / groups, 0.2, 0.03);
}

TEST(PiecewiseRate, RepeatsAndIntegratesAcrossPieces) {
  const PiecewiseRate rate({4, 0, 1}, {1, 2, 3});
  EXPECT_DOUBLE_EQ(rate.period_s(), 6);
  EXPECT_DOUBLE_EQ(rate.rate_at(0.5), 4);
  EXPECT_DOUBLE_EQ(rate.rate_at(1), 0);
  EXPECT_DOUBLE_EQ(rate.rate_at(9.5), 1);
  EXPECT_DOUBLE_EQ(rate.integral(0), 0);
  EXPECT_DOUBLE_EQ(rate.integral(2), 4);
  EXPECT_DOUBLE_EQ(rate.integral(4), 5);
  EXPECT_DOUBLE_EQ(rate.integral(6), 7);
  EXPECT_DOUBLE_EQ(rate.integral(6.5), 9);
}

}  // namespace
}  // namespace flash
