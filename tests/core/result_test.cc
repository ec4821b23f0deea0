#include "core/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace flash {
namespace {

Result<int> half(int x) {
  if (x % 2) return Error(std::errc::invalid_argument, "odd");
  return x / 2;
}

Result<int> quarter(int x) {
  FLASH_TRY(int h, half(x));
  return half(h);
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter(8), 2);
  ASSERT_FALSE(quarter(6));
  EXPECT_TRUE(quarter(6).error().is(std::errc::invalid_argument));
}

TEST(Result, ContextNamesWhatWasTriedFirst) {
  Error e = Error::from_errno(ENOENT, "open cpu.max").context("target web");
  EXPECT_EQ(e.message(), "target web: open cpu.max: No such file or directory");
  EXPECT_TRUE(e.is(std::errc::no_such_file_or_directory));
}

}  // namespace
}  // namespace flash
