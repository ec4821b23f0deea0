#include "lab/workloads/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace flash {

Parsed<Endpoint> parse_endpoint(std::string_view text) {
  const UsageError wrong{"'" + std::string(text) +
                         "' is not a numeric address and port such as 127.0.0.1:8080"};
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return wrong;
  }
  const auto port = parse_integer(text.substr(colon + 1));
  if (!port || *port > 65535) {
    return wrong;
  }
  std::string host(text.substr(0, colon));
  Endpoint endpoint;
  endpoint.text = text;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(*port));
    std::memcpy(&endpoint.address, &v4, sizeof v4);
    endpoint.size = sizeof v4;
    return endpoint;
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
      inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(*port));
    std::memcpy(&endpoint.address, &v6, sizeof v6);
    endpoint.size = sizeof v6;
    return endpoint;
  }
  return wrong;
}

UniqueFd open_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool wait_for_stop(const UniqueFd& stop_signals, SteadyTime until) {
  const auto left =
      std::max(until - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
  pollfd waiting{stop_signals.get(), POLLIN, 0};
  return ppoll(&waiting, 1, &timeout, nullptr) > 0;
}

}  // namespace flash
