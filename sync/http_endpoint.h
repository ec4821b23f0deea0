// Purpose: GET /metrics on a loopback address, with libmicrohttpd, inside the caller's loop.
// Ownership: owns the listening socket and libmicrohttpd's daemon. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/result.h"
#include "core/time.h"
#include "sync/metrics_page.h"

namespace flash::sync {

class HttpEndpoint {
 public:
  /// The page that is served now.
  using Page = std::function<std::string(PageFormat)>;

  /// `address`: 127.x.x.x:PORT or [::1]:PORT, port 0 takes a free one. EINVAL: not loopback; EADDRINUSE.
  static Result<std::unique_ptr<HttpEndpoint>> open(const std::string& address, Page page);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  /// "127.0.0.1:9942"
  const std::string& address() const;
  /// To poll for reading; then run(). Also run() after the time that it returned.
  int fd() const;
  Duration run();

 private:
  struct Impl;
  explicit HttpEndpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::sync
