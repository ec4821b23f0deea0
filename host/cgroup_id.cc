#include "host/cgroup_id.h"

#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cctype>

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
bool is_container_id(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), hex_digit);
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

struct Form {
  std::string_view prefix;  // of the last component, before the id
  std::string_view suffix;
  std::string_view parent;  // component above; empty: any
  std::string_view runtime;
};
constexpr Form kForms[] = {
    {"docker-", ".scope", "", "docker"},
    {"", "", "docker", "docker"},
    {"libpod-", ".scope", "", "podman"},
    {"libpod-", "", "", "podman"},
    {"cri-containerd-", ".scope", "", "containerd"},
    {"nerdctl-", ".scope", "", "containerd"},
    {"crio-", ".scope", "", "crio"},
    {"crio-", "", "", "crio"},
};

}  // namespace

Container container_of(std::string_view path) {
  auto last = last_component(path);
  const auto above = last_component(parent_of(path));
  Container container;
  container.pod_uid = pod_uid_of(above);

  for (const auto& form : kForms) {
    if (!last.starts_with(form.prefix) || !last.ends_with(form.suffix)) continue;
    if (last.size() < form.prefix.size() + form.suffix.size()) continue;
    if (!form.parent.empty() && above != form.parent) continue;
    const auto id = last.substr(form.prefix.size(), last.size() - form.prefix.size() - form.suffix.size());
    if (!is_container_id(id)) continue;
    container.runtime = form.runtime;
    container.id = id;
    break;
  }
  // runc's "slice:prefix:name" taken for a folder: containerd with SystemdCgroup off under a systemd kubelet.
  constexpr std::string_view kColon = ":cri-containerd:";
  if (const auto at = last.find(kColon); container.runtime.empty() && at != std::string_view::npos &&
                                         is_container_id(last.substr(at + kColon.size()))) {
    container.runtime = "containerd";
    container.id = last.substr(at + kColon.size());
    container.pod_uid = pod_uid_of(last.substr(0, at));
  }
  // The cgroupfs driver below a pod; docker (dockershim) looked the same until Kubernetes 1.24.
  if (container.runtime.empty() && !container.pod_uid.empty() && is_container_id(last)) {
    container.runtime = "containerd";
    container.id = last;
  }
  if (container.runtime.empty()) return {};
  container.name = container.id.substr(0, 12);
  return container;
}

std::string unit_of(std::string_view path) {
  const auto name = unescape_component(last_component(path));
  if (!has_suffix(name, {".service", ".scope", ".slice", ".socket", ".mount", ".swap"})) return {};
  return std::string(name);
}

std::string_view system_unit_path(std::string_view path) {
  for (std::size_t begin = 0; begin < path.size();) {
    if (path[begin] == '/') {
      ++begin;
      continue;
    }
    const auto end = std::min(path.find('/', begin), path.size());
    const auto component = unescape_component(path.substr(begin, end - begin));
    if (has_suffix(component, {".service", ".scope", ".socket", ".mount", ".swap"}))
      return path.substr(0, end);
    if (!has_suffix(component, {".slice"})) return {};  // units live in slices only
    begin = end;
  }
  return {};
}

bool below_kubepods(std::string_view path) {
  while (!path.empty()) {
    auto component = last_component(path);
    // kubelet --cgroup-root /kubelet (kind does) puts its own name in front.
    if (component.starts_with("kubelet-")) component.remove_prefix(8);
    if (component == "kubepods" || component == "kubepods.slice" || component.starts_with("kubepods-"))
      return true;
    path = parent_of(path);
  }
  return false;
}

std::optional<std::string> docker_name(std::string_view json) {
  // Quotes inside JSON strings are escaped, so this sequence is always a key and its value's beginning. Other
  // objects of the file have names too (volumes, networks); only the container's starts with a slash.
  constexpr std::string_view kKey = "\"Name\":\"/";
  const auto at = json.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  const auto rest = json.substr(at + kKey.size());
  const auto end = rest.find('"');
  if (end == std::string_view::npos || end == 0 || end > 128) return std::nullopt;
  const auto name = rest.substr(0, end);
  // Docker's rule for names: [a-zA-Z0-9][a-zA-Z0-9_.-]+
  const bool valid = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '-';
  });
  return valid ? std::optional<std::string>(name) : std::nullopt;
}

CgroupIdentifier::CgroupIdentifier(const HostRoot& root, const CgroupLayout& layout)
    : root_(root), systemd_running_(exists(root.path("/run/systemd/system"))) {
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

CgroupOwner CgroupIdentifier::owner_of(std::string_view path) const {
  if (below_kubepods(path)) return CgroupOwner::Kubelet;
  if (!systemd_running_ || path.empty() || path == "/") return CgroupOwner::Unmanaged;
  const auto unit = system_unit_path(path);
  if (unit.empty())
    return last_component(path).ends_with(".slice") ? CgroupOwner::Systemd : CgroupOwner::Unmanaged;
  if (unit.size() == path.size()) return CgroupOwner::Systemd;
  // Below a unit that is not delegated systemd writes nothing either: it only knows its own units.
  return delegated(unit) ? CgroupOwner::Delegated : CgroupOwner::Unmanaged;
}

Target CgroupIdentifier::describe(std::string_view path, std::uint64_t inode) const {
  Target target;
  target.id = {TargetKind::Cgroup, inode};
  target.cgroup = path;
  target.owner = owner_of(path);
  // Folders may be named like units where no systemd runs; they are not units then.
  if (systemd_running_) target.unit = unit_of(path);
  target.container = container_of(path);
  if (target.container.runtime == "docker") {
    const auto config = read_file(
        root_.path("/var/lib/docker/containers/" + target.container.id + "/config.v2.json"), 1 << 20);
    if (config)
      if (auto name = docker_name(*config)) target.container.name = std::move(*name);
  }
  if (!target.container.runtime.empty())
    target.name = target.container.name;
  else
    target.name = target.unit.empty() ? target.cgroup : target.unit;
  return target;
}

}  // namespace flash
