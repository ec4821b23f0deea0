// Purpose: nats-server, one or a cluster of three, and a flash-coordinator of a measurement's own.
// Ownership: owns the processes and their folder, which go with it.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/program.h"
#include "core/result.h"

namespace flash::bench {

class ClusterServers {
 public:
  /// Listening on free ports of this host, without TLS and passwords; the coordinator is connected or about
  /// to be.
  static Result<std::unique_ptr<ClusterServers>> start(int servers);
  ~ClusterServers();
  ClusterServers(const ClusterServers&) = delete;
  ClusterServers& operator=(const ClusterServers&) = delete;

  const std::string& folder() const { return folder_; }
  std::string urls() const;
  std::string store() const { return folder_ + "/store.db"; }
  std::vector<Usage> servers() const;
  Usage coordinator() const { return usage_of(coordinator_.front().pid()); }
  /// EIO: one of them has ended, with its last words.
  Result<void> all_running();
  /// Bytes of the stream on all servers, and of the store.
  std::uint64_t stream_bytes() const;
  std::uint64_t store_bytes() const;

 private:
  ClusterServers() = default;
  Result<void> start_server(std::size_t index);
  Result<void> start_coordinator();

  std::string folder_;
  std::vector<int> ports_;  // of clients, then of the servers among themselves
  std::vector<Program> servers_, coordinator_;
};

}  // namespace flash::bench
