#include "coordinator/store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/similarity.h"
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

constexpr float kMeanWeight = 0.1F;  // of a new embedding in an agent's running mean
constexpr std::int64_t kHourUs = 3'600'000'000;

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
  Result<void> drift(std::int64_t agent, const link::Episode& e, std::vector<float> mean);
  struct Old {
    std::int64_t id = 0, run = 0, seq = 0, agent = 0, hour = 0;
    std::int64_t steps = 0, rewards = 0;
    double reward_sum = 0;
  };
  Result<std::vector<Old>> oldest(std::int64_t before_us, std::size_t most);
  Result<void> summarise(const Old& old);
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
  FLASH_CHECK(impl->db.exec(
      "INSERT OR IGNORE INTO state(id, stream_created_ns, position, records, duplicates, refused) "
      "VALUES(1, 0, 0, 0, 0, 0)"));
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
  FLASH_TRY(Query gone, db.query("SELECT 1 FROM runs WHERE id = ? AND thinned_to >= ?"));
  FLASH_TRY(const bool known_once, gone.bind(run).bind(as_signed(record.seq)).row());
  if (known_once) return false;  // it is part of a summary
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
  const link::Episode& e = record.episode;
  FLASH_TRY(Query q,
            db.query("UPDATE agents SET records = records + 1, "
                     "first_us = iif(records = 0, ?1, min(first_us, ?1)), "
                     "latest = iif(?1 >= latest_us, (SELECT id FROM records WHERE run = ?2 AND seq = ?3), "
                     "latest), latest_us = max(latest_us, ?1), "
                     "episodes_to_serving = iif(episodes_to_serving = 0 AND ?5, records + 1, "
                     "episodes_to_serving) WHERE id = ?4 RETURNING latest_us, mean_model, mean"));
  q.bind(e.time_us).bind(run).bind(as_signed(record.seq)).bind(agent);
  FLASH_TRY(const bool there, q.bind(std::int64_t{e.stage == Stage::Serving}).row());
  if (!there) return db.damaged("an agent is missing");
  const bool newest = q.integer(0) == e.time_us;
  const bool comparable = q.text(1) == e.model;
  std::vector<float> mean = q.floats(2);
  FLASH_CHECK(q.run());
  if (!newest || e.model.empty() || e.embedding.empty()) return {};
  return drift(agent, e, comparable ? std::move(mean) : std::vector<float>());
}

/// `mean`: of the embeddings before this one; empty: none is comparable.
Result<void> Store::Impl::drift(std::int64_t agent, const link::Episode& e, std::vector<float> mean) {
  const bool known = mean.size() == e.embedding.size();
  const double drift = known ? std::min(euclidean(e.embedding, mean), 1e9) : 0;
  if (!known) mean = e.embedding;
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += kMeanWeight * (e.embedding[i] - mean[i]);
  FLASH_TRY(
      Query q,
      db.query(known ? "UPDATE agents SET mean_model = ?, mean = ?, drift = ? WHERE id = ?"
                     : "UPDATE agents SET mean_model = ?, mean = ?, drift = nullif(?, 0) WHERE id = ?"));
  return q.bind(e.model).bind(mean).bind(drift).bind(agent).run();
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
    std::map<std::int64_t, std::int64_t> fresh_of;  // by run
    for (const Arrived& arrived : records) {
      const auto key = std::pair(arrived.origin.node, arrived.record.run);
      auto at = touched.find(key);
      if (at == touched.end()) {
        FLASH_TRY(const std::int64_t id, impl_->run_id(key.first, key.second));
        at = touched.emplace(key, id).first;
      }
      FLASH_TRY(const bool fresh, impl_->add(at->second, arrived, changed));
      ++(fresh ? out.fresh : out.duplicates);
      if (fresh) ++fresh_of[at->second];
    }
    for (const auto& [id, count] : fresh_of) {
      FLASH_TRY(Query q, impl_->db.query("UPDATE runs SET records = records + ? WHERE id = ?"));
      FLASH_CHECK(q.bind(count).bind(id).run());
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

// --- retention ------------------------------------------------------------------------------------------

/// The newest record of an agent may lie among the oldest of the store, so that more must be looked at than
/// there are agents.
Result<std::vector<Store::Impl::Old>> Store::Impl::oldest(std::int64_t before_us, std::size_t most) {
  FLASH_TRY(const std::int64_t agents, db.number("SELECT count(*) FROM agents"));
  FLASH_TRY(Query q,
            db.query("SELECT r.id, r.run, r.seq, r.agent, r.time_us, r.steps, r.rewards, r.reward_mean "
                     "FROM (SELECT * FROM records ORDER BY id LIMIT ?1) r JOIN agents a ON a.id = r.agent "
                     "JOIN runs u ON u.id = r.run WHERE r.id <> a.latest AND r.seq <= u.watermark "
                     "AND r.time_us < ?2 ORDER BY r.id LIMIT ?3"));
  const auto limit = static_cast<std::int64_t>(most);
  q.bind(agents + 4 * limit).bind(before_us).bind(limit);
  std::vector<Old> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back({q.integer(0), q.integer(1), q.integer(2), q.integer(3), q.integer(4) / kHourUs,
                   q.integer(5), q.integer(6), q.real(7) * static_cast<double>(q.integer(6))});
  }
}

Result<void> Store::Impl::summarise(const Old& o) {
  FLASH_TRY(Query sum,
            db.query("INSERT INTO summaries VALUES(?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                     "episodes = episodes + 1, steps = steps + excluded.steps, "
                     "rewards = rewards + excluded.rewards, reward_sum = reward_sum + excluded.reward_sum"));
  FLASH_CHECK(sum.bind(o.agent).bind(o.hour).bind(o.steps).bind(o.rewards).bind(o.reward_sum).run());
  FLASH_TRY(Query run, db.query("UPDATE runs SET thinned_to = max(thinned_to, ?) WHERE id = ?"));
  FLASH_CHECK(run.bind(o.seq).bind(o.run).run());
  FLASH_TRY(Query gone, db.query("DELETE FROM records WHERE id = ?"));
  return gone.bind(o.id).run();
}

Result<Retained> Store::retain(const RetentionOptions& options, std::int64_t now_us, std::size_t most) {
  Impl& m = *impl_;
  FLASH_TRY(const std::int64_t pages, m.db.number("PRAGMA page_count"));
  FLASH_TRY(const std::int64_t unused, m.db.number("PRAGMA freelist_count"));
  FLASH_TRY(const std::int64_t page, m.db.number("PRAGMA page_size"));
  const bool too_large = static_cast<double>((pages - unused) * page) > options.mib * 1048576;
  const auto before_us = now_us - static_cast<std::int64_t>(options.days * 86400e6);
  FLASH_TRY(const auto old, m.oldest(too_large ? now_us + kHourUs : before_us, most));
  Retained out;
  out.thinned = old.size();
  FLASH_CHECK(m.db.transaction([&]() -> Result<void> {
    for (const Impl::Old& o : old) FLASH_CHECK(m.summarise(o));
    if (too_large && old.empty()) {
      FLASH_TRY(Query q, m.db.query("DELETE FROM summaries WHERE hour <= (SELECT min(hour) FROM summaries)"));
      FLASH_CHECK(q.run());
      out.summaries_dropped = static_cast<std::uint64_t>(m.db.changes());
    }
    if (out.thinned + out.summaries_dropped == 0) return {};
    FLASH_TRY(
        Query q,
        m.db.query("UPDATE state SET thinned = thinned + ?, summaries_dropped = summaries_dropped + ?"));
    return q.bind(as_signed(out.thinned)).bind(as_signed(out.summaries_dropped)).run();
  }));
  out.more = old.size() == most || out.summaries_dropped > 0;
  if (out.thinned + out.summaries_dropped > 0) FLASH_CHECK(m.db.exec("PRAGMA incremental_vacuum(2000)"));
  return out;
}

Result<void> Store::save(std::span<const FleetNode> nodes, std::span<const FleetCoordinator> coordinators,
                         const Watch& watch) {
  return impl_->db.transaction([&]() -> Result<void> {
    for (const FleetNode& n : nodes) {
      FLASH_TRY(Query q, impl_->db.query("INSERT OR REPLACE INTO nodes VALUES(?, ?, ?, ?, ?, ?, ?, ?)"));
      q.bind(n.node).bind(n.pool).bind(n.software).bind(n.flashd).bind(n.mode);
      FLASH_CHECK(q.bind(as_signed(n.agents)).bind(as_signed(n.outbox)).bind(n.last_seen_us).run());
    }
    FLASH_CHECK(impl_->db.exec("DELETE FROM coordinators"));
    for (const FleetCoordinator& c : coordinators) {
      FLASH_TRY(Query q, impl_->db.query("INSERT INTO coordinators VALUES(?, ?, ?, ?, ?)"));
      q.bind(c.name).bind(as_signed(c.position)).bind(std::int64_t{c.in_step});
      FLASH_CHECK(q.bind(as_signed(c.lease)).bind(c.last_seen_us).run());
    }
    FLASH_TRY(Query q, impl_->db.query("UPDATE state SET since_us = ?, until_us = ?"));
    return q.bind(watch.since_us).bind(watch.until_us).run();
  });
}

// --- reading --------------------------------------------------------------------------------------------

Result<StoreCounts> Store::counts() const {
  FLASH_TRY(Query q,
            impl_->db.query("SELECT records, duplicates, refused, thinned, summaries_dropped FROM state"));
  FLASH_TRY(const bool there, q.row());
  if (!there) return StoreCounts{};
  return StoreCounts{as_unsigned(q.integer(0)), as_unsigned(q.integer(1)), as_unsigned(q.integer(2)),
                     as_unsigned(q.integer(3)), as_unsigned(q.integer(4))};
}

Result<std::vector<FleetAgent>> Store::Impl::agents(std::string_view which, std::optional<std::int64_t> id) {
  FLASH_TRY(Query q,
            db.query("SELECT a.node, a.pool, a.agent, a.task, a.target, a.application, a.rule, a.records, "
                     "r.episode, r.stage, r.steps, r.rewards, r.reward_mean, r.fallback_rewards, "
                     "r.fallback_reward, r.model_version, r.embedding, r.time_us, r.model, "
                     "a.episodes_to_serving, a.first_us, a.drift IS NOT NULL, a.drift FROM agents a JOIN "
                     "records r ON r.id = a.latest " +
                     std::string(which)));
  if (id) q.bind(*id);
  std::vector<FleetAgent> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    FleetAgent a{q.text(0),     q.text(1), {}, as_unsigned(q.integer(7)), as_unsigned(q.integer(19)),
                 q.integer(20), {}};
    if (q.integer(21) != 0) a.drift = q.real(22);
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

Result<std::vector<FleetNode>> Store::nodes() const {
  FLASH_TRY(Query q,
            impl_->db.query("SELECT node, pool, software, flashd, mode, agents, outbox, last_seen_us "
                            "FROM nodes ORDER BY node"));
  std::vector<FleetNode> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back({q.text(0), q.text(1), q.text(2), q.text(3), q.text(4), as_unsigned(q.integer(5)),
                   as_unsigned(q.integer(6)), q.integer(7)});
  }
}

Result<std::vector<FleetCoordinator>> Store::coordinators() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT name, position, in_step, lease, last_seen_us FROM coordinators "
                                     "ORDER BY name"));
  std::vector<FleetCoordinator> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back(
        {q.text(0), as_unsigned(q.integer(1)), q.integer(2) != 0, as_unsigned(q.integer(3)), q.integer(4)});
  }
}

Result<Watch> Store::watch() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT since_us, until_us FROM state"));
  FLASH_TRY(const bool there, q.row());
  return there ? Watch{q.integer(0), q.integer(1)} : Watch{};
}

Result<std::vector<NodeGain>> Store::gains(const std::string& task, const Spans& spans) const {
  FLASH_TRY(
      Query q,
      impl_->db.query("SELECT a.node, count(*) FILTER (WHERE r.time_us < ?1), "
                      "count(*) FILTER (WHERE r.time_us >= ?2), "
                      "ifnull(avg(r.reward_mean - r.fallback_reward) FILTER (WHERE r.time_us < ?1), 0), "
                      "ifnull(avg(r.reward_mean - r.fallback_reward) FILTER (WHERE r.time_us >= ?2), 0) "
                      "FROM records r JOIN agents a ON a.id = r.agent WHERE r.time_us >= ?3 AND a.task = ?4 "
                      "AND r.stage IN (?5, ?6) AND r.rewards > 0 AND r.fallback_rewards > 0 "
                      "GROUP BY a.node ORDER BY a.node"));
  q.bind(spans.before_us).bind(spans.after_us).bind(spans.from_us).bind(task);
  q.bind(static_cast<std::int64_t>(Stage::Online)).bind(static_cast<std::int64_t>(Stage::Serving));
  std::vector<NodeGain> out;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.push_back({q.text(0), as_unsigned(q.integer(1)), as_unsigned(q.integer(2)), q.real(3), q.real(4)});
  }
}

Result<std::vector<FleetRun>> Store::runs() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT node, run, records, "
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

namespace {

/// SQLite's NULL as nothing: a mean of nothing.
std::optional<double> known(bool there, double value) {
  return there ? std::optional(value) : std::nullopt;
}

/// What of a page is different for agents and nodes. Both queries have the text as ?1, the one of rows
/// besides "LIMIT ?2 OFFSET ?3".
struct PageQueries {
  std::string count, rows;
  FleetRow (*row)(const Query&);
};

Result<Store::Rows> page_of(Database& db, const PageQueries& page, std::string_view text,
                            std::uint64_t offset, std::size_t most) {
  Store::Rows out;
  {
    FLASH_TRY(Query q, db.query(page.count));
    FLASH_TRY(const bool there, q.bind(text).row());
    if (there) out.total = as_unsigned(q.integer(0));
  }
  FLASH_TRY(Query q, db.query(page.rows));
  q.bind(text).bind(static_cast<std::int64_t>(most)).bind(as_signed(offset));
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return out;
    out.rows.push_back(page.row(q));
  }
}

FleetRow agent_row(const Query& q) {
  FleetRow row{.node = q.text(0), .pool = q.text(1), .target = q.text(2), .application = q.text(3)};
  row.task = task_from_name(q.text(4)).value_or(Task::ResourceLimits);
  row.stage = static_cast<Stage>(q.integer(5));
  row.serving = row.stage == Stage::Serving;
  row.reward = known(q.integer(6) > 0, q.real(7));
  row.fallback = known(q.integer(8) > 0, q.real(9));
  row.time_us = q.integer(10);
  return row;
}

FleetRow node_row(const Query& q) {
  FleetRow row{.node = q.text(0), .pool = q.text(1), .target = "", .application = ""};
  row.agents = as_unsigned(q.integer(2));
  row.serving = as_unsigned(q.integer(3));
  row.reward = known(q.integer(4) > 0, q.real(5));
  row.fallback = known(q.integer(6) > 0, q.real(7));
  row.time_us = q.integer(8);
  return row;
}

}  // namespace

Result<Store::Rows> Store::agent_rows(const std::string& text, std::uint64_t offset, std::size_t most) const {
  return page_of(impl_->db,
                 {.count = "SELECT count(*) FROM agents a WHERE latest > 0 AND instr(lower("
                           "node || char(10) || target || char(10) || application), lower(?1))",
                  .rows = "SELECT a.node, a.pool, a.target, a.application, a.task, r.stage, r.rewards, "
                          "r.reward_mean, r.fallback_rewards, r.fallback_reward, r.time_us "
                          "FROM agents a JOIN records r ON r.id = a.latest WHERE instr(lower("
                          "a.node || char(10) || a.target || char(10) || a.application), lower(?1)) "
                          "ORDER BY a.node, a.agent LIMIT ?2 OFFSET ?3",
                  .row = agent_row},
                 text, offset, most);
}

Result<Store::Rows> Store::node_rows(const std::string& text, std::uint64_t offset, std::size_t most) const {
  const std::string serving = "r.stage = " + std::to_string(static_cast<int>(Stage::Serving));
  return page_of(impl_->db,
                 {.count = "SELECT count(DISTINCT node) FROM agents WHERE latest > 0 AND "
                           "instr(lower(node || char(10) || pool), lower(?1))",
                  .rows = "SELECT a.node, max(a.pool), count(*), sum(" + serving +
                          "), sum(r.rewards > 0), "
                          "avg(iif(r.rewards > 0, r.reward_mean, NULL)), sum(r.fallback_rewards > 0), "
                          "avg(iif(r.fallback_rewards > 0, r.fallback_reward, NULL)), max(r.time_us) "
                          "FROM agents a JOIN records r ON r.id = a.latest WHERE "
                          "instr(lower(a.node || char(10) || a.pool), lower(?1)) "
                          "GROUP BY a.node ORDER BY a.node LIMIT ?2 OFFSET ?3",
                  .row = node_row},
                 text, offset, most);
}

}  // namespace flash::coordinator
