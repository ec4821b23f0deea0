// Purpose: what `flash-workload load` asks for: a URL, or the address of a `flash-workload serve`, whose path
// is /work.
// Ownership: values.
// Thread rule: pure, but for resolve(), which may wait for the system's resolver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/net.h"

namespace flash {

struct LoadTarget {
  std::string text;         // as it was given
  std::string host;         // name, IPv4 address, or IPv6 address without brackets
  std::uint16_t port = 80;  // from 1
  std::string host_field;   // of the request: host and, unless it is 80, the port
  std::string path;         // with the query; begins with '/'
};

/// http://HOST[:PORT][/PATH][?QUERY], the same without http:// where a path is given, or HOST:PORT.
Parsed<LoadTarget> parse_load_target(std::string_view text);

/// Its addresses, in the resolver's order; not empty. Asked once, before the first request: a load test must
/// not time a resolver.
Parsed<std::vector<Endpoint>> resolve(const LoadTarget& target);

}  // namespace flash
