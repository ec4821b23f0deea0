#include "policy/objective_account.h"

namespace flash {

void ObjectiveAccount::step(bool missed, bool held) {
  if (!missed) in_policys_run_ = false;
  const bool policys = !held || in_policys_run_;
  if (missed && !held) in_policys_run_ = true;
  free_.fade();
  held_.fade();
  Steps& charged = policys ? free_ : held_;
  charged.steps += 1;
  charged.misses += missed ? 1 : 0;
  measuring_ = measuring_ ? held_.steps < kMeasured : held_.steps < known_ && free_.misses > slack_;
}

bool ObjectiveAccount::overdrawn() const {
  return free_.misses > held_.share() * free_.steps + slack_;
}

}  // namespace flash
