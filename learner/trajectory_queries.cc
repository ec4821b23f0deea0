// The trajectory store, as it is asked: nothing here writes.
#include <algorithm>
#include <cmath>

#include "learner/trajectory_store_impl.h"

namespace flash {

using link::sqlite::Query;

namespace {

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
    "e.number, (SELECT b.log_probability FROM behaviours b WHERE b.run = s.run AND b.seq = s.seq), "
    "(SELECT b.value FROM behaviours b WHERE b.run = s.run AND b.seq = s.seq)";
constexpr int kStepColumnCount = 13;

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
  s.behaviour.given = flags & kBehaviour;
  s.behaviour.log_probability = static_cast<float>(q.real(11));
  s.behaviour.value = static_cast<float>(q.real(12));
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

/// Of the runs r: ?2 is the layout's digest, ?3 its reward, ?4 whether those that say none are of it.
constexpr const char* kOfLayout =
    "EXISTS (SELECT 1 FROM run_layouts o LEFT JOIN layouts l ON l.id = o.layout WHERE o.run = r.id "
    "AND l.digest = ?2 AND (l.reward = ?3 OR l.reward = '' OR ?3 = '')) "
    "OR (?4 AND NOT EXISTS (SELECT 1 FROM run_layouts o WHERE o.run = r.id))";

/// Transitions of runs r, s_t from s and what came of it from n. The same conditions as transition_of(), in SQL: an
/// untrusted tail does not use up the n. ?5 and ?6 are the bytes of a state and an action.
std::string transitions_where(const std::string& which) {
  return "SELECT s.controller, s.state, s.action, s.fallback, n.reward, n.state, n.fallback, s.flags & 32, "
         "b.log_probability, b.value, r.id FROM runs r JOIN steps s ON s.run = r.id "
         "JOIN steps n ON n.run = s.run AND n.seq = s.seq + 1 "
         "LEFT JOIN behaviours b ON b.run = s.run AND b.seq = s.seq "
         "WHERE s.flags & 4 AND n.flags & 4 AND n.flags & 16 AND length(s.state) = ?5 AND length(n.state) = "
         "?5 "
         "AND length(s.action) = ?6 AND " +
         which;
}

Result<void> add_transitions(Query& q, std::vector<Transition>& out) {
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) return {};
    Transition t;
    t.by_fallback = controller_of(q.integer(0)) == Controller::Fallback;
    t.state = q.floats(1);
    t.action = q.floats(2);
    t.fallback = q.floats(3);
    t.reward = static_cast<float>(q.real(4));
    t.next_state = q.floats(5);
    t.next_fallback = q.floats(6);
    t.behaviour = {q.integer(7) != 0, static_cast<float>(q.real(8)), static_cast<float>(q.real(9))};
    t.stream = q.integer(10);
    if (t.fallback.size() != t.action.size()) t.fallback.clear();
    if (t.next_fallback.size() != t.action.size()) t.next_fallback.clear();
    out.push_back(std::move(t));
  }
}

}  // namespace

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
                                                                    const SpaceLayout& layout) const {
  FLASH_TRY(std::int64_t agent, impl_->agent_id(key));
  const auto state_dim = static_cast<std::size_t>(layout.state_dim());
  const auto action_dim = static_cast<std::size_t>(layout.action_size());
  const std::string digest = layout.digest();
  FLASH_TRY(Query q, impl_->db.query(transitions_where(std::string("r.agent = ?1 AND (") + kOfLayout +
                                                       ") ORDER BY r.ordinal DESC, s.seq DESC LIMIT ?7")));
  q.bind(agent).bind(digest).bind(layout.reward).count(Impl::of_before_named(layout));
  q.count(state_dim * sizeof(float)).count(action_dim * sizeof(float)).count(n);
  std::vector<Transition> out;
  FLASH_CHECK(add_transitions(q, out));
  std::reverse(out.begin(), out.end());
  return out;
}

Result<std::vector<Transition>> TrajectoryStore::group_transitions(std::string_view group, std::size_t n,
                                                                   const SpaceLayout& layout) const {
  struct Lived {
    std::int64_t run, id, first, last;
  };
  std::vector<Lived> newest_first;
  {
    FLASH_TRY(Query q, impl_->db.query("SELECT e.run, e.id, e.first_seq, e.last_seq FROM run_groups g "
                                       "JOIN episodes e ON e.run = g.run WHERE g.key = ? "
                                       "ORDER BY e.ended_us DESC, e.id DESC"));
    q.bind(group);
    while (true) {
      FLASH_TRY(bool there, q.row());
      if (!there) break;
      newest_first.push_back({q.integer(0), q.integer(1), q.integer(2), q.integer(3)});
    }
  }
  std::vector<Transition> out;
  for (const Lived& e : newest_first) {
    if (out.size() >= n) break;
    FLASH_TRY(Query q,
              impl_->db.query(transitions_where("r.id = ?1 AND s.seq BETWEEN ?2 AND ?3 AND s.episode = ?4 "
                                                "ORDER BY s.seq DESC LIMIT ?7")));
    q.bind(e.run).bind(e.first).bind(e.last).bind(e.id);
    q.count(static_cast<std::size_t>(layout.state_dim()) * sizeof(float));
    q.count(static_cast<std::size_t>(layout.action_size()) * sizeof(float)).count(n - out.size());
    FLASH_CHECK(add_transitions(q, out));
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

Result<TrajectorySelection> TrajectoryStore::select_trajectories(std::string_view key,
                                                                 const SpaceLayout& layout, std::size_t m,
                                                                 std::size_t initial_episodes) const {
  FLASH_TRY(std::int64_t agent, impl_->agent_id(key));
  std::vector<EpisodeSummary> all;
  {
    const std::string digest = layout.digest();
    FLASH_TRY(Query q,
              impl_->db.query(std::string("SELECT ") + kEpisodeColumns +
                              " FROM runs r JOIN episodes e ON e.run = r.id WHERE r.agent = ?1 AND (" +
                              kOfLayout + ") ORDER BY r.ordinal DESC, e.first_seq DESC"));
    q.bind(agent).bind(digest).bind(layout.reward).count(Impl::of_before_named(layout));
    while (true) {
      FLASH_TRY(bool there, q.row());
      if (!there) break;
      all.push_back(episode_of(q));
    }
  }
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
    s.time = q.integer(kStepColumnCount) << kRunShift | static_cast<std::int64_t>(s.step.seq);
    if (q.integer(kStepColumnCount + 2) & kRewardTrusted)
      s.earned = static_cast<float>(q.real(kStepColumnCount + 1));
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
  FLASH_TRY(Query q, impl_->db.query("SELECT key FROM agents UNION SELECT key FROM run_groups"));
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
  FLASH_TRY(std::int64_t behaviours,
            impl_->db.number("SELECT count(*) FROM behaviours b WHERE NOT EXISTS "
                             "(SELECT 1 FROM steps WHERE run = b.run AND seq = b.seq)"));
  if (behaviours) problems.push_back(std::to_string(behaviours) + " behaviours without a step");
  return problems;
}

}  // namespace flash
