#include "lab/experiments/rcs_data.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace flash::lab {
namespace {

const std::string kChunk =
    "provider,function,memory_mib,cpu_millicores,input_size_bytes,exec_time_ms,http_status\n";
const std::string kBandit =
    ",provider,A_family,A_vcpu,B_family,B_vcpu,C_family,C_type,C_vcpu,nodes,workload,target_cost,target_"
    "runtime,"
    "status\n";

std::string refusal(const std::string& text) {
  const auto set = parse_performance(text, "file.csv");
  return set ? "" : set.error().message();
}

TEST(PerformanceData, ReadsProfilesOfFunctions) {
  const auto set = parse_performance(kChunk +
                                         "aws,cut,256,1000,1024,20,200\n"
                                         "aws,cut,512,2000,1024,10,200\n"
                                         "aws,cut,512,2000,2048,30,200\n"
                                         "aws,cut,1024,2000,2048,30,503\n"
                                         "aws,cut,2048,2000,2048,,200\n",
                                     "file.csv");
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->kind, "chunkfunc");
  EXPECT_EQ(set->rows, 5U);
  EXPECT_EQ(set->skipped, 2U);
  ASSERT_EQ(set->instances.size(), 2U);  // two inputs of one function
  EXPECT_EQ(set->instances[0].application, "cut");
  ASSERT_EQ(set->instances[0].runs.size(), 2U);
  EXPECT_EQ(set->instances[0].runs[0].configuration, (std::vector<double>{8, 0}));
  EXPECT_EQ(set->instances[0].runs[0].time, 20);
  EXPECT_NEAR(set->instances[0].context[0], std::log(1024), 1e-12);
}

TEST(PerformanceData, RunsOfOneConfigurationAreAveraged) {
  const auto set =
      parse_performance(kChunk + "aws,cut,256,1000,1024,20,200\naws,cut,256,1000,1024,10,200\n", "file.csv");
  ASSERT_TRUE(set);
  ASSERT_EQ(set->instances[0].runs.size(), 1U);
  EXPECT_EQ(set->instances[0].runs[0].time, 15);
}

TEST(PerformanceData, WithoutACpuShareMemoryStandsForIt) {
  const auto set = parse_performance(kChunk + "aws,cut,1769,,1024,20,200\n", "file.csv");
  ASSERT_TRUE(set);
  EXPECT_NEAR(set->instances[0].runs[0].configuration[1], 0, 1e-9);
}

TEST(PerformanceData, ReadsCloudConfigurations) {
  const auto set = parse_performance(kBandit +
                                         "0,C,,,,,1,2,1,4,sort,0.1,100,ok\r\n"
                                         "1,A,2,1,,,,,,4,sort,0.1,50,ok\r\n"
                                         "2,A,1,1,,,,,,4,sort,0.1,50,\"Timed, out\"\r\n",
                                     "file.csv");
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->kind, "cloudbandit");
  EXPECT_EQ(set->skipped, 1U);
  ASSERT_EQ(set->instances.size(), 2U);
  for (const auto& instance : set->instances) {
    EXPECT_EQ(instance.application, "sort");
    ASSERT_EQ(instance.runs[0].configuration.size(), set->configuration.size());
  }
  const auto& a = set->instances[0].runs[0].configuration;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const std::string& name = set->configuration[d];
    const double expected = name == "log2 nodes"                                    ? 2
                            : name == "vcpu" || name == "A" || name == "A family 2" ? 1
                                                                                    : 0;
    EXPECT_EQ(a[d], expected) << name;
  }
}

TEST(PerformanceData, KnownBadFunctionsAreLeftOut) {
  const auto set = parse_performance(
      "source,function,memory_mib,rep,duration_mean\ns,matmul,128,0,5\ns,gzip,128,0,5\ns,gzip,256,0,4\n",
      "file.csv");
  ASSERT_TRUE(set) << set.error().message();
  ASSERT_EQ(set->instances.size(), 1U);
  EXPECT_EQ(set->skipped, 1U);
}

TEST(PerformanceData, NamesFileLineAndColumnOfWhatIsWrong) {
  EXPECT_EQ(refusal(""), "file.csv: is empty");
  EXPECT_NE(refusal("a,b\n1,2\n").find("file.csv:1: "), std::string::npos);
  const std::string what = refusal(kChunk + "aws,cut,256,1000,1024,20,200\naws,cut,many,1000,1024,10,200\n");
  EXPECT_NE(what.find("file.csv:3: "), std::string::npos) << what;
  EXPECT_NE(what.find("memory_mib"), std::string::npos) << what;
  EXPECT_NE(refusal(kChunk + "aws,cut,256\n").find("3 columns"), std::string::npos);
  EXPECT_NE(refusal(kChunk + "aws,cut,-1,1000,1024,20,200\n").find("below"), std::string::npos);
  EXPECT_NE(refusal(kChunk + "aws,\"cut,256,1000,1024,20,200\n").find("not closed"), std::string::npos);
  EXPECT_NE(refusal(kChunk + "aws,cut,256,1000,1024,20,500\n").find("no run"), std::string::npos);
}

TEST(PerformanceData, IsReadAsSpreadsheetsAndDataFramesWriteIt) {
  const std::string same =
      "provider,function,memory_mib,cpu_millicores,input_size_bytes,exec_time_ms,http_status";
  const std::string row = "aws,cut,256,1000,1024,20,200";
  for (const std::string& text : std::vector<std::string>{
           "\xef\xbb\xbf" + same + "\r\n" + row + "\r\n",
           "sep=;\nPROVIDER;Function;Memory_MiB;cpu_millicores;input_size_bytes;Exec_Time_ms;http_status\n"
           "aws;cut;256;1000;1024;20;200\n;;;;;;\n",
           same + "\n\"aws\",\"cut\",2.56e+02,1E3, 1024 ,+20,200",
           same + "\n\n" + row + "\n" + "aws,cut,512,,,NaN,200\n",
       }) {
    const auto set = parse_performance(text, "file.csv");
    ASSERT_TRUE(set) << set.error().message();
    ASSERT_EQ(set->instances.size(), 1U) << text;
    EXPECT_EQ(set->instances[0].runs[0].configuration, (std::vector<double>{8, 0})) << text;
    EXPECT_EQ(set->instances[0].runs[0].time, 20) << text;
  }
}

TEST(PerformanceData, AFolderIsOneSetOfOneKind) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("performance-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  EXPECT_FALSE(read_performance(folder));
  write("a.csv", kChunk + "aws,cut,256,1000,1024,20,200\n");
  write("b.csv", kChunk + "aws,cut,512,1000,1024,10,200\n");
  write("notes.txt", "not read");
  const auto set = read_performance(folder);
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->instances[0].runs.size(), 2U);
  write("c.csv", kBandit + "0,C,,,,,1,2,1,4,sort,0.1,100,ok\n");
  const auto mixed = read_performance(folder);
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message().find("c.csv"), std::string::npos);
  fs::remove_all(folder);
  EXPECT_FALSE(read_performance(folder));
}

}  // namespace
}  // namespace flash::lab
