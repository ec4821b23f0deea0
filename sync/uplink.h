// Purpose: the way to the coordinator: a thread that stores episodes in the outbox and sends them to a NATS
// server whenever there is one. Neither the disk nor the network ever waits in flash-sync's loop.
// Ownership: owns the thread, the outbox and the connection.
// Thread rule: all but the inside is the loop's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/messages.h"
#include "coordinator/messages_fleet.h"
#include "coordinator/messages_pages.h"
#include "coordinator/nats.h"
#include "core/mailbox.h"
#include "core/random.h"
#include "core/result.h"
#include "core/time.h"
#include "sync/dispatch.h"
#include "sync/models.h"
#include "sync/nearest_questions.h"
#include "sync/outbox.h"

namespace flash::sync {

struct UplinkOptions {
  coordinator::NatsOptions nats;
  coordinator::Origin origin;  // of this node
  std::string software = "flash-sync";
  std::string outbox = "/var/lib/flash-sync/outbox.db";
  std::size_t max_records = 200000;
  DispatchOptions dispatch;
  ModelClientOptions models;  // node and software are filled in
};

/// Of flashd, for the heartbeats.
struct NodeStatus {
  std::string flashd, mode;  // empty: it is away
  std::uint64_t agents = 0;
};

struct UplinkState {
  bool connected = false;
  std::uint64_t published = 0;   // records, each as often as it was sent
  std::uint64_t violations = 0;  // subjects that the server does not let this node have
  OutboxCounts outbox;
  // Of the nearest known pairs of new agents; refused: messages that were none, or not asked for.
  std::uint64_t nearest_asked = 0, nearest_answered = 0, refused = 0;
  std::uint64_t last_watermark_us = 0;  // wall clock, when one last covered a record; 0: not since the start
  ModelClientState models;
  std::string trouble;  // why not connected, or what a server refused
};

class Uplink {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;  // also called by the thread

  static Result<std::unique_ptr<Uplink>> open(UplinkOptions options, Random random, LogSink say);
  ~Uplink();
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  /// false: there is no room now.
  bool put(std::uint64_t epoch, const link::sync::EpisodeEnd& episode);

  struct Stored {
    std::uint64_t epoch = 0, number = 0;
  };
  /// From now on, in heartbeats.
  void set_status(NodeStatus status);

  /// Readable when stored() has something to say; nearest_fd() when nearest() has.
  int fd() const { return stored_.fd(); }
  int nearest_fd() const { return nearest_.fd(); }
  /// What came on disk since the last call: all of an epoch up to this number.
  std::vector<Stored> stored() { return stored_.take(); }

  /// What the coordinator answered since the last call.
  std::vector<link::sync::NearestPair> nearest() { return nearest_.take(); }

  /// Asks the coordinator for a page of the fleet. false: there is no connection, or no room.
  bool ask(const coordinator::FleetQuestion& question);
  int pages_fd() const { return pages_.fd(); }
  std::vector<coordinator::FleetPage> pages() { return pages_.take(); }

  UplinkState state() const;

 private:
  Uplink(UplinkOptions options, Random random, LogSink say, Outbox outbox,
         std::unique_ptr<ModelClient> models);
  void work();
  void store();
  void connect(Duration now);
  Result<void> talk(Duration now);
  Result<void> hear(const coordinator::Message& message);
  Result<std::optional<std::string>> get_model(const std::string& subject);
  Result<void> hear_watermark(const std::string& bytes);
  Result<void> hear_nearest(const std::string& bytes);
  Result<void> hear_page(const std::string& bytes);
  Result<void> ask_nearest(Duration now);
  Result<void> heartbeat(Duration now);
  Result<void> ask_fleet();
  Result<void> send(Duration now);
  void fetch_models(Duration now);
  void disconnected(Duration now, const std::string& why);
  void plan_renewal();
  void renew();
  void publish_state();

  const UplinkOptions options_;
  const LogSink say_;
  Mailbox<Outbox::Item> incoming_;
  Mailbox<Stored> stored_;
  Mailbox<link::sync::NearestPair> nearest_;
  Mailbox<coordinator::FleetQuestion> fleet_questions_;
  Mailbox<coordinator::FleetPage> pages_;
  std::atomic<bool> ending_ = false;

  // The thread's own.
  Random random_;
  Outbox outbox_;
  std::vector<Outbox::Item> unstored_;
  std::unique_ptr<coordinator::Nats> nats_;
  Dispatch dispatch_;
  NearestQuestions questions_;
  std::uint64_t epoch_ = 0;  // of the flashd that the questions are of
  Duration heartbeat_at_{};
  std::unique_ptr<ModelClient> models_;
  Duration models_wait_{}, models_at_{};
  std::string models_trouble_;
  Duration retry_{}, retry_at_{};
  Duration renew_at_{};                  // by the wall clock; 0: never
  std::uint64_t violations_before_ = 0;  // over connections of before
  UplinkState own_;
  std::string store_trouble_, link_trouble_;
  std::uint64_t said_thinned_ = 0;
  std::string said_;

  mutable std::mutex mutex_;
  NodeStatus status_;
  UplinkState state_;  // as of the thread's last round
  std::thread thread_;
};

}  // namespace flash::sync
