#include "learner/trajectory_store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "link/sqlite.h"

namespace flash {

using link::sqlite::Query;

namespace {

static_assert(std::endian::native == std::endian::little, "arrays are stored as little-endian float32");

constexpr std::size_t kEpisodesPerRetention = 32;  // one call's share: the socket waits meanwhile
constexpr int kVacuumPages = 4096;
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kDayUs = 86400e6;

constexpr link::sqlite::Schema kSchema{.what = "trajectory store",
                                       .program = "flash-learner",
                                       .application_id = 0x464c5348,  // "FLSH"
                                       .version = 1,
                                       .sql = R"sql(
CREATE TABLE agents(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, task TEXT NOT NULL, application TEXT NOT NULL,
  state_dim INTEGER NOT NULL, action_dim INTEGER NOT NULL, runs INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE runs(
  id INTEGER PRIMARY KEY AUTOINCREMENT, agent INTEGER NOT NULL REFERENCES agents(id), epoch INTEGER NOT NULL,
  name TEXT NOT NULL, ordinal INTEGER NOT NULL, last_seq INTEGER NOT NULL DEFAULT 0,
  UNIQUE(agent, epoch, name), UNIQUE(agent, ordinal)) STRICT;
CREATE TABLE episodes(
  id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
  first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, steps INTEGER NOT NULL DEFAULT 0,
  rewards INTEGER NOT NULL DEFAULT 0, reward_sum REAL NOT NULL DEFAULT 0, reward_squares REAL NOT NULL DEFAULT 0,
  stage INTEGER NOT NULL, initial INTEGER NOT NULL DEFAULT 0, complete INTEGER NOT NULL DEFAULT 0,
  begun_us INTEGER NOT NULL, ended_us INTEGER NOT NULL, UNIQUE(run, number)) STRICT;
CREATE TABLE steps(
  run INTEGER NOT NULL REFERENCES runs(id), seq INTEGER NOT NULL, episode INTEGER NOT NULL REFERENCES episodes(id),
  time_us INTEGER NOT NULL, step INTEGER NOT NULL, stage INTEGER NOT NULL, controller INTEGER NOT NULL,
  flags INTEGER NOT NULL, reward REAL NOT NULL, state BLOB NOT NULL, action BLOB NOT NULL, fallback BLOB NOT NULL,
  PRIMARY KEY(run, seq)) STRICT, WITHOUT ROWID;
)sql",
                                       .tables = 4};

// steps.flags
enum : std::int64_t {
  kExplored = 1,
  kEnd = 2,
  kStateTrusted = 4,
  kRewardGiven = 8,
  kRewardTrusted = 16,  // only with kRewardGiven
};

std::int64_t flags_of(const link::Step& s) {
  std::int64_t flags = 0;
  if (s.explored) flags |= kExplored;
  if (s.end_of_episode) flags |= kEnd;
  if (s.state_trusted) flags |= kStateTrusted;
  if (s.reward_given) flags |= kRewardGiven;
  if (s.reward_given && s.reward_trusted) flags |= kRewardTrusted;
  return flags;
}

Stage stage_of(std::int64_t v) {
  return v >= 0 && v <= static_cast<std::int64_t>(Stage::Serving) ? static_cast<Stage>(v)
                                                                  : Stage::Initialized;
}

Controller controller_of(std::int64_t v) {
  return v >= 0 && v <= static_cast<std::int64_t>(Controller::Learned) ? static_cast<Controller>(v)
                                                                       : Controller::None;
}

constexpr const char* kStepColumns =
    "s.seq, s.time_us, s.step, s.stage, s.controller, s.flags, s.reward, s.state, s.action, s.fallback, "
    "e.number";

link::Step step_of(const Query& q) {
  link::Step s;
  s.seq = static_cast<std::uint64_t>(q.integer(0));
  s.time_us = q.integer(1);
  s.step = static_cast<std::uint32_t>(q.integer(2));
  s.stage = stage_of(q.integer(3));
  s.controller = controller_of(q.integer(4));
  const std::int64_t flags = q.integer(5);
  s.explored = flags & kExplored;
  s.end_of_episode = flags & kEnd;
  s.state_trusted = flags & kStateTrusted;
  s.reward_given = flags & kRewardGiven;
  s.reward_trusted = flags & kRewardTrusted;
  s.reward = static_cast<float>(q.real(6));
  s.state = q.floats(7);
  s.action = q.floats(8);
  s.fallback = q.floats(9);
  s.episode = static_cast<std::uint64_t>(q.integer(10));
  return s;
}

constexpr const char* kEpisodeColumns =
    "e.id, e.number, r.ordinal, e.first_seq, e.last_seq, e.steps, e.rewards, e.reward_sum, e.reward_squares, "
    "e.stage, e.initial, e.complete, e.begun_us, e.ended_us";

EpisodeSummary episode_of(const Query& q) {
  EpisodeSummary e;
  e.id = q.integer(0);
  e.episode = static_cast<std::uint64_t>(q.integer(1));
  e.first = q.integer(2) << kRunShift | q.integer(3);
  e.last = q.integer(2) << kRunShift | q.integer(4);
  e.steps = static_cast<std::uint32_t>(q.integer(5));
  e.rewards = static_cast<std::uint32_t>(q.integer(6));
  if (e.rewards > 0) {
    e.reward_mean = q.real(7) / e.rewards;
    e.reward_deviation = std::sqrt(std::max(0.0, q.real(8) / e.rewards - e.reward_mean * e.reward_mean));
  }
  e.stage = stage_of(q.integer(9));
  e.initial = q.integer(10) != 0;
  e.complete = q.integer(11) != 0;
  e.begun_us = q.integer(12);
  e.ended_us = q.integer(13);
  return e;
}

}  // namespace

std::optional<Transition> transition_of(const link::Step& t, const link::Step& next, std::size_t state_dim,
                                        std::size_t action_dim) {
  if (next.seq != t.seq + 1 || !t.state_trusted || !next.state_trusted || !next.reward_given ||
      !next.reward_trusted)
    return std::nullopt;
  if (t.state.size() != state_dim || next.state.size() != state_dim || t.action.size() != action_dim)
    return std::nullopt;
  Transition out;
  out.state = t.state;
  out.action = t.action;
  out.reward = next.reward;
  out.next_state = next.state;
  out.by_fallback = t.controller == Controller::Fallback;
  if (t.fallback.size() == action_dim) out.fallback = t.fallback;
  if (next.fallback.size() == action_dim) out.next_fallback = next.fallback;
  return out;
}

struct TrajectoryStore::Impl {
  /// Where a run stands, so that a step costs no look-up. Void after a rollback: read again from the file.
  struct Cursor {
    std::uint64_t last_seq = 0;
    std::int64_t episode = 0;  // id of the last step's; 0: none, or dropped
    std::uint64_t number = 0;
  };

  link::sqlite::Database db{kSchema};
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
};

Result<std::int64_t> TrajectoryStore::Impl::agent_id(std::string_view key) {
  FLASH_TRY(Query q, db.query("SELECT id FROM agents WHERE key = ?"));
  q.bind(key);
  FLASH_TRY(bool there, q.row());
  return there ? q.integer(0) : 0;
}

Result<TrajectoryStore::Impl::Cursor*> TrajectoryStore::Impl::cursor(RunId run) {
  const auto found = cursors.find(run);
  if (found != cursors.end()) return &found->second;
  Cursor c;
  {
    FLASH_TRY(Query q, db.query("SELECT last_seq FROM runs WHERE id = ?"));
    q.bind(run);
    FLASH_TRY(bool there, q.row());
    if (!there) return Error(std::errc::invalid_argument, "no run " + std::to_string(run));
    c.last_seq = static_cast<std::uint64_t>(q.integer(0));
  }
  FLASH_TRY(Query q, db.query("SELECT id, number FROM episodes WHERE run = ? ORDER BY id DESC LIMIT 1"));
  q.bind(run);
  FLASH_TRY(bool there, q.row());
  if (there) {
    c.episode = q.integer(0);
    c.number = static_cast<std::uint64_t>(q.integer(1));
  }
  return &(cursors[run] = c);
}

Result<bool> TrajectoryStore::Impl::add(RunId run, const link::Step& step) {
  if (step.seq == 0 || step.seq > kMaxSeq)
    return Error(std::errc::invalid_argument, "seq " + std::to_string(step.seq) + " is out of range");
  FLASH_TRY(Cursor * at, cursor(run));
  if (step.seq <= at->last_seq) {
    FLASH_TRY(Query q, db.query("SELECT time_us FROM steps WHERE run = ? AND seq = ?"));
    q.bind(run).bind(static_cast<std::int64_t>(step.seq));
    FLASH_TRY(bool there, q.row());
    if (there && q.integer(0) != step.time_us) ++conflicts;
    return false;
  }
  // What this step's reward judges is the action of the step before, in whose episode it counts.
  if (step.reward_given && step.reward_trusted && at->episode != 0 && step.seq == at->last_seq + 1) {
    FLASH_TRY(Query q, db.query("UPDATE episodes SET rewards = rewards + 1, reward_sum = reward_sum + ?1, "
                                "reward_squares = reward_squares + ?1 * ?1 WHERE id = ?2"));
    FLASH_CHECK(q.bind(static_cast<double>(step.reward)).bind(at->episode).run());
  }
  const auto seq = static_cast<std::int64_t>(step.seq);
  const auto stage = static_cast<std::int64_t>(step.stage);
  const std::int64_t initial = step.stage == Stage::Initialized ? 1 : 0;
  const std::int64_t complete = step.end_of_episode ? 1 : 0;
  if (at->episode != 0 && at->number == step.episode) {
    FLASH_TRY(Query q,
              db.query("UPDATE episodes SET last_seq = ?, steps = steps + 1, stage = ?, "
                       "initial = max(initial, ?), complete = max(complete, ?), ended_us = ? WHERE id = ?"));
    FLASH_CHECK(
        q.bind(seq).bind(stage).bind(initial).bind(complete).bind(step.time_us).bind(at->episode).run());
  } else {
    FLASH_TRY(Query q,
              db.query("INSERT INTO episodes(run, number, first_seq, last_seq, steps, stage, initial, "
                       "complete, begun_us, ended_us) VALUES(?, ?, ?, ?, 1, ?, ?, ?, ?, ?) "
                       "ON CONFLICT(run, number) DO UPDATE SET last_seq = excluded.last_seq, "
                       "steps = steps + 1, stage = excluded.stage, initial = max(initial, excluded.initial), "
                       "complete = max(complete, excluded.complete), ended_us = excluded.ended_us "
                       "RETURNING id"));
    q.bind(run).bind(static_cast<std::int64_t>(step.episode)).bind(seq).bind(seq);
    q.bind(stage).bind(initial).bind(complete).bind(step.time_us).bind(step.time_us);
    FLASH_TRY(bool there, q.row());
    if (!there) return db.damaged("an episode could not be made");
    at->episode = q.integer(0);
    at->number = step.episode;
    FLASH_CHECK(q.run());
  }
  {
    FLASH_TRY(
        Query q,
        db.query("INSERT INTO steps(run, seq, episode, time_us, step, stage, controller, flags, reward, "
                 "state, action, fallback) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    q.bind(run).bind(seq).bind(at->episode).bind(step.time_us).bind(static_cast<std::int64_t>(step.step));
    q.bind(stage).bind(static_cast<std::int64_t>(step.controller)).bind(flags_of(step));
    q.bind(static_cast<double>(step.reward)).bind(step.state).bind(step.action).bind(step.fallback);
    FLASH_CHECK(q.run());
  }
  FLASH_TRY(Query q, db.query("UPDATE runs SET last_seq = ? WHERE id = ?"));
  FLASH_CHECK(q.bind(seq).bind(run).run());
  at->last_seq = step.seq;
  return true;
}

TrajectoryStore::TrajectoryStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrajectoryStore::TrajectoryStore(TrajectoryStore&&) noexcept = default;
TrajectoryStore& TrajectoryStore::operator=(TrajectoryStore&&) noexcept = default;
TrajectoryStore::~TrajectoryStore() = default;

Result<TrajectoryStore> TrajectoryStore::open(const std::string& path, std::string* note) {
  auto impl = std::make_unique<Impl>();
  FLASH_CHECK(impl->db.open(path, note));
  return TrajectoryStore(std::move(impl));
}

Result<void> TrajectoryStore::replace_damaged(const std::string& reason, std::string* note) {
  impl_->cursors.clear();
  return impl_->db.replace(reason, note);
}

Result<StoredRun> TrajectoryStore::begin_run(const link::Announce& agent, std::uint64_t epoch) {
  StoredRun out;
  FLASH_CHECK(impl_->transaction([&]() -> Result<void> {
    std::int64_t id = 0;
    {
      FLASH_TRY(Query q,
                impl_->db.query(
                    "INSERT INTO agents(key, task, application, state_dim, action_dim) VALUES(?, ?, ?, ?, ?) "
                    "ON CONFLICT(key) DO UPDATE SET application = excluded.application, "
                    "state_dim = excluded.state_dim, action_dim = excluded.action_dim RETURNING id"));
      q.bind(agent.key).bind(to_string(agent.task)).bind(agent.application);
      q.bind(std::int64_t{agent.state_dim}).bind(std::int64_t{agent.action_dim});
      FLASH_TRY(bool there, q.row());
      if (!there) return impl_->db.damaged("an agent could not be made");
      id = q.integer(0);
      FLASH_CHECK(q.run());
    }
    const auto signed_epoch = static_cast<std::int64_t>(epoch);
    {
      FLASH_TRY(Query q,
                impl_->db.query("SELECT id, last_seq FROM runs WHERE agent = ? AND epoch = ? AND name = ?"));
      q.bind(id).bind(signed_epoch).bind(agent.agent);
      FLASH_TRY(bool there, q.row());
      if (there) {
        out.id = q.integer(0);
        out.last_seq = static_cast<std::uint64_t>(q.integer(1));
        return {};
      }
    }
    {
      FLASH_TRY(Query q, impl_->db.query("UPDATE agents SET runs = runs + 1 WHERE id = ?"));
      FLASH_CHECK(q.bind(id).run());
    }
    FLASH_TRY(Query q, impl_->db.query("INSERT INTO runs(agent, epoch, name, ordinal) "
                                       "SELECT id, ?, ?, runs FROM agents WHERE id = ? RETURNING id"));
    q.bind(signed_epoch).bind(agent.agent).bind(id);
    FLASH_TRY(bool there, q.row());
    if (!there) return impl_->db.damaged("a run could not be made");
    out.id = q.integer(0);
    return q.run();
  }));
  impl_->cursors.erase(out.id);
  FLASH_TRY(Impl::Cursor * at, impl_->cursor(out.id));
  (void)at;
  return out;
}

Result<std::vector<bool>> TrajectoryStore::append(std::span<const Entry> entries) {
  std::vector<bool> fresh;
  if (entries.empty()) return fresh;
  fresh.reserve(entries.size());
  const std::uint64_t conflicts = impl_->conflicts;
  Result<void> done = impl_->transaction([&]() -> Result<void> {
    for (const Entry& e : entries) {
      FLASH_TRY(bool is_new, impl_->add(e.run, *e.step));
      fresh.push_back(is_new);
    }
    return {};
  });
  if (!done) {
    impl_->conflicts = conflicts;
    return std::move(done).error();
  }
  return fresh;
}

std::uint64_t TrajectoryStore::conflicts() const {
  return impl_->conflicts;
}

Result<RetentionReport> TrajectoryStore::retain(double max_mib, double max_days, std::int64_t now_us) {
  RetentionReport report;
  FLASH_TRY(std::uint64_t used, used_bytes());
  const double max_bytes = max_mib * kMib;
  const auto oldest_us = now_us - static_cast<std::int64_t>(max_days * kDayUs);
  // Down to 95 %: not at the limit again with the next step.
  const bool too_big = static_cast<double>(used) > max_bytes;
  double excess = too_big ? static_cast<double>(used) - 0.95 * max_bytes : 0;

  struct Old {
    std::int64_t id, run, first, last, steps;
    bool aged;
  };
  std::vector<Old> doomed;
  {
    std::set<std::int64_t> current;
    for (const auto& [run, at] : impl_->cursors) current.insert(at.episode);
    FLASH_TRY(std::int64_t steps, impl_->db.number("SELECT total(steps) FROM episodes"));
    const double step_bytes =
        static_cast<double>(used) / static_cast<double>(std::max<std::int64_t>(1, steps));
    FLASH_TRY(Query q, impl_->db.query(
                           "SELECT id, run, first_seq, last_seq, steps, ended_us FROM episodes ORDER BY id"));
    while (true) {
      FLASH_TRY(bool there, q.row());
      if (!there) break;
      if (current.contains(q.integer(0))) continue;
      const Old e{q.integer(0), q.integer(1), q.integer(2),
                  q.integer(3), q.integer(4), q.integer(5) < oldest_us};
      if (!e.aged && excess <= 0) continue;
      if (doomed.size() == kEpisodesPerRetention) {
        report.more = true;
        break;
      }
      if (!e.aged) excess -= static_cast<double>(e.steps) * step_bytes;
      doomed.push_back(e);
    }
  }
  if (doomed.empty()) return report;
  FLASH_CHECK(impl_->transaction([&]() -> Result<void> {
    for (const Old& e : doomed) {
      FLASH_TRY(Query q,
                impl_->db.query("DELETE FROM steps WHERE run = ? AND seq BETWEEN ? AND ? AND episode = ?"));
      FLASH_CHECK(q.bind(e.run).bind(e.first).bind(e.last).bind(e.id).run());
      report.steps += impl_->db.changes();
      FLASH_TRY(Query d, impl_->db.query("DELETE FROM episodes WHERE id = ?"));
      FLASH_CHECK(d.bind(e.id).run());
      ++report.episodes;
    }
    // Runs of other epochs that hold nothing any more, then agents without a run. A run that is current keeps
    // its last_seq: what was dropped is not stored again. An agent's ordinals are counted in its own row.
    std::vector<std::int64_t> empty;
    {
      FLASH_TRY(Query q, impl_->db.query("SELECT id FROM runs WHERE NOT EXISTS "
                                         "(SELECT 1 FROM episodes WHERE run = runs.id)"));
      while (true) {
        FLASH_TRY(bool there, q.row());
        if (!there) break;
        if (!impl_->cursors.contains(q.integer(0))) empty.push_back(q.integer(0));
      }
    }
    for (std::int64_t id : empty) {
      FLASH_TRY(Query q, impl_->db.query("DELETE FROM runs WHERE id = ?"));
      FLASH_CHECK(q.bind(id).run());
    }
    FLASH_TRY(
        Query q,
        impl_->db.query("DELETE FROM agents WHERE NOT EXISTS (SELECT 1 FROM runs WHERE agent = agents.id)"));
    FLASH_CHECK(q.run());
    report.agents = impl_->db.changes();
    return {};
  }));
  char text[96];
  if (too_big)
    std::snprintf(text, sizeof text, "size: %.1f MiB used, %.1f allowed", static_cast<double>(used) / kMib,
                  max_mib);
  else
    std::snprintf(text, sizeof text, "age: older than %g days", max_days);
  report.reason = text;
  const std::string vacuum = "PRAGMA incremental_vacuum(" + std::to_string(kVacuumPages) + ")";
  FLASH_CHECK(impl_->db.exec(vacuum.c_str()));
  return report;
}

Result<void> TrajectoryStore::checkpoint() {
  return impl_->db.checkpoint();
}

Result<std::uint64_t> TrajectoryStore::last_seq(std::string_view key, std::uint64_t epoch,
                                                std::string_view name) const {
  FLASH_TRY(Query q, impl_->db.query("SELECT r.last_seq FROM agents a JOIN runs r ON r.agent = a.id "
                                     "WHERE a.key = ? AND r.epoch = ? AND r.name = ?"));
  q.bind(key).bind(static_cast<std::int64_t>(epoch)).bind(name);
  FLASH_TRY(bool there, q.row());
  return there ? static_cast<std::uint64_t>(q.integer(0)) : std::uint64_t{0};
}

Result<std::optional<link::Step>> TrajectoryStore::last_step(RunId run) const {
  FLASH_TRY(Query q, impl_->db.query(std::string("SELECT ") + kStepColumns +
                                     " FROM steps s JOIN episodes e ON e.id = s.episode WHERE s.run = ? "
                                     "ORDER BY s.seq DESC LIMIT 1"));
  q.bind(run);
  FLASH_TRY(bool there, q.row());
  if (!there) return std::optional<link::Step>{};
  return std::optional<link::Step>{step_of(q)};
}

Result<std::vector<double>> TrajectoryStore::recent_rewards(std::string_view key, std::size_t n) const {
  FLASH_TRY(std::int64_t agent, impl_->agent_id(key));
  FLASH_TRY(Query q, impl_->db.query(
                         "SELECT s.reward FROM runs r JOIN steps s ON s.run = r.id "
                         "WHERE r.agent = ? AND s.flags & 16 ORDER BY r.ordinal DESC, s.seq DESC LIMIT ?"));
  q.bind(agent).count(n);
  std::vector<double> out;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) return out;
    out.push_back(q.real(0));
  }
}

Result<std::vector<Transition>> TrajectoryStore::recent_transitions(std::string_view key, std::size_t n,
                                                                    std::size_t state_dim,
                                                                    std::size_t action_dim) const {
  FLASH_TRY(std::int64_t agent, impl_->agent_id(key));
  // The same conditions as transition_of(), in SQL: an untrusted tail does not use up the n.
  FLASH_TRY(
      Query q,
      impl_->db.query(
          "SELECT s.controller, s.state, s.action, s.fallback, n.reward, n.state, n.fallback "
          "FROM runs r JOIN steps s ON s.run = r.id JOIN steps n ON n.run = s.run AND n.seq = s.seq + 1 "
          "WHERE r.agent = ?1 AND s.flags & 4 AND n.flags & 4 AND n.flags & 16 "
          "AND length(s.state) = ?2 AND length(n.state) = ?2 AND length(s.action) = ?3 "
          "ORDER BY r.ordinal DESC, s.seq DESC LIMIT ?4"));
  q.bind(agent).count(state_dim * sizeof(float)).count(action_dim * sizeof(float)).count(n);
  std::vector<Transition> out;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) break;
    Transition t;
    t.by_fallback = controller_of(q.integer(0)) == Controller::Fallback;
    t.state = q.floats(1);
    t.action = q.floats(2);
    t.fallback = q.floats(3);
    t.reward = static_cast<float>(q.real(4));
    t.next_state = q.floats(5);
    t.next_fallback = q.floats(6);
    if (t.fallback.size() != action_dim) t.fallback.clear();
    if (t.next_fallback.size() != action_dim) t.next_fallback.clear();
    out.push_back(std::move(t));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Result<std::vector<EpisodeSummary>> TrajectoryStore::episodes(std::string_view key, std::size_t n) const {
  FLASH_TRY(std::int64_t agent, impl_->agent_id(key));
  FLASH_TRY(Query q, impl_->db.query(std::string("SELECT ") + kEpisodeColumns +
                                     " FROM runs r JOIN episodes e ON e.run = r.id WHERE r.agent = ? "
                                     "ORDER BY r.ordinal DESC, e.first_seq DESC LIMIT ?"));
  q.bind(agent).count(n);
  std::vector<EpisodeSummary> out;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) return out;
    out.push_back(episode_of(q));
  }
}

Result<TrajectorySelection> TrajectoryStore::select_trajectories(std::string_view key, std::size_t m,
                                                                 std::size_t initial_episodes) const {
  FLASH_TRY(std::vector<EpisodeSummary> all, episodes(key, SIZE_MAX));
  for (std::size_t i = 0; i < std::min(initial_episodes, all.size()); ++i)
    all[all.size() - 1 - i].initial = true;
  std::erase_if(
      all, [](const EpisodeSummary& e) { return !e.complete || e.rewards * 2 < e.steps || e.rewards == 0; });
  const std::vector<EpisodeSummary> newest_first = all;
  std::stable_sort(all.begin(), all.end(), [](const EpisodeSummary& a, const EpisodeSummary& b) {
    return a.reward_mean > b.reward_mean;
  });
  TrajectorySelection out;
  const std::size_t half = m / 2;
  const std::size_t best = std::min(half, all.size());
  out.best.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(best));
  for (std::size_t i = all.size(); i > best && out.worst.size() < half; --i)
    if (!all[i - 1].initial) out.worst.push_back(all[i - 1]);
  for (const EpisodeSummary& e : newest_first) {
    const bool among_best =
        std::any_of(out.best.begin(), out.best.end(), [&](const EpisodeSummary& b) { return b.id == e.id; });
    if (e.initial && !among_best && out.initial.size() < half) out.initial.push_back(e);
  }
  return out;
}

Result<std::vector<StoredStep>> TrajectoryStore::trajectory(std::int64_t episode) const {
  FLASH_TRY(Query q,
            impl_->db.query(std::string("SELECT ") + kStepColumns +
                            ", r.ordinal, n.reward, n.flags FROM episodes e JOIN runs r ON r.id = e.run "
                            "JOIN steps s ON s.run = e.run AND s.seq BETWEEN e.first_seq AND e.last_seq AND "
                            "s.episode = e.id LEFT JOIN steps n ON n.run = s.run AND n.seq = s.seq + 1 "
                            "WHERE e.id = ? ORDER BY s.seq"));
  q.bind(episode);
  std::vector<StoredStep> out;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) return out;
    StoredStep s;
    s.step = step_of(q);
    s.time = q.integer(11) << kRunShift | static_cast<std::int64_t>(s.step.seq);
    if (q.integer(13) & kRewardTrusted) s.earned = static_cast<float>(q.real(12));
    out.push_back(std::move(s));
  }
}

Result<TrajectoryStore::Counts> TrajectoryStore::counts() const {
  FLASH_TRY(Query q,
            impl_->db.query("SELECT (SELECT count(*) FROM agents), (SELECT count(*) FROM runs), count(*), "
                            "total(steps) FROM episodes"));
  FLASH_TRY(bool there, q.row());
  Counts c;
  if (!there) return c;
  c.agents = static_cast<std::uint64_t>(q.integer(0));
  c.runs = static_cast<std::uint64_t>(q.integer(1));
  c.episodes = static_cast<std::uint64_t>(q.integer(2));
  c.steps = static_cast<std::uint64_t>(q.integer(3));
  return c;
}

Result<std::vector<std::string>> TrajectoryStore::keys() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT key FROM agents"));
  std::vector<std::string> out;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) return out;
    out.push_back(q.text(0));
  }
}

Result<std::uint64_t> TrajectoryStore::used_bytes() const {
  FLASH_TRY(std::int64_t pages, impl_->db.number("PRAGMA page_count"));
  FLASH_TRY(std::int64_t free, impl_->db.number("PRAGMA freelist_count"));
  FLASH_TRY(std::int64_t size, impl_->db.number("PRAGMA page_size"));
  return static_cast<std::uint64_t>((pages - free) * size);
}

Result<std::vector<std::string>> TrajectoryStore::verify() const {
  std::vector<std::string> problems;
  {
    FLASH_TRY(Query q, impl_->db.query("PRAGMA integrity_check(10)"));
    while (true) {
      FLASH_TRY(bool there, q.row());
      if (!there) break;
      if (q.text(0) != "ok") problems.push_back(q.text(0));
    }
  }
  // An episode's numbers against its steps. Its last reward may have gone with the episode after it.
  FLASH_TRY(Query q,
            impl_->db.query(
                "SELECT e.id, e.steps, count(s.seq), e.rewards, total(n.flags & 16 <> 0), e.first_seq, "
                "min(s.seq), e.last_seq, max(s.seq), r.last_seq FROM episodes e JOIN runs r ON r.id = e.run "
                "LEFT JOIN steps s ON s.run = e.run AND s.episode = e.id "
                "LEFT JOIN steps n ON n.run = s.run AND n.seq = s.seq + 1 GROUP BY e.id"));
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) break;
    if (q.integer(1) != q.integer(2) || q.integer(3) < q.integer(4) || q.integer(3) > q.integer(4) + 1 ||
        q.integer(5) != q.integer(6) || q.integer(7) != q.integer(8) || q.integer(9) < q.integer(8))
      problems.push_back("episode " + std::to_string(q.integer(0)) + ": " + std::to_string(q.integer(1)) +
                         " steps and " + std::to_string(q.integer(3)) + " rewards by its row, " +
                         std::to_string(q.integer(2)) + " and " + std::to_string(q.integer(4)) +
                         " in the steps");
  }
  FLASH_TRY(std::int64_t stray,
            impl_->db.number("SELECT count(*) FROM steps WHERE episode NOT IN (SELECT id FROM episodes)"));
  if (stray) problems.push_back(std::to_string(stray) + " steps without an episode");
  return problems;
}

}  // namespace flash
