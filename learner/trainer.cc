#include "learner/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "learner/group_learner.h"

namespace flash {
namespace {

constexpr Duration kGiveBackEvery = std::chrono::seconds(5);  // while there is always something to learn

bool offline(Stage stage) {
  return stage == Stage::Initialized || stage == Stage::Offline;
}

/// Of several agents that learn together: who acts and may be learned from comes first.
Stage first_of(const std::vector<Stage>& stages) {
  for (const Stage stage : {Stage::Online, Stage::Serving, Stage::Offline})
    if (std::find(stages.begin(), stages.end(), stage) != stages.end()) return stage;
  return Stage::Initialized;
}

}  // namespace

Trainer::Trainer(TrainerOptions options, Checkpoints checkpoints, TrajectoryStore& store, LogSink say)
    : options_(std::move(options)),
      checkpoints_(std::move(checkpoints)),
      store_(&store),
      say_(std::move(say)) {}
Trainer::~Trainer() = default;

void Trainer::tell(int priority, std::string_view id, const Pupil& pupil, const std::string& message) const {
  const link::Announce& a = pupil.announced;
  say_({priority,
        id,
        a.agent + " (" + a.key + "): " + message,
        {{"FLASHD_AGENT", a.agent}, {"FLASHD_KEY", a.key}}});
}

void Trainer::tell(int priority, std::string_view id, const GroupLearner& l,
                   const std::string& message) const {
  if (l.group.empty() && !l.pupils.empty()) return tell(priority, id, *l.pupils.front(), message);
  say_({priority,
        id,
        "group " + l.group + " of " + std::to_string(l.pupils.size()) + " (" + l.key + "): " + message,
        {{"FLASHD_KEY", l.key}}});
}

void Trainer::trouble(GroupLearner& l, std::string what) {
  for (Pupil* p : l.pupils) p->trouble.clear();
  l.trouble = std::move(what);
}

Trainer::Pupil* Trainer::find(const std::string& agent) {
  const auto found = pupils_.find(agent);
  return found == pupils_.end() ? nullptr : found->second.get();
}

Stage Trainer::stage_of(const GroupLearner& l) {
  std::vector<Stage> stages;
  for (const Pupil* p : l.pupils) stages.push_back(p->stage);
  return first_of(stages);
}

void Trainer::configure(const link::HelloDown& hello) {
  settings_ = hello.settings;
  for (auto& [id, l] : learners_) l->hopeless = false;
}

/// Made where it is new.
Trainer::GroupLearner& Trainer::learner_for(const link::Announce& agent) {
  const std::string group = group_key(agent), key = group.empty() ? agent.key : group;
  auto& l = learners_[key + " " + meaning_of(agent.layout)];
  if (!l) {
    l = std::make_unique<GroupLearner>();
    l->key = key;
    l->group = agent.group;
    l->layout = agent.layout;
  }
  return *l;
}

void Trainer::remove(std::map<std::string, std::unique_ptr<Pupil>>::iterator at, Now now) {
  Pupil& p = *at->second;
  GroupLearner& l = *p.learner;
  const bool last = l.pupils.size() == 1;
  if (last) save_learner(l, now);
  std::erase(l.pupils, &p);
  l.in_round.erase(at->first);
  pupils_.erase(at);
  if (last) std::erase_if(learners_, [&l](const auto& one) { return one.second.get() == &l; });
}

void Trainer::announce(const link::Announce& agent, RunId run, Now now) {
  if (const auto at = pupils_.find(agent.agent); at != pupils_.end()) {
    const link::Announce& old = at->second->announced;
    if (old.key != agent.key || !same_layout(old.layout, agent.layout) || group_key(old) != group_key(agent))
      remove(at, now);
  }
  auto& pupil = pupils_[agent.agent];
  if (!pupil) {
    pupil = std::make_unique<Pupil>();
    GroupLearner& l = learner_for(agent);
    pupil->learner = &l;
    l.pupils.push_back(pupil.get());
    if (!l.group.empty()) l.most_pupils = std::max(l.most_pupils, std::bit_ceil(l.pupils.size()));
  }
  Pupil& p = *pupil;
  GroupLearner& l = *p.learner;
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
    l.stage = stage_of(l);
  }
  p.announced = agent;
  p.attached = true;
  if (l.group.empty()) l.layout = agent.layout;
  choose_model(p);
  if (!p.own.empty()) embedded_.push_back({agent.agent, p.own_model, p.own});
  l.version = std::max(l.version, agent.model_version);
  // What flashd has in the seat needs no second offer; anything else is offered as soon as the stage is
  // known.
  p.offered = p.offered && agent.model_version == p.offered_version && p.offered_version > 0;
}

Result<void> Trainer::begin_with(const std::string& agent, const TensorFile& learned, Now now) {
  Pupil* p = find(agent);
  if (p && !p->learner->agent) build(*p->learner, now);
  if (!p || !p->learner->agent)
    return Error(std::errc::invalid_argument, "no agent " + agent + " that can learn");
  GroupLearner& l = *p->learner;
  FLASH_CHECK(l.agent->restore(learned));
  // Another policy under the same count of updates: to be offered, judged and saved.
  for (Pupil* one : l.pupils) one->offered = one->refused = false;
  l.estimate = {};
  l.updates_at_estimate = l.saved_version = ~std::uint64_t{0};
  return {};
}

void Trainer::gone(const std::string& agent, Now now) {
  if (const auto at = pupils_.find(agent); at != pupils_.end()) remove(at, now);
}

void Trainer::disconnected() {
  for (auto& [name, pupil] : pupils_) pupil->attached = false;
  offers_.clear();
  embedded_.clear();
}

void Trainer::forget_unannounced(Now now) {
  for (auto at = pupils_.begin(); at != pupils_.end();) {
    const auto one = at++;
    if (!one->second->attached) remove(one, now);
  }
}

void Trainer::take(const link::Step& step, Now now) {
  Pupil* p = find(step.agent);
  if (!p) return;
  (void)now;
  GroupLearner& l = *p->learner;
  judge_pretrained(*p, step);
  p->stage = step.stage;
  p->stage_known = true;
  if (const Stage stage = stage_of(l); stage != l.stage) {
    l.pending_offline = l.pending_online = 0;
    l.stage = stage;
  }
  std::optional<Transition> transition;
  if (p->last) transition = transition_of(*p->last, step, l.layout);
  p->last = step;
  if (step.end_of_episode) {
    ++p->episodes;
    p->episode_ended = true;
  }
  if (transition && l.agent) {
    // Without an agent yet, the store has it: build() fills the replay from there.
    transition->stream = p->run;
    if (auto added = l.agent->add(*transition); !added) {
      if (p->trouble != added.error().message())
        tell(LOG_WARNING, kMessageLearning, *p, "a step cannot be learned from: " + added.error().message());
      p->trouble = added.error().message();
      transition.reset();
    } else {
      ++l.transitions;
    }
  }
  std::uint64_t wanted = 0;
  if (offline(l.stage)) {
    if (step.end_of_episode && new_round(l, step.agent))
      wanted = l.pending_offline += settings_.offline_updates;
  } else if (p->stage == Stage::Online && transition) {
    wanted = l.pending_online += settings_.updates_per_step;
  }
  if (wanted > options_.max_pending_updates) {
    counters_.cut_updates += wanted - options_.max_pending_updates;
    l.pending_offline = std::min(l.pending_offline, options_.max_pending_updates);
    l.pending_online = std::min(l.pending_online, options_.max_pending_updates);
  }
}

/// An agent's episode has ended. Of a group's agents, whose episodes end at different times, the first begins a round, which
/// is over when an agent ends an episode for the second time in it.
bool Trainer::new_round(GroupLearner& l, const std::string& agent) {
  const bool begins = l.in_round.empty() || l.in_round.contains(agent);
  if (begins) l.in_round.clear();
  l.in_round.insert(agent);
  return begins;
}

void Trainer::verdict(const link::Verdict& verdict) {
  Pupil* p = find(verdict.agent);
  if (!p) return;
  const std::string which = "policy " + std::to_string(verdict.version);
  if (verdict.accepted) {
    ++counters_.accepted;
    p->trouble.clear();
    p->learner->trouble.clear();
    tell(LOG_DEBUG, kMessagePolicy, *p, which + " was accepted");
    return;
  }
  ++counters_.refused;
  // Unless it changed after it was offered, the same policy would be refused again.
  p->refused = verdict.version == p->offered_version && p->edition() == p->edition_at_offer;
  p->trouble = which + " was refused: " + verdict.reason;
  tell(LOG_WARNING, kMessagePolicy, *p, p->trouble);
}

bool Trainer::embed_due(const GroupLearner& l) const {
  return std::any_of(l.pupils.begin(), l.pupils.end(), [this](const Pupil* p) { return embed_due(*p); });
}

/// Before what is still to be learned: where that does not end, where learning is not what the policy comes from, and for an
/// agent that is new in its group.
bool Trainer::publish_first(const GroupLearner& l, Now now) const {
  const bool published =
      std::any_of(l.pupils.begin(), l.pupils.end(), [](const Pupil* p) { return p->offered; });
  return std::any_of(l.pupils.begin(), l.pupils.end(), [&](const Pupil* p) {
    const bool joins = published && !p->offered;
    return (behind(*p, now) || p->pretrained() || joins) && publish_due(*p, now);
  });
}

bool Trainer::needs_work(const GroupLearner& l, Now now) const {
  const bool attached =
      std::any_of(l.pupils.begin(), l.pupils.end(), [](const Pupil* p) { return p->attached; });
  if (!attached || l.hopeless) return false;
  if (!l.agent || l.options != agent_options(l)) return true;
  return l.pending_offline > 0 || l.pending_online > 0 || embed_due(l) ||
         std::any_of(l.pupils.begin(), l.pupils.end(), [&](const Pupil* p) { return publish_due(*p, now); });
}

bool Trainer::has_work(Now now) const {
  return std::any_of(learners_.begin(), learners_.end(),
                     [&](const auto& l) { return needs_work(*l.second, now); });
}

bool Trainer::work(Now now) {
  if (learners_.empty()) return false;
  auto at = learners_.lower_bound(next_);
  for (std::size_t i = 0; i < learners_.size(); ++i, ++at) {
    if (at == learners_.end()) at = learners_.begin();
    GroupLearner& l = *at->second;
    if (!needs_work(l, now)) continue;
    give_back(now, kGiveBackEvery);
    // The next slice is somebody else's; '\0' makes it the name right after this one.
    next_ = at->first + '\0';
    if (!l.agent || l.options != agent_options(l))
      build(l, now);
    else if (embed_due(l))
      embed(
          **std::find_if(l.pupils.begin(), l.pupils.end(), [this](const Pupil* p) { return embed_due(*p); }));
    else if ((l.pending_offline > 0 || l.pending_online > 0) && !publish_first(l, now))
      learn(l);
    else
      publish(l, now);
    return true;
  }
  give_back(now, Duration::zero());
  return false;
}

std::vector<link::Offer> Trainer::take_offers() {
  return std::exchange(offers_, {});
}

std::vector<link::Embedded> Trainer::take_embedded() {
  return std::exchange(embedded_, {});
}

std::string Trainer::doing(const Pupil& p) const {
  const GroupLearner& l = *p.learner;
  std::string words;
  if (l.hopeless)
    words = "cannot learn";
  else if (!l.agent)
    words = "starting";
  else if (!l.agent->ready() && l.stage != Stage::Serving)
    words = "collecting: " + std::to_string(l.agent->transitions()) + " of " +
            std::to_string(settings_.learning_starts) + " transitions";
  else if (l.stage == Stage::Serving)
    words = "serving: stores, does not learn";
  else if (offline(l.stage))
    words = l.pending_offline > 0
                ? "learning offline: " + std::to_string(l.pending_offline) + " updates to do"
                : "learning offline: waiting for the end of an episode";
  else
    words = "learning online";
  if (!l.group.empty())
    words += "; group " + l.group + " of " + std::to_string(l.pupils.size()) + " learns together";
  if (p.pretrained()) words += "; pretrained policy, embedding " + std::to_string(p.embeddings);
  if (p.pretrained() && p.beginning->neighbour_share > 0)
    words += ", " + std::to_string(std::lround(100 * p.beginning->neighbour_share)) + " % of " +
             p.neighbour->application + "@" + p.neighbour->node + "'s";
  for (const std::string& more : {p.unfamiliar, p.trouble.empty() ? l.trouble : p.trouble})
    if (!more.empty()) words += "; " + more;
  if (words.size() > link::kMaxName) words.resize(link::kMaxName);
  for (char& c : words)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return words;
}

std::vector<link::Status> Trainer::statuses() const {
  std::vector<link::Status> out;
  for (const auto& [name, p] : pupils_) {
    if (!p->attached) continue;
    const GroupLearner& l = *p->learner;
    link::Status s;
    s.agent = name;
    s.transitions = l.transitions;
    s.updates = l.updates;
    s.episodes = p->episodes;
    s.loss = std::clamp(l.loss, -1e12, 1e12);
    s.update_us = std::clamp(l.median_us(), 0.0, 1e12);
    s.doing = doing(*p);
    out.push_back(std::move(s));
  }
  return out;
}

link::Status Trainer::totals() const {
  link::Status all;
  for (const auto& [id, l] : learners_) {
    if (std::none_of(l->pupils.begin(), l->pupils.end(), [](const Pupil* p) { return p->attached; }))
      continue;
    all.transitions += l->transitions;
    all.updates += l->updates;
  }
  for (const auto& [name, p] : pupils_)
    if (p->attached) all.episodes += p->episodes;
  return all;
}

}  // namespace flash
