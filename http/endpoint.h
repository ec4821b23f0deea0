// Purpose: HTTP/1.1 on one address, with libmicrohttpd: GET and HEAD, answers from memory, inside the
// caller's loop. Nobody can stop it for others by opening connections: each has a time for its request and
// one for taking the answer, however slowly bytes come or go; and where there are too many, a new one is let
// in and the oldest without a whole request goes, of the address that has the most. Answers that nobody takes
// have a bound of bytes together; the oldest goes then.
// Ownership: owns the listening socket and libmicrohttpd's daemon.
// Thread rule: one thread. No clock: run() takes the time.
#pragma once

#include <cstddef>
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
  bool loopback_only = true;  // no other address may be listened on
  /// Host names that are accepted, besides localhost and any numeric address. Any other Host gets 421: else a
  /// page from elsewhere whose name leads here (DNS rebinding) could read this server through its visitor's
  /// browser.
  std::vector<std::string> names = {};
  unsigned connections = 32;  // at once
  // From its beginning, or the last answer, to its whole head.
  Duration request_longest = std::chrono::seconds(5);
  Duration answer_longest = std::chrono::seconds(30);
  std::size_t answer_bytes = 8u << 20;  // of all bodies on their way; twice that while connections close
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
  /// To poll for reading; then run(). Also run() after the time that it returned. `now`: CLOCK_MONOTONIC.
  int fd() const;
  Duration run(Duration now);

 private:
  struct Impl;
  explicit Endpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What listens where: EINVAL without opening anything.
Result<void> check_address(const std::string& address, bool loopback_only);

}  // namespace flash::http
