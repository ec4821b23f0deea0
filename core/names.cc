// The names of the project's enumerations: stable keys in JSON, on D-Bus and in man pages.
#include <array>
#include <cmath>
#include <string>

#include "core/decision.h"
#include "core/knob.h"
#include "core/ports.h"
#include "core/rule.h"
#include "core/sample.h"
#include "core/target.h"

namespace flash {
namespace {

template <class E, std::size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, E e) {
  const auto i = static_cast<std::size_t>(e);
  return i < N ? names[i] : "unknown";
}

constexpr std::array<std::string_view, 3> kModes = {"observe", "recommend", "control"};

}  // namespace

std::string_view to_string(Validity v) {
  return name_of(std::array<std::string_view, 6>{"missing", "invalid", "stale", "degraded", "proxy", "good"},
                 v);
}
std::string_view to_string(SloSource s) {
  return name_of(std::array<std::string_view, 4>{"statsd", "prometheus", "kernel", "auto"}, s);
}
std::string_view to_string(CgroupOwner o) {
  return name_of(std::array<std::string_view, 5>{"unmanaged", "systemd", "delegated", "kubelet", "unknown"},
                 o);
}
std::string_view to_string(LeaseState s) {
  return name_of(std::array<std::string_view, 7>{"unclaimed", "ours", "yielded", "contended", "held",
                                                 "released", "gone"},
                 s);
}
std::string_view to_string(Mode m) {
  return name_of(kModes, m);
}
std::optional<Mode> mode_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kModes.size(); ++i)
    if (kModes[i] == name) return static_cast<Mode>(i);
  return std::nullopt;
}
std::string_view to_string(ForeignWrite f) {
  return name_of(std::array<std::string_view, 3>{"yield", "reassert", "leave"}, f);
}
std::string_view to_string(Stage s) {
  return name_of(std::array<std::string_view, 4>{"initialized", "offline", "online", "serving"}, s);
}
std::string_view to_string(Controller c) {
  return name_of(std::array<std::string_view, 3>{"none", "fallback", "learned"}, c);
}
std::string_view to_string(WriteStatus s) {
  return name_of(
      std::array<std::string_view, 6>{"not-asked", "unchanged", "written", "refused", "failed", "undone"}, s);
}

std::string agent_name(TargetId id) {
  return std::string(kTasks[id.task.index()].agent_prefix) + "_" + std::to_string(id.value);
}

bool Decision::changed_something() const {
  for (const auto& o : outcomes)
    if (o.status == WriteStatus::Written || o.status == WriteStatus::Undone ||
        o.status == WriteStatus::Failed)
      return true;
  return false;
}

bool RestoreReport::complete() const {
  for (const auto& item : items)
    if (!item.restored) return false;
  return true;
}

}  // namespace flash
