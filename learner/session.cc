#include "learner/session.h"

#include <unistd.h>

#include <algorithm>

namespace flash {
namespace {

constexpr int kMessagesPerCall = 64;            // then training and timers have their turn
constexpr std::size_t kCommitAt = 4096;         // steps: no later than this
constexpr std::size_t kMaxPending = 65'536;     // steps kept while the store cannot take them
constexpr std::size_t kMaxOutbox = 4u << 20;    // bytes that the peer does not read
constexpr std::size_t kStoredPerMessage = 512;  // 512 names of 256 bytes fit a message
constexpr Duration kForgetAfter = std::chrono::seconds(60);

Error protocol(std::string message) {
  return Error(std::errc::protocol_error, std::move(message));
}

}  // namespace

Session::Session(SessionOptions options, TrajectoryStore& store, Trainer& trainer, LogSink say, Random random)
    : options_(std::move(options)),
      store_(&store),
      trainer_(&trainer),
      say_(std::move(say)),
      client_({.socket = options_.socket,
               .listener = options_.flashd_uid,
               .retry_first = options_.retry_first,
               .retry_longest = options_.retry_longest},
              random) {}

std::string Session::state() const {
  if (store_full_) return "the store cannot be written: " + last_trouble_;
  if (connected())
    return "connected to " + hello_->software + ", " + std::to_string(runs_.size()) + " agents";
  return last_trouble_.empty() ? "waiting for flashd" : "waiting for flashd: " + last_trouble_;
}

void Session::connect(Now now) {
  using Way = link::Client::Way;
  auto [way, why] = client_.connect(now);
  if (way == Way::NotYet || way == Way::Connected) return;
  if (why != last_trouble_) {
    if (way == Way::Unreachable)
      say_({LOG_INFO, kMessageConnection, "flashd cannot be reached: " + why, {}});
    else
      say_({LOG_WARNING, kMessageConnection, options_.socket + " is not used: " + why, {}});
  }
  last_trouble_ = std::move(why);
}

void Session::close(Now now, const std::string& reason, int priority) {
  client_.close(now);
  // What was not acknowledged comes again.
  pending_.clear();
  stored_.clear();
  offers_.clear();
  embedded_.clear();
  outbox_.clear();
  outbox_bytes_ = 0;
  runs_.clear();
  if (hello_) trainer_->disconnected();
  hello_.reset();
  if (reason != last_trouble_ || priority < LOG_INFO)
    say_({priority, kMessageConnection, "connection closed: " + reason, {}});
  last_trouble_ = reason;
}

void Session::on_readable(Now now) {
  for (int i = 0; i < kMessagesPerCall && client_.open(); ++i) {
    if (pending_.size() >= kMaxPending) {
      close(now, "the store cannot take more steps; flashd keeps them", LOG_WARNING);
      return;
    }
    auto received = client_.connection().receive();
    if (!received) {
      if (received.error().is(std::errc::connection_reset)) {
        if (!store_full_) commit(now);
        close(now, "flashd closed it", LOG_INFO);
      } else {
        close(now, received.error().message(), LOG_WARNING);
      }
      return;
    }
    if (!*received) break;
    if (auto done = handle(**received, now); !done) {
      if (client_.open()) close(now, done.error().message(), LOG_WARNING);
      return;
    }
    if (pending_.size() >= kCommitAt && !store_full_) commit(now);
  }
  if (!pending_.empty() && now.mono - committed_at_ >= options_.commit_interval) commit(now);
  flush(now);
}

Result<void> Session::handle(const std::string& bytes, Now now) {
  FLASH_TRY(link::Down message, link::decode_down(bytes));
  if (const auto* hello = std::get_if<link::HelloDown>(&message)) return on_hello(*hello, now);
  if (!hello_) return protocol("a message before Hello");
  if (const auto* agent = std::get_if<link::Announce>(&message)) return on_announce(*agent, now);
  if (auto* steps = std::get_if<link::Steps>(&message)) return on_steps(std::move(*steps));
  if (const auto* verdict = std::get_if<link::Verdict>(&message)) {
    trainer_->verdict(*verdict);
  } else if (const auto* pair = std::get_if<link::NearestPair>(&message)) {
    trainer_->nearest(*pair);
  } else if (const auto* gone = std::get_if<link::Gone>(&message)) {
    if (!runs_.contains(gone->agent))
      return protocol("Gone of an agent that was not announced: " + gone->agent);
    commit(now);  // its last steps
    if (!client_.open()) return {};
    trainer_->gone(gone->agent, now);
    if (pending_.empty()) runs_.erase(gone->agent);
    withdraw(gone->agent);
  }
  return {};
}

Result<void> Session::on_hello(const link::HelloDown& hello, Now now) {
  FLASH_CHECK(link::validate(hello.settings));
  if (hello_ && hello_->epoch != hello.epoch) return protocol("the epoch changed within a connection");
  const bool first = !hello_;
  hello_ = hello;
  trainer_->configure(hello);
  if (!first) {
    say_({LOG_INFO, kMessageConnection, "flashd changed the settings of learning", {}});
    return {};
  }
  last_trouble_.clear();
  committed_at_ = status_at_ = now.mono;
  forgot_ = false;
  send(link::HelloUp{options_.software, options_.blas, static_cast<std::uint64_t>(getpid())});
  say_({LOG_INFO, kMessageConnection, "connected to " + hello.software, {}});
  return {};
}

Result<void> Session::on_announce(const link::Announce& agent, Now now) {
  commit(now);  // under its old name and run, if it had one
  if (!client_.open()) return {};
  if (!pending_.empty() && runs_.contains(agent.agent))
    return Error(std::errc::no_space_on_device, "an agent came again while the store cannot be written");
  auto run = store_->begin_run(agent, hello_->epoch);
  if (!run) {
    store_failed(run.error(), now);
    return std::move(run).error();
  }
  runs_[agent.agent] = run->id;
  trainer_->announce(agent, run->id, now);
  if (run->last_seq > 0) send(link::Stored{agent.agent, run->last_seq});
  return {};
}

Result<void> Session::on_steps(link::Steps steps) {
  for (link::Step& s : steps.steps) {
    if (!runs_.contains(s.agent)) return protocol("a step of an agent that was not announced: " + s.agent);
    if (s.seq > kMaxSeq) return protocol("a step with seq " + std::to_string(s.seq));
    pending_.push_back(std::move(s));
  }
  return {};
}

void Session::commit(Now now) {
  committed_at_ = now.mono;
  if (pending_.empty()) return;
  std::vector<TrajectoryStore::Entry> entries;
  entries.reserve(pending_.size());
  for (const link::Step& s : pending_) entries.push_back({runs_.at(s.agent), &s});
  auto fresh = store_->append(entries);
  if (!fresh) {
    store_failed(fresh.error(), now);
    return;
  }
  if (store_full_) {
    store_full_ = false;
    last_trouble_.clear();
    say_({LOG_NOTICE, kMessageStore, "the trajectory store can be written again; nothing was lost", {}});
  }
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const link::Step& s = pending_[i];
    std::uint64_t& stored = stored_[s.agent];
    stored = std::max(stored, s.seq);
    if ((*fresh)[i]) trainer_->take(s, now);
  }
  pending_.clear();
  if (store_->conflicts() != conflicts_said_) {
    say_({LOG_WARNING,
          kMessageStore,
          std::to_string(store_->conflicts() - conflicts_said_) +
              " steps came under a number that another step had; the first was kept",
          {}});
    conflicts_said_ = store_->conflicts();
  }
}

void Session::store_failed(const Error& error, Now now) {
  if (error.is(std::errc::bad_message)) {
    std::string note;
    if (auto replaced = store_->replace_damaged(error.message(), &note); !replaced)
      note = error.message() + "; and it could not be replaced: " + replaced.error().message();
    say_({LOG_ERR, kMessageStore, note, {}});
    // The runs were of the old file. flashd has what was not acknowledged.
    close(now, "the trajectory store was damaged", LOG_WARNING);
    return;
  }
  if (!store_full_ || error.message() != last_trouble_)
    say_({LOG_ERR,
          kMessageStore,
          "steps cannot be stored and are not acknowledged; trying again every second: " + error.message(),
          {}});
  store_full_ = true;
  last_trouble_ = error.message();
}

void Session::send(const link::Up& message) {
  std::string bytes = link::encode(message);
  outbox_bytes_ += bytes.size();
  outbox_.push_back(std::move(bytes));
}

void Session::flush(Now now) {
  if (!client_.open() || !hello_) return;
  while (true) {
    while (!outbox_.empty()) {
      auto sent = client_.connection().send(outbox_.front());
      if (!sent) {
        close(now, sent.error().message(), LOG_INFO);
        return;
      }
      if (*sent == link::SendStatus::Full) {
        if (outbox_bytes_ > kMaxOutbox) close(now, "flashd does not read", LOG_WARNING);
        return;
      }
      outbox_bytes_ -= outbox_.front().size();
      outbox_.pop_front();
    }
    // Made only when the way is free: a slow peer gets the newest state, not a queue of old ones.
    if (!stored_.empty()) {
      link::Acknowledge ack;
      while (!stored_.empty() && ack.stored.size() < kStoredPerMessage) {
        const auto first = stored_.begin();
        ack.stored.push_back({first->first, first->second});
        stored_.erase(first);
      }
      send(ack);
      continue;
    }
    for (link::Embedded& e : trainer_->take_embedded()) embedded_[e.agent] = std::move(e);
    if (!embedded_.empty()) {
      auto own = embedded_.extract(embedded_.begin());
      if (runs_.contains(own.key())) send(std::move(own.mapped()));
      continue;
    }
    for (link::Offer& o : trainer_->take_offers()) {
      for (const std::string& agent : o.agents) withdraw(agent);
      offers_.push_back(std::move(o));
    }
    if (offers_.empty()) return;
    link::Offer offer = std::move(offers_.front());
    offers_.pop_front();
    std::erase_if(offer.agents, [this](const std::string& agent) { return !runs_.contains(agent); });
    if (!offer.agents.empty()) send(std::move(offer));
  }
}

void Session::withdraw(const std::string& agent) {
  for (link::Offer& waiting : offers_) std::erase(waiting.agents, agent);
  std::erase_if(offers_, [](const link::Offer& waiting) { return waiting.agents.empty(); });
}

void Session::send_status(Now now) {
  status_at_ = now.mono;
  if (!outbox_.empty()) return;  // it would be old when it is read
  link::Status whole = trainer_->totals();
  const std::vector<link::Status> agents = trainer_->statuses();
  for (const link::Status& s : agents) send(s);
  if (options_.usage) {
    const ProcessUsage usage = options_.usage();
    whole.rss_mib = usage.rss_mib;
    whole.cpu_share = usage.cpu_share;
  }
  whole.doing = store_full_ ? "cannot store: " + last_trouble_
                            : "learning for " + std::to_string(agents.size()) + " agents";
  if (const std::string models = trainer_->models_in_words(); !models.empty()) whole.doing += "; " + models;
  if (whole.doing.size() > link::kMaxName) whole.doing.resize(link::kMaxName);
  send(whole);
}

void Session::retain(Now now) {
  retained_at_ = now.mono;
  const auto now_us =
      std::chrono::duration_cast<std::chrono::microseconds>(now.wall.time_since_epoch()).count();
  auto report = store_->retain(hello_->settings.store_max_mib, hello_->settings.store_max_days, now_us);
  if (!report) {
    say_({LOG_WARNING, kMessageStore, "retention: " + report.error().message(), {}});
    return;
  }
  if (report->episodes > 0)
    say_({LOG_INFO,
          kMessageStore,
          "dropped the " + std::to_string(report->episodes) + " oldest episodes (" +
              std::to_string(report->steps) + " steps) of the store: " + report->reason +
              (report->agents ? "; " + std::to_string(report->agents) + " agents are forgotten" : ""),
          {}});
  if (report->more) {
    retained_at_ = now.mono - options_.retain_interval + options_.commit_interval;  // the rest soon
    return;
  }
  trainer_->drop_unused(now);
  if (auto done = store_->checkpoint(); !done && !store_full_)
    say_({LOG_WARNING, kMessageStore, done.error().message(), {}});
}

void Session::tick(Now now) {
  if (!client_.open()) {
    connect(now);
    return;
  }
  if (!hello_) {
    if (client_.hello_late(now, false)) close(now, "flashd does not say Hello", LOG_INFO);
    return;
  }
  client_.settle(now);
  if (!pending_.empty() && now.mono - committed_at_ >= options_.commit_interval) commit(now);
  if (!client_.open()) return;
  if (!forgot_ && client_.connected_for(now) >= kForgetAfter) {
    forgot_ = true;
    trainer_->forget_unannounced(now);
  }
  if (now.mono - status_at_ >= options_.status_interval) send_status(now);
  if (now.mono - retained_at_ >= options_.retain_interval) retain(now);
  flush(now);
}

void Session::finish(Now now) {
  if (connected()) commit(now);
  flush(now);
}

}  // namespace flash
