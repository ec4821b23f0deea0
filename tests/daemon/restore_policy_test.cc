#include "daemon/restore_policy.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace flash {
namespace {

class RestorePolicy : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "flash-restore-policy-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    state = name;
    unsetenv("SERVICE_RESULT");
  }
  void TearDown() override {
    unsetenv("SERVICE_RESULT");
    std::filesystem::remove_all(state);
  }
  std::string state;
};

TEST_F(RestorePolicy, AnEndWithoutSystemdIsAStop) {
  EXPECT_EQ(find_cause(state), Cause::Stop);
}

TEST_F(RestorePolicy, SystemdTellsACrashFromAStop) {
  setenv("SERVICE_RESULT", "success", 1);
  EXPECT_EQ(find_cause(state), Cause::Stop);
  for (const char* result : {"signal", "core-dump", "watchdog", "exit-code", "oom-kill"}) {
    setenv("SERVICE_RESULT", result, 1);
    EXPECT_EQ(find_cause(state), Cause::Crash) << result;
  }
}

TEST_F(RestorePolicy, ThePackagesMarkerMeansUpgrade) {
  setenv("SERVICE_RESULT", "success", 1);
  std::ofstream marker(upgrade_marker(state));
  EXPECT_EQ(find_cause(state), Cause::Upgrade);
}

TEST_F(RestorePolicy, EachCauseHasItsOwnChoice) {
  RestoreOptions options{OnExit::Keep, OnExit::Restore, OnExit::Keep};
  EXPECT_EQ(on_exit_for(options, Cause::Stop), OnExit::Keep);
  EXPECT_EQ(on_exit_for(options, Cause::Crash), OnExit::Restore);
  EXPECT_EQ(on_exit_for(options, Cause::Upgrade), OnExit::Keep);
  const RestoreOptions defaults;
  EXPECT_EQ(on_exit_for(defaults, Cause::Stop), OnExit::Restore);
  EXPECT_EQ(on_exit_for(defaults, Cause::Upgrade), OnExit::Keep);
}

}  // namespace
}  // namespace flash
