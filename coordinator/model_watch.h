// Purpose: takes a model back by itself when the nodes that were given it earn less: looks at the registry
// and the store now and then. Several coordinators may do so: to withdraw twice is refused, and harmless.
// Ownership: borrows the store; opens a connection of its own for each look.
// Thread rule: the store's.
#pragma once

#include <functional>
#include <string>

#include "coordinator/nats.h"
#include "coordinator/registry.h"
#include "coordinator/rollback.h"
#include "coordinator/store.h"
#include "core/time.h"

namespace flash::coordinator {

class ModelWatch {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;
  /// `replicas`: servers that are to hold the models' stream.
  ModelWatch(NatsOptions options, int replicas, const Store& store, Duration every, LogSink say)
      : options_(std::move(options)),
        replicas_(replicas),
        store_(store),
        every_(every),
        say_(std::move(say)) {}

  /// Waits for the server where it is due.
  void look(Duration mono, std::int64_t now_us);

 private:
  /// What went wrong, in words; empty: nothing.
  std::string look_at_all(std::int64_t now_us);
  Result<void> judge_all(Registry& registry, std::int64_t now_us);
  Result<void> look_at(const OfferedModel& model, Registry& registry, std::int64_t now_us);

  NatsOptions options_;
  int replicas_;
  const Store& store_;
  Duration every_, due_{};
  LogSink say_;
  std::string said_;
};

}  // namespace flash::coordinator
