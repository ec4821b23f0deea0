#include <algorithm>

#include "coordinator/store_impl.h"
#include "core/printable.h"

namespace flash::coordinator {

using link::sqlite::Database;
using link::sqlite::Query;

namespace {

Result<Task> known_task(const std::string& name) {
  if (const auto task = task_from_name(name)) return *task;
  return Error(std::errc::bad_message, "the store has an agent of task '" + printable_line(name) +
                                           "', which this version does not know");
}

}  // namespace

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
    FLASH_TRY(e.task, known_task(q.text(3)));
    e.target = q.text(4);
    e.application = q.text(5);
    e.rule = q.text(6);
    e.episode = as_unsigned(q.integer(8));
    e.stage = static_cast<Stage>(q.integer(9));
    e.steps = static_cast<std::uint32_t>(q.integer(10));
    e.rewards = static_cast<std::uint32_t>(q.integer(11));
    e.reward_mean = within_reward(q.real(12));
    e.fallback_rewards = as_unsigned(q.integer(13));
    e.fallback_reward = within_reward(q.real(14));
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
                      "AND r.reward_mean BETWEEN ?7 AND ?8 AND r.fallback_reward BETWEEN ?7 AND ?8 "
                      "GROUP BY a.node ORDER BY a.node"));
  q.bind(spans.before_us).bind(spans.after_us).bind(spans.from_us).bind(task);
  q.bind(static_cast<std::int64_t>(Stage::Online)).bind(static_cast<std::int64_t>(Stage::Serving));
  q.bind(link::kLeastReward).bind(link::kMostReward);
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
    FLASH_TRY(const Task task, known_task(q.text(1)));
    out.emplace_back(q.integer(0), HistoryPoint{.task = task,
                                                .application = q.text(2),
                                                .stage = static_cast<Stage>(q.integer(3)),
                                                .rewards = as_unsigned(q.integer(4)),
                                                .reward_mean = within_reward(q.real(5)),
                                                .fallback_rewards = as_unsigned(q.integer(6)),
                                                .fallback_reward = within_reward(q.real(7)),
                                                .time_us = q.integer(8)});
  }
}

namespace {

/// SQLite's NULL as nothing: a mean of nothing.
std::optional<double> known(bool there, double value) {
  return there ? std::optional(within_reward(value)) : std::nullopt;
}

/// What of a page is different for agents and nodes. Both queries have the text as ?1, the one of rows
/// besides "LIMIT ?2 OFFSET ?3".
struct PageQueries {
  std::string count, rows;
  Result<FleetRow> (*row)(const Query&);
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
    FLASH_TRY(FleetRow row, page.row(q));
    out.rows.push_back(std::move(row));
  }
}

Result<FleetRow> agent_row(const Query& q) {
  FleetRow row{.node = q.text(0), .pool = q.text(1), .target = q.text(2), .application = q.text(3)};
  FLASH_TRY(row.task, known_task(q.text(4)));
  row.stage = static_cast<Stage>(q.integer(5));
  row.serving = row.stage == Stage::Serving;
  row.reward = known(q.integer(6) > 0, q.real(7));
  row.fallback = known(q.integer(8) > 0, q.real(9));
  row.time_us = q.integer(10);
  return row;
}

Result<FleetRow> node_row(const Query& q) {
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
