// Purpose: flashd's and flash-sync's own metrics as text: the Prometheus text format (also what
// node_exporter's textfile collector reads) and OpenMetrics. docs/METRICS.md names them all.
// Ownership: values.
// Thread rule: pure, but for write_textfile().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "link/sync_messages.h"
#include "sync/model_state.h"

namespace flash::sync {

/// Whole or not at all: written beside it and renamed.
Result<void> write_textfile(const std::string& path, std::string_view text);

/// What flash-sync says of itself.
struct OwnState {
  bool connected = false;
  double scrapes = 0;
  double pages = 0, unreachable = 0, invalid = 0, bytes = 0, without_turn = 0;
  double cpu_seconds = 0, rss_bytes = 0;
  bool nats_connected = false;
  double violations = 0;
  double outbox_records = 0;  // that wait for the coordinator
  double taken = 0, published = 0, confirmed = 0, thinned = 0;
  double nearest_asked = 0, nearest_answered = 0, refused = 0;
  ModelClientState models;
  double metrics_age_s = -1;  // of flashd's metrics; -1: there are none
};
std::vector<link::sync::Family> own_families(const OwnState& state, std::string_view version);

}  // namespace flash::sync
