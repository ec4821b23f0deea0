// Purpose: a connection to a NATS server, as flash-sync and flash-coordinator need it: publish, and wait for
// messages of a subject or of a stream, without callbacks. A connection that broke is done with: open another
// one (libnats 3.4 fails one of 256 authentications, and resends what it buffered over a reconnect).
// Ownership: owns libnats' handles.
// Thread rule: one thread; it may wait in connect() and next().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/authority.h"
#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

struct NatsOptions {
  std::string url;  // nats://host:4222; tls://host:4222; of a cluster several, between commas
  // File of NATS credentials (JWT and NKey), read at each connect; empty: none needed.
  std::string credentials;
  std::string ca;            // file of certificates that sign the server's; empty: the system's
  std::string name;          // what the server's operator sees
  std::string inbox_prefix;  // where answers may come to; empty: _INBOX
};

struct Message {
  std::string subject, bytes;
  std::string reply;           // under which an answer is waited for, as the asker says; empty: nobody waits
  std::uint64_t position = 0;  // in its stream
  std::string seal = {};       // authority.h; empty: it has none
};

/// On disk, for seven days. Publishers get no answer: the publisher would choose the subject of such an
/// answer, and the server checks nobody's rights for it. When the stream is full, the oldest messages go: who
/// needs a message to arrive sends it again until it is safe elsewhere. A stream that refused new messages
/// instead would stand still until the old ones expire.
struct StreamOptions {
  std::string name, subjects;
  int replicas = 1;  // servers that hold it
  std::int64_t bytes = std::int64_t{4} << 30;
};

/// What a stream keeps now.
struct StreamState {
  std::int64_t created_ns = 0;  // a stream that was created again is another one, though it has the same name
  std::uint64_t first = 0;      // position of its oldest message
  std::uint64_t last = 0;       // of its newest
};

class Nats {
 public:
  static constexpr Duration kBucketWait = std::chrono::milliseconds(400);
  static Result<std::unique_ptr<Nats>> connect(const NatsOptions& options);
  /// For callers that do not try again themselves: repeats a refused authentication, because of libnats 3.4.
  static Result<std::unique_ptr<Nats>> connect_surely(const NatsOptions& options);
  ~Nats();
  Nats(const Nats&) = delete;
  Nats& operator=(const Nats&) = delete;

  bool open() const;
  /// What went wrong last, also asynchronously (a subject that is not allowed); empty: nothing.
  std::string trouble() const;
  /// How often the server said that something is not allowed to these credentials.
  std::uint64_t violations() const;
  /// Why this server should be newer; empty: it need not, or does not say what it is. Asks it: waits a
  /// moment.
  std::string old_server() const;

  /// Of the credentials that this connection was made with.
  const Authority& authority() const;
  /// Into the library's buffer: nobody says that it arrived.
  Result<void> publish(const std::string& subject, std::string_view bytes, const std::string& seal = {});
  /// The one answer to a message. ENOTCONN: nobody listens there; ETIMEDOUT: nobody answers. Errors do
  /// not name the subject, which may have a token's key.
  Result<std::string> request(const std::string& subject, std::string_view bytes, Duration longest);
  /// From now on next() brings what comes under this subject; with a group's name, what falls to this one of
  /// the group.
  Result<void> subscribe(const std::string& subject, const std::string& group = {});

  /// Makes the stream if there is none, and changes one that is otherwise. Here and below, what is made waits
  /// until the connection is two seconds old: a new server may lose what it stores before.
  Result<StreamState> ensure_stream(const StreamOptions& wanted);
  /// Makes the stream of models if there is none: files without an age, of each subject the newest messages.
  /// One that is there keeps its replicas.
  Result<void> ensure_model_stream(int replicas);
  /// How many servers hold a stream, if there is such a one, from now on.
  Result<void> set_replicas(const std::string& stream, int replicas);
  /// Into a stream; returns when the server has taken it. `after`: only if that is the position of the
  /// subject's newest message, 0: if there is none (EAGAIN otherwise).
  Result<void> put(const std::string& stream, const std::string& subject, std::string_view bytes,
                   std::optional<std::uint64_t> after = std::nullopt, const std::string& seal = {});
  /// The newest message of a subject in a stream; nullopt: there is none, or no such stream.
  Result<std::optional<Message>> newest(const std::string& stream, const std::string& subject);
  /// All that a stream keeps of a subject, oldest first.
  Result<std::vector<Message>> kept(const std::string& stream, const std::string& subject);
  /// Those of a stream that have messages, below `filter`.
  Result<std::vector<std::string>> subjects(const std::string& stream, const std::string& filter);
  Result<void> purge(const std::string& stream, const std::string& subject);

  /// From now on next() brings the stream's messages in order, from this position on.
  Result<void> subscribe_stream(const std::string& stream, const std::string& subjects,
                                std::uint64_t position);

  /// A bucket of keys with revisions, made if there is none. One per connection. What is asked of it waits
  /// for kBucketWait at most.
  Result<void> open_bucket(const std::string& bucket, int replicas);
  struct BucketEntry {
    std::string value;
    std::uint64_t revision = 0;
  };
  Result<std::optional<BucketEntry>> bucket_get(const std::string& key);
  /// Replaces the entry of this revision, 0: there is none; returns the new one's. EAGAIN: it has another.
  Result<std::uint64_t> bucket_put(const std::string& key, const std::string& value, std::uint64_t revision);

  /// The next message; nullopt: none for so long.
  Result<std::optional<Message>> next(Duration longest);

  /// Besides: heard() brings what comes under these subjects. As many as are asked for.
  Result<void> listen(const std::string& subject);
  /// The next of those; nullopt: none is there. Does not wait.
  Result<std::optional<Message>> heard();

 private:
  struct Impl;
  explicit Nats(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::coordinator
