#include "lab/workloads/load_target.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace flash {

namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::string_view kServicePath = "/work";

bool is_one_of(char c, std::string_view others) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         others.find(c) != std::string_view::npos;
}

UsageError wrong(std::string_view text, std::string_view why) {
  return {"'" + std::string(text) + "' " + std::string(why)};
}

}  // namespace

Parsed<LoadTarget> parse_load_target(std::string_view text) {
  LoadTarget target;
  target.text = text;
  std::string_view rest = text;
  bool url = false;
  if (const auto scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme + 3) != kScheme) {
      return wrong(text, "is no http:// address; only HTTP without TLS is spoken");
    }
    url = true;
    rest.remove_prefix(kScheme.size());
  }
  rest = rest.substr(0, rest.find('#'));  // a fragment is for browsers, it is never sent
  const auto slash = rest.find_first_of("/?");
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) {
    target.path = (rest[slash] == '?' ? "/" : "") + std::string(rest.substr(slash));
  } else {
    target.path = url ? "/" : kServicePath;
  }
  if (std::any_of(target.path.begin(), target.path.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return wrong(text,
                 "has a blank, a control character or one that is not ASCII in its path; write it as %XX");
  }
  if (authority.find('@') != std::string_view::npos) {
    return wrong(text, "names a user, which is not supported");
  }

  std::string_view port;
  bool has_port = false;
  const bool bracketed = authority.starts_with('[');
  if (bracketed) {
    const auto close = authority.find(']');
    const auto after = close == std::string_view::npos ? "x" : authority.substr(close + 1);
    if (!after.empty() && !after.starts_with(':')) {
      return wrong(text, "is no address such as [::1]:8080");
    }
    target.host = authority.substr(1, close - 1);
    has_port = !after.empty();
    port = has_port ? after.substr(1) : after;
  } else {
    const auto colon = authority.find(':');
    target.host = authority.substr(0, colon);
    has_port = colon != std::string_view::npos;
    port = has_port ? authority.substr(colon + 1) : std::string_view();
  }
  if (!has_port && slash == std::string_view::npos && !url) {
    return wrong(text,
                 "is no address and port such as 127.0.0.1:8080, and no URL such as http://127.0.0.1:8080/");
  }
  if (has_port) {
    const auto number = parse_integer(port);
    if (!number || *number < 1 || *number > 65535) {
      return wrong(text, "has no port from 1 to 65535 after its host; an IPv6 address stands in brackets");
    }
    target.port = static_cast<std::uint16_t>(*number);
  }
  if (target.host.empty() || target.host.size() > 255 ||
      std::any_of(target.host.begin(), target.host.end(),
                  [&](char c) { return !is_one_of(c, bracketed ? ":.%" : "-._"); })) {
    return wrong(text, "names no host");
  }
  target.host_field = bracketed ? "[" + target.host + "]" : target.host;
  if (target.port != 80) {
    target.host_field += ":" + std::to_string(target.port);
  }
  return target;
}

Parsed<std::vector<Endpoint>> resolve(const LoadTarget& target) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (rc != 0) {
    return UsageError{"cannot find the host '" + target.host + "': " + gai_strerror(rc)};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) {
      continue;
    }
    Endpoint endpoint;
    std::memcpy(&endpoint.address, at->ai_addr, at->ai_addrlen);
    endpoint.size = at->ai_addrlen;
    endpoint.text = target.host_field;
    endpoints.push_back(std::move(endpoint));
  }
  if (endpoints.empty()) {
    return UsageError{"the host '" + target.host + "' has no address"};
  }
  return endpoints;
}

}  // namespace flash
