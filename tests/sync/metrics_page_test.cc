#include "sync/metrics_page.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "http/metrics_text.h"
#include "sync/exposition.h"

namespace flash::sync {
namespace {

using http::PageFormat;
using http::render;
using link::sync::Family;
using link::sync::FamilyType;
using testing::HasSubstr;
using testing::Not;

std::vector<Family> some() {
  return {{"a_seconds", FamilyType::Counter, "seconds", "Time.", {"who"}, {"x\"y\\z"}, {1.5}},
          {"b", FamilyType::Info, "", "Version.", {"version"}, {"1"}, {1}},
          {"c", FamilyType::Gauge, "", "Gauge.", {}, {}, {std::nan("")}},
          {"a_seconds", FamilyType::Counter, "seconds", "Time.", {"who"}, {"second"}, {2}}};
}

std::string trouble(const std::string& page, bool openmetrics) {
  PageCallbacks callbacks;
  callbacks.sample = [](const PageSample&) {};
  auto parsed = parse_page(page, openmetrics, callbacks);
  return parsed ? "" : parsed.error().message();
}

TEST(MetricsPage, IsReadByOurOwnStrictReader) {
  auto all = some();
  for (auto& f : own_families({.connected = true}, "0.1.0")) all.push_back(std::move(f));
  EXPECT_EQ(trouble(render(all, PageFormat::Prometheus), false), "");
  EXPECT_EQ(trouble(render(all, PageFormat::OpenMetrics), true), "");
}

TEST(MetricsPage, TheTextfileIsReplacedAsAWhole) {
  char name[] = "/tmp/flashd-test-XXXXXX";
  const std::string folder = mkdtemp(name), path = folder + "/flashd.prom";
  ASSERT_TRUE(write_textfile(path, "old\n"));
  std::ifstream reader(path);  // of the old one
  ASSERT_TRUE(write_textfile(path, "new\n"));
  std::string line;
  std::getline(reader, line);
  EXPECT_EQ(line, "old");
  std::getline(std::ifstream(path), line);
  EXPECT_EQ(line, "new");
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  EXPECT_FALSE(write_textfile(folder + "/missing/x.prom", "x"));
  std::filesystem::remove_all(folder);
}

/// Names that own_families() has are those that docs/METRICS.md has under flash_sync_.
TEST(MetricsPage, EveryMetricOfFlashSyncIsDocumented) {
  std::stringstream text;
  text << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/docs/METRICS.md").rdbuf();
  const std::string page = text.str();
  std::size_t documented = 0;
  for (std::size_t at = 0; (at = page.find("\n| `flash_sync_", at)) != page.npos; ++at) ++documented;
  const auto families = own_families({}, "0.1.0");
  EXPECT_EQ(documented, families.size());
  for (const Family& f : families) {
    const std::string suffix = f.type == FamilyType::Counter ? "_total"
                               : f.type == FamilyType::Info  ? "_info"
                                                             : "";
    EXPECT_THAT(page, HasSubstr("\n| `" + f.name + suffix + "` |"));
    if (!f.unit.empty()) {
      EXPECT_TRUE(f.name.ends_with("_" + f.unit)) << f.name;
    }
  }
}

}  // namespace
}  // namespace flash::sync
