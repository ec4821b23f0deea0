// Purpose: which nats-server is at the other end, and what is known against it. libnats does not tell: the
// first line that a server says to anybody is read.
// Ownership: values.
// Thread rule: any; server_version() waits for the network, a few seconds at most.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::coordinator {

/// Of the server of such a URL (scheme://host:port).
Result<std::string> server_version(std::string_view url);
/// "INFO {...}", as a server begins. EINVAL: another line.
Result<std::string> version_in(std::string_view info);
/// One sentence that names the holes; empty: new enough, or not a version.
std::string why_too_old(std::string_view version);

}  // namespace flash::coordinator
