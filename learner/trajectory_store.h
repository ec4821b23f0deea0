// Purpose: everything agents have lived through, in one SQLite file: what learning starts from again after a
// restart, and what AWARE's retraining (recent rewards) and FLASH's meta learner (best and worst
// trajectories) ask for. docs/ARCHITECTURE.md, "The learner's store".
// Ownership: owns the database connection; one process at a time owns the file (the state directory is
// locked).
// Thread rule: one thread. Nothing here reads a clock.
//
// Durability: WAL with synchronous=NORMAL. A committed step survives kill -9 of any process, so a step may be
// acknowledged once append() has returned. A power cut can take the commits since the last checkpoint of the
// WAL (about the last minute); the file stays sound. That is enough: flashd, which could send the steps
// again, is gone with the same power cut, and an fsync per second on a disk shared with the workloads buys
// nobody anything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agents/agent.h"
#include "core/result.h"
#include "link/messages.h"

struct sqlite3;
struct sqlite3_stmt;

namespace flash {

/// Logical time of a step: grows by one per step within a run, and from run to run of an agent, whatever the
/// wall clock does and however often flashd restarts. Two steps with consecutive logical times are
/// consecutive steps.
using LogicalTime = std::int64_t;
inline constexpr int kRunShift = 40;  // logical = ordinal of the agent's run << 40 | seq
inline constexpr std::uint64_t kMaxSeq = (std::uint64_t{1} << kRunShift) - 1;

/// One agent under one name within one start (epoch) of flashd: seq counts within it.
using RunId = std::int64_t;

struct StoredRun {
  RunId id = 0;
  std::uint64_t last_seq = 0;  // 0: nothing stored yet
};

struct EpisodeSummary {
  std::int64_t id = 0;        // of the store; grows in the order of creation over all agents
  std::uint64_t episode = 0;  // flashd's number
  LogicalTime first = 0, last = 0;
  std::uint32_t steps = 0;
  std::uint32_t rewards = 0;  // trusted rewards that its actions earned
  double reward_mean = 0, reward_deviation = 0;
  Stage stage = Stage::Initialized;         // at its last step
  bool initial = false;                     // some step of it was in stage INITIALIZED
  bool complete = false;                    // its last step is stored
  std::int64_t begun_us = 0, ended_us = 0;  // wall clock, for people
};

/// FLASH 3.2: M/2 trajectories with the highest rewards and M/2 with the lowest, the latter without those of
/// the initial stage, which are not representative; beside them the newest M/2 of that stage which are not
/// among the best. No episode is there twice.
struct TrajectorySelection {
  std::vector<EpisodeSummary> best, worst, initial;  // best first, worst first, newest first
};

/// A step as stored, with the reward that its own action earned (the next step of the stream brings it).
struct StoredStep {
  LogicalTime time = 0;
  link::Step step;
  std::optional<float> earned;  // trusted only
};

struct RetentionReport {
  std::uint64_t episodes = 0, steps = 0, agents = 0;
  bool more = false;   // there is more to drop: call again
  std::string reason;  // "size: 270 of 256 MiB", "age: older than 30 days"
};

/// (s_t, a_t, r_t+1, s_t+1) if both steps are consecutive, trusted, executed and of this layout's sizes. Its stream is
/// the caller's to fill: the run.
std::optional<Transition> transition_of(const link::Step& t, const link::Step& next,
                                        const SpaceLayout& layout);

/// Under which agents of one task, group, layout and reward learn together, and their learner's files are kept:
/// "resource-limits@shop:3f2a9c1b00112233". Empty where the agent's group is. No agent's key looks like it.
std::string group_key(const link::Announce& agent);
/// 16 hexadecimal digits; equal where layout and reward are.
std::string meaning_of(const SpaceLayout& layout);

class TrajectoryStore {
 public:
  struct Entry {
    RunId run = 0;
    const link::Step* step = nullptr;
  };
  struct Counts {
    std::uint64_t agents = 0, runs = 0, episodes = 0, steps = 0;
  };

  /// Creates what is missing. EPROTONOSUPPORT: the file is of a newer schema (the reason names both). ENOSPC,
  /// EIO, EACCES as they are. A damaged or foreign file is moved aside to PATH.damaged-N, never deleted;
  /// `note` says so.
  static Result<TrajectoryStore> open(const std::string& path, std::string* note);
  TrajectoryStore(TrajectoryStore&&) noexcept;
  TrajectoryStore& operator=(TrajectoryStore&&) noexcept;
  ~TrajectoryStore();

  /// The run of this agent in this epoch, made if it is new, or if the agent has another layout or group than it had: then
  /// the new one goes on at its last seq. REQUIRES: link's bounds.
  Result<StoredRun> begin_run(const link::Announce& agent, std::uint64_t epoch);
  /// All or nothing, committed when it returns. The result says for each entry whether it was new: a step
  /// that is there already (or was, before retention) is left as it is. ENOSPC: the disk is full, nothing
  /// changed and nothing was lost, try again later. EBADMSG: the file is damaged (replace_damaged()). EINVAL:
  /// seq out of range.
  Result<std::vector<bool>> append(std::span<const Entry> entries);
  /// Duplicates that differed from what is stored (their wall time did): seq was used twice for two steps.
  std::uint64_t conflicts() const;

  /// Drops whole episodes, oldest first, until the file's used part is below the size and nothing is older
  /// than the age; at most some episodes per call. The current episodes of this process's runs stay.
  Result<RetentionReport> retain(double max_mib, double max_days, std::int64_t now_us);
  /// After EBADMSG: moves the file aside as open() does and starts a new one. All RunIds are void.
  Result<void> replace_damaged(const std::string& reason, std::string* note);
  /// WAL into the file, without waiting for readers.
  Result<void> checkpoint();

  // Queries. `key` is link::Announce::key; an unknown key gives nothing.
  /// The last step stored of (agent, epoch, name); 0: none.
  Result<std::uint64_t> last_seq(std::string_view key, std::uint64_t epoch, std::string_view name) const;
  Result<std::optional<link::Step>> last_step(RunId run) const;
  /// Trusted rewards, newest first (AWARE 3.3: what the retraining trigger looks at).
  Result<std::vector<double>> recent_rewards(std::string_view key, std::size_t n) const;
  /// The transitions among the agent's newest `n` of this layout and reward, oldest first. A run of before runs had a
  /// layout counts as of layout_before_named(), a reward that was not said as any.
  Result<std::vector<Transition>> recent_transitions(std::string_view key, std::size_t n,
                                                     const SpaceLayout& layout) const;
  /// The newest `n` transitions of all agents that were in a group (group_key()) while they were in it, by the wall clock's
  /// order of their episodes, oldest first.
  Result<std::vector<Transition>> group_transitions(std::string_view group, std::size_t n,
                                                    const SpaceLayout& layout) const;
  /// Newest first.
  Result<std::vector<EpisodeSummary>> episodes(std::string_view key, std::size_t n) const;
  /// m/2 each, of complete episodes of this layout (as above) of which at least half of the steps have a trusted
  /// reward.
  /// `initial_episodes`: so many first episodes of the agent count as initial stage besides those in stage
  /// INITIALIZED.
  Result<TrajectorySelection> select_trajectories(std::string_view key, const SpaceLayout& layout,
                                                  std::size_t m, std::size_t initial_episodes = 0) const;
  /// All steps of an episode in order.
  Result<std::vector<StoredStep>> trajectory(std::int64_t episode) const;
  Result<Counts> counts() const;
  /// Of all agents and groups.
  Result<std::vector<std::string>> keys() const;
  /// Bytes of pages in use (without free pages and the WAL).
  Result<std::uint64_t> used_bytes() const;
  /// PRAGMA integrity_check and the store's own rules (episodes' counts equal their steps): empty when sound.
  Result<std::vector<std::string>> verify() const;

 private:
  struct Impl;
  explicit TrajectoryStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
