#include "daemon/learner_link.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tensor_file.h"
#include "daemon/local_peer.h"
#include "host/parse.h"
#include "link/seqpacket.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"
#include "policy/reward.h"

namespace flash {
namespace {

constexpr Duration kListenRetry = std::chrono::seconds(5);
/// What waits to be said beside steps, before reading stops: a learner that does not read is not answered.
constexpr std::size_t kMaxOutbox = 256;
/// Bookkeeping of one step in the backlog, beside its bytes.
constexpr std::size_t kStepOverhead = 64;
constexpr int kLogBurst = 6;
constexpr Duration kLogWindow = std::chrono::seconds(60);

/// The numbers as they may be sent; a vector with one that is not finite says nothing.
std::vector<float> finite(const std::vector<float>& values) {
  if (values.size() > link::kMaxDim) return {};
  for (float v : values)
    if (!std::isfinite(v)) return {};
  return values;
}

}  // namespace

std::string_view to_string(LearnerEvent e) {
  switch (e) {
    case LearnerEvent::Connected:
      return "connected";
    case LearnerEvent::Closed:
      return "closed";
    case LearnerEvent::Refused:
      return "refused";
    case LearnerEvent::OfferRefused:
      return "offer-refused";
    case LearnerEvent::Trouble:
      return "trouble";
  }
  return "";
}

std::string learning_key(const Target& target) {
  return plain(std::string(to_string(target.task())) + ":" +
               (target.id.kind == TargetKind::Cgroup ? target.cgroup : format_cpu_list(target.cpus)));
}

struct LearnerLink::Impl {
  /// An agent as the learner knows it. Stays after the agent is gone until its last step is stored.
  struct Agent {
    TargetId id;
    link::Announce announce;
    bool gone = false;
    bool announced = false;           // over this connection
    std::uint64_t base = 0;           // link seq = base + Decision::seq
    std::uint64_t first_episode = 0;  // link episode = first_episode + Decision::episode
    std::uint64_t last = 0;           // highest link seq recorded
    std::uint64_t stored = 0;         // highest that the learner has stored
    std::size_t in_backlog = 0;
    link::Status status;  // last said over this connection; `doing` empty: nothing
    std::optional<link::Embedded> embedded;
    std::optional<link::Neighbour> nearest;
  };
  struct Slot {
    Agent* agent;  // lives while in_backlog > 0
    std::uint64_t seq;
    std::string bytes;
  };

  LearnerOptions options;
  LearnerSession session;
  LearnerCallbacks callbacks;
  LearnerBounds bounds;
  std::optional<uid_t> user;

  int epoll = -1;
  std::optional<link::Listener> listener;
  Duration listen_at{};
  std::string listen_trouble;

  link::Connection connection;
  std::uint32_t watched = 0;  // events of the connection
  bool hello_sent = false;
  std::optional<link::HelloUp> learner;  // its Hello
  link::Status whole;                    // what it said of itself
  Duration connected_at{};
  Duration refuse_until{};
  std::string refuse_reason;
  std::string last_state = "absent";
  Bucket offer_tokens, message_tokens, peer_tokens;
  bool deaf = false;  // too many peers: until the next tick

  std::unordered_map<std::string, std::unique_ptr<Agent>> agents;  // by name
  std::size_t present = 0;                                         // that are not gone
  std::deque<Slot> backlog;                                        // oldest first
  std::size_t backlog_bytes = 0;
  std::size_t sent = 0;  // how many from the front went over this connection
  bool ever_connected = false;
  bool heard_all = false;     // since its Hello everything was read once: it has said what is stored
  bool steps_due = false;     // ... and a tick has come
  std::uint64_t highest = 0;  // of any agent's link seq in this epoch
  std::uint64_t highest_episode = 0;
  std::deque<std::string> to_announce, to_say_nearest, to_say_gone;  // names
  std::deque<std::string> outbox;                                    // verdicts
  LearnerCounters counters;

  struct LogState {
    Duration since{};
    int said = 0;
    std::uint64_t more = 0;
  };
  std::array<LogState, 5> said;

  Impl(LearnerOptions o, LearnerSession s, LearnerCallbacks c, LearnerBounds b)
      : options(std::move(o)), session(std::move(s)), callbacks(std::move(c)), bounds(b) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
  }
  ~Impl() {
    if (epoll >= 0) close(epoll);
  }

  void log(Now now, LearnerEvent event, const std::string& text) {
    LogState& state = said[static_cast<std::size_t>(event)];
    if (state.said == 0 || now.mono - state.since >= kLogWindow) {
      state.since = now.mono;
      state.said = 0;
    }
    if (++state.said > kLogBurst) {
      ++state.more;
      return;
    }
    const std::uint64_t more = std::exchange(state.more, 0);
    if (callbacks.log)
      callbacks.log(event, more ? text + " (and " + std::to_string(more) + " more before)" : text);
  }

  void watch(int fd, int op, std::uint32_t events) const {
    epoll_event e = {};
    e.events = events;
    e.data.fd = fd;
    (void)epoll_ctl(epoll, op, fd, &e);
  }

  /// What to wake up for; level-triggered.
  void rearm() {
    if (!connection.open()) return;
    const std::uint32_t events = (outbox.size() < kMaxOutbox ? static_cast<std::uint32_t>(EPOLLIN) : 0u) |
                                 (anything_to_say() ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
    if (events == watched) return;
    watch(connection.fd(), EPOLL_CTL_MOD, events);
    watched = events;
  }

  bool anything_to_say() const {
    return !hello_sent || !to_announce.empty() || !to_say_nearest.empty() || !outbox.empty() ||
           (steps_due && (sent < backlog.size() || !to_say_gone.empty()));
  }

  void listen(Now now);
  void accept(Now now);
  void disconnect(Now now, const std::string& why);
  void protocol_error(Now now, const std::string& why);
  void flood(Now now, const std::string& of);
  bool may_say(Now now, double messages) {
    return message_tokens.take(
        now, bounds.messages_per_s + bounds.messages_per_s_and_agent * static_cast<double>(present),
        messages);
  }
  void read(Now now);
  bool handle(Now now, const link::Up& message);
  void offered(Now now, const link::Offer& offer);
  Result<bool> stored(const link::Stored& s);
  void trim();
  void flush(Now now);
  Result<link::SendStatus> say_next();
  void drop_front();
  void forget(const std::string& name);
  /// Agents that are kept only because the learner is still to be told that they are gone.
  std::size_t unsaid_gone() const {
    if (!connection.open() || agents.size() - present <= bounds.gone_agents) return 0;
    return static_cast<std::size_t>(std::count_if(agents.begin(), agents.end(), [](const auto& a) {
      return a.second->gone && a.second->in_backlog == 0;
    }));
  }
  bool may_connect(uid_t uid) const { return uid == 0 || uid == geteuid() || (user && uid == *user); }
};

// --- connections ----------------------------------------------------------------------------------------

void LearnerLink::Impl::listen(Now now) {
  if (listener || now.mono < listen_at) return;
  listen_at = now.mono + kListenRetry;
  std::optional<gid_t> group;
  user = uid_of(options.user, group);
  auto opened = link::Listener::listen(options.socket, group);
  if (!opened) {
    if (listen_trouble != opened.error().message()) {
      listen_trouble = opened.error().message();
      counters.last_error = listen_trouble;
      log(now, LearnerEvent::Trouble, "not listening for the learner: " + listen_trouble);
    }
    return;
  }
  listen_trouble.clear();
  listener = std::move(*opened);
  deaf = false;
  watch(listener->fd(), EPOLL_CTL_ADD, EPOLLIN);
}

void LearnerLink::Impl::accept(Now now) {
  if (!listener || deaf) return;
  if (!peer_tokens.has(now, bounds.peers_per_s)) {
    deaf = true;
    watch(listener->fd(), EPOLL_CTL_MOD, 0);
    return;
  }
  auto accepted = listener->accept();
  if (!accepted) {
    // Without descriptors accept() fails while the peer waits: closing the listener ends the busy loop.
    counters.last_error = accepted.error().message();
    log(now, LearnerEvent::Trouble, "learner socket: " + accepted.error().message());
    listener.reset();
    listen_at = now.mono + kListenRetry;
    return;
  }
  if (!*accepted) return;
  (void)peer_tokens.take(now, bounds.peers_per_s);
  link::Connection peer = std::move(**accepted);
  std::string why;
  const auto who = peer.peer();
  if (!who)
    why = who.error().message();
  else if (!may_connect(who->uid))
    why = "uid " + std::to_string(who->uid) + " is not " + plain(options.user);
  else if (connection.open())
    why = "a learner is connected already; pid " + std::to_string(who->pid) + " is one too many";
  else if (now.mono < refuse_until)
    why = "back-off of " + std::to_string(std::lround(std::ceil(seconds(refuse_until - now.mono)))) +
          " s after: " + refuse_reason;
  if (!why.empty()) {
    ++counters.refused_peers;
    counters.last_error = "refused: " + why;
    if (!connection.open()) last_state = "refused: " + why;
    log(now, LearnerEvent::Refused, "a learner was refused: " + why);
    return;
  }
  connection = std::move(peer);
  ++counters.connections;
  ever_connected = true;
  connected_at = now.mono;
  hello_sent = heard_all = steps_due = false;
  learner.reset();
  sent = 0;
  outbox.clear();
  to_announce.clear();
  to_say_nearest.clear();
  to_say_gone.clear();
  offer_tokens.reset();
  message_tokens.reset();
  for (auto& [name, agent] : agents) {
    agent->announced = false;
    to_announce.push_back(name);
    if (agent->gone) to_say_gone.push_back(name);
  }
  watched = EPOLLIN;
  watch(connection.fd(), EPOLL_CTL_ADD, watched);
}

void LearnerLink::Impl::disconnect(Now now, const std::string& why) {
  if (!connection.open()) return;
  connection.close();  // leaves the epoll set with it
  learner.reset();
  hello_sent = heard_all = steps_due = false;
  sent = 0;
  outbox.clear();
  to_announce.clear();
  to_say_nearest.clear();
  to_say_gone.clear();
  whole = {};
  for (auto& [name, agent] : agents) agent->status = {};
  std::erase_if(agents, [](const auto& a) { return a.second->gone && a.second->in_backlog == 0; });
  last_state = why;
  log(now, LearnerEvent::Closed, "learner " + why);
}

void LearnerLink::Impl::protocol_error(Now now, const std::string& why) {
  ++counters.protocol_errors;
  counters.last_error = why;
  refuse_until = now.mono + bounds.error_backoff;
  refuse_reason = why;
  disconnect(now, "closed: " + why);
}

void LearnerLink::Impl::flood(Now now, const std::string& of) {
  ++counters.flood_closes;
  counters.last_error = "flood: too many " + of + " per second";
  refuse_until = now.mono + bounds.flood_backoff;
  refuse_reason = "flood";
  disconnect(now, "closed: flood of " + of);
}

// --- what the learner says ------------------------------------------------------------------------------

void LearnerLink::Impl::read(Now now) {
  for (int i = 0; i < bounds.receive_batch && connection.open() && outbox.size() < kMaxOutbox; ++i) {
    auto received = connection.receive();
    if (!received) {
      if (received.error().is(std::errc::message_size))
        return protocol_error(now, received.error().message());
      return disconnect(now, learner ? "absent: it closed the connection"
                                     : "absent: it closed the connection before its Hello");
    }
    if (!*received) {
      heard_all = learner.has_value();
      return;
    }
    if (!may_say(now, 1)) return flood(now, "messages");
    auto message = link::decode_up(**received);
    if (!message) return protocol_error(now, message.error().message());
    if (!handle(now, *message)) return;
  }
}

/// False: no more of this batch.
bool LearnerLink::Impl::handle(Now now, const link::Up& message) {
  if (const auto* hello = std::get_if<link::HelloUp>(&message)) {
    if (learner) return protocol_error(now, "a second Hello"), false;
    learner = *hello;
    last_state = "connected: " + hello->software + (hello->blas.empty() ? "" : ", " + hello->blas);
    log(now, LearnerEvent::Connected, "learner " + last_state + ", pid " + std::to_string(hello->pid));
    return true;
  }
  if (!learner) return protocol_error(now, "a message before the Hello"), false;
  if (const auto* one = std::get_if<link::Stored>(&message)) {
    if (auto ok = stored(*one); !ok) return protocol_error(now, ok.error().message()), false;
    trim();
  } else if (const auto* all = std::get_if<link::Acknowledge>(&message)) {
    // An entry takes 5 us to read: those that say nothing new count like messages. There are no more of the
    // others than there were steps.
    double idle = 0;
    for (const link::Stored& s : all->stored) {
      const auto news = stored(s);
      if (!news) return protocol_error(now, news.error().message()), false;
      if (!*news) ++idle;
    }
    trim();
    if (!may_say(now, idle)) return flood(now, "messages"), false;
  } else if (const auto* offer = std::get_if<link::Offer>(&message)) {
    const double most = bounds.offers_per_s + bounds.offers_per_s_and_agent * static_cast<double>(present);
    if (!offer_tokens.take(now, most)) return flood(now, "offers"), false;
    offered(now, *offer);
    return false;
  } else if (const auto* own = std::get_if<link::Embedded>(&message)) {
    const auto it = agents.find(own->agent);
    if (it != agents.end() && !it->second->gone) it->second->embedded = *own;
  } else if (const auto* status = std::get_if<link::Status>(&message)) {
    const auto it = agents.find(status->agent);
    if (status->agent.empty())
      whole = *status;
    else if (it != agents.end())
      it->second->status = *status;
  }
  return true;
}

void LearnerLink::Impl::offered(Now now, const link::Offer& offer) {
  ++counters.offers;
  link::Verdict verdict;
  verdict.agent = offer.agent;
  const auto decide = [&]() -> Result<void> {
    const auto it = agents.find(offer.agent);
    if (it == agents.end() || it->second->gone)
      return Error(std::errc::no_such_file_or_directory, "no such agent");
    FLASH_TRY(const TensorFile file, decode_tensor_file(offer.policy, kPolicyMaxHeaderBytes));
    FLASH_TRY(PolicySnapshot policy, to_policy(file));
    verdict.version = policy.version;
    if (policy.task != it->second->announce.task)
      return Error(std::errc::invalid_argument, "a policy of task " + std::string(to_string(policy.task)));
    // The operator says how long a policy may decide without a newer one, not the learner.
    policy.expires = std::min(policy.expires, now.wall + from_seconds(options.settings.snapshot_lifetime_s));
    if (!callbacks.offer) return Error(std::errc::not_supported, "nobody takes policies");
    FLASH_CHECK(
        callbacks.offer(now, it->second->id, std::make_shared<const PolicySnapshot>(std::move(policy))));
    it->second->announce.model_version = verdict.version;
    return {};
  };
  if (auto done = decide(); done) {
    ++counters.accepted;
    verdict.accepted = true;
  } else {
    ++counters.refused;
    verdict.reason = plain(done.error().message());
    if (verdict.reason.empty()) verdict.reason = "refused";
    counters.last_error = verdict.agent + ": " + verdict.reason;
    log(now, LearnerEvent::OfferRefused,
        "policy version " + std::to_string(verdict.version) + " for " + verdict.agent +
            " was refused: " + verdict.reason);
  }
  outbox.push_back(link::encode(link::Down(verdict)));
}

/// Was that new?
Result<bool> LearnerLink::Impl::stored(const link::Stored& s) {
  const auto it = agents.find(s.agent);
  if (it == agents.end()) return false;  // came and went; its steps were dropped
  Agent& agent = *it->second;
  if (s.seq > agent.last)
    return Error(std::errc::invalid_argument, "acknowledges step " + std::to_string(s.seq) + " of " +
                                                  s.agent + ", the last was " + std::to_string(agent.last));
  if (s.seq <= agent.stored) return false;
  agent.stored = s.seq;
  return true;
}

// --- the backlog ----------------------------------------------------------------------------------------

void LearnerLink::Impl::drop_front() {
  Slot& slot = backlog.front();
  backlog_bytes -= slot.bytes.size() + kStepOverhead;
  Agent* agent = slot.agent;
  backlog.pop_front();
  if (sent > 0) --sent;
  if (--agent->in_backlog == 0 && agent->gone && (!connection.open() || !agent->announced))
    forget(std::string(agent->announce.agent));
}

/// All agents' steps are committed together, so that what is stored is at the front.
void LearnerLink::Impl::trim() {
  while (!backlog.empty() && backlog.front().seq <= backlog.front().agent->stored) {
    ++counters.acknowledged_steps;
    drop_front();
  }
}

void LearnerLink::Impl::forget(const std::string& name) {
  const auto it = agents.find(name);
  if (it != agents.end() && it->second->gone && it->second->in_backlog == 0) agents.erase(it);
}

// --- what flashd says -----------------------------------------------------------------------------------

/// One message; REQUIRES anything_to_say(). What was sent is taken off its queue.
Result<link::SendStatus> LearnerLink::Impl::say_next() {
  using link::SendStatus;
  if (!hello_sent) {
    link::HelloDown hello{.software = plain(session.software),
                          .epoch = session.epoch,
                          .period_s = std::clamp(seconds(session.period), 0.01, 3600.0),
                          .episode_steps = static_cast<std::uint32_t>(std::max(session.episode_steps, 1)),
                          .settings = options.settings};
    FLASH_TRY(const SendStatus status, connection.send(link::encode(link::Down(hello))));
    hello_sent = status == SendStatus::Sent;
    return status;
  }
  if (!to_announce.empty()) {
    const auto it = agents.find(to_announce.front());
    if (it != agents.end() && !it->second->announced) {
      FLASH_TRY(const SendStatus status, connection.send(link::encode(link::Down(it->second->announce))));
      if (status == SendStatus::Full) return status;
      it->second->announced = true;
    }
    if (it != agents.end() && it->second->nearest) to_say_nearest.push_back(it->first);
    to_announce.pop_front();
    return SendStatus::Sent;
  }
  if (!to_say_nearest.empty()) {
    const auto it = agents.find(to_say_nearest.front());
    if (it != agents.end() && it->second->announced && it->second->nearest) {
      const link::NearestPair pair{it->first, *it->second->nearest};
      FLASH_TRY(const SendStatus status, connection.send(link::encode(link::Down(pair))));
      if (status == SendStatus::Full) return status;
    }
    to_say_nearest.pop_front();
    return SendStatus::Sent;
  }
  if (!outbox.empty()) {
    FLASH_TRY(const SendStatus status, connection.send(outbox.front()));
    if (status == SendStatus::Sent) outbox.pop_front();
    return status;
  }
  std::vector<std::string_view> steps;
  std::size_t bytes = link::kStepsOverhead, end = sent, count = 0;
  for (; end < backlog.size() && steps.size() < link::kMaxStepsPerMessage; ++end) {
    const Slot& slot = backlog[end];
    if (slot.seq <= slot.agent->stored) continue;  // from before this connection
    if (bytes + slot.bytes.size() > link::kMaxMessage) break;
    bytes += slot.bytes.size();
    steps.push_back(slot.bytes);
    ++count;
  }
  if (!steps.empty()) {
    FLASH_TRY(const SendStatus status, connection.send(link::join_steps(steps)));
    if (status == SendStatus::Full) return status;
    counters.sent_steps += count;
  }
  if (end > sent) {
    sent = end;
    return SendStatus::Sent;
  }
  // Everything of an agent that is gone was said.
  const std::string name = to_say_gone.front();
  const auto it = agents.find(name);
  if (it != agents.end() && it->second->gone && it->second->announced) {
    FLASH_TRY(const SendStatus status, connection.send(link::encode(link::Down(link::Gone{name}))));
    if (status == SendStatus::Full) return status;
    it->second->announced = false;
    forget(name);
  }
  to_say_gone.pop_front();
  return SendStatus::Sent;
}

void LearnerLink::Impl::flush(Now now) {
  for (int i = 0; i < bounds.send_batch && connection.open() && anything_to_say(); ++i) {
    const auto status = say_next();
    if (!status) {
      counters.last_error = status.error().message();
      disconnect(now, "absent: " + status.error().message());
      return;
    }
    if (*status == link::SendStatus::Full) return;
  }
}

// --- the door -------------------------------------------------------------------------------------------

LearnerLink::LearnerLink(LearnerOptions options, LearnerSession session, LearnerCallbacks callbacks,
                         LearnerBounds bounds)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(session), std::move(callbacks), bounds)) {}
LearnerLink::~LearnerLink() = default;

int LearnerLink::fd() const {
  return impl_->epoll;
}

void LearnerLink::process(Now now) {
  impl_->accept(now);
  if (impl_->connection.open()) impl_->read(now);
  impl_->flush(now);
  impl_->rearm();
}

void LearnerLink::agent_added(const Target& target, const RewardOptions& reward) {
  Impl& i = *impl_;
  const std::string name = agent_name(target.id);
  auto& agent = i.agents[name];
  link::Announce announce;
  announce.agent = name;
  announce.key = learning_key(target);
  announce.task = target.task();
  announce.application = plain(target.application);
  announce.rule = plain(target.rule);
  announce.state_dim = static_cast<std::uint32_t>(state_dim(announce.task));
  announce.action_dim = static_cast<std::uint32_t>(action_dim(announce.task));
  for (const StateEntry& entry : state_entries(announce.task)) announce.state_names.emplace_back(entry.name);
  announce.reward = reward_words(reward, announce.task);
  if (!agent) {
    agent = std::make_unique<Impl::Agent>();
    agent->gone = true;
  }
  if (agent->gone) {
    // A name may come back (a reload), its Decision::seq starts anew: what was said before stays below.
    // The gap keeps the last step of one life and the first of the next from looking like a transition.
    agent->base = i.highest == 0 ? 0 : i.highest + 1;
    agent->first_episode = i.highest == 0 ? 0 : i.highest_episode + 1;
    agent->last = agent->base;  // the learner may know steps of an earlier life
    agent->gone = false;
    agent->embedded.reset();
    agent->nearest.reset();
    ++i.present;
  } else {
    announce.model_version = agent->announce.model_version;
  }
  agent->id = target.id;
  agent->announce = std::move(announce);
  agent->announced = false;
  if (i.connection.open()) {
    i.to_announce.push_back(name);
    i.rearm();
  }
}

void LearnerLink::agent_removed(TargetId id) {
  Impl& i = *impl_;
  const std::string name = agent_name(id);
  const auto it = i.agents.find(name);
  if (it == i.agents.end() || it->second->gone) return;
  it->second->gone = true;
  --i.present;
  if (i.connection.open()) {
    i.to_say_gone.push_back(name);
    i.rearm();
  } else {
    i.forget(name);
  }
}

void LearnerLink::decided(const Target& target, const Decision& d) {
  Impl& i = *impl_;
  const auto it = i.agents.find(agent_name(target.id));
  if (it == i.agents.end() || it->second->gone) return;
  Impl::Agent& agent = *it->second;
  link::Step step;
  step.agent = it->first;
  step.seq = agent.base + d.seq;
  step.time_us = std::chrono::duration_cast<std::chrono::microseconds>(d.at.wall.time_since_epoch()).count();
  step.episode = agent.first_episode + d.episode;
  step.step = d.step;
  step.stage = d.stage;
  step.controller = d.controller;
  step.explored = d.explored;
  step.end_of_episode = d.learning.end_of_episode;
  step.state = finite(d.learning.state);
  step.state_trusted = d.learning.state_trusted && !step.state.empty();
  step.action = finite(d.learning.action);
  step.fallback = finite(d.learning.fallback);
  step.reward_given = d.reward.given && std::isfinite(d.reward.value);
  step.reward_trusted = step.reward_given && d.reward.trusted;
  step.reward = step.reward_given ? static_cast<float>(d.reward.value) : 0;
  if (!std::isfinite(step.reward)) step.reward_given = step.reward_trusted = false, step.reward = 0;
  agent.last = step.seq;
  i.highest = std::max(i.highest, step.seq);
  i.highest_episode = std::max(i.highest_episode, step.episode);
  ++agent.in_backlog;
  i.backlog.push_back({&agent, step.seq, link::encode_step(step)});
  i.backlog_bytes += i.backlog.back().bytes.size() + kStepOverhead;
  const std::size_t most = i.ever_connected ? i.bounds.backlog_bytes : i.bounds.backlog_bytes_unused;
  while (i.backlog_bytes > most && !i.backlog.empty()) {
    // Nobody was there to miss it before the first learner came.
    if (i.ever_connected && i.backlog.front().seq > i.backlog.front().agent->stored)
      ++i.counters.dropped_steps;
    i.drop_front();
  }
}

void LearnerLink::tick(Now now) {
  Impl& i = *impl_;
  i.listen(now);
  if (i.connection.open() && !i.learner && now.mono - i.connected_at > i.bounds.hello_timeout)
    i.protocol_error(
        now, "no Hello within " + std::to_string(std::lround(seconds(i.bounds.hello_timeout))) + " s");
  if (i.unsaid_gone() > i.bounds.gone_agents)
    i.protocol_error(now, "it does not read, and more than " + std::to_string(i.bounds.gone_agents) +
                              " agents have gone meanwhile");
  if (i.deaf && i.listener) {
    i.deaf = false;
    i.watch(i.listener->fd(), EPOLL_CTL_MOD, EPOLLIN);
  }
  i.steps_due = i.steps_due || i.heard_all;
  i.flush(now);
  i.rearm();
}

void LearnerLink::reconfigure(Now now, LearnerOptions options, Duration period, int episode_steps) {
  Impl& i = *impl_;
  // A user that did not exist may do so now.
  const bool elsewhere = options.socket != i.options.socket || options.user != i.options.user || !i.user;
  const bool other =
      !(options == i.options) || period != i.session.period || episode_steps != i.session.episode_steps;
  i.options = std::move(options);
  i.session.period = period;
  i.session.episode_steps = episode_steps;
  if (other) i.disconnect(now, "absent: the configuration changed");
  if (elsewhere) {
    i.listener.reset();
    i.listen_at = {};
  }
}

std::string LearnerLink::state() const {
  const Impl& i = *impl_;
  if (i.connection.open() && !i.learner) return "connecting: no Hello yet";
  if (!i.connection.open() && !i.listen_trouble.empty()) return "not listening: " + i.listen_trouble;
  std::string text = i.last_state;
  if (i.connection.open() && !i.whole.doing.empty()) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, " (%.0f MiB, %.1f %% of a CPU)", i.whole.rss_mib,
                  i.whole.cpu_share * 100);
    text += "; " + i.whole.doing + numbers;
  }
  return text;
}

std::string LearnerLink::doing(TargetId id) const {
  const auto it = impl_->agents.find(agent_name(id));
  if (it == impl_->agents.end() || it->second->status.doing.empty()) return {};
  const link::Status& s = it->second->status;
  char numbers[192];
  std::snprintf(numbers, sizeof numbers,
                "; %llu transitions, %llu episodes, %llu updates of %.0f us, loss %.3g",
                static_cast<unsigned long long>(s.transitions), static_cast<unsigned long long>(s.episodes),
                static_cast<unsigned long long>(s.updates), s.update_us, s.loss);
  return s.doing + numbers;
}

const link::Embedded* LearnerLink::embedded(TargetId id) const {
  const auto it = impl_->agents.find(agent_name(id));
  return it != impl_->agents.end() && it->second->embedded ? &*it->second->embedded : nullptr;
}

LearnerLink::NearestSet LearnerLink::set_nearest(const std::string& key, const link::Neighbour& neighbour) {
  for (auto& [name, agent] : impl_->agents) {
    if (agent->gone || agent->announce.key != key || agent->announce.task != neighbour.task) continue;
    const bool same = agent->nearest && link::same_agent(*agent->nearest, neighbour);
    agent->nearest = neighbour;
    if (agent->announced) {
      impl_->to_say_nearest.push_back(name);
      impl_->rearm();
    }
    return same ? NearestSet::Same : NearestSet::Another;
  }
  return NearestSet::NoAgent;
}

const link::Neighbour* LearnerLink::nearest(TargetId id) const {
  const auto it = impl_->agents.find(agent_name(id));
  return it != impl_->agents.end() && it->second->nearest ? &*it->second->nearest : nullptr;
}

std::vector<std::pair<std::string, std::uint64_t>> to_list(const LearnerCounters& c) {
  return {{"connections", c.connections},
          {"refused_peers", c.refused_peers},
          {"offers", c.offers},
          {"accepted", c.accepted},
          {"refused", c.refused},
          {"sent_steps", c.sent_steps},
          {"acknowledged_steps", c.acknowledged_steps},
          {"dropped_steps", c.dropped_steps},
          {"protocol_errors", c.protocol_errors},
          {"flood_closes", c.flood_closes},
          {"backlog_steps", c.backlog_steps},
          {"backlog_bytes", c.backlog_bytes}};
}

const LearnerCounters& LearnerLink::counters() const {
  impl_->counters.backlog_steps = impl_->backlog.size();
  impl_->counters.backlog_bytes = impl_->backlog_bytes;
  return impl_->counters;
}

}  // namespace flash
