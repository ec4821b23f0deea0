#include "host/cgroup_id.h"

#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "host/file_io.h"

namespace flash {
namespace {

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 == 0
}
std::string_view parent_of(std::string_view path) {
  const auto at = path.rfind('/');
  return at == std::string_view::npos ? std::string_view{} : path.substr(0, at);
}

bool hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}
constexpr std::size_t kIdSize = 64;
constexpr std::string_view kUnknownRuntime = "unknown";

bool is_container_id(std::string_view text) {
  return text.size() == kIdSize && std::all_of(text.begin(), text.end(), hex_digit);
}

/// systemd escapes names that the kernel could misread ("cgroup.procs", "_x") by a leading underscore.
std::string_view unescape_component(std::string_view component) {
  if (component.starts_with('_')) component.remove_prefix(1);
  return component;
}

bool has_suffix(std::string_view text, std::initializer_list<std::string_view> suffixes) {
  for (const auto suffix : suffixes)
    if (text.size() > suffix.size() && text.ends_with(suffix)) return true;
  return false;
}

/// A unit with processes of its own.
bool is_leaf_unit(std::string_view name) {
  return has_suffix(name, {".service", ".scope", ".socket", ".mount", ".swap"});
}
bool is_slice(std::string_view name) {
  return has_suffix(name, {".slice"});
}

/// Calls `see` with each component, the path up to and with it, and the component above it; outermost first.
/// It returns false to end the walk.
template <class See>
void walk(std::string_view path, See see) {
  std::string_view above;
  for (std::size_t begin = 0; begin < path.size();) {
    if (path[begin] == '/') {
      ++begin;
      continue;
    }
    const auto end = std::min(path.find('/', begin), path.size());
    const auto component = path.substr(begin, end - begin);
    if (!see(component, path.substr(0, end), above)) return;
    above = component;
    begin = end;
  }
}

bool slices_only(std::string_view path) {
  bool only = true;
  walk(path, [&](std::string_view component, std::string_view, std::string_view) {
    return only = is_slice(unescape_component(component));
  });
  return only;
}

/// The pod's UID if the component is a pod's cgroup.
std::string pod_uid_of(std::string_view component) {
  std::string uid;
  if (component.ends_with(".slice")) {
    const auto at = component.rfind("-pod");
    if (at == std::string_view::npos) return {};
    uid = component.substr(at + 4);
    uid.resize(uid.size() - 6);
    std::replace(uid.begin(), uid.end(), '_', '-');  // '-' would be a level of slices
  } else if (component.starts_with("pod")) {
    uid = component.substr(3);
  }
  // 8-4-4-4-12, or 32 digits for pods from the node's own manifests.
  const bool shape = uid.size() == 36 || uid.size() == 32;
  const bool digits = std::all_of(uid.begin(), uid.end(), [](char c) { return hex_digit(c) || c == '-'; });
  return shape && digits ? uid : std::string();
}

/// The parts of a container's component. ID alone: no engine.
struct ContainerForm {
  std::string_view slice;  // SLICE:ENGINE:ID only
  std::string_view engine;
  std::string_view id;
};
std::optional<ContainerForm> container_form(std::string_view component) {
  if (component.ends_with(".scope")) component.remove_suffix(6);
  if (component.size() < kIdSize) return std::nullopt;
  ContainerForm form;
  form.id = component.substr(component.size() - kIdSize);
  if (!is_container_id(form.id)) return std::nullopt;
  component.remove_suffix(kIdSize);
  if (component.empty()) return form;
  const char before = component.back();
  component.remove_suffix(1);
  if (before == ':') {
    const auto colon = component.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    form.slice = component.substr(0, colon);
    component.remove_prefix(colon + 1);
  } else if (before != '-') {
    return std::nullopt;
  }
  form.engine = component;
  // What watches over a container (podman, CRI-O) has its id, too.
  if (form.engine.empty() || form.engine.ends_with("conmon")) return std::nullopt;
  return form;
}

std::string_view runtime_of(std::string_view engine) {
  constexpr std::pair<std::string_view, std::string_view> kEngines[] = {
      {"docker", "docker"},         {"libpod", "podman"},
      {"libpod-payload", "podman"}, {"cri-containerd", "containerd"},
      {"nerdctl", "containerd"},    {"crio", "crio"}};
  for (const auto& [name, runtime] : kEngines)
    if (name == engine) return runtime;
  return kUnknownRuntime;
}

std::string_view lxc_name(std::string_view component, std::string_view up_to) {
  constexpr std::string_view kPayload = "lxc.payload.";
  if (component.starts_with(kPayload)) return component.substr(kPayload.size());
  return parent_of(up_to) == "/lxc" ? component : std::string_view{};
}

/// `above` is the component above it, `up_to` the path that ends with it. Without pod_uid.
Container container_at(std::string_view component, std::string_view up_to, std::string_view above) {
  Container container;
  if (const auto name = lxc_name(component, up_to); !name.empty()) {
    container.runtime = "lxc";
    container.id = container.name = name;
    return container;
  }
  const auto form = container_form(component);
  if (!form) return container;
  if (!form->engine.empty())
    container.runtime = runtime_of(form->engine);
  else if (above == "libpod_parent")
    return container;  // a pod of podman's
  else if (above == "docker")
    container.runtime = "docker";
  else if (!pod_uid_of(above).empty())
    container.runtime = "containerd";  // or docker, as dockershim did it: the engines know
  else
    container.runtime = kUnknownRuntime;
  container.id = form->id;
  container.name = container.id.substr(0, 12);
  return container;
}

/// Which engine runs it is a guess or not known: each may be asked.
bool engine_unsure(std::string_view path) {
  const auto form = container_form(last_component(path));
  return form && (form->engine.empty() || runtime_of(form->engine) == kUnknownRuntime);
}

bool kubelets_component(std::string_view component) {
  if (!has_suffix(component, {".service", ".socket", ".mount", ".swap"}) &&
      component.find("kubepods") != std::string_view::npos)
    return true;
  if (!pod_uid_of(component).empty()) return true;
  // Only the kubelet's engines call their containers so.
  const auto form = container_form(component);
  return form &&
         (form->engine == "cri-containerd" || form->engine == "crio" || !pod_uid_of(form->slice).empty());
}

}  // namespace

Container container_of(std::string_view path) {
  Container container;
  std::string pod_uid;
  walk(path, [&](std::string_view component, std::string_view up_to, std::string_view above) {
    if (auto uid = pod_uid_of(above); !uid.empty()) pod_uid = std::move(uid);
    container = container_at(component, up_to, above);
    return true;
  });
  if (container.runtime.empty()) return container;
  container.pod_uid = std::move(pod_uid);
  if (const auto form = container_form(last_component(path)))
    if (auto uid = pod_uid_of(form->slice); !uid.empty()) container.pod_uid = std::move(uid);
  return container;
}

std::string unit_of(std::string_view path) {
  const auto name = unescape_component(last_component(path));
  if (!is_slice(name) && !is_leaf_unit(name)) return {};
  return std::string(name);
}

std::string_view system_unit_path(std::string_view path) {
  std::string_view unit;
  walk(path, [&](std::string_view component, std::string_view up_to, std::string_view) {
    component = unescape_component(component);
    if (is_leaf_unit(component)) unit = up_to;
    return unit.empty() && is_slice(component);  // units live in slices only
  });
  return unit;
}

bool is_kubelets(std::string_view path) {
  bool found = false;
  walk(path, [&](std::string_view component, std::string_view, std::string_view) {
    found = kubelets_component(component);
    return !found;
  });
  return found;
}

CgroupIdentifier::CgroupIdentifier(const HostRoot& root, const CgroupLayout& layout)
    : names_(root), systemd_running_(exists(root.path("/run/systemd/system"))) {
  // cgroupfs v1 takes the attributes only where systemd has its own hierarchy; hybrid hosts mirror it in v2.
  delegation_mount_ = layout.mount(CgroupController::Pressure);
  if (delegation_mount_.empty()) delegation_mount_ = layout.reference_mount();
}

bool CgroupIdentifier::delegated(std::string_view unit_path) const {
  const auto directory = delegation_mount_ + std::string(unit_path);
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    std::array<char, 4> value;
    const auto n = ::getxattr(directory.c_str(), name, value.data(), value.size());
    if (n == 1 && value[0] == '1') return true;
  }
  return false;
}

Ownership CgroupIdentifier::owner_of(std::string_view path) const {
  return owner_of(path, container_of(path));
}

Ownership CgroupIdentifier::owner_of(std::string_view path, const Container& container) const {
  Ownership ownership = owner_but_kubelet(path, container);
  // Also inside something else: it only takes away.
  if (is_kubelets(path)) ownership = {CgroupOwner::Kubelet, {}, {}, ownership.inside};
  return ownership;
}

Ownership CgroupIdentifier::owner_but_kubelet(std::string_view path, const Container& container) const {
  if (path.empty() || path == "/") return {};
  const auto unit = systemd_running_ ? system_unit_path(path) : std::string_view{};
  if (!unit.empty() && unit.size() == path.size()) return {CgroupOwner::Systemd, {}, {}, false};

  // From the outside in: the first folder that is not of the system's systemd, and what is around the last
  // one.
  std::string_view first_folder, around, unit_inside;
  walk(path, [&](std::string_view component, std::string_view up_to, std::string_view above) {
    const auto plain = unescape_component(component);
    const bool in_unit = !unit.empty() && up_to.size() > unit.size();
    const bool slice = is_slice(plain);
    if (first_folder.empty() && unit.empty() && !(systemd_running_ && slice)) first_folder = up_to;
    if (in_unit && unit_inside.empty() && (slice || is_leaf_unit(plain))) unit_inside = up_to;
    if (up_to.size() < path.size() && !container_at(component, up_to, above).runtime.empty()) {
      around = up_to;
      return false;
    }
    return true;
  });
  const auto inside = [](std::string_view what, std::string doubt) {
    return Ownership{CgroupOwner::Unknown, std::move(doubt), std::string(what) + "/", true};
  };
  if (!around.empty()) return inside(around, "it is inside a container, where others may manage it");
  if (!unit.empty()) {
    if (!unit_inside.empty() || last_component(unit).starts_with("user@"))
      return inside(unit,
                    "it belongs to another service manager, the one in " + std::string(last_component(unit)));
    // Below a unit that is not delegated systemd writes nothing either: it only knows its own units.
    return {delegated(unit) ? CgroupOwner::Delegated : CgroupOwner::Unmanaged, {}, {}, false};
  }
  if (first_folder.empty() && systemd_running_) return {CgroupOwner::Systemd, {}, {}, false};  // slices only
  if (first_folder.empty()) return {};
  // Engines that we know write limits of a container only when they are asked to.
  if (!container.runtime.empty() && container.runtime != kUnknownRuntime) return {};
  return {CgroupOwner::Unknown,
          container.runtime.empty() ? "neither systemd nor a container engine that flashd knows made it"
                                    : "no container engine that flashd knows has a record of it",
          std::string(first_folder), false};
}

Target CgroupIdentifier::describe(std::string_view path, std::uint64_t inode, bool foreign) {
  Target target;
  target.id = {TargetKind::Cgroup, inode};
  target.cgroup = path;
  target.name = target.cgroup;
  if (foreign) {
    Ownership ownership = owner_of(path, {});
    target.owner = ownership.owner;
    target.doubt = std::move(ownership.doubt);
    target.spell_out = std::move(ownership.spell_out);
    return target;
  }
  target.container = container_of(path);
  // Names come from the system's engines; what is inside something else is not theirs, whatever it is called.
  Ownership ownership = owner_of(path, target.container);
  std::optional<KnownContainer> known;
  if (!ownership.inside && !target.container.id.empty() && target.container.runtime != "lxc")
    known = names_.find(engine_unsure(path) ? kUnknownRuntime : std::string_view(target.container.runtime),
                        target.container.id);
  else if (!ownership.inside && ownership.owner == CgroupOwner::Unknown && target.container.runtime.empty())
    known = names_.find_by_cgroup(path);
  if (known) {
    if (target.container.id.empty()) target.container.id = target.container.name = last_component(path);
    target.container.runtime = known->runtime;
    if (!known->record.name.empty()) target.container.name = std::move(known->record.name);
    if (target.container.pod_uid.empty()) target.container.pod_uid = std::move(known->record.pod_uid);
    // Some kubelets put containers where nothing in the path tells it.
    ownership = known->record.in_pod ? Ownership{CgroupOwner::Kubelet, {}, {}, false}
                                     : owner_of(path, target.container);
  }
  target.owner = ownership.owner;
  target.doubt = std::move(ownership.doubt);
  target.spell_out = std::move(ownership.spell_out);
  // Folders may be named like units where no systemd runs, or another one; they are not the system's units.
  const bool own_unit = system_unit_path(path).size() == path.size() || slices_only(path);
  if (systemd_running_ && own_unit) target.unit = unit_of(path);
  if (!target.container.runtime.empty())
    target.name = target.container.name;
  else if (!target.unit.empty())
    target.name = target.unit;
  return target;
}

}  // namespace flash
