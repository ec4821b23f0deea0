#include "core/time_unit.h"

#include <gtest/gtest.h>

#include <string>

namespace flash {
namespace {

struct Named {
  const char* metric;
  TimeUnit unit;
};

class UnitOfName : public testing::TestWithParam<Named> {};

TEST_P(UnitOfName, IsItsLastWord) {
  EXPECT_EQ(unit_of_name(GetParam().metric), GetParam().unit);
}

INSTANTIATE_TEST_SUITE_P(
    Metrics, UnitOfName,
    testing::Values(Named{"http_request_duration_seconds", TimeUnit::Seconds},
                    Named{"request.duration.seconds", TimeUnit::Seconds},
                    Named{"latency_s", TimeUnit::Seconds}, Named{"request-latency-sec", TimeUnit::Seconds},
                    Named{"latency_milliseconds", TimeUnit::Milliseconds},
                    Named{"latency.ms", TimeUnit::Milliseconds}, Named{"latency_MS", TimeUnit::Milliseconds},
                    Named{"latency_millis", TimeUnit::Milliseconds},
                    Named{"latency_microseconds", TimeUnit::Microseconds},
                    Named{"latency_us", TimeUnit::Microseconds},
                    Named{"latency_usec", TimeUnit::Microseconds}, Named{"latency_ns", TimeUnit::Nanoseconds},
                    Named{"latency_nanos", TimeUnit::Nanoseconds}, Named{"latency", TimeUnit::Auto},
                    Named{"requests", TimeUnit::Auto}, Named{"latency_status", TimeUnit::Auto},
                    Named{"milliseconds", TimeUnit::Auto}, Named{"latency_", TimeUnit::Auto},
                    Named{"latency_seconds_sum", TimeUnit::Auto}, Named{"", TimeUnit::Auto}));

TEST(TimeUnit, HasANameAndALength) {
  EXPECT_EQ(to_string(TimeUnit::Auto), "auto");
  EXPECT_EQ(to_string(TimeUnit::Nanoseconds), "ns");
  EXPECT_EQ(milliseconds_in(TimeUnit::Seconds), 1000);
  EXPECT_EQ(milliseconds_in(TimeUnit::Milliseconds), 1);
  EXPECT_EQ(milliseconds_in(TimeUnit::Microseconds), 1e-3);
  EXPECT_EQ(milliseconds_in(TimeUnit::Nanoseconds), 1e-6);
}

}  // namespace
}  // namespace flash
