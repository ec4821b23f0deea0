#include "policy/idle.h"

namespace flash {

bool idle(const Observation& o) {
  const Sample& rate = o[Signal::RequestRate];
  const Sample& errors = o[Signal::ErrorRate];
  const bool failed = errors.usable() && errors.validity != Validity::Stale && errors.value > 0;
  return rate.trusted() && rate.value == 0 && !o[Signal::LatencyP99].usable() &&
         !o[Signal::LatencyP50].usable() && !failed;
}

}  // namespace flash
