// Purpose: a collector's programs in the kernel, as the overhead guard (daemon/overhead_guard.h) sees them:
// they cost the processes that they run in, and can be taken out for a while.
// Ownership: the collector's.
// Thread rule: the control loop's thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/time.h"

namespace flash {

/// Where a collector keeps its probe: opened when it is first needed, taken out and put back.
template <class Probe>
class ProbeSlot {
 public:
  /// `none`: why there can be no probe; empty: there can.
  explicit ProbeSlot(std::string none) : tried_(!none.empty()), trouble_(std::move(none)) {}

  /// Opens it at the first call. Null: there is none, trouble() says why.
  template <class Open>
  Probe* open(Open open) {
    if (!std::exchange(tried_, true)) {
      if (auto opened = open())
        probe_ = *std::move(opened);
      else
        trouble_ = opened.error().message();
    }
    return probe_.get();
  }
  Probe* get() const { return probe_.get(); }
  const std::string& trouble() const { return trouble_; }

  Duration cost() const {
    return spent_ + (probe_ ? std::chrono::nanoseconds(probe_->cost().ns) : Duration());
  }
  /// False: there was none to take out.
  bool pause(const std::string& why) {
    if (!trouble_.empty()) return false;
    spent_ = cost();
    probe_.reset();
    trouble_ = why;
    return tried_ = paused_ = true;
  }
  /// False: it was not paused. The next open() opens it.
  bool resume() {
    if (!std::exchange(paused_, false)) return false;
    trouble_.clear();
    tried_ = false;
    return true;
  }

 private:
  std::unique_ptr<Probe> probe_;
  bool tried_ = false, paused_ = false;
  Duration spent_{};  // by probes that were taken out
  std::string trouble_;
};

class KernelProbe {
 public:
  virtual ~KernelProbe() = default;
  /// As metrics and messages call it: "schedule", "requests".
  virtual std::string_view probe() const = 0;
  /// CPU time of its programs: a monotonic total since the start.
  virtual Duration cost() const = 0;
  /// Takes the programs out. Another source supplies their signals where there is one. degraded() says `why`.
  virtual void pause(const std::string& why) = 0;
  /// After pause(): starts as if every target were new.
  virtual void resume() = 0;
};

}  // namespace flash
