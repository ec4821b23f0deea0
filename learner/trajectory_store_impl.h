// Purpose: the trajectory store's insides, for trajectory_store.cc (schema, what is written and dropped) and
// trajectory_queries.cc (what is asked).
// Ownership: owns the database connection.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>

#include "learner/trajectory_store.h"
#include "link/sqlite.h"

namespace flash {

// steps.flags
enum StepFlags : std::int64_t {
  kExplored = 1,
  kEnd = 2,
  kStateTrusted = 4,
  kRewardGiven = 8,
  kRewardTrusted = 16,  // only with kRewardGiven
  kBehaviour = 32,      // there is a row of behaviours
};

struct TrajectoryStore::Impl {
  /// Where a run stands, so that a step costs no look-up. Void after a rollback: read again from the file.
  struct Cursor {
    std::uint64_t last_seq = 0;
    std::int64_t episode = 0;  // id of the last step's; 0: none, or dropped
    std::uint64_t number = 0;
  };

  explicit Impl(const link::sqlite::Schema& schema) : db(schema) {}

  link::sqlite::Database db;
  std::map<RunId, Cursor> cursors;
  std::uint64_t conflicts = 0;

  Result<void> transaction(const std::function<Result<void>()>& body) {
    Result<void> done = db.transaction(body);
    if (!done) cursors.clear();
    return done;
  }

  Result<Cursor*> cursor(RunId run);
  Result<bool> add(RunId run, const link::Step& step);
  Result<std::int64_t> agent_id(std::string_view key);
  /// Is a run that says no layout of this one?
  static bool of_before_named(const SpaceLayout& layout);
  /// The row of this layout, made if it is new.
  Result<std::int64_t> layout_id(const SpaceLayout& layout);
};

}  // namespace flash
