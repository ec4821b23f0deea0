#include "coordinator/store_impl.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/similarity.h"

namespace flash::coordinator {

using link::sqlite::Database;
using link::sqlite::Query;

namespace {

constexpr float kMeanWeight = 0.1F;  // of a new embedding in an agent's running mean
constexpr std::int64_t kHourUs = 3'600'000'000;

}  // namespace

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

void Store::set_quota(const NodeQuota& quota) {
  impl_->quota = quota;
}

// --- writing --------------------------------------------------------------------------------------------

/// The run's number stays what it was; records of one that is gone are nobody's order any more.
Result<void> Store::Impl::make_room_for_run(const std::string& node) {
  FLASH_TRY(Query q, db.query("DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE node = ?1 ORDER BY id "
                              "LIMIT max(0, (SELECT count(*) FROM runs WHERE node = ?1) - ?2))"));
  return q.bind(node).bind(static_cast<std::int64_t>(quota.runs) - 1).run();
}

Result<Store::Impl::Run> Store::Impl::run_of(const std::string& node, const std::string& run) {
  for (bool made = false;; made = true) {
    {
      FLASH_TRY(Query q, db.query("SELECT id FROM runs WHERE node = ? AND run = ?"));
      FLASH_TRY(const bool there, q.bind(node).bind(run).row());
      if (there) {
        Run out{.id = q.integer(0)};
        FLASH_CHECK(measure(out));
        return out;
      }
    }
    if (made) return db.damaged("a run could not be made");
    FLASH_CHECK(make_room_for_run(node));
    FLASH_TRY(Query q, db.query("INSERT INTO runs(node, run) VALUES(?, ?)"));
    FLASH_CHECK(q.bind(node).bind(run).run());
  }
}

Result<void> Store::Impl::measure(Run& run) {
  FLASH_TRY(run.watermark, advance(run.id));
  FLASH_TRY(Query q, db.query("SELECT count(*) FROM records WHERE run = ? AND seq > ?"));
  FLASH_TRY(const bool there, q.bind(run.id).bind(as_signed(run.watermark)).row());
  run.uncovered = there ? static_cast<std::size_t>(q.integer(0)) : 0;
  return {};
}

/// An eighth at once. Their records stay, as nobody's, until they are old enough. The number of an agent must
/// not come again: the highest one stays.
Result<void> Store::Impl::make_room_for_agents(const std::string& node, Forgotten& forgotten) {
  FLASH_TRY(Query count, db.query("SELECT count(*) FROM agents WHERE node = ?"));
  FLASH_TRY(const bool there, count.bind(node).row());
  if (!there || static_cast<std::size_t>(count.integer(0)) < quota.agents) return {};
  std::vector<std::int64_t> ids;
  {
    FLASH_TRY(Query q,
              db.query("SELECT id, agent FROM agents WHERE node = ?1 AND id < (SELECT max(id) FROM agents) "
                       "ORDER BY latest LIMIT ?2"));
    q.bind(node).bind(static_cast<std::int64_t>(quota.agents / 8 + 1));
    while (true) {
      FLASH_TRY(const bool more, q.row());
      if (!more) break;
      ids.push_back(q.integer(0));
      forgotten.emplace_back(node, q.text(1));
    }
  }
  for (const std::int64_t id : ids)
    for (const char* sql : {"DELETE FROM summaries WHERE agent = ?", "DELETE FROM agents WHERE id = ?"}) {
      FLASH_TRY(Query q, db.query(sql));
      FLASH_CHECK(q.bind(id).run());
    }
  return {};
}

Result<std::int64_t> Store::Impl::agent_id(const Origin& origin, const link::Episode& e,
                                           Forgotten& forgotten) {
  bool there = false;
  {
    FLASH_TRY(Query q, db.query("SELECT 1 FROM agents WHERE node = ? AND agent = ?"));
    FLASH_TRY(there, q.bind(origin.node).bind(e.agent).row());
  }
  if (!there) FLASH_CHECK(make_room_for_agents(origin.node, forgotten));
  FLASH_TRY(Query q,
            db.query("INSERT INTO agents(node, agent, pool, task, target, application, rule) "
                     "VALUES(?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET pool = excluded.pool, "
                     "task = excluded.task, target = excluded.target, application = excluded.application, "
                     "rule = excluded.rule RETURNING id"));
  q.bind(origin.node).bind(e.agent).bind(origin.pool).bind(to_string(e.task));
  FLASH_TRY(const bool made, q.bind(e.target).bind(e.application).bind(e.rule).row());
  if (!made) return db.damaged("an agent could not be made");
  const std::int64_t id = q.integer(0);
  FLASH_CHECK(q.run());
  return id;
}

/// It is there already. What came before it may be less by now: it was thinned.
Result<bool> Store::Impl::known(std::int64_t run, const Record& record) {
  FLASH_TRY(Query there, db.query("UPDATE records SET prev = min(prev, ?) WHERE run = ? AND seq = ?"));
  FLASH_CHECK(there.bind(as_signed(record.prev)).bind(run).bind(as_signed(record.seq)).run());
  if (db.changes() > 0) return true;
  FLASH_TRY(Query gone, db.query("SELECT 1 FROM runs WHERE id = ? AND thinned_to >= ?"));
  return gone.bind(run).bind(as_signed(record.seq)).row();  // it is part of a summary
}

Result<void> Store::Impl::insert(std::int64_t run, std::int64_t agent, const Record& record) {
  const link::Episode& e = record.episode;
  FLASH_TRY(
      Query q,
      db.query("INSERT INTO records(run, seq, prev, agent, episode, stage, steps, rewards, reward_mean, "
               "fallback_rewards, fallback_reward, model_version, model, embedding, time_us) "
               "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  q.bind(run).bind(as_signed(record.seq)).bind(as_signed(record.prev)).bind(agent);
  q.bind(as_signed(e.episode)).bind(static_cast<std::int64_t>(e.stage)).bind(std::int64_t{e.steps});
  q.bind(std::int64_t{e.rewards}).bind(e.reward_mean).bind(as_signed(e.fallback_rewards));
  q.bind(e.fallback_reward).bind(as_signed(e.model_version)).bind(e.model);
  return q.bind(e.embedding).bind(e.time_us).run();
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

Result<Store::Impl::Added> Store::Impl::add(Run& run, const Arrived& arrived, std::set<std::int64_t>& changed,
                                            Forgotten& forgotten) {
  const Record& record = arrived.record;
  FLASH_TRY(const bool there, known(run.id, record));
  if (there) return Added::Known;
  if (run.uncovered >= quota.uncovered) FLASH_CHECK(measure(run));
  if (run.uncovered >= quota.uncovered && record.prev > run.watermark) return Added::OverQuota;
  FLASH_TRY(const std::int64_t agent, agent_id(arrived.origin, record.episode, forgotten));
  FLASH_CHECK(insert(run.id, agent, record));
  changed.insert(agent);
  FLASH_CHECK(is_latest(agent, run.id, record));
  ++run.uncovered;
  ++run.fresh;
  return Added::Fresh;
}

/// As if they had come and been thinned: but only where all before them is covered, which is when their node
/// has nothing older to send.
Result<void> Store::Impl::pass_over(Run& run, std::vector<RecordPlace> places) {
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.seq < b.seq; });
  for (const RecordPlace& p : places) {
    FLASH_TRY(run.watermark, advance(run.id));
    if (p.seq <= run.watermark || p.prev > run.watermark) continue;
    FLASH_TRY(Query q, db.query("UPDATE runs SET watermark = ? WHERE id = ?"));
    FLASH_CHECK(q.bind(as_signed(p.seq)).bind(run.id).run());
  }
  return {};
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
                                const Position& position, std::span<const PassedOver> passed_over) {
  Committed out;
  FLASH_CHECK(impl_->db.transaction([&]() -> Result<void> {
    using Name = std::pair<std::string, std::string>;  // node, run
    std::map<Name, Impl::Run> runs;
    std::map<Name, std::vector<RecordPlace>> over;
    std::set<std::int64_t> changed;
    const auto run_of = [&](const Name& name) -> Result<Impl::Run*> {
      auto at = runs.find(name);
      if (at == runs.end()) {
        FLASH_TRY(const Impl::Run run, impl_->run_of(name.first, name.second));
        at = runs.emplace(name, run).first;
      }
      return &at->second;
    };
    for (const Arrived& arrived : records) {
      FLASH_TRY(Impl::Run * run, run_of({arrived.origin.node, arrived.record.run}));
      FLASH_TRY(const Impl::Added added, impl_->add(*run, arrived, changed, out.forgotten));
      ++(added == Impl::Added::Fresh   ? out.fresh
         : added == Impl::Added::Known ? out.duplicates
                                       : out.over_quota);
    }
    for (const PassedOver& p : passed_over) over[{p.node, p.place.run}].push_back(p.place);
    for (auto& [name, places] : over) {
      FLASH_TRY(Impl::Run * run, run_of(name));
      FLASH_CHECK(impl_->pass_over(*run, std::move(places)));
    }
    for (auto& [name, run] : runs) {
      FLASH_TRY(run.watermark, impl_->advance(run.id));
      FLASH_TRY(Query q, impl_->db.query("UPDATE runs SET records = records + ? WHERE id = ?"));
      FLASH_CHECK(q.bind(static_cast<std::int64_t>(run.fresh)).bind(run.id).run());
      out.watermarks.push_back({name.first, {name.second, run.watermark}});
    }
    for (const std::int64_t id : changed) {
      FLASH_TRY(auto agents, impl_->agents("WHERE a.id = ?", id));
      for (FleetAgent& a : agents) out.agents.push_back(std::move(a));
    }
    FLASH_TRY(Query q, impl_->db.query("UPDATE state SET stream_created_ns = ?, position = ?, "
                                       "records = records + ?, duplicates = duplicates + ?, "
                                       "refused = refused + ?"));
    q.bind(position.stream_created_ns).bind(as_signed(position.last));
    return q.bind(as_signed(out.fresh))
        .bind(as_signed(out.duplicates))
        .bind(as_signed(refused + out.over_quota))
        .run();
  }));
  return out;
}

// --- retention ------------------------------------------------------------------------------------------

/// The newest record of an agent may lie among the oldest of the store, so that more must be looked at than
/// there are agents.
Result<std::vector<Store::Impl::Old>> Store::Impl::oldest(std::int64_t before_us, std::size_t most) {
  FLASH_TRY(const std::int64_t agents, db.number("SELECT count(*) FROM agents"));
  FLASH_TRY(
      Query q,
      db.query("SELECT r.id, r.run, r.seq, r.agent, r.time_us, r.steps, r.rewards, r.reward_mean "
               "FROM (SELECT * FROM records ORDER BY id LIMIT ?1) r LEFT JOIN agents a ON a.id = r.agent "
               "LEFT JOIN runs u ON u.id = r.run WHERE (a.id IS NULL OR r.id <> a.latest) "
               "AND (u.id IS NULL OR r.seq <= u.watermark) "
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
            db.query("INSERT INTO summaries SELECT ?, ?, 1, ?, ?, ? FROM agents WHERE id = ?1 "
                     "ON CONFLICT DO UPDATE SET "
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

}  // namespace flash::coordinator
