#include "lab/pretrain/learning_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/learner_agents.h"
#include "learner/pretrained.h"
#include "learner/trainer.h"
#include "learner/trajectory_store.h"

namespace flash {

void EpisodeSum::add(const StepStats& s) {
  sum_.reward += s.reward;
  sum_.violations += s.violated ? 1 : 0;
  sum_.cpu += s.cpu;
  sum_.memory += s.memory;
  sum_.place += s.place;
  sum_.learned += s.learned ? 1 : 0;
  sum_.explored += s.explored ? 1 : 0;
  sum_.stage = s.stage;
  ++seconds_;
}

EpisodeStats EpisodeSum::take() {
  for (double* v :
       {&sum_.reward, &sum_.violations, &sum_.cpu, &sum_.memory, &sum_.place, &sum_.learned, &sum_.explored})
    *v /= std::max(1, seconds_);
  seconds_ = 0;
  return std::exchange(sum_, {});
}

namespace {

constexpr std::uint64_t kEpoch = 1;

TrainerOptions trainer_options(Task task, std::shared_ptr<const PretrainedModel> model) {
  TrainerOptions o;
  o.clock = [] { return Duration::zero(); };  // updates take no time: all are done before the next step
  if (model != nullptr) o.models.use(task, std::move(model));
  return o;
}

/// What LearnerLink and Session do with the messages of one agent.
class Learning {
 public:
  Learning(ManagedWorld& world, const LearningRunOptions& options,
           std::shared_ptr<const PretrainedModel> model, const TensorFile* learned)
      : world_(&world),
        store_(*TrajectoryStore::open(":memory:", nullptr)),
        trainer_(trainer_options(world.view().target->task(), std::move(model)), Checkpoints::none(), store_,
                 [](const Event&) {}) {
    const Now now = world.decision().at;
    hello_.epoch = kEpoch;
    hello_.episode_steps = kEpisodeSteps;
    hello_.settings = options.learning;
    hello_.settings.seed = options.seed;
    trainer_.configure(hello_);
    const AgentView view = world.view();
    const auto announce = received<link::Announce>(
        link::encode(agents_.add(*view.target, *view.layout, view.rule->learning_group()).announce));
    agent_ = announce.agent;
    run_ = (*store_.begin_run(announce, kEpoch)).id;
    trainer_.announce(announce, run_, now);
    if (learned != nullptr) static_cast<void>(trainer_.begin_with(agent_, *learned, now));  // REQUIREd to fit
  }

  /// Hands over the newest decision, lets it be learned from, and takes what is offered.
  void take_step() {
    const Decision& d = world_->decision();
    agents_.decided(*world_->view().target, d);
    const LearnerAgents::Batch batch = agents_.next_batch();
    const auto steps = received<link::Steps>(link::join_steps(batch.steps));
    agents_.sent(batch);
    for (const link::Step& step : steps.steps) {
      const TrajectoryStore::Entry entry{run_, &step};
      static_cast<void>(*store_.append({&entry, 1}));
      trainer_.take(step, d.at);
      static_cast<void>(*agents_.stored({agent_, step.seq}));
    }
    agents_.trim();
    work(d.at);
  }

  void begin_with(const TensorFile& learned) {
    const Now now = world_->decision().at;
    static_cast<void>(trainer_.begin_with(agent_, learned, now));  // REQUIREd to fit
    work(now);
  }

 private:
  template <class T>
  static T received(const std::string& bytes) {
    return std::get<T>(*link::decode_down(bytes));
  }

  void work(Now now) {
    while (trainer_.work(now)) {
    }
    for (const link::Offer& offer : trainer_.take_offers()) {
      PolicySnapshot policy = *to_policy(*decode_tensor_file(offer.policy));
      link::Verdict verdict{agent_, policy.version, true, {}};
      if (auto taken = world_->offer(std::move(policy)); !taken) {
        verdict.accepted = false;
        verdict.reason = taken.error().message();
      }
      trainer_.verdict(verdict);
    }
    static_cast<void>(trainer_.take_embedded());  // the fleet's
  }

  ManagedWorld* world_;
  LearnerAgents agents_;
  TrajectoryStore store_;
  Trainer trainer_;
  link::HelloDown hello_;
  std::string agent_;
  RunId run_ = 0;
};

}  // namespace

LearningRunOptions without_learning(LearningRunOptions options) {
  options.learning.offline_updates = options.learning.updates_per_step = 0;
  return options;
}

struct LearningRun::Impl {
  ManagedWorld world;
  std::unique_ptr<Learning> learning;  // nullptr: nobody learns

  Impl(const Pair& pair, Rule rule, const LearningRunOptions& o)
      : world(pair, std::move(rule), o.offset_s, o.seed) {}
  void begin(const LearningRunOptions& o, std::shared_ptr<const PretrainedModel> model,
             const TensorFile* learned) {
    learning = std::make_unique<Learning>(world, o, std::move(model), learned);
    learning->take_step();
  }
};

LearningRun::LearningRun(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LearningRun::LearningRun(LearningRun&&) noexcept = default;
LearningRun::~LearningRun() = default;

LearningRun LearningRun::of_rule(const Pair& pair, Rule rule, const LearningRunOptions& options) {
  rule.exploration.fallback_share = 0;
  return LearningRun(std::make_unique<Impl>(pair, std::move(rule), options));
}

LearningRun::LearningRun(const Pair& pair, Rule rule, const LearningRunOptions& options)
    : impl_(std::make_unique<Impl>(pair, std::move(rule), options)) {
  impl_->begin(options, nullptr, nullptr);
}

LearningRun::LearningRun(const Pair& pair, Rule rule, const TensorFile& learned,
                         const LearningRunOptions& options)
    : impl_(std::make_unique<Impl>(pair, std::move(rule), options)) {
  impl_->begin(options, nullptr, &learned);
}

LearningRun::LearningRun(const Pair& pair, Rule rule, std::shared_ptr<const PretrainedModel> model,
                         const LearningRunOptions& options)
    : impl_(std::make_unique<Impl>(pair, std::move(rule), options)) {
  impl_->begin(options, std::move(model), nullptr);
}

EpisodeStats LearningRun::live() {
  EpisodeSum sum;
  for (int t = 0; t < kEpisodeSteps; ++t) {
    sum.add(impl_->world.step());
    if (impl_->learning) impl_->learning->take_step();
  }
  return sum.take();
}

Stage LearningRun::stage() const {
  return impl_->world.decision().stage;
}
AgentView LearningRun::view() const {
  return impl_->world.view();
}
void LearningRun::change_pair(const Pair& pair) {
  impl_->world.change_pair(pair);
}
void LearningRun::replace_agent(const TensorFile& learned) {
  impl_->learning->begin_with(learned);
}

}  // namespace flash
