// Purpose: a StatsD collector for tests, and the observations of its targets.
// Ownership: owns the collector.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectors/statsd_collector.h"

namespace flash::statsd_test {

inline Target target(std::uint64_t id, std::string application) {
  Target t;
  t.id = {TargetKind::Cgroup, id};
  t.application = std::move(application);
  return t;
}

inline Now at(int second) {
  return Now{std::chrono::seconds(100 + second), {}};
}

/// A collector without sockets, and the observations of its targets.
class Statsd : public testing::Test {
 protected:
  void start(StatsdOptions options = {}) {
    auto opened = StatsdCollector::open(std::move(options));
    ASSERT_TRUE(opened) << opened.error().message();
    statsd_ = std::move(*opened);
  }
  void track(std::uint64_t id, const std::string& application) {
    statsd_->track(target(id, application));
    table_[{TargetKind::Cgroup, id}];
  }
  /// Every application speaks, in the tick before at(0): what it says in the first one is of a time that is
  /// not known.
  void speak(const char* lines) {
    statsd_->ingest(lines);
    statsd_->collect(at(0), table_);
  }
  const Sample& sample(std::uint64_t id, Signal s) { return table_[{TargetKind::Cgroup, id}][s]; }

  std::unique_ptr<StatsdCollector> statsd_;
  ObservationTable table_;
};

}  // namespace flash::statsd_test
