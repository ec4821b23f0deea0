#include "coordinator/store.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "link/sqlite.h"

namespace flash::coordinator {

using link::sqlite::Database;
using link::sqlite::Query;

namespace {

constexpr link::sqlite::Schema kSchema{.what = "coordinator's store",
                                       .program = "flash-coordinator",
                                       .application_id = 0x464c4343,  // "FLCC"
                                       .version = 1,
                                       .sql = R"sql(
CREATE TABLE runs(
  id INTEGER PRIMARY KEY, node TEXT NOT NULL, run TEXT NOT NULL, watermark INTEGER NOT NULL DEFAULT 0,
  UNIQUE(node, run)) STRICT;
CREATE TABLE agents(
  id INTEGER PRIMARY KEY, node TEXT NOT NULL, agent TEXT NOT NULL, pool TEXT NOT NULL, task TEXT NOT NULL,
  target TEXT NOT NULL, application TEXT NOT NULL, rule TEXT NOT NULL, records INTEGER NOT NULL DEFAULT 0,
  latest INTEGER NOT NULL DEFAULT 0, latest_us INTEGER NOT NULL DEFAULT -1,
  episodes_to_serving INTEGER NOT NULL DEFAULT 0, UNIQUE(node, agent)) STRICT;
CREATE TABLE records(
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id), seq INTEGER NOT NULL, prev INTEGER NOT NULL,
  agent INTEGER NOT NULL REFERENCES agents(id), episode INTEGER NOT NULL, stage INTEGER NOT NULL,
  steps INTEGER NOT NULL, rewards INTEGER NOT NULL, reward_mean REAL NOT NULL, fallback_rewards INTEGER NOT NULL,
  fallback_reward REAL NOT NULL, model_version INTEGER NOT NULL, model TEXT NOT NULL, embedding BLOB NOT NULL, time_us INTEGER NOT NULL,
  UNIQUE(run, seq)) STRICT;
CREATE TABLE state(
  id INTEGER PRIMARY KEY, stream_created_ns INTEGER NOT NULL, position INTEGER NOT NULL, records INTEGER NOT NULL,
  duplicates INTEGER NOT NULL, refused INTEGER NOT NULL) STRICT;
)sql",
                                       .tables = 4,
                                       .synced = true};

std::int64_t as_signed(std::uint64_t v) {
  return static_cast<std::int64_t>(v);
}

std::uint64_t as_unsigned(std::int64_t v) {
  return static_cast<std::uint64_t>(v);
}

}  // namespace

struct Store::Impl {
  Database db{kSchema};

  Result<std::int64_t> run_id(const std::string& node, const std::string& run);
  Result<std::int64_t> agent_id(const Origin& origin, const link::Episode& e);
  Result<bool> insert(std::int64_t run, std::int64_t agent, const Record& record);
  Result<void> is_latest(std::int64_t agent, std::int64_t run, const Record& record);
  Result<bool> add(std::int64_t run, const Arrived& arrived, std::set<std::int64_t>& changed);
  Result<std::vector<FleetAgent>> agents(std::string_view which, std::optional<std::int64_t> id);
  Result<std::uint64_t> advance(std::int64_t run);
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::open(const std::string& path, std::string* note) {
  auto impl = std::make_unique<Impl>();
  FLASH_CHECK(impl->db.open(path, note));
  FLASH_CHECK(impl->db.exec("INSERT OR IGNORE INTO state VALUES(1, 0, 0, 0, 0, 0)"));
  return Store(std::move(impl));
}

Result<Store> Store::open_to_read(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  FLASH_CHECK(impl->db.open_to_read(path));
  return Store(std::move(impl));
}

Result<Position> Store::position() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT stream_created_ns, position FROM state"));
  FLASH_TRY(const bool there, q.row());
  return there ? Position{q.integer(0), as_unsigned(q.integer(1))} : Position{};
}

// --- writing --------------------------------------------------------------------------------------------

Result<std::int64_t> Store::Impl::run_id(const std::string& node, const std::string& run) {
  FLASH_TRY(Query q, db.query("INSERT INTO runs(node, run) VALUES(?, ?) "
                              "ON CONFLICT DO UPDATE SET node = node RETURNING id"));
  FLASH_TRY(const bool there, q.bind(node).bind(run).row());
  if (!there) return db.damaged("a run could not be made");
  const std::int64_t id = q.integer(0);
  FLASH_CHECK(q.run());
  return id;
}

Result<std::int64_t> Store::Impl::agent_id(const Origin& origin, const link::Episode& e) {
  FLASH_TRY(Query q,
            db.query("INSERT INTO agents(node, agent, pool, task, target, application, rule) "
                     "VALUES(?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET pool = excluded.pool, "
                     "task = excluded.task, target = excluded.target, application = excluded.application, "
                     "rule = excluded.rule RETURNING id"));
  q.bind(origin.node).bind(e.agent).bind(origin.pool).bind(to_string(e.task));
  FLASH_TRY(const bool there, q.bind(e.target).bind(e.application).bind(e.rule).row());
  if (!there) return db.damaged("an agent could not be made");
  const std::int64_t id = q.integer(0);
  FLASH_CHECK(q.run());
  return id;
}

/// false: it is there already. What came before it may be less by now: it was thinned.
Result<bool> Store::Impl::insert(std::int64_t run, std::int64_t agent, const Record& record) {
  const link::Episode& e = record.episode;
  FLASH_TRY(Query known, db.query("UPDATE records SET prev = min(prev, ?) WHERE run = ? AND seq = ?"));
  FLASH_CHECK(known.bind(as_signed(record.prev)).bind(run).bind(as_signed(record.seq)).run());
  if (db.changes() > 0) return false;
  FLASH_TRY(
      Query q,
      db.query("INSERT INTO records(run, seq, prev, agent, episode, stage, steps, rewards, reward_mean, "
               "fallback_rewards, fallback_reward, model_version, model, embedding, time_us) "
               "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  q.bind(run).bind(as_signed(record.seq)).bind(as_signed(record.prev)).bind(agent);
  q.bind(as_signed(e.episode)).bind(static_cast<std::int64_t>(e.stage)).bind(std::int64_t{e.steps});
  q.bind(std::int64_t{e.rewards}).bind(e.reward_mean).bind(as_signed(e.fallback_rewards));
  q.bind(e.fallback_reward).bind(as_signed(e.model_version)).bind(e.model);
  q.bind(e.embedding).bind(e.time_us);
  FLASH_CHECK(q.run());
  return true;
}

Result<void> Store::Impl::is_latest(std::int64_t agent, std::int64_t run, const Record& record) {
  FLASH_TRY(Query q,
            db.query("UPDATE agents SET records = records + 1, "
                     "latest = iif(?1 >= latest_us, (SELECT id FROM records WHERE run = ?2 AND seq = ?3), "
                     "latest), latest_us = max(latest_us, ?1), "
                     "episodes_to_serving = iif(episodes_to_serving = 0 AND ?5, records + 1, "
                     "episodes_to_serving) WHERE id = ?4"));
  q.bind(record.episode.time_us).bind(run).bind(as_signed(record.seq)).bind(agent);
  return q.bind(std::int64_t{record.episode.stage == Stage::Serving}).run();
}

Result<bool> Store::Impl::add(std::int64_t run, const Arrived& arrived, std::set<std::int64_t>& changed) {
  FLASH_TRY(const std::int64_t agent, agent_id(arrived.origin, arrived.record.episode));
  FLASH_TRY(const bool fresh, insert(run, agent, arrived.record));
  if (!fresh) return false;
  changed.insert(agent);
  FLASH_CHECK(is_latest(agent, run, arrived.record));
  return true;
}

/// The run's watermark: beyond it the first record whose predecessor is not here.
Result<std::uint64_t> Store::Impl::advance(std::int64_t run) {
  FLASH_TRY(Query at, db.query("SELECT watermark FROM runs WHERE id = ?"));
  FLASH_TRY(const bool there, at.bind(run).row());
  const std::int64_t before = there ? at.integer(0) : 0;
  std::int64_t mark = before;
  {
    FLASH_TRY(Query q, db.query("SELECT seq, prev FROM records WHERE run = ? AND seq > ? ORDER BY seq"));
    q.bind(run).bind(before);
    while (true) {
      FLASH_TRY(const bool more, q.row());
      if (!more) break;
      if (q.integer(1) <= mark) mark = q.integer(0);
    }
  }
  if (mark == before) return as_unsigned(mark);
  FLASH_TRY(Query q, db.query("UPDATE runs SET watermark = ? WHERE id = ?"));
  FLASH_CHECK(q.bind(mark).bind(run).run());
  return as_unsigned(mark);
}

Result<Committed> Store::commit(std::span<const Arrived> records, std::uint64_t refused,
                                const Position& position) {
  Committed out;
  FLASH_CHECK(impl_->db.transaction([&]() -> Result<void> {
    std::map<std::pair<std::string, std::string>, std::int64_t> touched;
    std::set<std::int64_t> changed;
    for (const Arrived& arrived : records) {
      const auto key = std::pair(arrived.origin.node, arrived.record.run);
      auto at = touched.find(key);
      if (at == touched.end()) {
        FLASH_TRY(const std::int64_t id, impl_->run_id(key.first, key.second));
        at = touched.emplace(key, id).first;
      }
      FLASH_TRY(const bool fresh, impl_->add(at->second, arrived, changed));
      ++(fresh ? out.fresh : out.duplicates);
    }
    for (const auto& [key, id] : touched) {
      FLASH_TRY(const std::uint64_t mark, impl_->advance(id));
      out.watermarks.push_back({key.first, {key.second, mark}});
    }
    for (const std::int64_t id : changed) {
      FLASH_TRY(auto agents, impl_->agents("WHERE a.id = ?", id));
      for (FleetAgent& a : agents) out.agents.push_back(std::move(a));
    }
    FLASH_TRY(Query q, impl_->db.query("UPDATE state SET stream_created_ns = ?, position = ?, "
                                       "records = records + ?, duplicates = duplicates + ?, "
                                       "refused = refused + ?"));
    q.bind(position.stream_created_ns).bind(as_signed(position.last));
    return q.bind(as_signed(out.fresh)).bind(as_signed(out.duplicates)).bind(as_signed(refused)).run();
  }));
  return out;
}

// --- reading --------------------------------------------------------------------------------------------

Result<StoreCounts> Store::counts() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT records, duplicates, refused FROM state"));
  FLASH_TRY(const bool there, q.row());
  if (!there) return StoreCounts{};
  return StoreCounts{as_unsigned(q.integer(0)), as_unsigned(q.integer(1)), as_unsigned(q.integer(2))};
}

Result<std::vector<FleetAgent>> Store::Impl::agents(std::string_view which, std::optional<std::int64_t> id) {
  FLASH_TRY(Query q,
            db.query("SELECT a.node, a.pool, a.agent, a.task, a.target, a.application, a.rule, a.records, "
                     "r.episode, r.stage, r.steps, r.rewards, r.reward_mean, r.fallback_rewards, "
                     "r.fallback_reward, r.model_version, r.embedding, r.time_us, r.model, "
                     "a.episodes_to_serving FROM agents a JOIN records r ON r.id = a.latest " +
                     std::string(which)));
  if (id) q.bind(*id);
  std::vector<FleetAgent> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    FleetAgent a{q.text(0), q.text(1), {}, as_unsigned(q.integer(7)), as_unsigned(q.integer(19))};
    link::Episode& e = a.latest;
    e.agent = q.text(2);
    e.task = task_from_name(q.text(3)).value_or(Task::ResourceLimits);
    e.target = q.text(4);
    e.application = q.text(5);
    e.rule = q.text(6);
    e.episode = as_unsigned(q.integer(8));
    e.stage = static_cast<Stage>(q.integer(9));
    e.steps = static_cast<std::uint32_t>(q.integer(10));
    e.rewards = static_cast<std::uint32_t>(q.integer(11));
    e.reward_mean = q.real(12);
    e.fallback_rewards = as_unsigned(q.integer(13));
    e.fallback_reward = q.real(14);
    e.model_version = as_unsigned(q.integer(15));
    e.embedding = q.floats(16);
    e.time_us = q.integer(17);
    e.model = q.text(18);
    out.push_back(std::move(a));
  }
}

Result<std::vector<FleetAgent>> Store::agents() const {
  return impl_->agents("ORDER BY a.node, a.agent", std::nullopt);
}

Result<std::vector<FleetRun>> Store::runs() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT node, run, (SELECT count(*) FROM records WHERE run = runs.id), "
                                     "watermark FROM runs ORDER BY node, id"));
  std::vector<FleetRun> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back({q.text(0), q.text(1), as_unsigned(q.integer(2)), as_unsigned(q.integer(3))});
  }
}

Result<std::vector<RunMark>> Store::marks() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT node, run, watermark, (SELECT max(seq) FROM records "
                                     "WHERE run = runs.id) FROM runs ORDER BY node, id"));
  std::vector<RunMark> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back({q.text(0), q.text(1), as_unsigned(q.integer(2)), as_unsigned(q.integer(3))});
  }
}

Result<std::int64_t> Store::newest() const {
  return impl_->db.number("SELECT max(id) FROM records");
}

Result<std::vector<std::pair<std::int64_t, HistoryPoint>>> Store::history_after(std::int64_t number,
                                                                                std::size_t most) const {
  FLASH_TRY(Query q, impl_->db.query("SELECT r.id, a.task, a.application, r.stage, r.rewards, r.reward_mean, "
                                     "r.fallback_rewards, r.fallback_reward, r.time_us FROM records r "
                                     "JOIN agents a ON a.id = r.agent WHERE r.id > ? ORDER BY r.id LIMIT ?"));
  q.bind(number).bind(static_cast<std::int64_t>(most));
  std::vector<std::pair<std::int64_t, HistoryPoint>> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.emplace_back(q.integer(0),
                     HistoryPoint{.task = task_from_name(q.text(1)).value_or(Task::ResourceLimits),
                                  .application = q.text(2),
                                  .stage = static_cast<Stage>(q.integer(3)),
                                  .rewards = as_unsigned(q.integer(4)),
                                  .reward_mean = q.real(5),
                                  .fallback_rewards = as_unsigned(q.integer(6)),
                                  .fallback_reward = q.real(7),
                                  .time_us = q.integer(8)});
  }
}

}  // namespace flash::coordinator
