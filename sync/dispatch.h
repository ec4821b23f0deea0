// Purpose: which of the outbox's records are to be sent now. A record counts as safe only when the
// coordinator's watermark covers it; until a coordinator answers, one record at a time asks for it.
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstdint>
#include <deque>

#include "core/time.h"

namespace flash::sync {

struct DispatchOptions {
  std::size_t window = 256;  // records on their way
  Duration resend_first = std::chrono::seconds(5), resend_longest = std::chrono::minutes(10);
};

class Dispatch {
 public:
  explicit Dispatch(DispatchOptions options = {}) : options_(options), resend_(options.resend_first) {}

  struct Wanted {
    std::uint64_t after = 0;  // records beyond this one
    std::size_t most = 0;
  };

  /// A new connection: nothing is on its way.
  void restart();
  Wanted wanted(Duration now);
  /// REQUIRES: the next one that was wanted.
  void sent(Duration now, std::uint64_t seq);
  /// A watermark has come. true: it covers more than the one before. A watermark with a lower lease than was
  /// heard over this connection does not count: its coordinator has lost the lease and does not know it yet.
  bool confirmed(Duration now, std::uint64_t seq, std::uint64_t lease = 0);

 private:
  DispatchOptions options_;
  std::deque<std::uint64_t> on_their_way_;
  std::uint64_t confirmed_ = 0, lease_ = 0;
  bool answered_ = false;  // a coordinator has, since the last restart or silence
  Duration resend_, resend_at_{};
};

}  // namespace flash::sync
