#include "coordinator/watermarks.h"

#include <gmock/gmock.h>

namespace flash::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;

const std::string kRun(32, 'a');

std::vector<Committed::NodeWatermark> mark(std::uint64_t seq, const std::string& node = "n1") {
  return {{node, {kRun, seq}}};
}
CoordinatorBeat at(std::uint64_t position, bool in_step = true) {
  return {"x", 7, position, in_step, 0};
}

class WatermarksTest : public testing::Test {
 protected:
  std::vector<std::uint64_t> due(bool speaker = true) {
    std::vector<std::uint64_t> out;
    for (const auto& w : marks.due(now, speaker)) out.push_back(w.watermark.seq);
    return out;
  }
  Watermarks marks;
  Duration now = seconds(100);
};

TEST_F(WatermarksTest, AloneASpeakerSaysThemAtOnceAndTheNewestOfEach) {
  marks.committed({7, 10}, mark(3), now);
  marks.committed({7, 20}, mark(5), now);
  marks.committed({7, 21}, mark(2, "n2"), now);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{5, 2}));
  EXPECT_THAT(due(), IsEmpty());
}

TEST_F(WatermarksTest, ACoordinatorInStepMustHaveTheRecordsToo) {
  marks.heard("c2", at(10), now, 1);
  marks.committed({7, 10}, mark(3), now);
  marks.committed({7, 20}, mark(5), now);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{3}));
  now += seconds(1);
  EXPECT_THAT(due(), IsEmpty());
  marks.heard("c2", at(20), now, 1);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(marks.not_waited(), 0u);
}

TEST_F(WatermarksTest, OneThatIsBehindForTooLongOrSilentOrStillReadingIsNotWaitedFor) {
  marks.heard("c2", at(10), now, 1);
  marks.committed({7, 20}, mark(5), now);
  for (int i = 0; i < 4; ++i) {
    now += seconds(1);
    marks.heard("c2", at(10), now, 1);
    EXPECT_THAT(due(), IsEmpty());
  }
  now += seconds(1);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(marks.not_waited(), 1u);
  // Silent.
  now += seconds(6);
  marks.committed({7, 30}, mark(6), now);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{6}));
  // An empty store reads a week: nobody waits for it.
  marks.heard("c3", at(1, false), now, 1);
  marks.committed({7, 40}, mark(7), now);
  EXPECT_EQ(due(), (std::vector<std::uint64_t>{7}));
  EXPECT_EQ(marks.not_waited(), 1u);
}

TEST_F(WatermarksTest, WhoDoesNotSpeakKeepsTheNewestForTheCaseThatItMust) {
  marks.committed({7, 10}, mark(3), now);
  now += seconds(6);
  marks.committed({7, 20}, mark(2, "n2"), now);
  EXPECT_THAT(due(false), IsEmpty());
  now += seconds(5);
  EXPECT_THAT(due(false), IsEmpty());
  EXPECT_EQ(due(true), (std::vector<std::uint64_t>{2}));
}

}  // namespace
}  // namespace flash::coordinator
