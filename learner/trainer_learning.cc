// The trainer's part that learns: learners are built from checkpoint and store, updated and saved.
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/algorithms.h"
#include "core/random.h"
#include "learner/group_learner.h"
#include "learner/trainer.h"

namespace flash {
namespace {

constexpr double kLossSmoothing = 0.05;  // of the mean loss of a slice

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ULL;
  return h;
}

/// The settings that name algorithms; what none names is the default (core/algorithms.h).
struct AlgorithmSetting {
  Task task;
  LearningPhase phase;
  const char* key;
  std::string link::LearningSettings::*name;
};
constexpr AlgorithmSetting kAlgorithmSettings[] = {
    {Task::ResourceLimits, LearningPhase::Offline, "limits_offline", &link::LearningSettings::limits_offline},
    {Task::CpuFrequency, LearningPhase::Offline, "frequency_offline",
     &link::LearningSettings::frequency_offline},
    {Task::CpuFrequency, LearningPhase::Online, "frequency_algorithm",
     &link::LearningSettings::frequency_algorithm},
};

std::string named(const link::LearningSettings& settings, Task task, LearningPhase phase) {
  for (const AlgorithmSetting& s : kAlgorithmSettings)
    if (s.task == task && s.phase == phase) return settings.*s.name;
  return "";
}

/// EINVAL: "learner.limits_offline: 'sarsa' is none of td3+bc, bcq".
Result<std::unique_ptr<Agent>> make_agent(const link::LearningSettings& settings, const SpaceLayout& layout,
                                          const AgentOptions& options) {
  for (const AlgorithmSetting& s : kAlgorithmSettings)
    if (s.task == layout.task)
      FLASH_CHECK(
          find_algorithm(std::string("learner.") + s.key, settings.*s.name, action_form(s.task), s.phase));
  return Agent::create({layout.task, layout.state_dim(), layout.action_dim()}, options);
}

/// Are a checkpoint's numbers those of an agent of this layout?
Result<void> of_layout(const CheckpointHead& head, const SpaceLayout& layout) {
  if (head.layout) return same_layout(*head.layout, layout);
  const auto before = layout_before_named(layout.task);
  if (!before)
    return Error(std::errc::invalid_argument,
                 "it says no layout, and the task is newer than such checkpoints");
  return same_layout(*before, layout);
}

}  // namespace

int Trainer::replay_share(const GroupLearner& l) const {
  // By powers of two of the number of agents, so that one more does not rebuild all.
  const std::size_t agents = std::bit_ceil(std::max<std::size_t>(1, pupils_.size()));
  const std::size_t numbers = 2 * static_cast<std::size_t>(l.layout.state_dim()) +
                              3 * static_cast<std::size_t>(l.layout.action_size()) + 1;
  const std::size_t share = options_.replay_bytes / agents * l.most_pupils / (numbers * sizeof(float) + 1);
  const std::size_t least = std::max<std::size_t>(2 * std::size_t{settings_.learning_starts}, 256);
  return static_cast<int>(std::max<std::size_t>(
      std::min<std::size_t>(settings_.replay_steps * l.most_pupils, std::max(share, least)),
      settings_.learning_starts));
}

AgentOptions Trainer::agent_options(const GroupLearner& l) const {
  AgentOptions o;
  o.offline = named(settings_, l.layout.task, LearningPhase::Offline);
  o.online = named(settings_, l.layout.task, LearningPhase::Online);
  o.double_q = settings_.double_q;
  o.discount = settings_.discount;
  o.learning_starts = static_cast<int>(settings_.learning_starts);
  o.replay_steps = replay_share(l);
  o.seed = Random(settings_.seed).fork(fnv1a(l.key)).next();
  return o;
}

void Trainer::give_back(Now now, Duration at_most_every) {
  if (!burst_ || now.mono - given_back_at_ < at_most_every) return;
  burst_ = false;
  given_back_at_ = now.mono;
  malloc_trim(0);
}

void Trainer::build(GroupLearner& l, Now now) {
  const AgentOptions options = agent_options(l);
  std::optional<TensorFile> carried;  // the state of a learner that is only resized or reconfigured
  if (l.agent) carried = l.agent->checkpoint();
  l.agent.reset();
  auto made = make_agent(settings_, l.layout, options);
  if (!made) {
    l.hopeless = true;
    trouble(l, made.error().message());
    tell(LOG_ERR, kMessageLearning, l, "cannot learn: " + l.trouble);
    return;
  }
  l.agent = std::move(*made);
  l.options = options;
  // Before the checkpoint, which counts the steps that it has seen: these are among them.
  fill_replay(l);
  bool warm = false;
  if (carried) {
    auto restored = l.agent->restore(*carried);
    warm = static_cast<bool>(restored);
    if (!warm) {
      tell(LOG_NOTICE, kMessageCheckpoint, l,
           "settings changed, learning starts again: " + restored.error().message());
      l.updates = l.saved_updates = 0;
      for (Pupil* p : l.pupils) p->edition_at_offer = p->edition();
    }
  } else {
    warm = restore(l, now);
  }
  if (!warm) l.transitions = l.agent->transitions();
  for (Pupil* p : l.pupils) choose_model(*p);
  if (!carried)
    tell(LOG_INFO, kMessageCheckpoint, l,
         (warm ? "goes on after " + std::to_string(l.updates) + " updates"
               : std::string("learns from nothing")) +
             ", with " + std::to_string(l.agent->transitions()) + " transitions of the store");
}

/// A group learns from what any of its agents lived through while it was one of them, also from those that are gone.
void Trainer::fill_replay(GroupLearner& l) {
  const auto n = static_cast<std::size_t>(l.options.replay_steps);
  auto stored = l.group.empty() ? store_->recent_transitions(l.key, n, l.layout)
                                : store_->group_transitions(l.key, n, l.layout);
  if (!stored)
    return tell(LOG_WARNING, kMessageStore, l, "the replay stays empty: " + stored.error().message());
  std::size_t unfit = 0;
  for (const Transition& t : *stored) unfit += l.agent->add(t) ? 0 : 1;
  if (unfit)
    tell(LOG_WARNING, kMessageLearning, l,
         std::to_string(unfit) + " stored transitions do not fit and are left out");
}

/// From its newest checkpoint that is of use. False: none.
bool Trainer::restore(GroupLearner& l, Now now) {
  bool warm = false;
  std::vector<std::string> problems;
  const std::vector<LoadedCheckpoint> candidates = checkpoints_.load(l.key, problems);
  if (!problems.empty()) checkpoints_.distrust(l.key);
  for (const LoadedCheckpoint& c : candidates) {
    // Whatever becomes of its contents, no version below it may be offered again.
    l.version = std::max(l.version, c.head.version);
    if (warm) continue;
    if (auto same = of_layout(c.head, l.layout); !same) {
      problems.push_back("checkpoint: " + same.error().message());
      continue;
    }
    if (auto restored = l.agent->restore(c.file); !restored) {
      problems.push_back("checkpoint: " + restored.error().message());
      checkpoints_.distrust(l.key);
      continue;
    }
    warm = true;
    l.updates = l.saved_updates = c.head.updates;
    l.transitions = c.head.transitions;
    l.local = c.head.local;
    l.saved_version = c.head.version;
    l.saved_at = now.mono;
  }
  l.version = std::max(l.version, checkpoints_.policy_version(l.key));
  for (const std::string& problem : problems) {
    trouble(l, problem);
    tell(LOG_WARNING, kMessageCheckpoint, l, "not used: " + problem);
  }
  return warm;
}

void Trainer::learn(GroupLearner& l) {
  const bool off = l.pending_offline > 0;
  std::uint64_t& pending = off ? l.pending_offline : l.pending_online;
  if (!l.agent->ready()) {
    pending = 0;
    return;
  }
  const int n =
      static_cast<int>(std::min<std::uint64_t>(pending, static_cast<std::uint64_t>(options_.slice_updates)));
  const Duration begun = options_.clock();
  const UpdateReport report = off ? l.agent->learn_offline(n) : l.agent->learn_online(n);
  const Duration took = options_.clock() - begun;
  burst_ = burst_ || off;
  if (!report.finite) {
    ++counters_.diverged;
    trouble(l, "learning diverged and went back to the last finite parameters");
    tell(LOG_WARNING, kMessageLearning, l, l.trouble);
  }
  // Fewer than asked for: the data bears no more now.
  pending = report.updates < static_cast<std::uint64_t>(n) ? 0 : pending - report.updates;
  if (report.updates == 0) return;
  const bool first = l.updates == 0;
  l.updates += report.updates;
  for (Pupil* p : l.pupils)
    if (!p->pretrained()) p->refused = false;
  l.update_us[l.timed++ % kRecentUpdates] = seconds(took) * 1e6 / static_cast<double>(report.updates);
  if (std::isfinite(report.critic_loss))
    l.loss = first ? report.critic_loss : l.loss + kLossSmoothing * (report.critic_loss - l.loss);
}

bool Trainer::save_learner(GroupLearner& l, Now now) {
  if (!l.agent || (l.updates == l.saved_updates && l.version == l.saved_version)) return true;
  l.saved_at = now.mono;
  auto saved = checkpoints_.save({l.key, l.version, l.updates, l.transitions, l.local, l.layout},
                                 l.agent->checkpoint());
  if (!saved) {
    trouble(l, "checkpoint: " + saved.error().message());
    tell(LOG_WARNING, kMessageCheckpoint, l, "not saved: " + saved.error().message());
    return false;
  }
  l.saved_updates = l.updates;
  l.saved_version = l.version;
  return true;
}

std::size_t Trainer::save(Now now, bool all, Duration budget) {
  const Duration begun = options_.clock();
  std::size_t left = 0;
  for (auto& [id, l] : learners_) {
    if (!l->agent || (l->updates == l->saved_updates && l->version == l->saved_version)) continue;
    if (!all && now.mono - l->saved_at < options_.checkpoint_interval) continue;
    if (options_.clock() - begun >= budget || !save_learner(*l, now)) ++left;
  }
  return left;
}

void Trainer::drop_unused(Now now) {
  std::set<std::string> used;
  for (const auto& [id, l] : learners_) used.insert(l->key);
  auto stored = store_->keys();
  if (!stored) return;
  used.insert(stored->begin(), stored->end());
  const double now_us = std::chrono::duration<double, std::micro>(now.wall.time_since_epoch()).count();
  const std::size_t dropped =
      checkpoints_.drop_unused(used, static_cast<std::int64_t>(now_us - settings_.store_max_days * 86400e6));
  if (dropped)
    say_({LOG_INFO,
          kMessageCheckpoint,
          std::to_string(dropped) + " files of agents that are long gone were removed",
          {}});
}

}  // namespace flash
