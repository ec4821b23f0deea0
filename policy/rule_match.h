// Purpose: which rule manages a target, and whether it vouches for one that nobody else does.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/glob.h"
#include "core/rule.h"
#include "core/target.h"

namespace flash {

/// The target is of the rule's task, and all given parts match; an empty selector matches no cgroup. A rule of CPU sets
/// matches the one that equals its list (no list: any).
bool matches(const Rule& rule, const Target& target);

/// Does the rule vouch for a target whose owner cannot be told? It does where its select.cgroup names,
/// without wildcards, the folder below which the owner is unknown (or the beginning of its name): the author
/// of the rule then knows whose it is. A target inside something else (spell_out ends in '/') needs that
/// whole path. "*" vouches for nothing.
bool vouches_for(const Rule& rule, const Target& target);

/// Of the target's task the matching rule of highest priority, of equal ones the first by name; nullptr if none
/// matches.
std::shared_ptr<const Rule> best_rule(std::span<const std::shared_ptr<const Rule>> rules,
                                      const Target& target);

/// May a rule select a cgroup below `path` where names prove nothing (CgroupEvent::foreign)? Only one that
/// names cgroups by their path, and by nothing else, may.
bool may_match_below(const Rule& rule, std::string_view path);

}  // namespace flash
