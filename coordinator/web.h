// Purpose: the coordinator's HTTP: a thread that answers from a view of the store of its own. Readers,
// however many, never delay collecting.
// Ownership: owns the thread, the endpoint and the view.
// Thread rule: all but the inside is the maker's thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/fleet_view.h"
#include "coordinator/metrics.h"
#include "core/result.h"
#include "core/time.h"
#include "http/endpoint.h"

namespace flash::coordinator {

struct WebOptions {
  std::string listen = "127.0.0.1:9943";
  std::string store;
  std::vector<std::string> names = {};  // of this host, by which browsers may ask
};

class Web {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;  // called by the thread

  /// REQUIRES: the store is there.
  static Result<std::unique_ptr<Web>> open(WebOptions options, LogSink say);
  ~Web();
  Web(const Web&) = delete;
  Web& operator=(const Web&) = delete;

  /// "127.0.0.1:9943"
  const std::string& address() const { return endpoint_->address(); }
  void set(LiveState live);

 private:
  Web(WebOptions options, LogSink say);
  void work();
  http::Response answer(const http::Request& request);
  Result<void> refresh();
  OwnState own_state() const;

  const WebOptions options_;
  const LogSink say_;
  std::unique_ptr<http::Endpoint> endpoint_;
  int ending_ = -1;  // an eventfd

  // The thread's own.
  std::optional<FleetView> view_;
  Duration read_at_{};
  std::uint64_t requests_ = 0;
  std::string said_;

  std::mutex mutex_;
  LiveState live_;
  std::thread thread_;
};

}  // namespace flash::coordinator
