// A metrics page, the first byte says in which format: never fatal; what is refused says so in one printable
// line; what is read as two pages in a row gives a reading that may be sent.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "link/sync_messages.h"
#include "sync/differences.h"
#include "sync/foreign_page.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  if (size == 0) return 0;
  const bool openmetrics = data[0] & 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  std::size_t samples = 0;
  sync::PageCallbacks count;
  count.sample = [&](const sync::PageSample& s) {
    ++samples;
    FUZZ_REQUIRE(link::is_metric_name(s.name));
    for (const auto& [name, value] : s.labels)
      FUZZ_REQUIRE(link::is_label_name(name) && value.size() <= 1024);
  };
  const auto parsed = sync::parse_page(text, openmetrics, count);
  if (!parsed)
    for (unsigned char c : parsed.error().message()) FUZZ_REQUIRE(c >= 0x20 && c < 0x7f);
  FUZZ_REQUIRE(samples <= text.size());

  for (unsigned char c : sync::foreign_page(text, openmetrics ? "" : "text/html"))
    FUZZ_REQUIRE(c >= 0x20 && c < 0x7f);

  link::sync::Scrape all{.rule = "web",
                         .url = "http://[::1]/metrics",
                         .latency = "latency_seconds",
                         .requests = "requests",
                         .errors = "requests_total{code!=\"200\"}"};
  link::sync::Scrape latency = all;
  latency.requests = latency.errors = "";
  // Cut anywhere, the two halves are two pages, and come in turn.
  const std::size_t half = text.find("\n\n");
  const std::string_view first = text.substr(0, half == text.npos ? half : half + 1),
                         second = text.substr(half == text.npos ? 0 : half + 1);
  for (const auto& scrape : {all, latency}) {
    sync::Differences differences(scrape);
    Duration now{};
    for (const std::string_view page : {first, second, second, first, text, second}) {
      now += std::chrono::seconds(1);
      const auto reading = differences.page(now, page, openmetrics, "text/plain");
      FUZZ_REQUIRE(link::sync::validate(link::sync::Up(reading)));
      // No percentile without a request that it is of.
      FUZZ_REQUIRE(!reading.has_latency || reading.samples > 0);
    }
  }
  return 0;
}
