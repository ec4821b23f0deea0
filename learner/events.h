// Purpose: what the rooms of the learner have to say to people; the main program writes it to the journal.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <syslog.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/service_log.h"

namespace flash {

// `journalctl -u flash-learner MESSAGE_ID=...`; listed in flash-learner(8).
inline constexpr std::string_view kMessageConnection = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e11";
inline constexpr std::string_view kMessagePolicy = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e12";
inline constexpr std::string_view kMessageCheckpoint = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e13";
inline constexpr std::string_view kMessageStore = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e14";
inline constexpr std::string_view kMessageLearning = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e15";
inline constexpr std::string_view kMessageModel = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e16";

struct Event {
  int priority = LOG_INFO;  // syslog's
  std::string_view id;      // one of the above, or empty
  std::string message;
  std::vector<LogField> fields;
};

using LogSink = std::function<void(const Event&)>;

}  // namespace flash
