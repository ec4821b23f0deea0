#include "coordinator/collector.h"

#include <syslog.h>

#include <algorithm>
#include <utility>

#include "coordinator/fleet_page.h"
#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr std::size_t kBatch = 1024;  // messages per commit
// From its first message to its commit: an fsync per message would be most of the work, and a watermark per
// message most of the nodes'.
constexpr Duration kGather = std::chrono::milliseconds(100);
constexpr int kOthers = 4096;     // messages of no stream per batch
constexpr int kFleetPages = 4;    // of them, that each read the store
constexpr int kIdleBatches = 60;  // in a row without a message: is the consumer still alive?
constexpr int kNothingLeft = 4;   // likewise: what was there when it was connected to has come
constexpr Duration kBeat = std::chrono::seconds(1), kBooks = std::chrono::seconds(5);
constexpr Duration kRetain = std::chrono::minutes(1), kRetainMore = std::chrono::milliseconds(500);
constexpr const char *kBucket = "FLASH_LEASE", *kBucketStream = "KV_FLASH_LEASE";
constexpr const char *kLeaseKey = "speaker", *kLeaseSubject = "$KV.FLASH_LEASE.speaker";
constexpr Duration kSayRefused = std::chrono::seconds(10);  // one line for what was refused in between
constexpr std::size_t kMaxSaid = 512;

std::int64_t wall_us(Now now) {
  return std::chrono::duration_cast<std::chrono::microseconds>(now.wall.time_since_epoch()).count();
}

}  // namespace

Collector::Collector(CollectorOptions options, std::string instance, Store& store, LogSink say)
    : options_(std::move(options)),
      instance_(std::move(instance)),
      store_(store),
      say_(std::move(say)),
      lease_(options_.name + "/" + instance_) {}

/// What the store knows, once.
Result<void> Collector::begin() {
  if (begun_) return {};
  FLASH_TRY(const auto agents, store_.agents());
  for (const FleetAgent& a : agents) pairs_.put(a);
  FLASH_TRY(auto nodes, store_.nodes());
  members_ = Membership(std::move(nodes));
  begun_ = true;
  return {};
}

Result<void> Collector::connect() {
  nats_.reset();
  arrived_.clear();
  passed_over_.clear();
  refused_ = 0;
  idle_batches_ = 0;
  FLASH_CHECK(begin());
  FLASH_TRY(position_, store_.position());
  FLASH_TRY(auto nats, Nats::connect(options_.nats));
  if (const std::string why = nats->old_server(); !why.empty()) say_(LOG_WARNING, why);
  if (const std::string why = nats->authority().why_not_believed(); !why.empty()) say_(LOG_WARNING, why);
  FLASH_TRY(const StreamState stream, nats->ensure_stream(options_.stream));
  // Another stream, or one that lost its end in a power cut: what it has is read again, and known by its key.
  if (stream.created_ns != position_.stream_created_ns || stream.last < position_.last)
    position_ = {stream.created_ns, 0};
  if (position_.last > 0 && position_.last + 1 < stream.first)
    say_(LOG_WARNING, "away for longer than the stream keeps: " +
                          std::to_string(stream.first - position_.last - 1) + " messages are missing here");
  behind_ = stream.last;
  FLASH_CHECK(nats->subscribe_stream(options_.stream.name, options_.stream.subjects, position_.last + 1));
  for (const char* subjects : {kAllQuestions, kAllFleetQuestions, kAllHeartbeats, kAllCoordinators})
    FLASH_CHECK(nats->listen(subjects));
  FLASH_CHECK(nats->open_bucket(kBucket, options_.stream.replicas));
  if (auto set = nats->set_replicas(kBucketStream, options_.stream.replicas); !set)
    say_(LOG_WARNING, set.error().message());
  nats_ = std::move(nats);
  members_.listening(wall_us(read_clocks()));
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
  // Who sent it would send it forever, and nothing of what follows.
  if (origin)
    if (const auto place = decode_record_place(message.bytes)) passed_over_.push_back({origin->node, *place});
  refuse(message, origin ? record.error().message() : "not a subject of records");
  return {};
}

void Collector::refuse(const Message& message, const std::string& why) {
  ++refused_;
  ++refused_in_all_;
  const Duration now = clock_now(CLOCK_MONOTONIC);
  if (now < say_refused_at_) return;  // whoever sends many must not fill the log
  say_refused_at_ = now + kSayRefused;
  say_(LOG_WARNING, "refused a message of " + (message.subject + ": " + why).substr(0, kMaxSaid) +
                        (refused_in_all_ > 1 ? "; " + std::to_string(refused_in_all_) + " in all" : ""));
}

/// Signed: nodes believe nothing else.
Result<void> Collector::say(const std::string& subject, const std::string& bytes) {
  return nats_->publish(subject, bytes, nats_->authority().seal(subject, bytes));
}

bool Collector::may_ask(NodeBudget& budget, const std::string& node) {
  const Duration now = clock_now(CLOCK_MONOTONIC);
  if (budget.take(node, now)) return true;
  ++not_answered_;
  return false;
}

Result<void> Collector::answer_fleet(const Message& message) {
  const auto node = fleet_asking_node(message.subject);
  const auto question = decode_fleet_question(message.bytes);
  if (!node || !question) {
    refuse(message, node ? question.error().message() : "not a subject of questions");
    return {};
  }
  if (!lease_.held(clock_now(CLOCK_MONOTONIC))) return {};                 // another one answers
  if (!may_ask(pages_, *node) || ++fleet_pages_ > kFleetPages) return {};  // who asked asks again
  FLASH_TRY(const FleetPage page, fleet_page(store_, *question));
  return say(fleet_page_subject(*node), encode(page));
}

Result<void> Collector::commit() {
  FLASH_TRY(Committed done, store_.commit(arrived_, refused_, position_, passed_over_));
  arrived_.clear();
  passed_over_.clear();
  refused_ = 0;
  say_(LOG_DEBUG,
       "stored " + std::to_string(done.fresh) + ", known already " + std::to_string(done.duplicates));
  for (const FleetAgent& a : done.agents) pairs_.put(a);
  for (const auto& [node, agent] : done.forgotten) pairs_.forget(node, agent);
  if (done.over_quota > 0)
    say_(LOG_WARNING, std::to_string(done.over_quota) + " records of nodes that have more than their share");
  watermarks_.committed(position_, std::move(done.watermarks), clock_now(CLOCK_MONOTONIC));
  beat_at_ = {};
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
  FLASH_CHECK(hear_others());
  const bool idle = arrived_.empty() && refused_ == 0;
  idle_batches_ = idle ? idle_batches_ + 1 : 0;
  if (!idle) FLASH_CHECK(commit());
  // What the stream had may have aged away meanwhile.
  if (idle_batches_ >= kNothingLeft) behind_ = 0;
  const Now now = read_clocks();
  FLASH_CHECK(keep_lease(now.mono));
  FLASH_CHECK(speak(now.mono));
  FLASH_CHECK(beat(now.mono));
  FLASH_CHECK(keep_books(now));
  FLASH_CHECK(retain(now));
  return idle && idle_batches_ % kIdleBatches == 0 ? look_behind() : Result<void>();
}

Result<void> Collector::look_behind() {
  FLASH_TRY(const StreamState stream, nats_->ensure_stream(options_.stream));
  if (stream.created_ns == position_.stream_created_ns && stream.last <= position_.last) return {};
  return Error(std::errc::timed_out, "the stream has messages that its consumer does not bring");
}

// --- beside the stream ----------------------------------------------------------------------------------

Result<void> Collector::hear_others() {
  const Now now = read_clocks();
  fleet_pages_ = 0;
  for (int i = 0; i < kOthers; ++i) {
    FLASH_TRY(const auto message, nats_->heard());
    if (!message) break;
    FLASH_CHECK(hear(*message, now));
  }
  return {};
}

Result<void> Collector::hear(const Message& message, Now now) {
  if (const auto name = coordinator_of(message.subject)) return hear_coordinator(*name, message, now);
  const auto origin = heartbeat_origin(message.subject);
  if (!origin && message.subject.ends_with(".fleet")) return answer_fleet(message);
  return origin ? hear_heartbeat(*origin, message, now) : answer(message);
}

Result<void> Collector::hear_heartbeat(const Origin& origin, const Message& message, Now now) {
  if (!may_ask(beats_, origin.node)) return {};
  if (const auto heartbeat = decode_heartbeat(message.bytes))
    members_.beat(origin, *heartbeat, wall_us(now));
  else
    refuse(message, heartbeat.error().message());
  return {};
}

Result<void> Collector::hear_coordinator(const std::string& name, const Message& message, Now now) {
  const auto beat = decode_coordinator_beat(message.bytes);
  const auto known = nats_->authority().check(message.subject, message.bytes, message.seal);
  if (!beat || !known)
    refuse(message, (beat ? known.error() : beat.error()).message());
  else if (beat->instance != instance_)
    watermarks_.heard(name, *beat, now.mono, wall_us(now));
  return {};
}

Result<void> Collector::answer(const Message& message) {
  const auto node = asking_node(message.subject);
  const auto question = decode_nearest_question(message.bytes);
  if (!node || !question) {
    refuse(message, node ? question.error().message() : "not a subject of questions");
    return {};
  }
  if (!lease_.held(clock_now(CLOCK_MONOTONIC))) return {};  // another one answers
  if (!may_ask(questions_, *node)) return {};
  return say(answer_subject(*node), encode(NearestAnswer{question->agent, pairs_.nearest(*node, *question)}));
}

/// The entry is "HOLDER\nSEAL", the seal's serial the revision that it replaced; without credentials the
/// holder.
LeaseStore Collector::bucket() {
  return {[this]() -> Result<std::optional<LeaseEntry>> {
            FLASH_TRY(const auto entry, nats_->bucket_get(kLeaseKey));
            if (!entry) return std::optional<LeaseEntry>();
            const auto end = std::min(entry->value.find('\n'), entry->value.size());
            LeaseEntry out{entry->value.substr(0, end), entry->revision};
            if (!nats_->authority().known()) return std::optional(std::move(out));
            const auto replaced = nats_->authority().check(
                kLeaseSubject, out.holder,
                std::string_view(entry->value).substr(std::min(end + 1, entry->value.size())));
            out.genuine = replaced && *replaced < entry->revision;
            if (replaced) out.replaced = *replaced;
            return std::optional(std::move(out));
          },
          [this](const std::string& holder, std::uint64_t revision) {
            const std::string seal = nats_->authority().seal(kLeaseSubject, holder, revision);
            return nats_->bucket_put(kLeaseKey, seal.empty() ? holder : holder + "\n" + seal, revision);
          }};
}

void Collector::finish() {
  if (connected()) lease_.release(bucket());
}

Result<void> Collector::keep_lease(Duration now) {
  if (!in_step() && !lease_.held(now)) return {};
  // Without the bucket it runs out; a connection that broke is found by whoever reads.
  const auto done = lease_.step(now, bucket());
  const std::string trouble = done ? "" : done.error().message();
  if (trouble != said_trouble_ && !done) say_(LOG_WARNING, "the lease cannot be kept: " + trouble);
  said_trouble_ = trouble;
  if (lease_.strange() != said_strange_)
    say_(LOG_WARNING, "entries of the lease that no coordinator wrote: " + std::to_string(lease_.strange()));
  said_strange_ = lease_.strange();
  if (lease_.revision() == said_lease_) return {};
  said_lease_ = lease_.revision();
  say_(LOG_INFO, said_lease_ > 0
                     ? "speaks to the nodes: holds the lease, revision " + std::to_string(said_lease_)
                     : std::string("does not hold the lease any more"));
  return {};
}

/// The clock is read again: committing and renewing take time, in which a lease may run out.
Result<void> Collector::speak(Duration now) {
  for (auto& w : watermarks_.due(now, lease_.held(clock_now(CLOCK_MONOTONIC)))) {
    w.watermark.lease = lease_.revision();
    FLASH_CHECK(say(watermark_subject(w.node), encode(w.watermark)));
  }
  if (watermarks_.not_waited() > said_not_waited_)
    say_(LOG_WARNING, "another coordinator is behind: nodes were told of " +
                          std::to_string(watermarks_.not_waited() - said_not_waited_) +
                          " commits that it has in the stream alone");
  said_not_waited_ = watermarks_.not_waited();
  return {};
}

Result<void> Collector::beat(Duration now) {
  if (now < beat_at_) return {};
  beat_at_ = now + kBeat;
  const CoordinatorBeat beat{instance_, position_.stream_created_ns, position_.last, in_step(),
                             lease_.held(now) ? lease_.revision() : 0};
  return say(coordinator_subject(options_.name), encode(beat));
}

/// Who lives, on disk: another start of this program goes on from there, and the fleet view reads it.
Result<void> Collector::keep_books(Now now) {
  if (now.mono < books_at_) return {};
  books_at_ = now.mono + kBooks;
  if (not_answered_ != said_not_answered_)
    say_(LOG_WARNING, "not answered, of nodes that ask for more than their share: " +
                          std::to_string(not_answered_ - said_not_answered_));
  said_not_answered_ = not_answered_;
  for (const auto& change : members_.tick(wall_us(now)))
    say_(change.now == Liveness::Alive ? LOG_INFO : LOG_WARNING,
         "node " + change.node + " is " + std::string(to_string(change.now)));
  std::vector<FleetCoordinator> all = {{options_.name, position_.last, in_step(),
                                        lease_.held(now.mono) ? lease_.revision() : 0, wall_us(now)}};
  for (const auto& [name, peer] : watermarks_.peers(now.mono))
    if (name != options_.name)
      all.push_back({name, peer.beat.position, peer.beat.in_step, peer.beat.lease, peer.heard_us});
  return store_.save(members_.take_changed(), all, members_.watch());
}

Result<void> Collector::retain(Now now) {
  if (now.mono < retain_at_) return {};
  FLASH_TRY(const Retained done, store_.retain(options_.retention, wall_us(now)));
  retain_at_ = now.mono + (done.more ? kRetainMore : kRetain);
  if (done.thinned > 0)
    say_(LOG_INFO, "the " + std::to_string(done.thinned) + " oldest records became summaries");
  if (done.summaries_dropped > 0)
    say_(LOG_WARNING,
         "the " + std::to_string(done.summaries_dropped) + " oldest summaries were dropped: no room");
  return {};
}

}  // namespace flash::coordinator
