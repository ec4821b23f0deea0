// Purpose: the coordinator's work: what the stream brings goes into the store, then each node is told how far
// its records are safe, and which known pair is nearest to a new one where it asks. Nothing is acknowledged
// to the stream: the store knows where it stands in it. Ownership: borrows the store. Thread rule: one
// thread, which waits here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "coordinator/nats.h"
#include "coordinator/nearest.h"
#include "coordinator/store.h"

namespace flash::coordinator {

class Collector {
 public:
  using Say = std::function<void(int priority, const std::string&)>;

  Collector(NatsOptions options, StreamOptions stream, Store& store, Say say);

  /// Connects, makes the stream if need be, and begins where the store stands.
  Result<void> connect();
  bool connected() const { return nats_ && nats_->open(); }
  /// One batch: waits for its first message for so long, and a moment for more. After an error it is not
  /// connected any more.
  Result<void> collect(Duration longest);

 private:
  Result<void> batch(Duration longest);
  Result<void> take(Message message);
  Result<void> commit();
  void refuse(const Message& message, const std::string& why);
  Result<void> answer_questions();
  Result<void> answer(const Message& message);
  /// Nothing has come for long: is there nothing? A consumer can be lost without a word.
  Result<void> look_behind();

  NatsOptions options_;
  StreamOptions stream_;
  Store& store_;
  Say say_;
  std::unique_ptr<Nats> nats_;
  Position position_;
  NearestPairs pairs_;
  bool pairs_read_ = false;
  std::vector<Arrived> arrived_;
  std::uint64_t refused_ = 0;
  int idle_batches_ = 0;
};

}  // namespace flash::coordinator
