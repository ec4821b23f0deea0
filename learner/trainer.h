// Purpose: who learns what and when. Each announced agent has a learner: its own, or one together with the other agents of its
// group, task and layout where their rules share parameters (docs/agents/groups.md). A learner has one replay, one state in
// checkpoints and one policy with one sequence of versions. It is trained as the stages say that its agents have in
// flashd, which moves them (AWARE Alg. 1); of several agents the first that there is of
//
//   ONLINE                the policy acts and explores; updates_per_step updates per new trusted transition of those
//                         that are ONLINE
//   SERVING               the policy acts; nothing is updated, the replay stays warm for a retraining
//   OFFLINE, INITIALIZED  the fallback acts; when an episode has ended, once for all, offline_updates updates of the
//                         offline method
//
// A policy is offered to each agent that it has changed for since the last one, and to one that is new at once.
//
// Where a pretrained model fits, its policy with the agent's embedding is offered first, renewed at the end
// of each episode; what is learned here takes over when its own estimate says that it is not worse, or when
// the pretrained policy fell below the fallback (docs/adr/0008-pretrained-models.md). All work comes in
// slices of a few milliseconds, one learner after the other, so that the socket is served in between and no
// agent waits for another's burst.
// Ownership: owns learners and checkpoints; borrows the store, which outlives it.
// Thread rule: one thread. Reads no clock but the one it is given, for timing updates.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/time.h"
#include "learner/checkpoints.h"
#include "learner/events.h"
#include "learner/pretrained.h"
#include "learner/trajectory_store.h"
#include "link/messages.h"

namespace flash {

struct TrainerOptions {
  /// Over all agents: with 100 agents each keeps the newest share, a group its agents' shares together. Below it
  /// settings.replay_steps counts.
  std::size_t replay_bytes = 24u << 20;
  int slice_updates = 8;
  Duration checkpoint_interval = std::chrono::seconds(60);
  /// A backlog of updates longer than this is cut: learning that cannot keep up says so instead of lagging.
  std::uint64_t max_pending_updates = 20'000;
  std::function<Duration()> clock;  // monotonic
  PretrainedModels models;          // that agents begin with
};

class Trainer {
 public:
  Trainer(TrainerOptions options, Checkpoints checkpoints, TrajectoryStore& store, LogSink say);
  ~Trainer();

  /// Settings as flashd says them, at each Hello. Agents whose hyperparameters changed are built again.
  void configure(const link::HelloDown& hello);
  void announce(const link::Announce& agent, RunId run, Now now);
  /// An announced agent goes on from what another one has learned (Agent::checkpoint()) instead of its own; what
  /// it lived through stays. So do those that learn together with it. EINVAL: not announced, or a checkpoint that does not fit; it is then unchanged.
  Result<void> begin_with(const std::string& agent, const TensorFile& learned, Now now);
  /// The target is gone: saved and forgotten.
  void gone(const std::string& agent, Now now);
  /// The connection is gone: agents stay, nothing is offered until they are announced again.
  void disconnected();
  /// Agents that were not announced in the present connection are saved and forgotten.
  void forget_unannounced(Now now);
  /// A step that the store has just committed, in the order of the stream.
  void take(const link::Step& step, Now now);
  void verdict(const link::Verdict& verdict);
  /// The known pair that is nearest to the agent's: its policy starts from there, where that may be.
  void nearest(const link::NearestPair& pair);
  /// Models of the fleet that agents of a task may begin with, the best first; none: back to the packages'.
  /// Each is tried on what the agents lived through (learner/model_trial.h). Agents that are SERVING keep
  /// what they have.
  void hand_out(Task task, const std::vector<std::shared_ptr<const PretrainedModel>>& candidates);
  struct HandedOut {
    std::uint64_t version = 0;  // in use, 0: the packages'
    std::uint64_t refused = 0;
    std::string trouble;  // the last refusal
  };
  const std::map<Task, HandedOut>& handed_out() const { return handed_out_; }
  /// "resource-limits model 9; refused 1: version 10: ..."; empty: the fleet handed out none.
  std::string models_in_words() const;

  /// One slice: builds an agent, updates one, or estimates and publishes one. False: nothing (more) to do
  /// now.
  bool work(Now now);
  bool has_work(Now now) const;
  /// Offers made since the last call.
  std::vector<link::Offer> take_offers();
  /// Embeddings made since the last call, for the fleet.
  std::vector<link::Embedded> take_embedded();

  /// Saves what has changed and is due; `all`: due or not. Stops after `budget` (by the clock); returns how
  /// many agents were left unsaved.
  std::size_t save(Now now, bool all, Duration budget);
  /// Per agent: transitions and updates are its learner's.
  std::vector<link::Status> statuses() const;
  /// How many transitions, updates and episodes in all, those of a group once (agent: "").
  link::Status totals() const;
  /// Removes checkpoints and policies of agents and groups that the store has forgotten.
  void drop_unused(Now now);

  struct Counters {
    std::uint64_t offered = 0, accepted = 0, refused = 0;  // per agent
    std::uint64_t cut_updates = 0, diverged = 0;
    std::uint64_t embedded = 0;
    std::uint64_t neighbours = 0, neighbours_refused = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct GroupLearner;
  struct Pupil;
  Pupil* find(const std::string& agent);
  GroupLearner& learner_for(const link::Announce& agent);
  /// Leaves its learner, which is saved and forgotten where it was the last.
  void remove(std::map<std::string, std::unique_ptr<Pupil>>::iterator pupil, Now now);
  void tell(int priority, std::string_view id, const Pupil& pupil, const std::string& message) const;
  void tell(int priority, std::string_view id, const GroupLearner& learner, const std::string& message) const;
  /// Its newest one, which Status says of each of its pupils.
  void trouble(GroupLearner& learner, std::string what);
  static Stage stage_of(const GroupLearner& learner);
  static bool new_round(GroupLearner& learner, const std::string& agent);
  bool embed_due(const GroupLearner& learner) const;
  bool publish_first(const GroupLearner& learner, Now now) const;
  bool needs_work(const GroupLearner& learner, Now now) const;
  std::string doing(const Pupil& pupil) const;

  // trainer_learning.cc
  void build(GroupLearner& learner, Now now);
  bool restore(GroupLearner& learner, Now now);
  void fill_replay(GroupLearner& learner);
  void learn(GroupLearner& learner);
  bool save_learner(GroupLearner& learner, Now now);
  int replay_share(const GroupLearner& learner) const;
  AgentOptions agent_options(const GroupLearner& learner) const;
  /// The peaks of a burst to the system.
  void give_back(Now now, Duration at_most_every);

  // trainer_policies.cc
  bool behind(const Pupil& pupil, Now now) const;
  bool publish_due(const Pupil& pupil, Now now) const;
  void publish(GroupLearner& learner, Now now);
  OffPolicyEstimate estimate_for(GroupLearner& learner, const std::vector<Pupil*>& to);
  void offer(GroupLearner& learner, std::vector<Pupil*> to, Now now);

  // trainer_models.cc
  void choose_model(Pupil& pupil);
  void use_model(Task task, std::shared_ptr<const PretrainedModel> model);
  bool embed_due(const Pupil& pupil) const;
  void embed(Pupil& pupil);
  void hand_over(GroupLearner& learner, const std::string& why);
  void judge_pretrained(Pupil& pupil, const link::Step& step);

  TrainerOptions options_;
  Checkpoints checkpoints_;
  TrajectoryStore* store_;
  LogSink say_;
  link::LearningSettings settings_;
  std::map<std::string, std::unique_ptr<GroupLearner>> learners_;  // by key and meaning of the layout
  std::map<std::string, std::unique_ptr<Pupil>> pupils_;           // by name
  std::string next_;                                               // whose turn it is
  std::vector<link::Offer> offers_;
  std::vector<link::Embedded> embedded_;
  Counters counters_;
  std::map<Task, HandedOut> handed_out_;
  bool burst_ = false;  // offline updates or an estimate since memory was last given back
  Duration given_back_at_{};
};

}  // namespace flash
