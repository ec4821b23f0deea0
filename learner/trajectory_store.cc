#include "learner/trajectory_store.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <set>

#include "core/json.h"
#include "core/tensor_file.h"
#include "learner/trajectory_store_impl.h"

namespace flash {

using link::sqlite::Query;

namespace {

static_assert(std::endian::native == std::endian::little, "arrays are stored as little-endian float32");

constexpr std::size_t kEpisodesPerRetention = 32;  // one call's share: the socket waits meanwhile
constexpr int kVacuumPages = 4096;
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kDayUs = 86400e6;

// Version 2: what the numbers of a run mean, and what on-policy learning needs of a step. Version 3: who learned together.
constexpr std::array<link::sqlite::Schema::Added, 4> kAddedBy = {
    {{2, "layouts"}, {2, "run_layouts"}, {2, "behaviours"}, {3, "run_groups"}}};

constexpr link::sqlite::Schema kSchema{.what = "trajectory store",
                                       .program = "flash-learner",
                                       .application_id = 0x464c5348,  // "FLSH"
                                       .version = 3,
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
CREATE TABLE layouts(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL, reward TEXT NOT NULL, description TEXT NOT NULL,
  UNIQUE(digest, reward)) STRICT;
CREATE TABLE run_layouts(
  run INTEGER PRIMARY KEY REFERENCES runs(id), layout INTEGER NOT NULL REFERENCES layouts(id)) STRICT;
CREATE TABLE behaviours(
  run INTEGER NOT NULL REFERENCES runs(id), seq INTEGER NOT NULL, log_probability REAL NOT NULL, value REAL NOT NULL,
  PRIMARY KEY(run, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE run_groups(
  run INTEGER PRIMARY KEY REFERENCES runs(id), key TEXT NOT NULL) STRICT;
)sql",
                                       .tables = 8,
                                       .added_by = kAddedBy};

std::int64_t flags_of(const link::Step& s) {
  std::int64_t flags = 0;
  if (s.explored) flags |= kExplored;
  if (s.end_of_episode) flags |= kEnd;
  if (s.state_trusted) flags |= kStateTrusted;
  if (s.reward_given) flags |= kRewardGiven;
  if (s.reward_given && s.reward_trusted) flags |= kRewardTrusted;
  if (s.behaviour.given) flags |= kBehaviour;
  return flags;
}

}  // namespace

std::optional<Transition> transition_of(const link::Step& t, const link::Step& next,
                                        const SpaceLayout& layout) {
  const auto state_dim = static_cast<std::size_t>(layout.state_dim());
  const auto action_dim = static_cast<std::size_t>(layout.action_size());
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
  out.behaviour = t.behaviour;
  return out;
}

std::string group_key(const link::Announce& agent) {
  if (agent.group.empty()) return {};
  return std::string(to_string(agent.layout.task)) + "@" + agent.group + ":" + meaning_of(agent.layout);
}

std::string meaning_of(const SpaceLayout& layout) {
  return sha256_hex(layout.digest() + " " + layout.reward).substr(0, 16);
}

bool TrajectoryStore::Impl::of_before_named(const SpaceLayout& layout) {
  const auto before = layout_before_named(layout.task);
  return before && before->digest() == layout.digest();
}

Result<std::int64_t> TrajectoryStore::Impl::agent_id(std::string_view key) {
  FLASH_TRY(Query q, db.query("SELECT id FROM agents WHERE key = ?"));
  q.bind(key);
  FLASH_TRY(bool there, q.row());
  return there ? q.integer(0) : 0;
}

Result<std::int64_t> TrajectoryStore::Impl::layout_id(const SpaceLayout& layout) {
  const std::string digest = layout.digest(), description = layout_to_json(layout)->dump();
  FLASH_TRY(Query q, db.query("INSERT INTO layouts(digest, reward, description) VALUES(?, ?, ?) "
                              "ON CONFLICT(digest, reward) DO UPDATE SET description = excluded.description "
                              "RETURNING id"));
  q.bind(digest).bind(layout.reward).bind(description);
  FLASH_TRY(bool there, q.row());
  if (!there) return db.damaged("a layout could not be made");
  const std::int64_t id = q.integer(0);
  FLASH_CHECK(q.run());
  return id;
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
  if (step.behaviour.given) {
    FLASH_TRY(Query q,
              db.query("INSERT INTO behaviours(run, seq, log_probability, value) VALUES(?, ?, ?, ?)"));
    q.bind(run).bind(seq).bind(double{step.behaviour.log_probability}).bind(double{step.behaviour.value});
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
  auto impl = std::make_unique<Impl>(kSchema);
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
      q.bind(agent.key).bind(to_string(agent.layout.task)).bind(agent.application);
      q.bind(std::int64_t{agent.layout.state_dim()}).bind(std::int64_t{agent.layout.action_dim()});
      FLASH_TRY(bool there, q.row());
      if (!there) return impl_->db.damaged("an agent could not be made");
      id = q.integer(0);
      FLASH_CHECK(q.run());
    }
    const auto signed_epoch = static_cast<std::int64_t>(epoch);
    FLASH_TRY(const std::int64_t layout, impl_->layout_id(agent.layout));
    const std::string group = group_key(agent);
    std::int64_t before = 0;
    {
      FLASH_TRY(Query q, impl_->db.query(
                             "SELECT r.id, r.last_seq, l.layout, coalesce(g.key, '') FROM runs r "
                             "LEFT JOIN run_layouts l ON l.run = r.id LEFT JOIN run_groups g ON g.run = r.id "
                             "WHERE r.agent = ? AND r.epoch = ? AND r.name = ?"));
      q.bind(id).bind(signed_epoch).bind(agent.agent);
      FLASH_TRY(bool there, q.row());
      if (there) {
        before = q.integer(0);
        out.last_seq = static_cast<std::uint64_t>(q.integer(1));
        const bool same =
            q.integer(2) == layout || (q.integer(2) == 0 && Impl::of_before_named(agent.layout));
        if (same && q.text(3) == group) {
          out.id = before;
          return {};
        }
      }
    }
    if (before != 0) {
      // No name that an agent can have: its '/' is none of theirs, and it is not looked for again.
      FLASH_TRY(Query q, impl_->db.query("UPDATE runs SET name = name || '/' || ordinal WHERE id = ?"));
      FLASH_CHECK(q.bind(before).run());
    }
    {
      FLASH_TRY(Query q, impl_->db.query("UPDATE agents SET runs = runs + 1 WHERE id = ?"));
      FLASH_CHECK(q.bind(id).run());
    }
    {
      FLASH_TRY(Query q, impl_->db.query("INSERT INTO runs(agent, epoch, name, ordinal, last_seq) "
                                         "SELECT id, ?, ?, runs, ? FROM agents WHERE id = ? RETURNING id"));
      q.bind(signed_epoch).bind(agent.agent).bind(static_cast<std::int64_t>(out.last_seq)).bind(id);
      FLASH_TRY(bool there, q.row());
      if (!there) return impl_->db.damaged("a run could not be made");
      out.id = q.integer(0);
      FLASH_CHECK(q.run());
    }
    FLASH_TRY(Query q, impl_->db.query("INSERT INTO run_layouts(run, layout) VALUES(?, ?)"));
    FLASH_CHECK(q.bind(out.id).bind(layout).run());
    if (group.empty()) return {};
    FLASH_TRY(Query g, impl_->db.query("INSERT INTO run_groups(run, key) VALUES(?, ?)"));
    return g.bind(out.id).bind(group).run();
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
      FLASH_TRY(Query b, impl_->db.query("DELETE FROM behaviours WHERE run = ? AND seq BETWEEN ? AND ?"));
      FLASH_CHECK(b.bind(e.run).bind(e.first).bind(e.last).run());
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
      for (const char* sql : {"DELETE FROM run_layouts WHERE run = ?", "DELETE FROM run_groups WHERE run = ?",
                              "DELETE FROM runs WHERE id = ?"}) {
        FLASH_TRY(Query q, impl_->db.query(sql));
        FLASH_CHECK(q.bind(id).run());
      }
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

}  // namespace flash
