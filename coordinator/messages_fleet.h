// Purpose: who lives: what each node and each coordinator says of itself, again and again, under plain
// subjects that no stream keeps. docs/COORDINATOR_PROTOCOL.md.
// Ownership: values.
// Thread rule: pure functions.
//
//   flash-sync  -> flash.v1.hb.POOL.NODE   Heartbeat, every 5 s
//   coordinator -> flash.v1.co.NAME        CoordinatorBeat, after each commit and every second
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/messages.h"
#include "core/result.h"

namespace flash::coordinator {

inline constexpr const char* kAllHeartbeats = "flash.v1.hb.*.*";
inline constexpr const char* kAllCoordinators = "flash.v1.co.*";

struct Heartbeat {
  std::string software;      // "flash-sync 0.1.0"
  std::string flashd, mode;  // "0.1.0", "control"; empty: flashd is away
  std::uint64_t agents = 0;
  std::uint64_t outbox = 0;  // records that wait
  bool operator==(const Heartbeat&) const = default;
};

struct CoordinatorBeat {
  std::string instance;  // random, one per start: two of one name are told apart
  std::int64_t stream_created_ns = 0;
  std::uint64_t position = 0;  // in the stream; all up to it is on its disk
  bool in_step = false;        // it has caught up with what the stream had when it connected
  std::uint64_t lease = 0;     // revision of the lease that it holds; 0: it does not
  bool operator==(const CoordinatorBeat&) const = default;
};

std::string encode(const Heartbeat& heartbeat);
std::string encode(const CoordinatorBeat& beat);
Result<Heartbeat> decode_heartbeat(std::string_view bytes);
Result<CoordinatorBeat> decode_coordinator_beat(std::string_view bytes);

/// REQUIRES: is_token() accepts all names.
std::string heartbeat_subject(const Origin& origin);
std::string coordinator_subject(std::string_view name);
/// nullopt: not such a subject.
std::optional<Origin> heartbeat_origin(std::string_view subject);
std::optional<std::string> coordinator_of(std::string_view subject);

}  // namespace flash::coordinator
