// Purpose: what strangers may ask of the bus service. Root (and whom flashd itself runs as) is outside every
// bound. All others have, per user and together, a budget of bytes that flashd sends them and of changes that
// they may ask for: further calls are refused, and soon not answered at all. A caller that is not answered
// runs into the bus daemon's own limit of calls that wait for a reply, and then reaches flashd no more. The
// budgets bound what can lie unread in the bus daemon and in flashd's own queue: what has been read cannot be
// known. Who a caller is comes from the bus (identify()); until then it is a stranger with a small budget.
// Ownership: value.
// Thread rule: one thread. Pure: time is a parameter.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/time.h"

namespace flash {

/// So many at once, and so many more per second.
struct Allowance {
  double burst = 0;
  double per_s = 0;
};

struct BusQuotaBounds {
  // A bus daemon stops reading from a client that has 127 MiB waiting for others; all of this is far below.
  Allowance user_bytes{2 << 20, 512 << 10};
  Allowance all_bytes{8 << 20, 2 << 20};
  Allowance unknown_bytes{2 << 20, 1 << 20};  // callers that the bus has not named yet, together
  Allowance user_changes{64, 4};
  Allowance user_refusals{128, 4};  // "LimitsExceeded" as an answer
  Allowance all_refusals{512, 32};
  std::size_t callers = 4096;  // that are remembered
};

class BusQuota {
 public:
  enum class Reply : std::uint8_t { Serve, Refuse, Ignore };

  struct Caller {
    std::optional<uid_t> uid;  // as the bus says; none: not known yet
    pid_t pid = 0;
    bool asked = false;       // the bus is being asked who it is
    std::size_t waiting = 0;  // changing calls that wait for that answer
    double unknown_bytes = 0;
    Duration last{};
  };

  explicit BusQuota(uid_t own, BusQuotaBounds bounds = {});

  /// The caller of that unique name, and its first call with it.
  Caller& caller(std::string_view name, Duration now);
  /// The bus has said who it is.
  void identify(Caller& caller, uid_t uid, pid_t pid, Duration now);
  bool trusted(const Caller& caller) const { return caller.uid && (*caller.uid == 0 || *caller.uid == own_); }

  /// May it have an answer of about so many bytes?
  Reply read(Caller& caller, std::size_t bytes, Duration now);
  /// May it ask for a change? Once it is known who it is.
  Reply change(const Caller& caller, Duration now);
  /// Neither: Refuse while it may still be told so.
  Reply refuse(const Caller& caller, Duration now);

  std::size_t callers() const { return callers_.size(); }

 private:
  struct Bucket {
    double left = 0;
    Duration at{};
    bool full = true;  // never used
    void refill(const Allowance& allowance, Duration now);
  };
  struct User {
    Bucket bytes, changes, refusals;
  };
  User& user(uid_t uid, Duration now);
  void forget_some(Duration now);

  uid_t own_;
  BusQuotaBounds bounds_;
  std::unordered_map<std::string, Caller> callers_;
  std::map<uid_t, User> users_;
  Bucket all_bytes_, unknown_bytes_, all_refusals_;
  Duration forgot_at_{};
};

}  // namespace flash
