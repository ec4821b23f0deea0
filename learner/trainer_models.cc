// The trainer's part that deals with pretrained policies: docs/adr/0008-pretrained-models.md.
#include <cstdio>

#include "learner/group_learner.h"
#include "learner/model_trial.h"
#include "learner/trainer.h"

namespace flash {
namespace {

constexpr std::uint64_t kEnoughRewards = 50;  // half an episode, as in the life cycle

}  // namespace

/// At each announcement, since the rule's reward may have changed, and once the checkpoint is known.
void Trainer::choose_model(Pupil& p) {
  // What acts in SERVING stays what it is.
  if (p.stage_known && p.stage == Stage::Serving && p.pretrained()) return;
  auto model = p.learner->local ? nullptr : options_.models.of(p.announced.layout.task);
  if (model != nullptr)
    if (auto fits = model->fits(p.announced); !fits) {
      const std::string why = "pretrained model not used: " + fits.error().message();
      if (p.unfamiliar != why) tell(LOG_NOTICE, kMessageModel, p, why);
      p.unfamiliar = why;
      model = nullptr;
    }
  if (p.model == model) return;
  p.model = std::move(model);
  p.beginning.reset();
  p.episode_ended = p.model != nullptr;  // the store may have episodes from before
  if (p.model != nullptr) p.unfamiliar.clear();
}

/// The first of them that is not worse here than what is in use.
void Trainer::hand_out(Task task, const std::vector<std::shared_ptr<const PretrainedModel>>& candidates) {
  std::vector<link::Announce> agents;
  for (const auto& [name, p] : pupils_)
    if (p->announced.layout.task == task) agents.push_back(p->announced);
  const auto in_use = options_.models.of(task);
  HandedOut& state = handed_out_[task];
  for (const auto& model : candidates) {
    if (in_use && model->name() == in_use->name()) return;
    const TrialResult trial = try_model(*model, in_use.get(), agents, *store_);
    burst_ = burst_ || trial.tried > 0;
    const std::string what = std::string(to_string(task)) + " model " + model->name();
    if (trial.passed()) {
      state.version = model->version();
      say_({LOG_NOTICE,
            kMessageModel,
            what + " is used from now on, tried on " + std::to_string(trial.tried) + " agents' records",
            {}});
      return use_model(task, model);
    }
    ++state.refused;
    state.trouble = "version " + std::to_string(model->version()) + ": " + trial.trouble;
    say_({LOG_WARNING,
          kMessageModel,
          "refused " + what + ": " + trial.trouble + " (worse on " + std::to_string(trial.worse) + " of " +
              std::to_string(trial.tried) + " agents)",
          {}});
  }
  if (!candidates.empty()) return;  // what is in use stays
  if (state.version != 0)
    say_({LOG_NOTICE,
          kMessageModel,
          std::string(to_string(task)) +
              ": no model of the fleet any more, agents begin with what the packages brought",
          {}});
  state.version = 0;
  use_model(task, nullptr);
}

std::string Trainer::models_in_words() const {
  std::string words;
  for (const auto& [task, state] : handed_out_) {
    words += (words.empty() ? "" : "; ") + std::string(to_string(task)) + " model " +
             (state.version > 0 ? std::to_string(state.version) : std::string("of the packages"));
    if (state.refused > 0) words += ", refused " + std::to_string(state.refused) + ": " + state.trouble;
  }
  return words;
}

void Trainer::use_model(Task task, std::shared_ptr<const PretrainedModel> model) {
  options_.models.use(task, std::move(model));
  for (auto& [name, p] : pupils_)
    if (p->announced.layout.task == task) choose_model(*p);
}

void Trainer::nearest(const link::NearestPair& pair) {
  Pupil* p = find(pair.agent);
  if (!p || p->neighbour == pair.neighbour) return;
  if (p->model == nullptr) return tell(LOG_DEBUG, kMessageModel, *p, "a neighbour, but no pretrained policy");
  const std::string who = "the nearest known pair, " + link::words_of(pair.neighbour);
  if (auto fits = p->model->fits(pair.neighbour); !fits) {
    ++counters_.neighbours_refused;
    return tell(LOG_WARNING, kMessageModel, *p, who + ", is not used: " + fits.error().message());
  }
  ++counters_.neighbours;
  const bool same = p->neighbour && link::same_agent(*p->neighbour, pair.neighbour);
  p->neighbour = pair.neighbour;
  p->episode_ended = true;  // a new embedding now, not at the end of the episode
  tell(same ? LOG_DEBUG : LOG_INFO, kMessageModel, *p, who);
}

bool Trainer::embed_due(const Pupil& p) const {
  // SERVING does not learn, so its policy stays what it is, the embedding with it.
  return p.model != nullptr && p.learner->agent && p.attached && p.episode_ended && p.stage_known &&
         (p.stage != Stage::Serving || !p.beginning);
}

/// Once per episode: is what was learned here as good by now? Else the embedding of all that is known.
void Trainer::embed(Pupil& p) {
  p.episode_ended = false;
  GroupLearner& l = *p.learner;
  if (p.pretrained() && l.agent->learned() && l.updates != l.updates_at_estimate) {
    l.estimate = l.agent->estimate();
    l.updates_at_estimate = l.updates;
    burst_ = true;
    const double gained = p.earned.count >= kEnoughRewards && p.fallback_earned.count >= kEnoughRewards
                              ? p.earned.value() - p.fallback_earned.value()
                              : p.model->gain().mean;
    if (l.estimate.given && l.estimate.lower >= gained) {
      char words[128];
      std::snprintf(words, sizeof words, "its estimate, at least %+.3f per step, is not below %+.3f",
                    static_cast<double>(l.estimate.lower), gained);
      hand_over(l, words);
      return;
    }
  }
  auto begun = p.model->begin(*store_, p.announced.key, p.neighbour ? &*p.neighbour : nullptr);
  if (!begun) {
    tell(LOG_WARNING, kMessageModel, p, "no embedding: " + begun.error().message());
    return;
  }
  if (!*begun) return;
  ++counters_.embedded;
  p.own = (*begun)->own;
  p.own_model = p.model->id();
  embedded_.push_back({p.announced.agent, p.own_model, p.own});
  const SeenEmbeddings::Nearest& n = (*begun)->nearest;
  char words[160];
  if (n.out_of_distribution) {
    std::snprintf(words, sizeof words,
                  "out of distribution: its embedding is %.2f from what the model knows, %.2f is usual",
                  n.distance, n.threshold);
    // In the seat the rewards say more than a distance: what acts keeps the embedding that it has.
    if (p.unfamiliar.empty())
      tell(LOG_NOTICE, kMessageModel, p,
           std::string(words) + (p.beginning ? "; the policy keeps its embedding"
                                             : "; the fallback stays until something was learned here"));
    p.unfamiliar = words;
    return;
  }
  p.unfamiliar.clear();
  if (!p.beginning)
    tell(LOG_INFO, kMessageModel, p,
         "begins with " + (*begun)->policy.model + "; what is learned here takes over when it is not worse");
  p.beginning = **std::move(begun);
  ++p.embeddings;
  p.refused = false;
}

/// To what all agents of the learner lived through; what acts in SERVING stays what it is.
void Trainer::hand_over(GroupLearner& l, const std::string& why) {
  tell(LOG_NOTICE, kMessageModel, l, "what was learned here replaces the pretrained policy: " + why);
  l.local = true;
  for (Pupil* p : l.pupils) {
    if (p->model == nullptr || (l.pupils.size() > 1 && p->stage == Stage::Serving)) continue;
    p->model = nullptr;
    p->beginning.reset();
    p->unfamiliar.clear();
    p->offered = p->refused = false;
  }
  l.estimate = {};
  l.updates_at_estimate = ~std::uint64_t{0};
  l.saved_version = ~std::uint64_t{0};  // to be saved though nothing was learned since
}

/// Rewards by who earned them, and the life cycle's verdict on the policy in the seat.
void Trainer::judge_pretrained(Pupil& p, const link::Step& step) {
  if (!p.pretrained() && p.model == nullptr) return;
  if (p.last && step.reward_given && step.reward_trusted && p.last->seq + 1 == step.seq) {
    Pupil::Mean* mean = p.last->controller == Controller::Learned    ? &p.earned
                        : p.last->controller == Controller::Fallback ? &p.fallback_earned
                                                                     : nullptr;
    if (mean != nullptr && !p.last->action.empty()) {
      mean->sum += step.reward;
      ++mean->count;
    }
  }
  const bool acted = p.stage == Stage::Online || p.stage == Stage::Serving;
  if (p.stage_known && acted && step.stage == Stage::Offline && p.pretrained())
    hand_over(*p.learner, "the life cycle sent it back to offline");
}

}  // namespace flash
