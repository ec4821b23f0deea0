#include <gtest/gtest.h>

#include "sim/batch.h"
#include "sim/oracle.h"
#include "tests/sim/made_pool.h"

namespace flash {
namespace {

TEST(World, BothTasksStep) {
  for (Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    const Pair pair = made::pair(made::work(), made::node(), task);
    World world;
    world.reset(pair, 0, 1, true);
    ASSERT_EQ(world.state().size(), static_cast<std::size_t>(state_dim(task)));
    double sum = 0;
    for (int t = 0; t < 100; ++t) {
      world.step_fallback();
      sum += world.reward();
    }
    EXPECT_GT(sum / 100, 0.3);
  }
}

}  // namespace
}  // namespace flash
