// Purpose: which rule manages a target.
// Ownership: none. Thread rule: pure functions.
#pragma once

#include <memory>
#include <span>

#include "core/rule.h"
#include "core/target.h"

namespace flash {

/// All given parts match; an empty selector matches no cgroup. A cpu-frequency rule matches a CPU set that
/// equals its list (no list: any set); a resource-limits rule matches cgroups only.
bool matches(const Rule& rule, const Target& target);

/// fnmatch(3) without flags: '*' also takes '/'.
bool glob_matches(const std::string& pattern, const std::string& text);

/// The matching rule of highest priority, of equal ones the first by name; nullptr if none matches.
std::shared_ptr<const Rule> best_rule(std::span<const std::shared_ptr<const Rule>> rules,
                                      const Target& target);

}  // namespace flash
