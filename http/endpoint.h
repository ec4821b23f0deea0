// Purpose: HTTP/1.1 on one address, with libmicrohttpd: GET and HEAD, answers from memory, inside the
// caller's loop. Ownership: owns the listening socket and libmicrohttpd's daemon. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "http/target.h"

namespace flash::http {

struct Request {
  Target target;
  std::string accept;  // the header; empty: none
};

struct Response {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct EndpointOptions {
  /// No other address may be listened on, and no other name asked for: a page from elsewhere whose name was
  /// made to lead here (DNS rebinding) gets 421.
  bool loopback_only = true;
  unsigned connections = 32;  // at once; more wait
};

class Endpoint {
 public:
  using Handler = std::function<Response(const Request&)>;

  /// `address`: 127.x.x.x:PORT or [::1]:PORT, or any numeric one where the options say so; port 0 takes a
  /// free one. EINVAL: not such an address; EADDRINUSE.
  static Result<std::unique_ptr<Endpoint>> open(const std::string& address, Handler handler,
                                                EndpointOptions options = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// "127.0.0.1:9942"
  const std::string& address() const;
  /// To poll for reading; then run(). Also run() after the time that it returned.
  int fd() const;
  Duration run();

 private:
  struct Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What listens where: EINVAL without opening anything.
Result<void> check_address(const std::string& address, bool loopback_only);

}  // namespace flash::http
