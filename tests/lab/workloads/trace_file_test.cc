#include "lab/workloads/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "lab/workloads/trace.h"

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

Parsed<PiecewiseRate> parse_azure_trace(std::string_view text, std::string file,
                                        const TraceSelection& selection) {
  CsvReader rows(text, std::move(file));
  return azure_trace(rows, selection);
}
Parsed<PiecewiseRate> parse_series(std::string_view text, std::string file, const TraceSelection& selection) {
  CsvReader rows(text, std::move(file));
  return series(rows, selection);
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
  EXPECT_EQ(wrong(head + "o,a,f,t,1,1e10\n"), "t.csv:2: '1e10' is not a number of invocations");
  EXPECT_EQ(wrong(head + "o,a,f,t,1,2\n", 4), "t.csv: no row 4; it has 1");
  EXPECT_EQ(wrong(head + std::string(70'000, 'x')), "t.csv:2: the line is longer than 65536 bytes");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f,1,x\n"), "t.csv:2: 'x' is not a time in seconds");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f,9000000,1\n"),
            "t.csv:2: '9000000' is not a time in seconds");
  EXPECT_EQ(wrong("app,func,end_timestamp,duration\na,f\n"),
            "t.csv:2: has 2 columns, not app,func,end_timestamp,duration");
}

// Each is the same trace, as another program writes it.
TEST(AzureTrace, IsReadHoweverItIsWritten) {
  const std::string head = "HashOwner,HashApp,HashFunction,Trigger,480,481\n";
  const std::string bom = "\xef\xbb\xbf";
  const std::pair<const char*, std::string> same[] = {
      {"as published", head + "o,a,f,http,120,60\n"},
      {"no last line break", head + "o,a,f,http,120,60"},
      {"CR LF", "HashOwner,HashApp,HashFunction,Trigger,480,481\r\no,a,f,http,120,60\r\n"},
      {"CR", "HashOwner,HashApp,HashFunction,Trigger,480,481\ro,a,f,http,120,60\r"},
      {"a byte order mark", bom + head + "o,a,f,http,120,60\n"},
      {"a byte order mark and quotes",
       bom + "\"HashOwner\",HashApp,HashFunction,Trigger,480,481\no,a,f,http,120,60\n"},
      {"sep=", "sep=;\r\nHashOwner;HashApp;HashFunction;Trigger;480;481\r\no;a;f;http;120;60\r\n"},
      {"quoted sep=", "\"sep=,\"\n" + head + "o,a,f,http,120,60\n"},
      {"semicolons", "HashOwner;HashApp;HashFunction;Trigger;480;481\no;a;f;http;120;60\n"},
      {"tabs", "HashOwner\tHashApp\tHashFunction\tTrigger\t480\t481\no\ta\tf\thttp\t120\t60\n"},
      {"quotes",
       "\"HashOwner\",\"HashApp\",\"HashFunction\",\"Trigger\",\"480\",\"481\"\n"
       "\"o\",\"a, \"\"x\"\"\nb\",\"f\",\"http\",\"120\",\"60\"\n"},
      {"an inch in a name", head + "o,a 5\" b,f,http,120,60\n"},
      {"exponents", head + "o,a,f,http,1.2e2,6E+1\n"},
      {"floats", head + "o,a,f,http,120.0,+60.\n"},
      {"blanks", "HashOwner, HashApp , HashFunction,\tTrigger, 480, 481\no, a, f, http, 120 , 60 \n"},
      {"other case", "hashowner,HASHAPP,hashFunction,trigger,480,481\no,a,f,http,120,60\n"},
      {"blank rows", "\n" + head + "\n  \no,a,f,http,120,60\n\n\n"},
      {"rows of separators", head + "o,a,f,http,120,60\n,,,,,\n"},
  };
  for (const auto& [name, text] : same) {
    const auto parsed = parse_azure_trace(text, "t.csv", row(1));
    ASSERT_TRUE(std::holds_alternative<PiecewiseRate>(parsed)) << name << ": " << error_of(parsed);
    EXPECT_DOUBLE_EQ(std::get<PiecewiseRate>(parsed).rate_at(0), 2) << name;
    EXPECT_DOUBLE_EQ(std::get<PiecewiseRate>(parsed).rate_at(60), 1) << name;
    EXPECT_EQ(error_of(parse_azure_trace(text, "t.csv", row(2))), "t.csv: no row 2; it has 1") << name;
  }
}

TEST(AzureTrace, SaysWhatAFileIsThatIsNoText) {
  const std::pair<std::string, const char*> files[] = {
      {"\x1f\x8b\x08x", "gzip"},
      {std::string("\xfd"
                   "7zXZ\0x",
                   7),
       "xz"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"BZh91AY&SY", "bzip2"},
      {"PK\x03\x04", "zip archive or a spreadsheet"},
      {std::string("\xff\xfe"
                   "a\0",
                   4),
       "UTF-16"},
  };
  for (const auto& [text, what] : files) {
    const auto said = error_of(parse_azure_trace(text, "t.csv", row(1)));
    EXPECT_EQ(said.find("t.csv: is "), 0u) << said;
    EXPECT_NE(said.find(what), std::string::npos) << said;
  }
  const std::string head = "app,func,end_timestamp,duration\n";
  EXPECT_EQ(error_of(parse_azure_trace(head + std::string("a\0,f,1,1\n", 9), "t.csv", row(1))),
            "t.csv:2: a zero byte: is this text?");
  EXPECT_EQ(error_of(parse_azure_trace(head + "\"a,f,1,1\n", "t.csv", row(1))),
            "t.csv:2: a quote is not closed");
  EXPECT_EQ(error_of(parse_azure_trace(head + "\"a\"b,f,1,1\n", "t.csv", row(1))),
            "t.csv:2: text after a closing quote");
  // The line of an error is the file's, also behind a quoted line break.
  EXPECT_EQ(error_of(parse_azure_trace(head + "\"a\r\nb\",f,1,1\na,f,x,1\n", "t.csv", row(1))),
            "t.csv:4: 'x' is not a time in seconds");
}

TEST(AzureTrace, AFileOfAnySizeIsReadARowAtATime) {
  const std::string path = testing::TempDir() + "azure2021-long.csv";
  {
    std::ofstream out(path);
    out << "app,func,end_timestamp,duration\n";
    out << "a,f,0.079,0.078\na,f,5.2,0.0\n";
  }
  // Larger than any bound on a file; what follows the second row is a line without an end.
  std::filesystem::resize_file(path, 400'000'000);
  EXPECT_EQ(std::get<UsageError>(Trace::parse("azure:" + path)).message,
            path + ":4: the line is longer than 65536 bytes");
  std::filesystem::remove(path);
}

TEST(AzureTrace, RowsMayLieAcrossTheReadersPieces) {
  std::string text = "app,func,end_timestamp,duration\n";
  for (int i = 0; i < 60'000; ++i)
    text += "a" + std::to_string(i % 7) + ",f," + std::to_string(i % 500) + ".5,1e-05\n";
  const PiecewiseRate rate = azure(text, row(7));
  EXPECT_DOUBLE_EQ(rate.period_s(), 500);
  double expected = 0;
  for (int i = 6; i < 60'000; i += 7) ++expected;
  EXPECT_DOUBLE_EQ(rate.integral(500), expected);
}

TEST(Series, OfOneValueALineHasNoHeader) {
  const auto rate = [](std::string_view text, const char* name) {
    return std::get<PiecewiseRate>(parse_series(text, "s.txt", column(name, 1)));
  };
  EXPECT_DOUBLE_EQ(rate("157\n158\n", "1").period_s(), 2);
  EXPECT_DOUBLE_EQ(rate("1\n158\n", "1").rate_at(1), 158);
  EXPECT_DOUBLE_EQ(rate("rps\n52\n", "1").period_s(), 1);
  EXPECT_DOUBLE_EQ(rate("minute,requests\n0,5\n", "2").rate_at(0), 5);
  EXPECT_DOUBLE_EQ(rate("Minute, Requests \n0,5\n", "requests").rate_at(0), 5);
  EXPECT_EQ(error_of(parse_series("157\n", "s.txt", column("2", 1))), "s.txt:1: no column '2'");
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

const std::string kMade = FLASH_SOURCE_DIR "/tests/lab/workloads/traces/";

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
  EXPECT_EQ(std::get<UsageError>(Trace::parse("azure:/nonexistent")).message,
            "/nonexistent: No such file or directory");
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
