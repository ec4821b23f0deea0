// Purpose: a collector's programs in the kernel, as the overhead guard (daemon/overhead_guard.h) sees them:
// they cost the processes that they run in, and can be taken out for a while. Ownership: the collector's.
// Thread rule: the control loop's thread.
#pragma once

#include <string>
#include <string_view>

#include "core/time.h"

namespace flash {

class KernelProbe {
 public:
  virtual ~KernelProbe() = default;
  /// As metrics and messages call it: "schedule", "requests".
  virtual std::string_view probe() const = 0;
  /// CPU time of its programs, ever; falls never.
  virtual Duration cost() const = 0;
  /// Takes the programs out; what else can say their signals does. degraded() says `why`.
  virtual void pause(const std::string& why) = 0;
  /// After pause(): as if every target was new.
  virtual void resume() = 0;
};

}  // namespace flash
