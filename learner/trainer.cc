#include "learner/trainer.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/algorithms.h"
#include "core/random.h"
#include "learner/agent_slot.h"

namespace flash {
namespace {

constexpr double kLossSmoothing = 0.05;                       // of the mean loss of a slice
constexpr double kTries = 8;                                  // per life of a policy that was refused
constexpr Duration kGiveBackEvery = std::chrono::seconds(5);  // while there is always something to learn

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
Result<std::unique_ptr<Agent>> make_agent(const link::LearningSettings& settings, const link::Announce& agent,
                                          const AgentOptions& options) {
  for (const AlgorithmSetting& s : kAlgorithmSettings)
    if (s.task == agent.layout.task)
      FLASH_CHECK(
          find_algorithm(std::string("learner.") + s.key, settings.*s.name, action_form(s.task), s.phase));
  return Agent::create({agent.layout.task, agent.layout.state_dim(), agent.layout.action_dim()}, options);
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

Trainer::Trainer(TrainerOptions options, Checkpoints checkpoints, TrajectoryStore& store, LogSink say)
    : options_(std::move(options)),
      checkpoints_(std::move(checkpoints)),
      store_(&store),
      say_(std::move(say)) {}
Trainer::~Trainer() = default;

void Trainer::tell(int priority, std::string_view id, const AgentSlot& slot,
                   const std::string& message) const {
  say_({priority,
        id,
        slot.announced.agent + " (" + slot.announced.key + "): " + message,
        {{"FLASHD_AGENT", slot.announced.agent}, {"FLASHD_KEY", slot.announced.key}}});
}

Trainer::AgentSlot* Trainer::find(const std::string& agent) {
  const auto found = slots_.find(agent);
  return found == slots_.end() ? nullptr : found->second.get();
}

int Trainer::replay_share(const link::Announce& agent) const {
  // By powers of two of the number of agents, so that one more does not rebuild all.
  const std::size_t agents = std::bit_ceil(std::max<std::size_t>(1, slots_.size()));
  const std::size_t numbers = 2 * static_cast<std::size_t>(agent.layout.state_dim()) +
                              3 * static_cast<std::size_t>(agent.layout.action_size()) + 1;
  const std::size_t share = options_.replay_bytes / agents / (numbers * sizeof(float) + 1);
  const std::size_t least = std::max<std::size_t>(2 * std::size_t{settings_.learning_starts}, 256);
  return static_cast<int>(std::max<std::size_t>(
      std::min<std::size_t>(settings_.replay_steps, std::max(share, least)), settings_.learning_starts));
}

AgentOptions Trainer::agent_options(const link::Announce& agent) const {
  AgentOptions o;
  o.offline = named(settings_, agent.layout.task, LearningPhase::Offline);
  o.online = named(settings_, agent.layout.task, LearningPhase::Online);
  o.double_q = settings_.double_q;
  o.discount = settings_.discount;
  o.learning_starts = static_cast<int>(settings_.learning_starts);
  o.replay_steps = replay_share(agent);
  o.seed = Random(settings_.seed).fork(fnv1a(agent.key)).next();
  return o;
}

void Trainer::configure(const link::HelloDown& hello) {
  settings_ = hello.settings;
  for (auto& [name, slot] : slots_) slot->hopeless = false;
}

void Trainer::announce(const link::Announce& agent, RunId run, Now now) {
  auto& slot = slots_[agent.agent];
  if (slot) {
    const link::Announce& old = slot->announced;
    if (old.key != agent.key || !same_layout(old.layout, agent.layout)) {
      save_pupil(*slot, now);
      slot.reset();
    }
  }
  if (!slot) slot = std::make_unique<AgentSlot>();
  AgentSlot& p = *slot;
  if (p.run != run) {
    p.run = run;
    // A restart of this process, or of flashd: the step before the first new one is in the store.
    auto last = store_->last_step(run);
    p.last = last ? *last : std::nullopt;
    p.stage_known = false;
    if (p.last) {
      p.stage = p.last->stage;
      p.stage_known = true;
    }
  }
  p.announced = agent;
  p.attached = true;
  choose_model(p);
  if (!p.own.empty()) embedded_.push_back({agent.agent, p.own_model, p.own});
  p.version = std::max(p.version, agent.model_version);
  // What flashd has in the seat needs no second offer; anything else is offered as soon as the stage is
  // known.
  p.offered = p.offered && agent.model_version == p.version && p.version > 0;
}

Result<void> Trainer::begin_with(const std::string& agent, const TensorFile& learned, Now now) {
  AgentSlot* p = find(agent);
  if (p && !p->agent) build(*p, now);
  if (!p || !p->agent) return Error(std::errc::invalid_argument, "no agent " + agent + " that can learn");
  FLASH_CHECK(p->agent->restore(learned));
  // Another policy under the same count of updates: to be offered, judged and saved.
  p->offered = p->refused = false;
  p->estimate = {};
  p->updates_at_estimate = p->saved_version = ~std::uint64_t{0};
  return {};
}

void Trainer::gone(const std::string& agent, Now now) {
  if (AgentSlot* p = find(agent)) {
    save_pupil(*p, now);
    slots_.erase(agent);
  }
}

void Trainer::disconnected() {
  for (auto& [name, slot] : slots_) slot->attached = false;
  offers_.clear();
  embedded_.clear();
}

void Trainer::forget_unannounced(Now now) {
  for (auto at = slots_.begin(); at != slots_.end();) {
    if (!at->second->attached) save_pupil(*at->second, now);
    at = at->second->attached ? std::next(at) : slots_.erase(at);
  }
}

void Trainer::take(const link::Step& step, Now now) {
  AgentSlot* p = find(step.agent);
  if (!p) return;
  (void)now;
  judge_pretrained(*p, step);
  if (p->stage != step.stage) {
    p->pending_offline = p->pending_online = 0;
    p->stage = step.stage;
  }
  p->stage_known = true;
  std::optional<Transition> transition;
  if (p->last) transition = transition_of(*p->last, step, p->announced.layout);
  p->last = step;
  if (step.end_of_episode) {
    ++p->episodes;
    p->episode_ended = true;
  }
  if (transition && p->agent) {
    // Without an agent yet, the store has it: build() fills the replay from there.
    if (auto added = p->agent->add(*transition); !added) {
      if (p->trouble != added.error().message())
        tell(LOG_WARNING, kMessageLearning, *p, "a step cannot be learned from: " + added.error().message());
      p->trouble = added.error().message();
      transition.reset();
    } else {
      ++p->transitions;
    }
  }
  std::uint64_t wanted = 0;
  if (offline(*p)) {
    if (step.end_of_episode) wanted = p->pending_offline += settings_.offline_updates;
  } else if (p->stage == Stage::Online && transition) {
    wanted = p->pending_online += settings_.updates_per_step;
  }
  if (wanted > options_.max_pending_updates) {
    counters_.cut_updates += wanted - options_.max_pending_updates;
    p->pending_offline = std::min(p->pending_offline, options_.max_pending_updates);
    p->pending_online = std::min(p->pending_online, options_.max_pending_updates);
  }
}

void Trainer::verdict(const link::Verdict& verdict) {
  AgentSlot* p = find(verdict.agent);
  if (!p) return;
  const std::string which = "policy " + std::to_string(verdict.version);
  if (verdict.accepted) {
    ++counters_.accepted;
    p->trouble.clear();
    tell(LOG_DEBUG, kMessagePolicy, *p, which + " was accepted");
    return;
  }
  ++counters_.refused;
  // Unless it changed after it was offered, the same policy would be refused again.
  p->refused = verdict.version == p->version && p->edition() == p->edition_at_offer;
  p->trouble = which + " was refused: " + verdict.reason;
  tell(LOG_WARNING, kMessagePolicy, *p, p->trouble);
}

bool Trainer::offline(const AgentSlot& p) const {
  return p.stage == Stage::Initialized || p.stage == Stage::Offline;
}

/// On a slow host updates may be asked for faster than they are made: to wait for their end is to publish
/// nothing.
bool Trainer::behind(const AgentSlot& p, Now now) const {
  if (offline(p)) return p.pending_offline > settings_.offline_updates;
  return p.offered && seconds(now.mono - p.offered_at) >= 2 * settings_.publish_interval_s;
}

bool Trainer::publish_due(const AgentSlot& p, Now now) const {
  if (!p.attached || !p.agent || !p.stage_known) return false;
  if (!p.pretrained()) {
    if (!p.agent->learned()) return false;
    if (p.pending_offline > 0 && !behind(p, now)) return false;  // in the middle of a burst
  }
  const bool changed = p.edition() != p.edition_at_offer;
  const double since = seconds(now.mono - p.offered_at);
  // SERVING never changes it, and what was refused may be taken later (too many offers at once, the states of
  // late): without another try it would expire, and the fallback act under the name of SERVING forever.
  if (p.refused && !changed && (p.stage != Stage::Serving || since < settings_.snapshot_lifetime_s / kTries))
    return false;
  if (!p.offered || p.refused) return true;
  return (changed && since >= settings_.publish_interval_s) || since >= settings_.snapshot_lifetime_s / 2;
}

bool Trainer::needs_work(const AgentSlot& p, Now now) const {
  if (!p.attached || p.hopeless) return false;
  if (!p.agent || p.options != agent_options(p.announced)) return true;
  return p.pending_offline > 0 || p.pending_online > 0 || embed_due(p) || publish_due(p, now);
}

bool Trainer::has_work(Now now) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& p) { return needs_work(*p.second, now); });
}

bool Trainer::work(Now now) {
  if (slots_.empty()) return false;
  auto at = slots_.lower_bound(next_);
  for (std::size_t i = 0; i < slots_.size(); ++i, ++at) {
    if (at == slots_.end()) at = slots_.begin();
    AgentSlot& p = *at->second;
    if (!needs_work(p, now)) continue;
    give_back(now, kGiveBackEvery);
    // The next slice is somebody else's; '\0' makes it the name right after this one.
    next_ = at->first + '\0';
    if (!p.agent || p.options != agent_options(p.announced))
      build(p, now);
    else if (embed_due(p))
      embed(p);
    else if ((p.pending_offline > 0 || p.pending_online > 0) &&
             !((behind(p, now) || p.pretrained()) && publish_due(p, now)))
      learn(p);
    else
      publish(p, now);
    return true;
  }
  give_back(now, Duration::zero());
  return false;
}

void Trainer::give_back(Now now, Duration at_most_every) {
  if (!burst_ || now.mono - given_back_at_ < at_most_every) return;
  burst_ = false;
  given_back_at_ = now.mono;
  malloc_trim(0);
}

void Trainer::build(AgentSlot& p, Now now) {
  const AgentOptions options = agent_options(p.announced);
  std::optional<TensorFile> carried;  // the state of an agent that is only resized or reconfigured
  if (p.agent) carried = p.agent->checkpoint();
  p.agent.reset();
  auto made = make_agent(settings_, p.announced, options);
  if (!made) {
    p.hopeless = true;
    p.trouble = made.error().message();
    tell(LOG_ERR, kMessageLearning, p, "cannot learn: " + p.trouble);
    return;
  }
  p.agent = std::move(*made);
  p.options = options;
  // Before the checkpoint, which counts the steps that it has seen: these are among them.
  auto stored = store_->recent_transitions(p.announced.key, static_cast<std::size_t>(options.replay_steps),
                                           p.announced.layout);
  if (!stored) {
    tell(LOG_WARNING, kMessageStore, p, "the replay stays empty: " + stored.error().message());
  } else {
    std::size_t unfit = 0;
    for (const Transition& t : *stored) unfit += p.agent->add(t) ? 0 : 1;
    if (unfit)
      tell(LOG_WARNING, kMessageLearning, p,
           std::to_string(unfit) + " stored transitions do not fit and are left out");
  }
  bool warm = false;
  if (carried) {
    auto restored = p.agent->restore(*carried);
    warm = static_cast<bool>(restored);
    if (!warm) {
      tell(LOG_NOTICE, kMessageCheckpoint, p,
           "settings changed, learning starts again: " + restored.error().message());
      p.updates = p.saved_updates = 0;
      p.edition_at_offer = p.edition();
    }
  } else {
    std::vector<std::string> problems;
    const std::vector<LoadedCheckpoint> candidates = checkpoints_.load(p.announced.key, problems);
    if (!problems.empty()) checkpoints_.distrust(p.announced.key);
    for (const LoadedCheckpoint& c : candidates) {
      // Whatever becomes of its contents, no version below it may be offered again.
      p.version = std::max(p.version, c.head.version);
      if (warm) continue;
      if (auto same = of_layout(c.head, p.announced.layout); !same) {
        problems.push_back("checkpoint: " + same.error().message());
        continue;
      }
      if (auto restored = p.agent->restore(c.file); !restored) {
        problems.push_back("checkpoint: " + restored.error().message());
        checkpoints_.distrust(p.announced.key);
        continue;
      }
      warm = true;
      p.updates = p.saved_updates = c.head.updates;
      p.transitions = c.head.transitions;
      p.local = c.head.local;
      p.saved_version = c.head.version;
      p.saved_at = now.mono;
    }
    p.version = std::max(p.version, checkpoints_.policy_version(p.announced.key));
    for (const std::string& problem : problems) {
      p.trouble = problem;
      tell(LOG_WARNING, kMessageCheckpoint, p, "not used: " + problem);
    }
  }
  if (!warm) p.transitions = p.agent->transitions();
  choose_model(p);
  if (!carried)
    tell(LOG_INFO, kMessageCheckpoint, p,
         (warm ? "goes on after " + std::to_string(p.updates) + " updates"
               : std::string("learns from nothing")) +
             ", with " + std::to_string(p.agent->transitions()) + " transitions of the store");
}

void Trainer::learn(AgentSlot& p) {
  const bool off = p.pending_offline > 0;
  std::uint64_t& pending = off ? p.pending_offline : p.pending_online;
  if (!p.agent->ready()) {
    pending = 0;
    return;
  }
  const int n =
      static_cast<int>(std::min<std::uint64_t>(pending, static_cast<std::uint64_t>(options_.slice_updates)));
  const Duration begun = options_.clock();
  const UpdateReport report = off ? p.agent->learn_offline(n) : p.agent->learn_online(n);
  const Duration took = options_.clock() - begun;
  burst_ = burst_ || off;
  if (!report.finite) {
    ++counters_.diverged;
    p.trouble = "learning diverged and went back to the last finite parameters";
    tell(LOG_WARNING, kMessageLearning, p, p.trouble);
  }
  // Fewer than asked for: the data bears no more now.
  pending = report.updates < static_cast<std::uint64_t>(n) ? 0 : pending - report.updates;
  if (report.updates == 0) return;
  const bool first = p.updates == 0;
  p.updates += report.updates;
  if (!p.pretrained()) p.refused = false;
  p.update_us[p.timed++ % kRecentUpdates] = seconds(took) * 1e6 / static_cast<double>(report.updates);
  if (std::isfinite(report.critic_loss))
    p.loss = first ? report.critic_loss : p.loss + kLossSmoothing * (report.critic_loss - p.loss);
}

void Trainer::publish(AgentSlot& p, Now now) {
  if (p.pretrained()) {
    p.estimate = p.beginning->policy.estimate;
    p.updates_at_estimate = ~std::uint64_t{0};  // not of what was learned here
  } else if (offline(p)) {
    // Before the policy has ever acted: what the log says about it. An unchanged policy keeps its estimate.
    if (!p.estimate.given || p.updates_at_estimate != p.updates) {
      p.estimate = p.agent->estimate();
      p.updates_at_estimate = p.updates;
      burst_ = true;
    }
  } else if (p.updates_at_estimate != p.updates) {
    p.estimate = {};
  }
  // Whatever happens below, the next attempt waits its time.
  p.offered = true;
  p.offered_at = now.mono;
  p.edition_at_offer = p.edition();

  PolicySnapshot policy = p.pretrained() ? p.beginning->policy : p.agent->snapshot();
  policy.version = p.version + 1;
  policy.layout = p.announced.layout;
  policy.data_steps = p.transitions;
  policy.expires = now.wall + from_seconds(settings_.snapshot_lifetime_s);
  policy.estimate = p.estimate;
  if (!p.pretrained())
    policy.model = policy.algorithm + ", seed " + std::to_string(settings_.seed) + ", " +
                   std::to_string(p.updates) + " updates" + (p.unfamiliar.empty() ? "" : "; ") + p.unfamiliar;
  if (auto valid = policy.validate(p.announced.layout.state_dim(), p.announced.layout.action_dim()); !valid) {
    p.trouble = "not published: " + valid.error().message();
    tell(LOG_WARNING, kMessagePolicy, p, p.trouble);
    return;
  }
  const TensorFile file = to_tensor_file(policy);
  std::string bytes = encode(file);
  if (bytes.size() > link::kMaxOffered) {
    p.trouble =
        "not published: a policy of " + std::to_string(bytes.size()) + " bytes does not fit a message";
    tell(LOG_ERR, kMessagePolicy, p, p.trouble);
    return;
  }
  // On disk before it is offered: after a crash no version is used for two policies.
  if (auto kept = checkpoints_.save_policy(p.announced.key, file); !kept) {
    p.trouble = "not published: " + kept.error().message();
    tell(LOG_WARNING, kMessagePolicy, p, p.trouble);
    return;
  }
  p.version = policy.version;
  ++counters_.offered;
  offers_.push_back({p.announced.agent, std::move(bytes)});
  say_({LOG_DEBUG,
        kMessagePolicy,
        p.announced.agent + " (" + p.announced.key + "): policy " + std::to_string(p.version) +
            " offered: " + policy.model,
        {{"FLASHD_AGENT", p.announced.agent},
         {"FLASHD_KEY", p.announced.key},
         {"FLASHD_MODEL_VERSION", std::to_string(p.version)}}});
}

std::vector<link::Offer> Trainer::take_offers() {
  return std::exchange(offers_, {});
}

std::vector<link::Embedded> Trainer::take_embedded() {
  return std::exchange(embedded_, {});
}

bool Trainer::save_pupil(AgentSlot& p, Now now) {
  if (!p.agent || (p.updates == p.saved_updates && p.version == p.saved_version)) return true;
  p.saved_at = now.mono;
  auto saved =
      checkpoints_.save({p.announced.key, p.version, p.updates, p.transitions, p.local, p.announced.layout},
                        p.agent->checkpoint());
  if (!saved) {
    p.trouble = "checkpoint: " + saved.error().message();
    tell(LOG_WARNING, kMessageCheckpoint, p, "not saved: " + saved.error().message());
    return false;
  }
  p.saved_updates = p.updates;
  p.saved_version = p.version;
  return true;
}

std::size_t Trainer::save(Now now, bool all, Duration budget) {
  const Duration begun = options_.clock();
  std::size_t left = 0;
  for (auto& [name, p] : slots_) {
    if (!p->agent || (p->updates == p->saved_updates && p->version == p->saved_version)) continue;
    if (!all && now.mono - p->saved_at < options_.checkpoint_interval) continue;
    if (options_.clock() - begun >= budget || !save_pupil(*p, now)) ++left;
  }
  return left;
}

std::vector<link::Status> Trainer::statuses() const {
  std::vector<link::Status> out;
  for (const auto& [name, p] : slots_) {
    if (!p->attached) continue;
    link::Status s;
    s.agent = name;
    s.transitions = p->transitions;
    s.updates = p->updates;
    s.episodes = p->episodes;
    s.loss = std::clamp(p->loss, -1e12, 1e12);
    s.update_us = std::clamp(p->median_us(), 0.0, 1e12);
    if (p->hopeless)
      s.doing = "cannot learn";
    else if (!p->agent)
      s.doing = "starting";
    else if (!p->agent->ready() && p->stage != Stage::Serving)
      s.doing = "collecting: " + std::to_string(p->agent->transitions()) + " of " +
                std::to_string(settings_.learning_starts) + " transitions";
    else if (p->stage == Stage::Serving)
      s.doing = "serving: stores, does not learn";
    else if (offline(*p))
      s.doing = p->pending_offline > 0
                    ? "learning offline: " + std::to_string(p->pending_offline) + " updates to do"
                    : "learning offline: waiting for the end of an episode";
    else
      s.doing = "learning online";
    if (p->pretrained()) s.doing += "; pretrained policy, embedding " + std::to_string(p->embeddings);
    if (p->pretrained() && p->beginning->neighbour_share > 0)
      s.doing += ", " + std::to_string(std::lround(100 * p->beginning->neighbour_share)) + " % of " +
                 p->neighbour->application + "@" + p->neighbour->node + "'s";
    if (!p->unfamiliar.empty()) s.doing += "; " + p->unfamiliar;
    if (!p->trouble.empty()) s.doing += "; " + p->trouble;
    if (s.doing.size() > link::kMaxName) s.doing.resize(link::kMaxName);
    for (char& c : s.doing)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
    out.push_back(std::move(s));
  }
  return out;
}

void Trainer::drop_unused(Now now) {
  std::set<std::string> used;
  for (const auto& [name, p] : slots_) used.insert(p->announced.key);
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
