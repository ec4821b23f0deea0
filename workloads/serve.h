// Purpose: `flash-workload serve`, an HTTP service whose GET /work costs a known amount of CPU.
// Ownership: run_serve owns its sockets and threads and joins them. Threads: one for sockets, N workers, each
// connection belongs to one of them at a time (EPOLLONESHOT).
//
// A request's latency is counted from the moment the kernel took its last byte (SO_TIMESTAMPNS): a service
// stopped by its CPU quota cannot see requests arrive, and a clock started at read() would leave out just the
// waiting that throttling causes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "workloads/command_line.h"
#include "workloads/net.h"
#include "workloads/segment.h"

namespace flash {

struct ServeOptions {
  Endpoint listen;                     // default 127.0.0.1:8080; port 0 takes a free one
  const Segment* segment = nullptr;    // default floating-point
  std::uint64_t work = 100;            // units per request
  std::uint64_t threads = 2;           // workers
  std::string statsd;                  // socket path or address:port; empty: none
  std::string app = "flash-workload";  // tag app of the metrics
  std::uint64_t memory_mib = 0;        // working set, touched at start and in turn with the requests

  ServeOptions();
};

std::vector<OptionRow> option_rows(ServeOptions& options);

/// Serves until SIGTERM or SIGINT. Says "listening on ADDRESS:PORT" first. Returns the exit status.
int run(const ServeOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash
