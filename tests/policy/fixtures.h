// Purpose: the machine that the tests of policy/ have in common.
#pragma once

#include <vector>

#include "policy/node_capacity.h"

namespace flash {

inline constexpr double kMiB = 1024.0 * 1024;
inline const NodeCapacity kNode{4, 1024 * kMiB, 0, 0};
inline const std::vector<double> kTable = {1.0e6, 1.4e6, 1.8e6, 2.2e6, 2.6e6, 3.0e6};  // kHz

}  // namespace flash
