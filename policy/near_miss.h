// Purpose: a rule that selects nothing names what comes nearest, so that a slip in a name is found in a
// minute.
// Ownership: keeps texts of its own.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "core/rule.h"
#include "core/target.h"

namespace flash {

class NearMiss {
 public:
  /// Of targets that the rule does not match: is this nearer than the nearest before? `work` is what may
  /// still be spent, in steps of comparing one character with one; what it costs is taken off, and without
  /// any left nothing is compared.
  void consider(const Rule& rule, const Target& target, std::size_t& work);
  /// The cgroup is gone. Was it what it names?
  bool forget(std::string_view cgroup);

  bool found() const { return !cgroup_.empty(); }
  /// 'nearest is unit "web.service" (the pattern lacks ".service")', in printable ASCII; empty: nothing is
  /// near.
  std::string explain() const;

 private:
  std::size_t distance_ = std::numeric_limits<std::size_t>::max();
  std::string cgroup_;  // of the nearest
  std::string kind_, text_, hint_;
};

/// How far a text is from matching a pattern: 0 matches; 1 for a letter in the other case, 2 for one too
/// many, too few or another, or for two that changed places. At most `limit` + 1 is returned. Costs length
/// times length, taken off `work`.
std::size_t glob_distance(std::string_view pattern, std::string_view text, std::size_t limit,
                          std::size_t& work);

/// Quoted, what is not printable ASCII (and '"') as '?', at most 200 bytes.
std::string quoted_ascii(std::string_view text);

}  // namespace flash
