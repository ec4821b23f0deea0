// The program: what it says before it begins to learn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/run_bench.h"

namespace flash {
namespace {

using testing::HasSubstr;
using testing::Not;

BenchRun pretrain(const std::string& arguments) {
  return run_program(std::string(FLASH_BINARY_DIR) + "/bin/flash-pretrain " + arguments);
}

TEST(PretrainProgram, AFileThatCannotBeWrittenIsSaidBeforeAnythingIsLearned) {
  const std::string absent = testing::TempDir() + "no-such-folder/x.model";
  for (const char* option : {"--out ", "--json ", "--resume "}) {
    const auto run =
        pretrain("--pairs 2 --unseen 0 --rounds 1 --steps 100 --updates 1 --threads 1 " + (option + absent));
    EXPECT_EQ(run.status, 1) << option;
    EXPECT_THAT(run.text, HasSubstr(absent)) << option;
    EXPECT_THAT(run.text, Not(HasSubstr("learning"))) << option;
  }
  EXPECT_THAT(pretrain("--out " + testing::TempDir()).text, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace flash
