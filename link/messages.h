// Purpose: what crosses the socket between flashd and flash-learner: one CBOR map per SOCK_SEQPACKET message,
// {"v": 5, "t": TYPE, ...}. Encoding, decoding and every bound are here, so that both ends refuse the same.
// docs/LEARNER_PROTOCOL.md is the contract in words.
// Ownership: values.
// Thread rule: pure functions.
//
// flashd listens, the learner connects. After connecting:
//   flashd  -> Hello, then an Announce per agent
//   learner -> Hello, then a Stored per agent it knows from this epoch
//   flashd  -> Steps: what the learner has not stored yet (bounded backlog), then one message per tick
//   learner -> Acknowledge after each commit, Offer when learning has produced a policy, Embedded when an
//              agent's embedding was made, Status now and then
//   flashd  -> Verdict per agent of an Offer; NearestPair where the fleet knows one; Announce and Gone as
//              agents come and go
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/decision.h"
#include "core/layout.h"
#include "core/result.h"
#include "core/target.h"
#include "link/describe.h"
#include "link/neighbour.h"

namespace flash::link {

inline constexpr int kVersion = 5;
inline constexpr std::size_t kMaxOffered = kMaxMessage - 1024;  // of a policy's file: an Offer adds to it
inline constexpr std::size_t kMaxOfferedTo = 32;   // agents that one Offer is for, if their names fit
inline constexpr std::size_t kOfferOverhead = 64;  // bytes that an Offer has beside policy and names, at most
inline constexpr std::size_t kNameOverhead = 3;    // and each name
inline constexpr std::size_t kMaxAgents = 16384;
inline constexpr std::size_t kMaxStepsPerMessage = 512;    // a tick with more agents takes several messages
inline constexpr std::size_t kMaxDim = kMaxLayoutEntries;  // state or action
inline constexpr double kMaxMeasured = 1e12;               // a loss, a time

/// Learning as the operator configured it in flashd.json ("learner"): the learner has no file of its own.
struct LearningSettings {
  std::string limits_offline = "td3+bc";
  std::string frequency_offline = "td3+bc";
  std::string frequency_algorithm = "q-learning";
  bool double_q = true;
  double discount = 0.99;  // FLASH Tables 8 and 10
  std::uint64_t seed = 1;
  std::uint32_t learning_starts = 100;  // trusted transitions before the first update
  std::uint32_t updates_per_step = 1;   // online
  std::uint32_t offline_updates = 500;  // per episode end, while OFFLINE
  double publish_interval_s = 10;
  double snapshot_lifetime_s = 600;
  std::uint32_t replay_steps = 5000;  // kept in memory per agent
  double store_max_mib = 256;
  double store_max_days = 30;
  bool operator==(const LearningSettings&) const = default;
};
template <class V, Of<LearningSettings> E>
void describe(V& v, E& s) {
  v("limits_offline", s.limits_offline, bound::Algorithm{ActionForm::Continuous, LearningPhase::Offline});
  v("frequency_offline", s.frequency_offline, bound::Algorithm{ActionForm::Discrete, LearningPhase::Offline});
  v("frequency_algorithm", s.frequency_algorithm,
    bound::Algorithm{ActionForm::Discrete, LearningPhase::Online});
  v("double_q", s.double_q);
  v("discount", s.discount, bound::Within{0, 0.9999});
  v("seed", s.seed);
  v("learning_starts", s.learning_starts, bound::Within{1, 1e6});
  v("updates_per_step", s.updates_per_step, bound::Within{0, 1000});
  v("offline_updates", s.offline_updates, bound::Within{0, 1e6});
  v("publish_interval_s", s.publish_interval_s, bound::Within{0.1, 86400});
  v("snapshot_lifetime_s", s.snapshot_lifetime_s, bound::Within{1, 864000});
  v("replay_steps", s.replay_steps, bound::Within{100, 1e6});
  v("store_max_mib", s.store_max_mib, bound::Within{1, 1e6});
  v("store_max_days", s.store_max_days, bound::Within{0.01, 3650});
}

struct HelloDown {
  static constexpr std::string_view kType = "hello";
  std::string software;     // "flashd 0.1.0"
  std::uint64_t epoch = 0;  // random, one per start of flashd; seq counts within it
  double period_s = 1;
  std::uint32_t episode_steps = 100;
  LearningSettings settings;
};
template <class V, Of<HelloDown> E>
void describe(V& v, E& m) {
  v("software", m.software, bound::Name{});
  v("epoch", m.epoch);
  v("period_s", m.period_s, bound::Within{0.01, 3600});
  v("episode_steps", m.episode_steps, bound::Within{1, 1e6});
  v("settings", m.settings);
}

struct Announce {
  static constexpr std::string_view kType = "announce";
  std::string agent;  // "limits_4711": name within this epoch
  std::string key;    // stable identity across restarts: "resource-limits:/system.slice/web.service"
  std::string application;
  std::string rule;
  std::string group;   // agents of one task, group and layout learn together; empty: it learns alone
  SpaceLayout layout;  // of the states and actions of its steps
  std::uint64_t model_version = 0;  // last one accepted by flashd in this epoch, 0: none
};
template <class V, Of<Announce> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("key", m.key, bound::Name{});
  v("application", m.application, bound::Name{.may_be_empty = true});
  v("rule", m.rule, bound::Name{.may_be_empty = true});
  v("group", m.group, bound::Name{.may_be_empty = true});
  v("task", m.layout.task, bound::kTask);
  v("state", m.layout.state, bound::Texts{kMaxDim, "names", bound::Name{}});
  v("actions", m.layout.actions, bound::Texts{kMaxDim, "names", bound::Name{}});
  v("levels", m.layout.levels, bound::Within{0, kMaxDim});
  v("reward", m.layout.reward, bound::Name{.may_be_empty = true});
  v("model_version", m.model_version);
}
void also(cbor::Check& c, const Announce& m);

struct Gone {
  static constexpr std::string_view kType = "gone";
  std::string agent;
};
template <class V, Of<Gone> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
}

inline constexpr bound::OneOf kController{
    std::array{Controller::None, Controller::Fallback, Controller::Learned}, "a controller"};

/// One tick of one agent. The transition (s_t, a_t, r_t+1, s_t+1) is made of two steps with consecutive seq.
struct Step {
  std::string agent;
  std::uint64_t seq = 0;     // from 1, grows within an epoch also where an agent of that name comes back
  std::int64_t time_us = 0;  // wall clock
  std::uint64_t episode = 0;
  std::uint32_t step = 0;
  Stage stage = Stage::Initialized;
  Controller controller = Controller::None;
  bool explored = false;
  bool end_of_episode = false;  // the last step of its episode
  std::vector<float> state;     // s_t, as the policy would see it
  bool state_trusted = false;
  /// a_t as executed: resource-limits: [-1,1] per knob; cpu-frequency: {level}. Empty: not known (observe
  /// mode, no knob, a failed write) or not executed (recommend mode): not a transition.
  std::vector<float> action;
  std::vector<float> fallback;  // what the fallback proposed, in the same form; empty: nothing
  Behaviour behaviour;          // of a_t; not given: its numbers are 0
  /// r of the previous decision, i.e. what a_(t-1) earned.
  bool reward_given = false, reward_trusted = false;
  float reward = 0;
};
template <class V, Of<Step> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("seq", m.seq, bound::FromOne{});
  v("time_us", m.time_us);
  v("episode", m.episode);
  v("step", m.step);
  v("stage", m.stage, bound::kStage);
  v("by", m.controller, kController);
  v("flags",
    bits(m.explored, m.end_of_episode, m.state_trusted, m.reward_given, m.reward_trusted, m.behaviour.given));
  v("state", m.state, bound::Numbers{0, kMaxDim});
  v("action", m.action, bound::Numbers{0, kMaxDim});
  v("fallback", m.fallback, bound::Numbers{0, kMaxDim});
  v("log_probability", m.behaviour.log_probability, bound::Finite{});
  v("value", m.behaviour.value, bound::Finite{});
  v("reward", m.reward, bound::Finite{});
}

void also(cbor::Check& c, const Step& m);

struct Steps {
  static constexpr std::string_view kType = "steps";
  std::vector<Step> steps;
};
template <class V, Of<Steps> E>
void describe(V& v, E& m) {
  v("steps", m.steps, bound::List{1, kMaxStepsPerMessage, "steps"});
}

struct Verdict {
  static constexpr std::string_view kType = "verdict";
  std::string agent;
  std::uint64_t version = 0;
  bool accepted = false;
  std::string reason;  // empty when accepted
};
template <class V, Of<Verdict> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("version", m.version);
  v("accepted", m.accepted);
  v("reason", m.reason, bound::Name{.may_be_empty = true});
}
void also(cbor::Check& c, const Verdict& m);

/// The known pair that is nearest to this agent's; a hint, which the learner may refuse.
struct NearestPair {
  static constexpr std::string_view kType = "nearest-pair";
  std::string agent;
  Neighbour neighbour;
};
template <class V, Of<NearestPair> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("neighbour", m.neighbour);
}

struct HelloUp {
  static constexpr std::string_view kType = "hello";
  std::string software;  // "flash-learner 0.1.0"
  std::string blas;      // "OpenBLAS 0.3.21 serial, SkylakeX"
  std::uint64_t pid = 0;
};
template <class V, Of<HelloUp> E>
void describe(V& v, E& m) {
  v("software", m.software, bound::Name{});
  v("blas", m.blas, bound::Name{.may_be_empty = true});
  v("pid", m.pid);
}

struct Stored {
  static constexpr std::string_view kType = "stored";
  std::string agent;
  std::uint64_t seq = 0;  // all up to this are on disk
};
template <class V, Of<Stored> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("seq", m.seq);
}

struct Acknowledge {
  static constexpr std::string_view kType = "acknowledge";
  std::vector<Stored> stored;
};
template <class V, Of<Acknowledge> E>
void describe(V& v, E& m) {
  v("stored", m.stored, bound::List{0, kMaxAgents, "agents"});
}

/// One policy for one agent, or for several that learn together. Each judges it for itself and is answered by a Verdict
/// of its own; each is a try that counts.
struct Offer {
  static constexpr std::string_view kType = "offer";
  std::vector<std::string> agents;  // at least one
  std::string policy;               // bytes of core/tensor_file.h, kind "policy"
};
template <class V, Of<Offer> E>
void describe(V& v, E& m) {
  v("agents", m.agents, bound::Texts{kMaxOfferedTo, "agents", bound::Name{}});
  v("policy", m.policy, bound::Bytes{1, kMaxMessage});
}
void also(cbor::Check& c, const Offer& m);

/// What an encoder made of the agent's own trajectories, without anything of a neighbour.
struct Embedded {
  static constexpr std::string_view kType = "embedded";
  std::string agent;
  std::string model;             // whose encoder
  std::vector<float> embedding;  // not empty
};
template <class V, Of<Embedded> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{});
  v("model", m.model, bound::Name{.most = kMaxModel});
  v("embedding", m.embedding, bound::Numbers{1, kMaxEmbedding});
}

struct Status {
  static constexpr std::string_view kType = "status";
  std::string agent;  // empty: the learner as a whole
  std::string doing;  // "learning offline", "learning online", "collecting: 40 of 100 transitions"
  std::uint64_t transitions = 0, updates = 0, episodes = 0;
  double loss = 0;                    // of the critic, smoothed
  double update_us = 0;               // median of recent updates
  double rss_mib = 0, cpu_share = 0;  // whole learner only
};
template <class V, Of<Status> E>
void describe(V& v, E& m) {
  v("agent", m.agent, bound::Name{.may_be_empty = true});
  v("doing", m.doing, bound::Name{});
  v("transitions", m.transitions);
  v("updates", m.updates);
  v("episodes", m.episodes);
  v("loss", m.loss, bound::Within{-kMaxMeasured, kMaxMeasured});
  v("update_us", m.update_us, bound::Within{0, kMaxMeasured});
  v("rss_mib", m.rss_mib, bound::Within{0, kMaxMeasured});
  v("cpu_share", m.cpu_share, bound::Within{0, kMaxMeasured});
}

using Down = std::variant<HelloDown, Announce, Gone, Steps, Verdict, NearestPair>;
using Up = std::variant<HelloUp, Stored, Acknowledge, Offer, Embedded, Status>;

/// Within the bounds above? EINVAL names the field: "steps[3].state: 70 numbers, at most 64".
Result<void> validate(const Down& message);
Result<void> validate(const Up& message);

/// REQUIRES: validate() passes (asserted). Steps may come out longer than kMaxMessage: see join_steps().
std::string encode(const Down& message);
std::string encode(const Up& message);

/// encode(Steps) in two halves, for a backlog that keeps its steps ready to send.
/// REQUIRES: encode_step: as encode(). join_steps: 1 to kMaxStepsPerMessage results of encode_step().
std::string encode_step(const Step& step);
std::string join_steps(std::span<const std::string_view> steps);
inline constexpr std::size_t kStepsOverhead = 32;  // bytes that join_steps() adds at most

/// EINVAL: not a message, or not within the bounds; the field is named. EPROTONOSUPPORT: another version.
/// EMSGSIZE: too long. Unknown, missing and doubled keys are errors too: both ends come from one release.
/// Never throws; memory stays within a small multiple of the message's own length.
Result<Down> decode_down(std::string_view bytes);
Result<Up> decode_up(std::string_view bytes);

/// Are the settings within their ranges? EINVAL names the one that is not. flashd and learner both ask.
Result<void> validate(const LearningSettings& settings);

}  // namespace flash::link
