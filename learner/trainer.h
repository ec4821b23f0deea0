// Purpose: who learns what and when. There is one Agent per announced agent. It is trained as the stage says
// that its agent has in flashd; its policies are published, its state is kept in checkpoints. flashd moves
// the stages (AWARE Alg. 1), this follows them:
//
//   INITIALIZED, OFFLINE  the fallback acts; at the end of an episode, offline_updates updates of the offline
//                         method
//   ONLINE                the policy acts and explores; updates_per_step updates per new trusted transition
//   SERVING               the policy acts; nothing is updated, the replay stays warm for a retraining
//
// Where a pretrained model fits, its policy with the agent's embedding is offered first, renewed at the end
// of each episode; what is learned here takes over when its own estimate says that it is not worse, or when
// the pretrained policy fell below the fallback (docs/adr/0008-pretrained-models.md). All work comes in
// slices of a few milliseconds, one agent after the other, so that the socket is served in between and no
// agent waits for another's burst.
// Ownership: owns agents and checkpoints; borrows the store, which outlives it.
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
  /// Over all agents: with 100 agents each keeps the newest share. Below it settings.replay_steps counts.
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
  /// it lived through stays. EINVAL: not announced, or a checkpoint that does not fit; it is then unchanged.
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
  /// Per agent, and how many transitions, updates and episodes in all (agent: "").
  std::vector<link::Status> statuses() const;
  /// Removes checkpoints and policies of agents that the store has forgotten.
  void drop_unused(Now now);

  struct Counters {
    std::uint64_t offered = 0, accepted = 0, refused = 0, cut_updates = 0, diverged = 0;
    std::uint64_t embedded = 0;
    std::uint64_t neighbours = 0, neighbours_refused = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct AgentSlot;
  AgentSlot* find(const std::string& agent);
  void build(AgentSlot& slot, Now now);
  void learn(AgentSlot& slot);
  // trainer_models.cc
  void choose_model(AgentSlot& slot);
  void use_model(Task task, std::shared_ptr<const PretrainedModel> model);
  bool embed_due(const AgentSlot& slot) const;
  void embed(AgentSlot& slot);
  void hand_over(AgentSlot& slot, const std::string& why);
  void judge_pretrained(AgentSlot& slot, const link::Step& step);
  void publish(AgentSlot& slot, Now now);
  bool offline(const AgentSlot& slot) const;
  bool behind(const AgentSlot& slot, Now now) const;
  bool publish_due(const AgentSlot& slot, Now now) const;
  bool needs_work(const AgentSlot& slot, Now now) const;
  bool save_pupil(AgentSlot& slot, Now now);
  /// The peaks of a burst to the system.
  void give_back(Now now, Duration at_most_every);
  int replay_share(const link::Announce& agent) const;
  AgentOptions agent_options(const link::Announce& agent) const;
  void tell(int priority, std::string_view id, const AgentSlot& slot, const std::string& message) const;

  TrainerOptions options_;
  Checkpoints checkpoints_;
  TrajectoryStore* store_;
  LogSink say_;
  link::LearningSettings settings_;
  std::map<std::string, std::unique_ptr<AgentSlot>> slots_;  // by name
  std::string next_;                                         // whose turn it is
  std::vector<link::Offer> offers_;
  std::vector<link::Embedded> embedded_;
  Counters counters_;
  std::map<Task, HandedOut> handed_out_;
  bool burst_ = false;  // offline updates or an estimate since memory was last given back
  Duration given_back_at_{};
};

}  // namespace flash
