#include "sync/uplink.h"

#include <syslog.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/process.h"
#include "sync/node_identity.h"

namespace flash::sync {
namespace {

constexpr std::size_t kIncoming = 2 * link::sync::kEpisodeWindow;
constexpr std::size_t kNearest = 256;
constexpr Duration kHeartbeat = std::chrono::seconds(5);
constexpr std::size_t kFleetPages = 16;
constexpr Duration kRound = std::chrono::milliseconds(500);  // one commit per round at most
constexpr Duration kModelAnswer = std::chrono::seconds(3);
constexpr Duration kRenewAgain = std::chrono::minutes(1);
constexpr Duration kRetryFirst = std::chrono::milliseconds(500), kRetryLongest = std::chrono::minutes(1);
constexpr Duration kModelsRetryFirst = std::chrono::seconds(10),
                   kModelsRetryLongest = std::chrono::minutes(10);

std::string fresh_run(Random& random) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(random.next()),
                static_cast<unsigned long long>(random.next()));
  return text;
}

}  // namespace

Result<std::unique_ptr<Uplink>> Uplink::open(UplinkOptions options, Random random, LogSink say) {
  std::string note;
  FLASH_TRY(Outbox outbox, Outbox::open(options.outbox, fresh_run(random), options.max_records, &note));
  if (!note.empty()) say(LOG_WARNING, note);
  options.models.node = options.origin.node;
  FLASH_TRY(auto models, ModelClient::open(options.models, say));
  return std::unique_ptr<Uplink>(
      new Uplink(std::move(options), random, std::move(say), std::move(outbox), std::move(models)));
}

Uplink::Uplink(UplinkOptions options, Random random, LogSink say, Outbox outbox,
               std::unique_ptr<ModelClient> models)
    : options_(std::move(options)),
      say_(std::move(say)),
      incoming_(kIncoming),
      stored_(kIncoming),
      nearest_(kNearest),
      fleet_questions_(kFleetPages),
      pages_(kFleetPages),
      random_(random),
      outbox_(std::move(outbox)),
      dispatch_(options_.dispatch),
      models_(std::move(models)),
      models_wait_(kModelsRetryFirst),
      retry_(kRetryFirst),
      said_thinned_(outbox_.counts().thinned) {
  publish_state();
  thread_ = std::thread([this] { work(); });
}

Uplink::~Uplink() {
  ending_ = true;
  thread_.join();
}

bool Uplink::put(std::uint64_t epoch, const link::sync::EpisodeEnd& episode) {
  return incoming_.put({epoch, episode});
}

UplinkState Uplink::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool Uplink::ask(const coordinator::FleetQuestion& question) {
  return state().connected && fleet_questions_.put(question);
}

// --- the thread -----------------------------------------------------------------------------------------

void Uplink::publish_state() {
  own_.outbox = outbox_.counts();
  own_.models = models_->state();
  own_.trouble = store_trouble_.empty() ? link_trouble_ : store_trouble_;
  if (own_.trouble != said_ && !own_.trouble.empty()) say_(LOG_WARNING, "coordinator: " + own_.trouble);
  said_ = own_.trouble;
  if (own_.outbox.thinned > said_thinned_)
    say_(LOG_WARNING, "outbox: the coordinator is away for too long: " +
                          std::to_string(own_.outbox.thinned - said_thinned_) +
                          " of the oldest records were thinned out");
  said_thinned_ = own_.outbox.thinned;
  const std::lock_guard lock(mutex_);
  state_ = own_;
}

void Uplink::work() {
  while (!ending_) {
    const Duration now = clock_now(CLOCK_MONOTONIC);
    store();
    if (!nats_ && now >= retry_at_) connect(now);
    if (nats_) {
      if (auto done = talk(now); !done) disconnected(now, done.error().message());
    } else {
      std::this_thread::sleep_for(kRound);
    }
    publish_state();
  }
  store();
}

/// What cannot be stored now (a full disk) waits; flashd says no more than its window meanwhile.
void Uplink::store() {
  if (unstored_.empty()) unstored_ = incoming_.take();
  if (unstored_.empty()) return;
  const auto done = outbox_.add(unstored_);
  store_trouble_ = done ? "" : done.error().message();
  if (!done) return;
  for (const Outbox::Item& item : unstored_) {
    if (item.epoch != epoch_) questions_.forget();
    epoch_ = item.epoch;
    questions_.seen(item.episode.episode);
  }
  (void)stored_.put({unstored_.back().epoch, unstored_.back().episode.number});
  unstored_.clear();
}

void Uplink::connect(Duration now) {
  auto nats = coordinator::Nats::connect(options_.nats);
  if (!nats) return disconnected(now, nats.error().message());
  if (auto done = (*nats)->subscribe(coordinator::all_for_node(options_.origin.node)); !done)
    return disconnected(now, done.error().message());
  nats_ = std::move(*nats);
  dispatch_.restart();
  heartbeat_at_ = {};
  own_.connected = true;
  link_trouble_.clear();
  plan_renewal();
  say_(LOG_INFO, "coordinator: connected to " + options_.nats.url);
}

void Uplink::plan_renewal() {
  renew_at_ = {};
  if (options_.nats.credentials.empty()) return;
  const auto at = renewal_time(options_.nats.credentials);
  if (at) renew_at_ = std::chrono::seconds(*at);
}

void Uplink::renew() {
  if (renew_at_ == Duration{} || clock_now(CLOCK_REALTIME) < renew_at_) return;
  const auto done = sync::renew(*nats_, options_.origin.node, options_.nats.credentials);
  if (done) {
    say_(LOG_NOTICE, "coordinator: credentials renewed");
    return plan_renewal();
  }
  say_(LOG_WARNING, "coordinator: credentials not renewed: " + done.error().message());
  renew_at_ = clock_now(CLOCK_REALTIME) + kRenewAgain;
}

void Uplink::disconnected(Duration now, const std::string& why) {
  if (nats_) violations_before_ += nats_->violations();
  nats_.reset();
  own_.connected = false;
  link_trouble_ = why;
  retry_at_ = now + from_seconds(seconds(retry_) * random_.uniform(0.5, 1));
  retry_ = std::min(retry_ * 2, kRetryLongest);
}

/// One round: sends what may be sent, then listens.
Result<void> Uplink::talk(Duration now) {
  renew();
  FLASH_CHECK(send(now));
  FLASH_CHECK(ask_nearest(now));
  FLASH_CHECK(heartbeat(now));
  FLASH_CHECK(ask_fleet());
  fetch_models(now);
  FLASH_TRY(auto message, nats_->next(models_->busy() ? Duration{} : kRound));
  while (message) {
    if (auto done = hear(*message); !done) {
      ++own_.refused;
      link_trouble_ = done.error().message();
    }
    FLASH_TRY(message, nats_->next({}));
  }
  if (const std::string trouble = nats_->trouble(); !trouble.empty()) link_trouble_ = trouble;
  own_.violations = violations_before_ + nats_->violations();
  return {};
}

Result<void> Uplink::hear(const coordinator::Message& message) {
  const std::string& node = options_.origin.node;
  FLASH_CHECK(nats_->authority().check(message.subject, message.bytes, message.seal));
  if (message.subject == coordinator::watermark_subject(node)) return hear_watermark(message.bytes);
  if (message.subject == coordinator::answer_subject(node)) return hear_nearest(message.bytes);
  if (message.subject == coordinator::fleet_page_subject(node)) return hear_page(message.bytes);
  return Error(std::errc::invalid_argument, "a message of the subject " + message.subject);
}

Result<void> Uplink::hear_nearest(const std::string& bytes) {
  FLASH_TRY(coordinator::NearestAnswer answer, coordinator::decode_nearest_answer(bytes));
  const NearestQuestions::Heard heard = questions_.answered(answer);
  if (heard == NearestQuestions::Heard::Unasked)
    return Error(std::errc::invalid_argument, "an answer about " + answer.agent + " that nobody asked for");
  if (!answer.neighbour) return {};
  ++own_.nearest_answered;
  say_(heard == NearestQuestions::Heard::Another ? LOG_INFO : LOG_DEBUG,
       "nearest known pair of " + answer.agent + ": " + link::words_of(*answer.neighbour));
  (void)nearest_.put({answer.agent, std::move(*answer.neighbour)});
  return {};
}

Result<void> Uplink::hear_page(const std::string& bytes) {
  FLASH_TRY(coordinator::FleetPage page, coordinator::decode_fleet_page(bytes));
  (void)pages_.put(std::move(page));  // full: who asked does not wait any more
  return {};
}

Result<void> Uplink::ask_fleet() {
  for (const coordinator::FleetQuestion& question : fleet_questions_.take())
    FLASH_CHECK(nats_->publish(coordinator::fleet_question_subject(options_.origin.node),
                               coordinator::encode(question)));
  return {};
}

Result<void> Uplink::ask_nearest(Duration now) {
  for (const link::NearestQuestion& question : questions_.due(now)) {
    FLASH_CHECK(
        nats_->publish(coordinator::question_subject(options_.origin.node), coordinator::encode(question)));
    ++own_.nearest_asked;
  }
  return {};
}

void Uplink::set_status(NodeStatus status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

Result<void> Uplink::heartbeat(Duration now) {
  if (now < heartbeat_at_) return {};
  heartbeat_at_ = now + kHeartbeat;
  coordinator::Heartbeat beat{options_.software, {}, {}, 0, outbox_.counts().waiting};
  {
    const std::lock_guard lock(mutex_);
    beat.flashd = status_.flashd;
    beat.mode = status_.mode;
    beat.agents = status_.agents;
  }
  return nats_->publish(coordinator::heartbeat_subject(options_.origin), coordinator::encode(beat));
}

Result<void> Uplink::hear_watermark(const std::string& bytes) {
  FLASH_TRY(const coordinator::Watermark mark, coordinator::decode_watermark(bytes));
  if (mark.run != outbox_.run()) return {};  // of an outbox that was here before
  retry_ = kRetryFirst;
  if (!dispatch_.confirmed(clock_now(CLOCK_MONOTONIC), mark.seq, mark.lease)) return {};
  own_.last_watermark_us = static_cast<std::uint64_t>(clock_now(CLOCK_REALTIME).count() / 1000);
  return outbox_.confirm(mark.seq);
}

/// Through the coordinator. Manifests and chunks are signed themselves (models.h); the state that chooses
/// among them has to be a coordinator's, and no older one than was seen.
Result<std::optional<std::string>> Uplink::get_model(const std::string& subject) {
  FLASH_TRY(const std::string bytes,
            nats_->request(coordinator::model_question_subject(options_.origin.node),
                           coordinator::encode(coordinator::ModelQuestion{subject}), kModelAnswer));
  FLASH_TRY(coordinator::ModelAnswer answer, coordinator::decode_model_answer(bytes));
  if (answer.subject != subject) return Error(std::errc::bad_message, "an answer about " + answer.subject);
  if (!answer.found) return std::optional<std::string>();
  if (subject == coordinator::kModelsSubject && nats_->authority().known()) {
    FLASH_TRY(const std::uint64_t serial, nats_->authority().check(subject, answer.bytes, answer.seal));
    FLASH_CHECK(models_->newer_state(serial));
  }
  return std::optional(std::move(answer.bytes));
}

/// A server that does not let this node ask for models, or has no stream of them, must not hold up records.
void Uplink::fetch_models(Duration now) {
  if (now < models_at_) return;
  auto done = models_->step(now, [this](const std::string& subject) { return get_model(subject); });
  if (done) {
    models_wait_ = kModelsRetryFirst;
    models_trouble_.clear();
    return;
  }
  models_at_ = now + models_wait_;
  models_wait_ = std::min(models_wait_ * 2, kModelsRetryLongest);
  if (done.error().message() != models_trouble_) say_(LOG_WARNING, "models: " + done.error().message());
  models_trouble_ = done.error().message();
}

Result<void> Uplink::send(Duration now) {
  const Dispatch::Wanted wanted = dispatch_.wanted(now);
  if (wanted.most == 0) return {};
  FLASH_TRY(const auto rows, outbox_.after(wanted.after, wanted.most));
  const std::string subject = coordinator::record_subject(options_.origin);
  for (const Outbox::Row& row : rows) {
    FLASH_CHECK(
        nats_->publish(subject, coordinator::encode_record(outbox_.run(), row.seq, row.prev, row.episode)));
    dispatch_.sent(now, row.seq);
    ++own_.published;
  }
  return {};
}

}  // namespace flash::sync
