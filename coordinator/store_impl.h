// Purpose: what store.cc, which writes, and store_read.cc share; no one else's header.
// Ownership: the file.
// Thread rule: the store's.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/store.h"
#include "link/sqlite.h"

namespace flash::coordinator {

inline constexpr link::sqlite::Schema kStoreSchema{.what = "coordinator's store",
                                                   .program = "flash-coordinator",
                                                   .application_id = 0x464c4343,  // "FLCC"
                                                   .version = 1,
                                                   .sql = R"sql(
CREATE TABLE runs(
  id INTEGER PRIMARY KEY, node TEXT NOT NULL, run TEXT NOT NULL, watermark INTEGER NOT NULL DEFAULT 0,
  records INTEGER NOT NULL DEFAULT 0, thinned_to INTEGER NOT NULL DEFAULT 0, UNIQUE(node, run)) STRICT;
CREATE TABLE agents(
  id INTEGER PRIMARY KEY, node TEXT NOT NULL, agent TEXT NOT NULL, pool TEXT NOT NULL, task TEXT NOT NULL,
  target TEXT NOT NULL, application TEXT NOT NULL, rule TEXT NOT NULL, records INTEGER NOT NULL DEFAULT 0,
  latest INTEGER NOT NULL DEFAULT 0, latest_us INTEGER NOT NULL DEFAULT -1,
  episodes_to_serving INTEGER NOT NULL DEFAULT 0, first_us INTEGER NOT NULL DEFAULT 0,
  mean_model TEXT NOT NULL DEFAULT '', mean BLOB NOT NULL DEFAULT x'', drift REAL, UNIQUE(node, agent)) STRICT;
CREATE TABLE records(
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id), seq INTEGER NOT NULL, prev INTEGER NOT NULL,
  agent INTEGER NOT NULL REFERENCES agents(id), episode INTEGER NOT NULL, stage INTEGER NOT NULL,
  steps INTEGER NOT NULL, rewards INTEGER NOT NULL, reward_mean REAL NOT NULL, fallback_rewards INTEGER NOT NULL,
  fallback_reward REAL NOT NULL, model_version INTEGER NOT NULL, model TEXT NOT NULL, embedding BLOB NOT NULL, time_us INTEGER NOT NULL,
  UNIQUE(run, seq)) STRICT;
CREATE TABLE state(
  id INTEGER PRIMARY KEY, stream_created_ns INTEGER NOT NULL, position INTEGER NOT NULL, records INTEGER NOT NULL,
  duplicates INTEGER NOT NULL, refused INTEGER NOT NULL, thinned INTEGER NOT NULL DEFAULT 0,
  summaries_dropped INTEGER NOT NULL DEFAULT 0, since_us INTEGER NOT NULL DEFAULT 0,
  until_us INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE nodes(
  node TEXT PRIMARY KEY, pool TEXT NOT NULL, software TEXT NOT NULL, flashd TEXT NOT NULL, mode TEXT NOT NULL,
  agents INTEGER NOT NULL, outbox INTEGER NOT NULL, last_seen_us INTEGER NOT NULL) STRICT;
CREATE TABLE coordinators(
  name TEXT PRIMARY KEY, position INTEGER NOT NULL, in_step INTEGER NOT NULL, lease INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL) STRICT;
CREATE TABLE summaries(
  agent INTEGER NOT NULL REFERENCES agents(id), hour INTEGER NOT NULL, episodes INTEGER NOT NULL,
  steps INTEGER NOT NULL, rewards INTEGER NOT NULL, reward_sum REAL NOT NULL, PRIMARY KEY(agent, hour)) STRICT;
)sql",
                                                   .tables = 7,
                                                   .synced = true};

inline std::int64_t as_signed(std::uint64_t v) {
  return static_cast<std::int64_t>(v);
}

/// Records of before rewards had bounds.
inline double within_reward(double reward) {
  return std::clamp(reward, link::kLeastReward, link::kMostReward);
}

inline std::uint64_t as_unsigned(std::int64_t v) {
  return static_cast<std::uint64_t>(v);
}

struct Store::Impl {
  link::sqlite::Database db{kStoreSchema};
  NodeQuota quota;

  using Forgotten = std::vector<std::pair<std::string, std::string>>;
  /// What a commit knows of a run.
  struct Run {
    std::int64_t id = 0;  // 0: its node has too many that are newer
    std::uint64_t watermark = 0;
    std::size_t uncovered = 0, fresh = 0;
  };
  Result<Run> run_of(const std::string& node, const std::string& run);
  Result<void> make_room_for_run(const std::string& node);
  Result<void> measure(Run& run);
  Result<void> make_room_for_agents(const std::string& node, Forgotten& forgotten);
  Result<std::int64_t> agent_id(const Origin& origin, const link::Episode& e, Forgotten& forgotten);
  Result<bool> known(std::int64_t run, const Record& record);
  Result<void> insert(std::int64_t run, std::int64_t agent, const Record& record);
  Result<void> is_latest(std::int64_t agent, std::int64_t run, const Record& record);
  Result<void> drift(std::int64_t agent, const link::Episode& e, std::vector<float> mean);
  struct Old {
    std::int64_t id = 0, run = 0, seq = 0, agent = 0, hour = 0;
    std::int64_t steps = 0, rewards = 0;
    double reward_sum = 0;
  };
  Result<std::vector<Old>> oldest(std::int64_t before_us, std::size_t most);
  Result<void> summarise(const Old& old);
  enum class Added : std::uint8_t { Fresh, Known, OverQuota };
  Result<Added> add(Run& run, const Arrived& arrived, std::set<std::int64_t>& changed, Forgotten& forgotten);
  Result<void> pass_over(Run& run, std::vector<RecordPlace> places);
  Result<std::vector<FleetAgent>> agents(std::string_view which, std::optional<std::int64_t> id);
  Result<std::uint64_t> advance(std::int64_t run);
};

}  // namespace flash::coordinator
