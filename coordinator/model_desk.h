// Purpose: hands out what the stream of models has to nodes that ask: they may not ask the server for it,
// whose answers go wherever a request says. Answers go to the asking node's own inbox alone. Of several
// coordinators any one answers. A thread of its own, because the server is waited for.
// Ownership: owns the thread and its connection.
// Thread rule: as named.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "coordinator/messages_models.h"
#include "coordinator/nats.h"
#include "coordinator/node_budget.h"
#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

/// What is answered; one thread.
class ModelDesk {
 public:
  /// The newest message of a subject of the stream; nullopt: there is none.
  using Get = std::function<Result<std::optional<Message>>(const std::string& subject)>;
  explicit ModelDesk(Get get) : get_(std::move(get)) {}

  /// nullopt: no answer, for a node that may not ask, asks too often, or wants the answer anywhere but in its
  /// own inbox. An error is get()'s.
  Result<std::optional<std::string>> answer(const Message& question, Duration now);
  std::uint64_t refused() const { return refused_; }

 private:
  struct Kept {
    ModelAnswer answer;
    Duration at{};
  };
  Result<ModelAnswer> look_up(const std::string& subject, Duration now);

  Get get_;
  NodeBudget budget_{64, 160};         // a model is 64 chunks
  std::map<std::string, Kept> known_;  // for a second: a roll-out is asked for by many at once
  std::size_t known_bytes_ = 0;
  std::uint64_t refused_ = 0;
};

class ModelDeskThread {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;  // called by the thread

  ModelDeskThread(NatsOptions nats, LogSink say);
  ~ModelDeskThread();
  ModelDeskThread(const ModelDeskThread&) = delete;
  ModelDeskThread& operator=(const ModelDeskThread&) = delete;

 private:
  void work();
  Result<void> serve();

  const NatsOptions nats_;
  const LogSink say_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace flash::coordinator
