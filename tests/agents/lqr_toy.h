// A toy of resource-limits with a known optimum: as many independent linear systems as there are actions,
//   x' = 0.9 x + 0.4 a + noise,   r = 1 - mean(x^2 + 0.1 a^2),
// where what an action costs shows at once and what it is good for only later. The best policy is linear, its
// gain the solution of the discounted Riccati equation.
#pragma once

#include <algorithm>
#include <vector>

#include "agents/agent.h"
#include "core/random.h"

namespace flash {

struct LqrToy {
  static constexpr double kKeep = 0.9, kPush = 0.4, kPrice = 0.1, kNoise = 0.1;
  int dimensions = 2;
  Random random{1};
  std::vector<float> x = std::vector<float>(static_cast<std::size_t>(dimensions), 0.0F);

  /// a* = -gain x.
  static double gain(double discount) {
    double p = 1;
    for (int i = 0; i < 10000; ++i)
      p = 1 + discount * p * kKeep * kKeep * kPrice / (kPrice + discount * p * kPush * kPush);
    return discount * p * kPush * kKeep / (kPrice + discount * p * kPush * kPush);
  }

  /// The reward of action a in the present state; the state moves on.
  float step(const std::vector<float>& a) {
    double cost = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      cost += (x[i] * x[i] + kPrice * a[i] * a[i]) / static_cast<double>(x.size());
      x[i] =
          static_cast<float>(std::clamp(kKeep * x[i] + kPush * a[i] + kNoise * random.normal(), -2.0, 2.0));
    }
    return static_cast<float>(1 - cost);
  }
  void scatter() {
    for (float& xi : x) xi = static_cast<float>(random.uniform(-1, 1));
  }
};

}  // namespace flash
