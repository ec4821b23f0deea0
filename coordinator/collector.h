// Purpose: the coordinator's work: what the stream brings goes into the store, then each node is told how far
// its records are safe, and which known pair is nearest to a new one where it asks. Nothing is acknowledged
// to the stream: the store knows where it stands in it.
// Ownership: borrows the store.
// Thread rule: one thread, which waits here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/lease.h"
#include "coordinator/membership.h"
#include "coordinator/nats.h"
#include "coordinator/nearest.h"
#include "coordinator/node_budget.h"
#include "coordinator/store.h"
#include "coordinator/watermarks.h"
#include "core/time.h"

namespace flash::coordinator {

struct CollectorOptions {
  NatsOptions nats;
  StreamOptions stream;
  std::string name = "coordinator";  // among several
  RetentionOptions retention;
};

class Collector {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;

  /// `instance`: unique for each start.
  Collector(CollectorOptions options, std::string instance, Store& store, LogSink say);

  /// Connects, makes the stream if need be, and begins where the store stands.
  Result<void> connect();
  bool connected() const { return nats_ && nats_->open(); }
  /// One batch: waits for its first message for so long, and a moment for more. After an error it is not
  /// connected any more.
  Result<void> collect(Duration longest);
  /// Before the program ends: another coordinator may then speak at once.
  void finish();
  /// In words, by node.
  std::map<std::string, std::string> node_states() const { return members_.states(); }

 private:
  Result<void> begin();
  Result<void> batch(Duration longest);
  Result<void> take(Message message);
  Result<void> commit();
  void refuse(const Message& message, const std::string& why);
  Result<void> say(const std::string& subject, const std::string& bytes);
  bool may_ask(NodeBudget& budget, const std::string& node);
  Result<void> hear_others();
  Result<void> hear(const Message& message, Now now);
  Result<void> hear_heartbeat(const Origin& origin, const Message& message, Now now);
  Result<void> answer(const Message& message);
  Result<void> hear_coordinator(const std::string& name, const Message& message, Now now);
  LeaseStore bucket();
  Result<void> keep_lease(Duration now);
  Result<void> speak(Duration now);
  Result<void> beat(Duration now);
  Result<void> keep_books(Now now);
  Result<void> retain(Now now);
  Result<void> answer_fleet(const Message& message);
  /// Nothing has come for long: checks whether there is really nothing, since a consumer can be lost
  /// silently.
  Result<void> look_behind();
  bool in_step() const { return position_.last >= behind_; }

  CollectorOptions options_;
  std::string instance_;
  Store& store_;
  LogSink say_;
  std::unique_ptr<Nats> nats_;
  Position position_;
  std::uint64_t behind_ = 0;  // what the stream had when it was connected to
  std::vector<Arrived> arrived_;
  std::vector<PassedOver> passed_over_;
  std::uint64_t refused_ = 0, refused_in_all_ = 0;
  Duration say_refused_at_{};
  NodeBudget questions_{32, 128}, pages_{4, 16}, beats_{2, 20};
  std::uint64_t not_answered_ = 0, said_not_answered_ = 0, said_strange_ = 0;
  int idle_batches_ = 0;
  bool begun_ = false;
  NearestPairs pairs_;
  Membership members_;
  Watermarks watermarks_;
  Lease lease_;
  std::string said_trouble_;
  std::uint64_t said_lease_ = 0, said_not_waited_ = 0;
  Duration beat_at_{}, books_at_{}, retain_at_{};
  int fleet_pages_ = 0;  // answered in this batch
};

}  // namespace flash::coordinator
