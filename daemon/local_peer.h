// Purpose: what flashd's sockets for its helper processes have in common: who may connect, how often, and
// text as a message may carry it.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"

namespace flash {

/// Tokens that come back with time.
class Bucket {
 public:
  /// Are there `n`? At most `rate` are kept.
  bool has(Now now, double rate, double n = 1) {
    if (!started_) {
      tokens_ = rate;
      started_ = true;
    } else {
      tokens_ = std::min(rate, tokens_ + rate * std::max(0.0, seconds(now.mono - at_)));
    }
    at_ = now.mono;
    return tokens_ >= n;
  }
  bool take(Now now, double rate, double n = 1) {
    if (!has(now, rate, n)) return false;
    tokens_ -= n;
    return true;
  }
  void reset() { started_ = false; }

 private:
  double tokens_ = 0;
  Duration at_{};
  bool started_ = false;
};

/// Text from outside as a message may carry it: printable ASCII, not longer than a name.
std::string plain(std::string_view text);

/// nullopt: there is no such user. `group` becomes its primary group.
std::optional<uid_t> uid_of(const std::string& user, std::optional<gid_t>& group);

}  // namespace flash
