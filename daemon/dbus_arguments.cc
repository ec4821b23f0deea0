#include "daemon/dbus_arguments.h"

#include <charconv>

#include "core/process.h"
#include "core/utf8.h"
#include "policy/task.h"

namespace flash::dbus {
namespace {

/// The inverse of agent_name().
std::optional<TargetId> id_from_name(std::string_view name) {
  const auto last = name.rfind('_');
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(last + 1);
  for (const TaskSpec& spec : kTaskSpecs) {
    TargetId id(spec.target, 0, spec.task);
    const char* end = digits.data() + digits.size();
    auto [p, ec] = std::from_chars(digits.data(), end, id.value);
    if (ec == std::errc{} && p == end && agent_name(id) == name) return id;
  }
  return std::nullopt;
}

}  // namespace

Failure invalid(std::string text) {
  return {SD_BUS_ERROR_INVALID_ARGS, std::move(text)};
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = text[i] == '\0' ? 0 : utf8_sequence(text.substr(i));
    if (n == 0) {
      out += "\xef\xbf\xbd";
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out;
}

bool printable(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = utf8_sequence(text.substr(i));
    const auto b = static_cast<unsigned char>(text[i]);
    if (n == 0 || b < 0x20 || b == 0x7f) return false;
    if (n == 2 && b == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
    i += n;
  }
  return true;
}

std::string agent_path(TargetId id) {
  return std::string(kAgents) + "/" + agent_name(id);
}

std::optional<TargetId> id_from_path(std::string_view path) {
  const std::string prefix = std::string(kAgents) + "/";
  if (path.substr(0, prefix.size()) != prefix) return std::nullopt;
  return id_from_name(path.substr(prefix.size()));
}

std::uint64_t microseconds(WallTime t) {
  return to_usec(t.time_since_epoch());
}

std::string_view without_slash(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

bool matches(int tier, std::string_view wanted, const Target& t) {
  switch (tier) {
    case 0:
      return wanted == agent_name(t.id) || wanted == agent_path(t.id);
    case 1:
      return wanted == t.name || (!t.cgroup.empty() && without_slash(wanted) == without_slash(t.cgroup)) ||
             (!t.unit.empty() && (wanted == t.unit || std::string(wanted) + ".service" == t.unit)) ||
             (!t.container.runtime.empty() &&
              (wanted == t.container.name || wanted == t.container.id ||
               // Short ids as container tools print them.
               (wanted.size() >= 12 && std::string_view(t.container.id).substr(0, wanted.size()) == wanted)));
    default:
      return wanted == t.application;
  }
}

template <typename Value>
static int put_dictionary(sd_bus_message* m, const char* entry,
                          const std::vector<std::pair<std::string, Value>>& v) {
  int r = sd_bus_message_open_container(m, 'a', entry);
  for (const auto& [name, value] : v)
    if (r >= 0) r = sd_bus_message_append(m, entry, name.c_str(), value);
  return r < 0 ? r : sd_bus_message_close_container(m);
}

int put(sd_bus_message* m, std::string_view text) {
  return sd_bus_message_append_basic(m, 's', to_utf8(text).c_str());
}
int put(sd_bus_message* m, double v) {
  return sd_bus_message_append_basic(m, 'd', &v);
}
int put(sd_bus_message* m, std::uint64_t v) {
  return sd_bus_message_append_basic(m, 't', &v);
}
int put(sd_bus_message* m, std::uint32_t v) {
  return sd_bus_message_append_basic(m, 'u', &v);
}
int put(sd_bus_message* m, bool v) {
  const int flag = v;
  return sd_bus_message_append_basic(m, 'b', &flag);
}
int put(sd_bus_message* m, const std::vector<double>& v) {
  return sd_bus_message_append_array(m, 'd', v.data(), v.size() * sizeof(double));
}

int put(sd_bus_message* m, const std::vector<std::pair<std::string, std::uint64_t>>& v) {
  return put_dictionary(m, "{st}", v);
}
int put(sd_bus_message* m, const std::vector<std::pair<std::string, double>>& v) {
  return put_dictionary(m, "{sd}", v);
}

}  // namespace flash::dbus
