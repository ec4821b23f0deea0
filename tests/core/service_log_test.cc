// Lines where there is no journal; the guest's checks read the journal itself.
#include "core/service_log.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

std::string said(const ServiceLog& log, int priority, std::string_view text) {
  testing::internal::CaptureStderr();
  log(priority, text, std::vector<LogField>{{"FLASHD_TARGET", "web"}});
  return testing::internal::GetCapturedStderr();
}

TEST(ServiceLog, NamesTheProgramAndThePriority) {
  EXPECT_EQ(said(ServiceLog("flash-sync"), LOG_WARNING, "no textfile"), "flash-sync: warning: no textfile\n");
}

TEST(ServiceLog, ALineIsALineWhateverIsInIt) {
  EXPECT_EQ(said(ServiceLog("flashd"), LOG_INFO, "managing a\x1b[31mb\nflashd: error: made up\xc2\x9b"),
            "flashd: info: managing a?[31mb?flashd: error: made up?\n");
}

TEST(ServiceLog, SaysNothingThatIsLessImportantThanItsLevel) {
  ServiceLog log("flashd", LOG_NOTICE);
  EXPECT_EQ(said(log, LOG_INFO, "connected"), "");
  log.set_level(LOG_INFO);
  EXPECT_EQ(said(log, LOG_INFO, "connected"), "flashd: info: connected\n");
}

TEST(ServiceLog, AJournalThatStderrIsNotGetsNothing) {
  setenv("JOURNAL_STREAM", "1:2", 1);  // of a parent whose stderr was another file
  const ServiceLog log("flashd");
  unsetenv("JOURNAL_STREAM");
  EXPECT_EQ(said(log, LOG_ERR, "x"), "flashd: error: x\n");
}

}  // namespace
}  // namespace flash
