#include "workloads/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "workloads/trace.h"

namespace flash {
namespace {

// Made, in the public formats.
constexpr const char* k2019 =
    "HashOwner,HashApp,HashFunction,Trigger,480,481,482\n"
    "o1,a1,f1,http,0,6,0\n"
    "o1,a1,f2,queue,120,60,240\r\n"
    "o2,a2,f3,timer,30,0,0";
constexpr const char* k2021 =
    "app,func,end_timestamp,duration\n"
    "a,f,10.5,0.25\n"
    "a,g,2.0,3.5\n"
    "a,f,10.9,0.1\n"
    "a,f,1.75,0.5\n";

TraceSelection row(std::uint64_t n, LoadClass load = LoadClass::Any) {
  TraceSelection selection;
  selection.row = n;
  selection.load = load;
  return selection;
}

TraceSelection column(const std::string& name, double step_s = 60) {
  TraceSelection selection;
  selection.column = name;
  selection.step_s = step_s;
  return selection;
}

std::string error_of(const Parsed<PiecewiseRate>& parsed) {
  const auto* error = std::get_if<UsageError>(&parsed);
  return error != nullptr ? error->message : "";
}

PiecewiseRate azure(std::string_view text, const TraceSelection& selection) {
  return std::get<PiecewiseRate>(parse_azure_trace(text, "t.csv", selection));
}

TEST(AzureTrace, CountsPerMinuteAreRatesOfThatMinuteAndRepeat) {
  const PiecewiseRate rate = azure(k2019, row(2));
  EXPECT_DOUBLE_EQ(rate.period_s(), 180);
  EXPECT_DOUBLE_EQ(rate.rate_at(0), 2);
  EXPECT_DOUBLE_EQ(rate.rate_at(60), 1);
  EXPECT_DOUBLE_EQ(rate.rate_at(179), 4);
  EXPECT_DOUBLE_EQ(rate.rate_at(185), 2);
  EXPECT_DOUBLE_EQ(rate.integral(180), 420);
  EXPECT_DOUBLE_EQ(rate.integral(270), 420 + 120 + 30);
}

TEST(AzureTrace, SpeedupShortensTimeAndScaleRaisesRates) {
  TraceSelection selection = row(2);
  selection.speedup = 60;
  selection.scale = 10;
  const PiecewiseRate rate = azure(k2019, selection);
  EXPECT_DOUBLE_EQ(rate.period_s(), 3);
  EXPECT_DOUBLE_EQ(rate.rate_at(1.5), 10);
}

TEST(AzureTrace, RowsAreCountedWithinTheHalfThatIsMeant) {
  // Only the second function has more than 1e5 a day (1.16 per second).
  EXPECT_DOUBLE_EQ(azure(k2019, row(1, LoadClass::High)).rate_at(0), 2);
  EXPECT_DOUBLE_EQ(azure(k2019, row(2, LoadClass::Low)).rate_at(0), 0.5);
  EXPECT_EQ(error_of(parse_azure_trace(k2019, "t.csv", row(2, LoadClass::High))),
            "t.csv: no row 2 of high load; it has 1");
}

TEST(AzureTrace, SingleInvocationsStartADurationBeforeTheirEnd) {
  const PiecewiseRate f = azure(k2021, row(1));
  EXPECT_DOUBLE_EQ(f.period_s(), 11);
  EXPECT_DOUBLE_EQ(f.rate_at(10.5), 2);
  EXPECT_DOUBLE_EQ(f.rate_at(1.1), 1);
  EXPECT_DOUBLE_EQ(f.integral(11), 3);
  const PiecewiseRate g = azure(k2021, row(2));
  EXPECT_DOUBLE_EQ(g.rate_at(0), 1);  // began before the trace did
  EXPECT_DOUBLE_EQ(g.integral(11), 1);
}

TEST(AzureTrace, NamesFileAndLineOfWhatIsWrong) {
  const auto wrong = [](const std::string& text, std::uint64_t n = 1) {
    return error_of(parse_azure_trace(text, "t.csv", row(n)));
  };
  const std::string head = "HashOwner,HashApp,HashFunction,Trigger,480,481\n";
  EXPECT_EQ(wrong(""), "t.csv: is empty");
  EXPECT_EQ(wrong("a,b\n"),
            "t.csv:1: the header is neither of the Azure Functions trace of 2019 nor of 2021");
  EXPECT_EQ(wrong("HashOwner,HashApp,HashFunction,Trigger\n"),
            "t.csv:1: the header has 0 minutes, not 1 to 1440");
  EXPECT_EQ(wrong("HashOwner,HashApp,HashFunction,Trigger,1,3\n"), "t.csv:1: '3' is not the next minute");
  EXPECT_EQ(wrong(head + "o,a,f,t,1\n"), "t.csv:2: has 5 columns, the header 6");
  EXPECT_EQ(wrong(head + "o,a,f,t,1,2\no,a,f,t,1,-2\n", 2), "t.csv:3: '-2' is not a number of invocations");
  EXPECT_EQ(wrong(head + "o,a,f,t,1,1e3\n"), "t.csv:2: '1e3' is not a number of invocations");
  EXPECT_EQ(wrong(head + "o,a,f,t,1,2\n", 4), "t.csv: no row 4; it has 1");
  EXPECT_EQ(wrong(head + std::string(70'000, 'x')), "t.csv:2: the line is longer than 65536 bytes");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f,1,x\n"), "t.csv:2: 'x' is not a time in seconds");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f,9000000,1\n"),
            "t.csv:2: '9000000' is not a time in seconds");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f\n"),
            "t.csv:2: has 2 columns, not app,func,end_timestamp,duration");
}

TEST(Series, TakesTheNamedColumn) {
  const char* text = "minute,requests,max\n0,60,9\n1,120,8\n";
  const auto rate = std::get<PiecewiseRate>(parse_series(text, "s.csv", column("requests")));
  EXPECT_DOUBLE_EQ(rate.rate_at(30), 1);
  EXPECT_DOUBLE_EQ(rate.rate_at(90), 2);
  const auto seconds = std::get<PiecewiseRate>(parse_series(text, "s.csv", column("max", 1)));
  EXPECT_DOUBLE_EQ(seconds.rate_at(1.5), 8);
  EXPECT_EQ(error_of(parse_series(text, "s.csv", column("rps"))), "s.csv:1: no column 'rps'");
  EXPECT_EQ(error_of(parse_series("a\n", "s.csv", column("a"))), "s.csv: has no rows");
  EXPECT_EQ(error_of(parse_series("a\n1\nx\n", "s.csv", column("a"))),
            "s.csv:3: 'x' is not a number of requests");
}

const std::string kMade = FLASH_SOURCE_DIR "/tests/workloads/traces/";

TEST(RecordedTrace, IsReadByItsSpelling) {
  const Trace trace =
      std::get<Trace>(Trace::parse("azure:" + kMade + "azure_2019.csv,load=high,row=2,scale=0.5,speedup=60"));
  EXPECT_GT(trace.mean_rate(), 0.5);
  EXPECT_NEAR(trace.arrivals_until(60), trace.mean_rate() * 60, 1e-6);
  EXPECT_TRUE(std::holds_alternative<Trace>(Trace::parse("azure:" + kMade + "azure_2021.csv")));
  EXPECT_TRUE(std::holds_alternative<Trace>(
      Trace::parse("series:" + kMade + "web_rps.csv,column=requests,step_s=60")));
}

TEST(RecordedTrace, IsCheckedWithoutOpeningItsFile) {
  EXPECT_FALSE(check_trace("azure:/nonexistent,row=3").has_value());
  for (const char* bad : {"azure:", "azure:f,row=0", "azure:f,row", "azure:f,load=middle", "azure:f,column=a",
                          "azure:f,scale=-1", "azure:f,", "series:f", "series:f,row=1", "series:f,column="}) {
    EXPECT_TRUE(check_trace(bad).has_value()) << bad;
  }
  EXPECT_EQ(std::get<UsageError>(Trace::parse("azure:/nonexistent")).message, "cannot read /nonexistent");
}

TEST(RecordedTrace, OfTheOtherLoadIsTheSameRowOfTheOtherHalf) {
  EXPECT_EQ(trace_of_other_load("azure:f,load=high,row=3"), "azure:f,load=low,row=3");
  EXPECT_EQ(trace_of_other_load("azure:f,row=3,load=low"), "azure:f,row=3,load=high");
  const std::string high = "azure:" + kMade + "azure_2019.csv,load=high";
  const double rate = std::get<Trace>(Trace::parse(high)).mean_rate();
  EXPECT_LT(std::get<Trace>(Trace::parse(trace_of_other_load(high))).mean_rate(), rate);
  const std::string any = "azure:" + kMade + "azure_2019.csv,row=1,scale=4";
  EXPECT_EQ(trace_of_other_load(any), any + ",scale=16");
}

}  // namespace
}  // namespace flash
