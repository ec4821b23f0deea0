#include "core/mailbox.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <thread>

namespace flash {
namespace {

bool readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

TEST(Mailbox, ItsReaderWakesUpAndTakesAllInOrder) {
  Mailbox<int> box(10);
  EXPECT_FALSE(readable(box.fd()));
  EXPECT_TRUE(box.put(1));
  EXPECT_TRUE(box.put(2));
  EXPECT_TRUE(readable(box.fd()));
  EXPECT_THAT(box.take(), testing::ElementsAre(1, 2));
  EXPECT_FALSE(readable(box.fd()));
  EXPECT_TRUE(box.take().empty());
}

TEST(Mailbox, AFullOneTakesNothingUntilItIsEmptied) {
  Mailbox<int> box(2);
  EXPECT_TRUE(box.put(1) && box.put(2));
  EXPECT_FALSE(box.put(3));
  EXPECT_THAT(box.take(), testing::ElementsAre(1, 2));
  EXPECT_TRUE(box.put(4));
}

TEST(Mailbox, NothingIsLostBetweenTwoThreads) {
  constexpr int kItems = 20000;
  Mailbox<int> box(64);
  std::thread writer([&] {
    for (int i = 0; i < kItems;)
      if (box.put(i)) ++i;
  });
  std::vector<int> got;
  while (got.size() < kItems)
    for (int i : box.take()) got.push_back(i);
  writer.join();
  for (int i = 0; i < kItems; ++i) ASSERT_EQ(got[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace flash
