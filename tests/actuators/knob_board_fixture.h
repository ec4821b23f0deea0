// Purpose: a knob board over a scripted driver, with its ledger in a folder of its own.
// Ownership: owns all of it.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "actuators/knob_board.h"
#include "tests/actuators/scripted_driver.h"
#include "tests/actuators/temporary_folder.h"

namespace flash::knob_board_test {

inline constexpr KnobKind kCpu = KnobKind::CpuLimit;
inline constexpr KnobKind kMemory = KnobKind::MemoryLimit;

inline Target cgroup(const std::string& path) {
  Target t;
  t.id = {TargetKind::Cgroup, std::hash<std::string>{}(path)};
  t.name = t.cgroup = path;
  return t;
}

inline Now at(double s) {
  return {from_seconds(s), WallTime(from_seconds(1e9 + s))};
}

class Board : public ::testing::Test {
 protected:
  void adopt(const std::string& path) { ASSERT_TRUE(board().adopt(cgroup(path), rule)); }
  KnobBoard& board() {
    if (!board_) {
      auto opened = Ledger::open(folder.path(), "boot");
      if (!opened) std::abort();
      ledger_.emplace(*std::move(opened));
      board_.emplace(std::vector<KnobDriver*>{&driver}, *ledger_);
    }
    return *board_;
  }
  /// As after kill -9: nothing is tidied up.
  void crash() {
    board_.reset();
    std::filesystem::copy_file(folder.path() + "/ledger", folder.path() + "/copy");
    ledger_.reset();
    std::filesystem::rename(folder.path() + "/copy", folder.path() + "/ledger");
  }
  const KnobView& view(const std::string& path, KnobKind kind = kCpu) {
    for (const auto& v : board().knobs(cgroup(path).id))
      if (v.kind == kind) return v;
    std::abort();
  }
  KnobOutcome set(double s, const std::string& path, double value, KnobKind kind = kCpu) {
    const KnobChange change{cgroup(path).id, kind, value};
    return board().apply(at(s), std::span(&change, 1))[0];
  }
  double& kernel(const std::string& path, KnobKind kind = kCpu) {
    return driver.values[ScriptedDriver::key(kind, path)];
  }

  TemporaryFolder folder;
  ScriptedDriver driver;
  Rule rule;
  std::optional<Ledger> ledger_;
  std::optional<KnobBoard> board_;
};

}  // namespace flash::knob_board_test
