// Purpose: answers nodes that want credentials: with a token for the first time, with the ones they have to
// renew them. A thread of its own, because a commit and the network wait.
// Ownership: Registrar owns its store; RegistrarThread the thread and the connection.
// Thread rule: as named.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "coordinator/identity_store.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/nats.h"
#include "coordinator/nkey.h"
#include "coordinator/node_budget.h"
#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

using LogSink = std::function<void(int priority, const std::string&)>;

inline constexpr std::int64_t kCredentialsLive = std::int64_t{90} * 86400;  // seconds

/// What is answered; without network. One thread.
class Registrar {
 public:
  /// `node_key` signs for `account`; credentials live so many seconds.
  Registrar(NKey node_key, std::string account, std::int64_t lifetime, IdentityStore store, LogSink say);
  /// nullopt: no answer, and nothing is done. That is so for a client that may not ask, and for one that
  /// wants the answer (`reply`) anywhere but in its own inbox.
  std::optional<std::string> answer(std::string_view subject, std::string_view wish, std::string_view reply,
                                    std::int64_t now);

 private:
  Result<Petitioner> asker(std::string_view subject, std::string_view reply) const;
  Result<std::string> grant(const Petitioner& petitioner, std::string_view wish, std::int64_t now);

  NKey node_key_;
  std::string account_;
  std::int64_t lifetime_;
  IdentityStore store_;
  LogSink say_;
  NodeBudget budget_{0.2, 32};
};

class RegistrarThread {
 public:
  /// `say` is called by the thread.
  RegistrarThread(NatsOptions nats, Registrar registrar, LogSink say);
  ~RegistrarThread();
  RegistrarThread(const RegistrarThread&) = delete;
  RegistrarThread& operator=(const RegistrarThread&) = delete;

 private:
  void work();
  Result<void> serve();

  const NatsOptions nats_;
  Registrar registrar_;
  const LogSink say_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace flash::coordinator
