// Purpose: `flash-workload serve`, an HTTP service whose GET /work does the work of an application's request.
// Ownership: run_serve owns its sockets and threads and joins them.
// Thread rule: one for sockets, N workers, each connection belongs to one of them at a time (EPOLLONESHOT).
//
// A request's latency is counted from the moment the kernel took its last byte (SO_TIMESTAMPNS): a service
// stopped by its CPU quota cannot see requests arrive, and a clock started at read() would leave out just the
// waiting that throttling causes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/application.h"
#include "lab/workloads/net.h"

namespace flash {

struct ServeOptions {
  Endpoint listen;  // default 127.0.0.1:8080; port 0 takes a free one
  /// Default: 100 units of floating-point, two workers, no memory, always the same work, no objective.
  /// Options change it in the order they are given.
  Application application;
  std::string statsd;  // socket path or address:port; empty: none
  std::string json;    // file for the report at the end; empty: none

  ServeOptions();
};

std::vector<OptionRow> option_rows(ServeOptions& options);

/// Serves until SIGTERM or SIGINT. Says "listening on ADDRESS:PORT" first. Returns the exit status.
int run(const ServeOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash
