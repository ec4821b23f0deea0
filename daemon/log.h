// Purpose: one line per event, with journald fields when the journal listens, plain on stderr otherwise.
// Ownership: none.
// Thread rule: any thread.
#pragma once

#include <syslog.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/service_log.h"

namespace flash {

/// `priority` is syslog's (LOG_INFO). MESSAGE_ID fields make events findable: journalctl MESSAGE_ID=...
void log(int priority, std::string_view message, std::initializer_list<LogField> fields = {});

/// Events below this priority are dropped (default LOG_INFO).
void set_log_level(int priority);

// `journalctl -b MESSAGE_ID=...`; listed in flashd(8).
inline constexpr std::string_view kMessageDecision = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e01";
inline constexpr std::string_view kMessageStage = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e02";
inline constexpr std::string_view kMessageRestore = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e03";
inline constexpr std::string_view kMessageOperator = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e04";
inline constexpr std::string_view kMessageDegraded = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e05";
inline constexpr std::string_view kMessageLearner = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e06";
inline constexpr std::string_view kMessageSync = "5b9f4f6f0d3d4b0f9d5a0a4a6b1c7e07";

}  // namespace flash
