#include "daemon/config_text_checks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "daemon/config_keys.h"
#include "link/metric_selector.h"
#include "link/sync_messages.h"

namespace flash::config {

std::optional<std::string> plain_text(std::string_view v, std::size_t max) {
  if (v.size() > max) return "is longer than " + std::to_string(max) + " bytes";
  for (unsigned char c : v)
    if (c < 0x20 || c == 0x7f) return "has a control character in it";
  return std::nullopt;
}

bool short_name(std::string_view v) {
  constexpr std::size_t kLongest = 64;
  return !v.empty() && v.size() <= kLongest && std::all_of(v.begin(), v.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::optional<std::string> check_short_name_or_none(std::string_view v) {
  if (v.empty() || short_name(v)) return std::nullopt;
  return "has more than letters, digits, '.', '_' and '-', or is longer than 64 bytes";
}

std::optional<std::string> check_name(std::string_view v) {
  return plain_text(v, 200);
}

std::optional<std::string> check_glob(std::string_view v) {
  if (auto wrong = plain_text(v, 4096)) return wrong;
  if (v.empty()) return "is empty; leave the key out to match everything";
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v[i] == '[') {
      // fnmatch(3) takes an unclosed bracket for itself, which is never what was meant. "[]a]" and "[!]a]"
      // hold a bracket.
      std::size_t close = i + 1;
      if (close < v.size() && (v[close] == '!' || v[close] == '^')) ++close;
      close = v.find(']', close + 1);
      if (close == std::string_view::npos) return "has a '[' without its ']'";
      i = close;
    }
  }
  return std::nullopt;
}

/// Where a backslash was an escape it had to be written twice; no name has two in a row.
std::string single_backslashes(std::string text) {
  const auto both = [](char a, char b) { return a == '\\' && b == '\\'; };
  text.erase(std::unique(text.begin(), text.end(), both), text.end());
  return text;
}

std::optional<std::string> check_cgroup_glob(std::string_view v) {
  if (auto wrong = check_glob(v)) return wrong;
  if (v.front() != '/' && v.front() != '*')
    return "does not begin with '/' (a path below the cgroup hierarchy's root) or '*'";
  return std::nullopt;
}

std::optional<std::string> check_directory(std::string_view v) {
  if (auto wrong = plain_text(v, 4000)) return wrong;
  if (!v.starts_with('/')) return "is not an absolute path";
  const std::string whole = std::string(v) + "/";
  if (whole.find("/../") != std::string::npos) return "has \"..\" in it";
  return std::nullopt;
}

std::optional<std::string> check_directory_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : check_directory(v);
}

std::optional<std::string> check_socket(std::string_view v) {
  if (v.empty()) return std::nullopt;
  if (v.size() > 107) return "is longer than a socket's path may be (107 bytes, unix(7))";
  return check_directory(v);
}

std::optional<std::string> check_given_socket(std::string_view v) {
  if (v.empty()) return "is empty; learner.enabled switches it off";
  return check_socket(v);
}

std::optional<std::string> check_sync_socket(std::string_view v) {
  if (v.empty()) return "is empty; sync.enabled switches it off";
  return check_socket(v);
}

std::optional<std::string> check_url_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : link::wrong_with_url(v);
}

std::optional<std::string> check_selector_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : link::wrong_with_selector(v);
}

std::optional<std::string> check_user(std::string_view v) {
  if (v.empty()) return "is empty";
  if (v.size() > 32) return "is longer than a user's name may be (32 bytes)";
  for (unsigned char c : v)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' &&
        c != '-' && c != '.')
      return "is not a user's name";
  return std::nullopt;
}

std::optional<std::string> check_udp(std::string_view v) {
  constexpr auto kForm = "is not ADDRESS:PORT, such as 127.0.0.1:8125 or [::1]:8125";
  if (v.empty()) return std::nullopt;
  const auto colon = v.rfind(':');
  if (colon == std::string_view::npos) return kForm;
  auto host = v.substr(0, colon);
  const auto port_text = v.substr(colon + 1);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port < 1 || port > 65535)
    return kForm;
  if (host.starts_with('[') && host.ends_with(']') && host.size() > 2) {
    in6_addr address{};
    if (inet_pton(AF_INET6, std::string(host.substr(1, host.size() - 2)).c_str(), &address) != 1)
      return kForm;
    if (!IN6_IS_ADDR_LOOPBACK(&address))
      return "is not a loopback address; StatsD lines are not authenticated";
    return std::nullopt;
  }
  in_addr address{};
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) return kForm;
  if ((ntohl(address.s_addr) >> 24) != 127)
    return "is not a loopback address; StatsD lines are not authenticated";
  return std::nullopt;
}

std::optional<std::string> check_cpus(std::string_view v) {
  if (!cpus_from_text(v)) return "is not \"all\" or a list of CPUs such as \"0-3,8\"";
  return std::nullopt;
}

std::optional<std::string> check_runtime(std::string_view v) {
  for (std::string_view known : {"docker", "podman", "containerd", "crio", "lxc"})
    if (v == known) return std::nullopt;
  return "is not one of docker, podman, containerd, crio, lxc";
}

}  // namespace flash::config
