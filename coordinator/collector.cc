#include "coordinator/collector.h"

#include <syslog.h>

#include <utility>

#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr std::size_t kBatch = 1024;  // messages per commit
// From its first message to its commit: an fsync per message would be most of the work, and a watermark per
// message most of the nodes'.
constexpr Duration kGather = std::chrono::milliseconds(100);
constexpr int kQuestions = 64;    // per batch
constexpr int kIdleBatches = 60;  // in a row without a message: is the consumer still alive?

}  // namespace

Collector::Collector(NatsOptions options, StreamOptions stream, Store& store, Say say)
    : options_(std::move(options)), stream_(std::move(stream)), store_(store), say_(std::move(say)) {}

Result<void> Collector::connect() {
  nats_.reset();
  arrived_.clear();
  refused_ = 0;
  idle_batches_ = 0;
  FLASH_TRY(position_, store_.position());
  if (!pairs_read_) {
    FLASH_TRY(const auto agents, store_.agents());
    for (const FleetAgent& a : agents) pairs_.put(a);
    pairs_read_ = true;
  }
  FLASH_TRY(auto nats, Nats::connect(options_));
  FLASH_TRY(const StreamState stream, nats->ensure_stream(stream_));
  // Another stream, or one that lost its end in a power cut: what it has is read again, and known by its key.
  if (stream.created_ns != position_.stream_created_ns || stream.last < position_.last)
    position_ = {stream.created_ns, 0};
  FLASH_CHECK(nats->subscribe_stream(stream_.name, stream_.subjects, position_.last + 1));
  FLASH_CHECK(nats->listen(kAllQuestions));
  nats_ = std::move(nats);
  return {};
}

Result<void> Collector::take(Message message) {
  position_.last = message.position;
  const auto origin = origin_of(message.subject);
  auto record = decode_record(message.bytes);
  if (origin && record) {
    arrived_.push_back({*origin, std::move(*record)});
    return {};
  }
  refuse(message, origin ? record.error().message() : "not a subject of records");
  return {};
}

void Collector::refuse(const Message& message, const std::string& why) {
  ++refused_;
  say_(LOG_WARNING, "refused a message of " + message.subject + ": " + why);
}

Result<void> Collector::answer_questions() {
  for (int i = 0; i < kQuestions; ++i) {
    FLASH_TRY(const auto message, nats_->heard());
    if (!message) break;
    FLASH_CHECK(answer(*message));
  }
  return {};
}

Result<void> Collector::answer(const Message& message) {
  const auto node = asking_node(message.subject);
  const auto question = decode_nearest_question(message.bytes);
  if (!node || !question) {
    refuse(message, node ? question.error().message() : "not a subject of questions");
    return {};
  }
  return nats_->publish(answer_subject(*node),
                        encode(NearestAnswer{question->agent, pairs_.nearest(*node, *question)}));
}

Result<void> Collector::commit() {
  FLASH_TRY(const Committed done, store_.commit(arrived_, refused_, position_));
  arrived_.clear();
  refused_ = 0;
  say_(LOG_DEBUG,
       "stored " + std::to_string(done.fresh) + ", known already " + std::to_string(done.duplicates));
  for (const FleetAgent& a : done.agents) pairs_.put(a);
  for (const auto& w : done.watermarks)
    FLASH_CHECK(nats_->publish(watermark_subject(w.node), encode(w.watermark)));
  return {};
}

Result<void> Collector::collect(Duration longest) {
  auto done = batch(longest);
  if (!done) nats_.reset();
  return done;
}

Result<void> Collector::batch(Duration longest) {
  FLASH_TRY(auto message, nats_->next(longest));
  const Duration until = clock_now(CLOCK_MONOTONIC) + kGather;
  for (std::size_t n = 1; message; ++n) {
    FLASH_CHECK(take(std::move(*message)));
    const Duration left = until - clock_now(CLOCK_MONOTONIC);
    if (n == kBatch || left <= Duration{}) break;
    FLASH_TRY(message, nats_->next(left));
  }
  FLASH_CHECK(answer_questions());
  const bool idle = arrived_.empty() && refused_ == 0;
  idle_batches_ = idle ? idle_batches_ + 1 : 0;
  if (!idle) return commit();
  return idle_batches_ % kIdleBatches == 0 ? look_behind() : Result<void>();
}

Result<void> Collector::look_behind() {
  FLASH_TRY(const StreamState stream, nats_->ensure_stream(stream_));
  if (stream.created_ns == position_.stream_created_ns && stream.last <= position_.last) return {};
  return Error(std::errc::timed_out, "the stream has messages that its consumer does not bring");
}

}  // namespace flash::coordinator
