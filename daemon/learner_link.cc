#include "daemon/learner_link.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <deque>
#include <utility>

#include "core/tensor_file.h"
#include "daemon/learner_agents.h"
#include "daemon/local_peer.h"
#include "link/peer.h"

namespace flash {
namespace {

/// What waits to be said beside steps, before reading stops: a learner that does not read is not answered.
constexpr std::size_t kMaxOutbox = 256;
constexpr int kLogBurst = 6;
constexpr Duration kLogWindow = std::chrono::seconds(60);

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

struct LearnerLink::Impl {
  LearnerOptions options;
  LearnerSession session;
  LearnerCallbacks callbacks;
  LearnerBounds bounds;
  std::optional<uid_t> user;

  link::Server server;
  bool hello_sent = false;
  std::optional<link::HelloUp> learner;  // its Hello
  link::Status whole;                    // what it said of itself
  std::string refuse_reason;
  std::string last_state = "absent";
  link::Bucket offer_tokens;

  LearnerAgents agents;
  bool ever_connected = false;
  bool heard_all = false;  // since its Hello everything was read once: it has said what is stored
  bool steps_due = false;  // ... and a tick has come
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
      : options(std::move(o)),
        session(std::move(s)),
        callbacks(std::move(c)),
        bounds(b),
        server({b.peers_per_s, b.hello_timeout}) {}

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

  /// What to wake up for. Who does not read what is said is not read either.
  void rearm() { server.rearm(outbox.size() < kMaxOutbox, anything_to_say()); }

  bool anything_to_say() const {
    return !hello_sent || !to_announce.empty() || !to_say_nearest.empty() || !outbox.empty() ||
           (steps_due && (agents.unsent() || !to_say_gone.empty()));
  }

  void listen(Now now);
  void accept(Now now);
  void refused(Now now, const std::string& why);
  void disconnect(Now now, const std::string& why);
  /// What is to be said or was said over a connection is of no use for the next.
  void start_anew() {
    hello_sent = heard_all = steps_due = false;
    learner.reset();
    agents.restart();
    outbox.clear();
    to_announce.clear();
    to_say_nearest.clear();
    to_say_gone.clear();
  }
  void protocol_error(Now now, const std::string& why);
  void flood(Now now, const std::string& of);
  bool may_say(Now now, double messages) {
    return server.may_say(
        now, bounds.messages_per_s + bounds.messages_per_s_and_agent * static_cast<double>(agents.present()),
        messages);
  }
  void read(Now now);
  bool handle(Now now, const link::Up& message);
  void offered(Now now, const link::Offer& offer);
  void answer(Now now, link::Verdict verdict, const Result<void>& taken);
  void flush(Now now);
  Result<link::SendStatus> say_next();
};

// --- connections ----------------------------------------------------------------------------------------

void LearnerLink::Impl::listen(Now now) {
  if (!server.listen_due(now)) return;
  std::optional<gid_t> group;
  user = uid_of(options.user, group);
  if (server.listen(now, options.socket, group)) return;
  counters.last_error = server.trouble();
  log(now, LearnerEvent::Trouble, "not listening for the learner: " + server.trouble());
}

void LearnerLink::Impl::accept(Now now) {
  using Door = link::Server::Door;
  auto [door, why] = server.accept(now, [this](const link::Connection& peer) {
    return why_refused(peer, {options.user, user, "flash-learner.service"}, callbacks.target_around);
  });
  switch (door) {
    case Door::Nobody:
      return;
    case Door::Trouble:
      counters.last_error = why;
      return log(now, LearnerEvent::Trouble, "learner socket: " + why);
    case Door::Refused:
      return refused(now, why);
    case Door::OneTooMany:
      return refused(now, "a learner is connected already; pid " + why + " is one too many");
    case Door::TooEarly:
      return refused(now, "back-off of " +
                              std::to_string(std::lround(std::ceil(seconds(server.back_off_left(now))))) +
                              " s after: " + refuse_reason);
    case Door::In:
      break;
  }
  ++counters.connections;
  ever_connected = true;
  start_anew();
  offer_tokens.reset();
  for (const std::string& name : agents.names()) {
    to_announce.push_back(name);
    if (agents.find(name)->gone) to_say_gone.push_back(name);
  }
}

void LearnerLink::Impl::refused(Now now, const std::string& why) {
  ++counters.refused_peers;
  counters.last_error = "refused: " + why;
  if (!server.open()) last_state = "refused: " + why;
  log(now, LearnerEvent::Refused, "a learner was refused: " + why);
}

void LearnerLink::Impl::disconnect(Now now, const std::string& why) {
  if (!server.open()) return;
  server.close();
  start_anew();
  whole = {};
  last_state = why;
  log(now, LearnerEvent::Closed, "learner " + why);
}

void LearnerLink::Impl::protocol_error(Now now, const std::string& why) {
  ++counters.protocol_errors;
  counters.last_error = why;
  server.back_off(now, bounds.error_backoff);
  refuse_reason = why;
  disconnect(now, "closed: " + why);
}

void LearnerLink::Impl::flood(Now now, const std::string& of) {
  ++counters.flood_closes;
  counters.last_error = "flood: too many " + of + " per second";
  server.back_off(now, bounds.flood_backoff);
  refuse_reason = "flood";
  disconnect(now, "closed: flood of " + of);
}

// --- what the learner says ------------------------------------------------------------------------------

void LearnerLink::Impl::read(Now now) {
  for (int i = 0; i < bounds.receive_batch && server.open() && outbox.size() < kMaxOutbox; ++i) {
    auto received = server.connection().receive();
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
    if (auto ok = agents.stored(*one); !ok) return protocol_error(now, ok.error().message()), false;
    counters.acknowledged_steps += agents.trim();
  } else if (const auto* all = std::get_if<link::Acknowledge>(&message)) {
    // An entry takes 5 us to read: those that say nothing new count like messages. There are no more of the
    // others than there were steps.
    double idle = 0;
    for (const link::Stored& s : all->stored) {
      const auto news = agents.stored(s);
      if (!news) return protocol_error(now, news.error().message()), false;
      if (!*news) ++idle;
    }
    counters.acknowledged_steps += agents.trim();
    if (!may_say(now, idle)) return flood(now, "messages"), false;
  } else if (const auto* offer = std::get_if<link::Offer>(&message)) {
    const double most =
        bounds.offers_per_s + bounds.offers_per_s_and_agent * static_cast<double>(agents.present());
    if (!offer_tokens.take(now, most, static_cast<double>(offer->agents.size())))
      return flood(now, "offers"), false;
    offered(now, *offer);
    return false;
  } else if (const auto* own = std::get_if<link::Embedded>(&message)) {
    if (LearnerAgent* agent = agents.find(own->agent); agent && !agent->gone) agent->embedded = *own;
  } else if (const auto* status = std::get_if<link::Status>(&message)) {
    if (status->agent.empty())
      whole = *status;
    else if (LearnerAgent* agent = agents.find(status->agent))
      agent->status = *status;
  }
  return true;
}

/// Read once, judged by each agent for itself.
void LearnerLink::Impl::offered(Now now, const link::Offer& offer) {
  std::uint64_t version = 0;
  const auto read = [&]() -> Result<std::shared_ptr<const PolicySnapshot>> {
    FLASH_TRY(const TensorFile file, decode_tensor_file(offer.policy, kPolicyMaxHeaderBytes));
    FLASH_TRY(PolicySnapshot policy, to_policy(file));
    version = policy.version;
    // The operator says how long a policy may decide without a newer one, not the learner.
    policy.expires = std::min(policy.expires, now.wall + from_seconds(options.settings.snapshot_lifetime_s));
    return std::make_shared<const PolicySnapshot>(std::move(policy));
  };
  const auto policy = read();
  const auto take = [&](const std::string& name) -> Result<void> {
    LearnerAgent* agent = agents.find(name);
    if (agent == nullptr || agent->gone) return Error(std::errc::no_such_file_or_directory, "no such agent");
    if (!policy) return Error(policy.error());
    if (!callbacks.offer) return Error(std::errc::not_supported, "nobody takes policies");
    FLASH_CHECK(callbacks.offer(now, agent->id, *policy));
    agent->announce.model_version = version;
    return {};
  };
  for (const std::string& name : offer.agents) answer(now, {name, version, false, {}}, take(name));
}

void LearnerLink::Impl::answer(Now now, link::Verdict verdict, const Result<void>& taken) {
  ++counters.offers;
  if (taken) {
    ++counters.accepted;
    verdict.accepted = true;
  } else {
    ++counters.refused;
    verdict.reason = plain(taken.error().message());
    if (verdict.reason.empty()) verdict.reason = "refused";
    counters.last_error = verdict.agent + ": " + verdict.reason;
    log(now, LearnerEvent::OfferRefused,
        "policy version " + std::to_string(verdict.version) + " for " + verdict.agent +
            " was refused: " + verdict.reason);
  }
  outbox.push_back(link::encode(link::Down(verdict)));
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
    FLASH_TRY(const SendStatus status, server.connection().send(link::encode(link::Down(hello))));
    hello_sent = status == SendStatus::Sent;
    return status;
  }
  if (!to_announce.empty()) {
    if (LearnerAgent* agent = agents.find(to_announce.front())) {
      if (!agent->announced) {
        FLASH_TRY(const SendStatus status,
                  server.connection().send(link::encode(link::Down(agent->announce))));
        if (status == SendStatus::Full) return status;
        agent->announced = true;
      }
      if (agent->nearest) to_say_nearest.push_back(to_announce.front());
    }
    to_announce.pop_front();
    return SendStatus::Sent;
  }
  if (!to_say_nearest.empty()) {
    const LearnerAgent* agent = agents.find(to_say_nearest.front());
    if (agent && agent->announced && agent->nearest) {
      const link::NearestPair pair{to_say_nearest.front(), *agent->nearest};
      FLASH_TRY(const SendStatus status, server.connection().send(link::encode(link::Down(pair))));
      if (status == SendStatus::Full) return status;
    }
    to_say_nearest.pop_front();
    return SendStatus::Sent;
  }
  if (!outbox.empty()) {
    FLASH_TRY(const SendStatus status, server.connection().send(outbox.front()));
    if (status == SendStatus::Sent) outbox.pop_front();
    return status;
  }
  if (agents.unsent()) {
    const LearnerAgents::Batch batch = agents.next_batch();
    if (!batch.steps.empty()) {
      FLASH_TRY(const SendStatus status, server.connection().send(link::join_steps(batch.steps)));
      if (status == SendStatus::Full) return status;
      counters.sent_steps += batch.steps.size();
    }
    agents.sent(batch);
    return SendStatus::Sent;
  }
  // Everything of an agent that is gone was said.
  const std::string& name = to_say_gone.front();
  if (const LearnerAgent* agent = agents.find(name); agent && agent->gone && agent->announced) {
    FLASH_TRY(const SendStatus status, server.connection().send(link::encode(link::Down(link::Gone{name}))));
    if (status == SendStatus::Full) return status;
    agents.told_gone(name);
  }
  to_say_gone.pop_front();
  return SendStatus::Sent;
}

void LearnerLink::Impl::flush(Now now) {
  const auto said_all = link::say_all(
      server.connection(), bounds.send_batch, [this] { return anything_to_say(); },
      [this] { return say_next(); });
  if (said_all) return;
  counters.last_error = said_all.error().message();
  disconnect(now, "absent: " + said_all.error().message());
}

// --- the door -------------------------------------------------------------------------------------------

LearnerLink::LearnerLink(LearnerOptions options, LearnerSession session, LearnerCallbacks callbacks,
                         LearnerBounds bounds)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(session), std::move(callbacks), bounds)) {}
LearnerLink::~LearnerLink() = default;

int LearnerLink::fd() const {
  return impl_->server.fd();
}

void LearnerLink::process(Now now) {
  impl_->accept(now);
  if (impl_->server.open()) impl_->read(now);
  impl_->flush(now);
  impl_->rearm();
}

void LearnerLink::agent_added(const Target& target, const SpaceLayout& layout, const std::string& group) {
  const LearnerAgent& agent = impl_->agents.add(target, layout, group);
  if (!impl_->server.open()) return;
  impl_->to_announce.push_back(agent.announce.agent);
  impl_->rearm();
}

void LearnerLink::agent_removed(TargetId id) {
  const LearnerAgent* agent = impl_->agents.remove(id);
  if (agent == nullptr) return;
  const std::string name = agent->announce.agent;
  if (!impl_->server.open()) return impl_->agents.told_gone(name);
  impl_->to_say_gone.push_back(name);
  impl_->rearm();
}

void LearnerLink::decided(const Target& target, const Decision& d) {
  Impl& i = *impl_;
  i.agents.decided(target, d);
  const std::size_t lost =
      i.agents.shrink(i.ever_connected ? i.bounds.backlog_bytes : i.bounds.backlog_bytes_unused);
  // Nobody was there to miss it before the first learner came.
  if (i.ever_connected) i.counters.dropped_steps += lost;
}

void LearnerLink::tick(Now now) {
  Impl& i = *impl_;
  i.listen(now);
  if (i.server.hello_late(now, i.learner.has_value()))
    i.protocol_error(
        now, "no Hello within " + std::to_string(std::lround(seconds(i.bounds.hello_timeout))) + " s");
  if (i.server.open() && i.agents.unsaid_gone(i.bounds.gone_agents) > i.bounds.gone_agents)
    i.protocol_error(now, "it does not read, and more than " + std::to_string(i.bounds.gone_agents) +
                              " agents have gone meanwhile");
  i.server.hear_again();
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
  if (elsewhere) i.server.stop_listening();
}

std::string LearnerLink::state() const {
  const Impl& i = *impl_;
  if (i.server.open() && !i.learner) return "connecting: no Hello yet";
  if (!i.server.open() && !i.server.trouble().empty()) return "not listening: " + i.server.trouble();
  std::string text = i.last_state;
  if (i.server.open() && !i.whole.doing.empty()) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, " (%.0f MiB, %.1f %% of a CPU)", i.whole.rss_mib,
                  i.whole.cpu_share * 100);
    text += "; " + i.whole.doing + numbers;
  }
  return text;
}

std::string LearnerLink::doing(TargetId id) const {
  const LearnerAgent* agent = std::as_const(impl_->agents).find(id);
  if (agent == nullptr || agent->status.doing.empty()) return {};
  const link::Status& s = agent->status;
  char numbers[192];
  std::snprintf(numbers, sizeof numbers,
                "; %llu transitions, %llu episodes, %llu updates of %.0f us, loss %.3g",
                static_cast<unsigned long long>(s.transitions), static_cast<unsigned long long>(s.episodes),
                static_cast<unsigned long long>(s.updates), s.update_us, s.loss);
  return s.doing + numbers;
}

const link::Embedded* LearnerLink::embedded(TargetId id) const {
  const LearnerAgent* agent = std::as_const(impl_->agents).find(id);
  return agent && agent->embedded ? &*agent->embedded : nullptr;
}

LearnerLink::NearestSet LearnerLink::set_nearest(const std::string& key, const link::Neighbour& neighbour) {
  LearnerAgent* agent = impl_->agents.find_key(key, neighbour.task);
  if (agent == nullptr) return NearestSet::NoAgent;
  const bool same = agent->nearest && link::same_agent(*agent->nearest, neighbour);
  agent->nearest = neighbour;
  if (agent->announced) {
    impl_->to_say_nearest.push_back(agent->announce.agent);
    impl_->rearm();
  }
  return same ? NearestSet::Same : NearestSet::Another;
}

const link::Neighbour* LearnerLink::nearest(TargetId id) const {
  const LearnerAgent* agent = std::as_const(impl_->agents).find(id);
  return agent && agent->nearest ? &*agent->nearest : nullptr;
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
  impl_->counters.backlog_steps = impl_->agents.steps();
  impl_->counters.backlog_bytes = impl_->agents.bytes();
  return impl_->counters;
}

}  // namespace flash
