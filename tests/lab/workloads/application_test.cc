#include "lab/workloads/application.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lab/workloads/trace.h"

namespace flash {
namespace {

constexpr const char* kShop = R"({"name": "shop", "segments": [
    {"segment": "text-json", "payload": 500, "count": 3}, {"segment": "table-lookup"}],
    "workers": 4, "memory_mib": 100, "hot_share": 0.25, "trace": "step:5,50,10"})";

std::string error_of(const std::string& json) {
  const auto parsed = parse_application(json, "app.json");
  const auto* error = std::get_if<UsageError>(&parsed);
  return error != nullptr ? error->message : "";
}

std::string pool_error(const std::string& json) {
  const auto parsed = parse_applications(json, "pool.json");
  const auto* error = std::get_if<UsageError>(&parsed);
  return error != nullptr ? error->message : "";
}

Application with(const std::string& segment, double payload) {
  Application a;
  a.name = "a";
  a.segments = {{std::get<const Segment*>(find_segment(segment)), payload, 1}};
  return a;
}

TEST(ApplicationJson, ReadsWhatItSaysAndLeavesTheRestAtItsDefault) {
  const auto app = std::get<Application>(parse_application(kShop, "app.json"));
  EXPECT_EQ(app.name, "shop");
  ASSERT_EQ(app.segments.size(), 2U);
  EXPECT_EQ(app.segments[0].segment->name, "text-json");
  EXPECT_EQ(app.segments[0].payload, 500);
  EXPECT_EQ(app.segments[0].count, 3);
  EXPECT_EQ(app.segments[1].payload, static_cast<double>(app.segments[1].segment->payload_default));
  EXPECT_EQ(app.workers, 4);
  EXPECT_EQ(app.hot_share, 0.25);
  EXPECT_EQ(app.burst, Application{}.burst);
  EXPECT_EQ(app.trace, "step:5,50,10");
}

TEST(ApplicationJson, NamesFileAndKeyOfWhatIsWrong) {
  const auto shop = [](const std::string& more) {
    return R"({"name": "a", "segments": [{"segment": "hash"}], )" + more + "}";
  };
  EXPECT_EQ(error_of(shop(R"("workers": 0)")), "app.json: workers: is not a whole number from 1 to 256");
  EXPECT_EQ(error_of(shop(R"("workers": 1.5)")), "app.json: workers: is not a whole number from 1 to 256");
  EXPECT_EQ(error_of(shop(R"("burst": "2")")), "app.json: burst: is not a number from 1 to 1000");
  EXPECT_EQ(error_of(shop(R"("wrokers": 1)")), "app.json: wrokers: unknown key");
  EXPECT_EQ(error_of(shop(R"("burst": 1, "burst": 2)")), "app.json: burst: is given twice");
  EXPECT_EQ(error_of(shop(R"("trace": "flat:x")")), "app.json: trace: 'x' is not a usable rate in flat:rate");
  EXPECT_EQ(error_of(shop(R"("slo_p99_ms": 1e999)")).substr(0, 22), "app.json: is not JSON:");
  EXPECT_EQ(error_of(R"({"name": "a"})"), "app.json: segments: is missing");
  EXPECT_EQ(error_of(R"({"segments": [{"segment": "hash"}]})"), "app.json: name: is missing");
  EXPECT_EQ(error_of(R"({"name": "a b", "segments": []})").substr(0, 15), "app.json: name:");
  EXPECT_EQ(error_of(R"({"name": "a", "segments": []})"),
            "app.json: segments: is not a list of 1 to 64 segments");
  EXPECT_EQ(error_of(R"({"name": "a", "segments": [{"segment": "gpu"}]})").substr(0, 56),
            "app.json: segments[0].segment: unknown segment 'gpu'; kn");
  EXPECT_EQ(error_of(R"({"name": "a", "segments": [{"segment": "matrix", "payload": 2000}]})"),
            "app.json: segments[0].payload: is not a whole number from 1 to 1024");
  EXPECT_EQ(error_of(R"({"name": "a", "segments": [{"segment": "hash", "size": 1}]})"),
            "app.json: segments[0].size: unknown key");
  EXPECT_EQ(error_of("[]"), "app.json: is not an object");
  EXPECT_EQ(error_of(std::string(100'000, '[')), "app.json: is nested deeper than an application");
}

TEST(ApplicationJson, APoolNamesTheApplicationThatIsWrong) {
  const std::string good = R"({"name": "a", "segments": [{"segment": "hash"}]})";
  EXPECT_EQ(pool_error(R"({"version": 1, "applications": [)" + good + R"(, {"name": "b"}]})"),
            "pool.json: applications[1].segments: is missing");
  EXPECT_EQ(pool_error(R"({"version": 1, "applications": [)" + good + "," + good + "]}"),
            "pool.json: applications[1].name: 'a' is given twice");
  EXPECT_EQ(pool_error(R"({"version": 2, "applications": [)" + good + "]}"), "pool.json: version: is not 1");
  EXPECT_EQ(pool_error(R"({"version": 1, "applications": []})"),
            "pool.json: applications: is not a list of 1 to 100000");
  EXPECT_EQ(pool_error(R"({"version": 1, "applications": [3]})"),
            "pool.json: applications[0]: is not an object");
}

TEST(ApplicationFile, FindsAnApplicationByItsName) {
  const std::string path = testing::TempDir() + "pool.json";
  std::ofstream(path) << to_json_text(generate_applications(3, 5));
  EXPECT_EQ(std::get<Application>(read_application(path + "#app-5-2")).name, "app-5-2");
  const auto none = read_application(path + "#app-5-9");
  EXPECT_EQ(std::get<UsageError>(none).message, path + ": no application 'app-5-9'");
  const auto which = read_application(path);
  EXPECT_EQ(std::get<UsageError>(which).message,
            path + ": holds 3 applications; say which, as in " + path + "#app-5-0");
  std::ofstream(path) << kShop;
  EXPECT_EQ(std::get<Application>(read_application(path)).name, "shop");
  EXPECT_EQ(std::get<UsageError>(read_application("/nonexistent/a.json")).message,
            "cannot read /nonexistent/a.json");
}

TEST(RequestCost, AddsTheSegmentsTimesTheirCounts) {
  Application app = std::get<Application>(parse_application(kShop, "app.json"));
  Application idle = app;
  idle.segments.clear();
  const RequestCost beside = request_cost(idle);
  const UnitCost json = unit_cost(*app.segments[0].segment, 500, 25);
  const UnitCost lookup = unit_cost(*app.segments[1].segment, app.segments[1].payload, 25);
  const RequestCost cost = request_cost(app);
  EXPECT_NEAR((cost.cycles - beside.cycles) / kReferenceHz * 1e6,
              3 * (json.cpu_us - json.stall_us) + lookup.cpu_us - lookup.stall_us, 1e-9);
  EXPECT_NEAR((cost.stall_s - beside.stall_s) * 1e6, 3 * json.stall_us + lookup.stall_us, 1e-9);
  EXPECT_GT(lookup.stall_us, 0);
}

TEST(RequestCost, CountsHttpOwnMemoryAndHotPages) {
  Application app = with("hash", 64);
  const RequestCost before = request_cost(app);
  app.memory_per_request_kib += 1024;
  EXPECT_NEAR((request_cost(app).cycles - before.cycles) / kReferenceHz, 350e-6, 20e-6);
  app = with("hash", 64);
  app.memory_mib *= 2;
  EXPECT_NEAR(request_cost(app).stall_s, 2 * before.stall_s, 1e-12);
  EXPECT_GT(before.stall_s, 0);
  EXPECT_GT(before.cycles, 30e-6 * kReferenceHz);
}

TEST(Updated, ChangesThePayloadsOfItsScenarioAlone) {
  const struct {
    const char* segment;
    double before;
    int scenario;
    double after;
  } rows[] = {{"file-write", 256 * 1024, 0, 768 * 1024},
              {"decompress", 128 * 1024, 0, 512 * 1024},
              {"table-scan", 1024, 1, 10240},
              {"floating-point", 1e6, 2, 2e6},
              {"image", 40, 3, 160},
              {"text-json", 1024, 4, 5 * 1024},
              {"matrix", 50, 5, 150}};
  for (const auto& row : rows) {
    for (int scenario = 0; scenario < 6; ++scenario) {
      const Application after = updated(with(row.segment, row.before), scenario);
      EXPECT_EQ(after.segments[0].payload, scenario == row.scenario ? row.after : row.before)
          << row.segment << " " << scenario;
      EXPECT_EQ(after.trace, Application{}.trace);
    }
    EXPECT_EQ(updated(with(row.segment, row.after), row.scenario).segments[0].payload, row.after);
  }
}

TEST(Updated, MakesARequestAtMostTwiceAsLong) {
  Application app = with("matrix", 50);
  app.segments[0].count = 300;
  const RequestCost before = request_cost(app);
  const Application after = updated(app, 5);
  EXPECT_EQ(after.segments[0].payload, 150);
  EXPECT_GT(request_cost(after).cycles, 1.7 * before.cycles);
  EXPECT_LE(request_cost(after).cycles, 2 * before.cycles);
  app.segments[0].count = 1;
  EXPECT_EQ(updated(app, 5).segments[0].count, 1);
}

TEST(Updated, MovesTheLoadToTheOtherHalfAndKeepsItsShape) {
  Application app = with("hash", 16384);
  app.trace = "step:10,60,5";
  EXPECT_EQ(updated(app, 6).trace, "step:2.5,15,5");
  app.trace = "bursty:0.5,2,10,1,7";
  EXPECT_EQ(updated(app, 6).trace, "bursty:2,8,10,1,7");
}

}  // namespace
}  // namespace flash
