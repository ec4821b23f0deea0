// Purpose: metrics as text: the Prometheus text format (also what node_exporter's textfile collector reads)
// and OpenMetrics.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "link/sync_messages.h"

namespace flash::http {

enum class PageFormat : std::uint8_t { Prometheus, OpenMetrics };

/// Families of one name become one; the order is that of the first of each.
std::string render(const std::vector<link::sync::Family>& families, PageFormat format);
std::string_view content_type(PageFormat format);
/// What a scraper that sent this Accept header gets; empty: Prometheus text.
PageFormat format_for(std::string_view accept);

}  // namespace flash::http
