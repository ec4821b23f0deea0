#include "host/cgroup_layout.h"

#include <dirent.h>

#include <memory>
#include <vector>

#include "host/file_io.h"
#include "host/parse.h"

namespace flash {
namespace {

struct ControllerName {
  CgroupController controller;
  std::string_view v1;  // as mount option and as mount point
  std::string_view v2;  // in cgroup.controllers; "" = in every v2 cgroup
};
constexpr std::array<ControllerName, kControllerCount> kNames = {{
    {CgroupController::Cpu, "cpu", "cpu"},
    {CgroupController::CpuAcct, "cpuacct", ""},
    {CgroupController::Memory, "memory", "memory"},
    {CgroupController::Io, "blkio", "io"},
    {CgroupController::Pids, "pids", "pids"},
    {CgroupController::CpuSet, "cpuset", "cpuset"},
    {CgroupController::Freezer, "freezer", ""},
    {CgroupController::Pressure, "", ""},
}};

struct Hierarchy {
  CgroupVersion version;
  std::string directory;
  std::vector<std::string> controllers;
};

std::vector<std::string> split(std::string_view text, char sep) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = text.find(sep);
    if (at != 0) parts.emplace_back(text.substr(0, at));
    text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  }
  return parts;
}

std::vector<std::string> v2_controllers(const std::string& directory) {
  const auto text = read_file(directory + "/cgroup.controllers");
  std::vector<std::string> names;
  if (text)
    for (auto word : split_words(*text)) names.emplace_back(word);
  return names;
}

std::vector<Hierarchy> from_mounts(const HostRoot& root) {
  std::vector<Hierarchy> found;
  const auto text = read_file(root.proc("self/mountinfo"), 8 << 20);
  if (!text) return found;
  const auto mounts = parse_mountinfo(*text);
  if (!mounts) return found;
  for (const auto& mount : *mounts) {
    const auto directory = root.path(mount.point);
    if (mount.type == "cgroup2")
      found.push_back({CgroupVersion::V2, directory, v2_controllers(directory)});
    else if (mount.type == "cgroup")
      found.push_back({CgroupVersion::V1, directory, split(mount.super_options, ',')});
  }
  return found;
}

std::vector<Hierarchy> from_tree(const HostRoot& root) {
  std::vector<Hierarchy> found;
  const auto top = root.sys("fs/cgroup");
  if (exists(top + "/cgroup.controllers")) {
    found.push_back({CgroupVersion::V2, top, v2_controllers(top)});
    return found;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(top.c_str()), ::closedir);
  if (!dir) return found;
  while (const dirent* entry = ::readdir(dir.get())) {  // NOLINT(concurrency-mt-unsafe): own stream
    const std::string name = entry->d_name;
    const auto path = top + "/" + name;
    if (name.starts_with('.')) continue;
    if (exists(path + "/cgroup.controllers"))
      found.push_back({CgroupVersion::V2, path, v2_controllers(path)});
    else
      found.push_back({CgroupVersion::V1, path, split(name, ',')});  // "cpu,cpuacct" serves both
  }
  return found;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  for (const auto& item : list)
    if (item == word) return true;
  return false;
}

}  // namespace

Result<CgroupLayout> CgroupLayout::detect(const HostRoot& root) {
  auto hierarchies = from_mounts(root);
  if (hierarchies.empty()) hierarchies = from_tree(root);

  CgroupLayout layout;
  // A controller is in one hierarchy only. A second mount of the same hierarchy (containers bind some) adds
  // nothing, so the first wins.
  for (const auto& name : kNames) {
    Place& place = layout.at(name.controller);
    for (const auto& h : hierarchies) {
      if (place.version != CgroupVersion::None) break;
      if (h.version == CgroupVersion::V1 && !name.v1.empty() && contains(h.controllers, name.v1))
        place = {CgroupVersion::V1, h.directory};
    }
    for (const auto& h : hierarchies) {
      if (place.version != CgroupVersion::None) break;
      if (h.version == CgroupVersion::V2 && (name.v2.empty() || contains(h.controllers, name.v2)))
        place = {CgroupVersion::V2, h.directory};
    }
  }
  // systemd on v1 makes a unit's folder in a hierarchy only while a setting of the unit needs it: memory for
  // all (DefaultMemoryAccounting=yes), cpu for few, so cpu could not tell which units there are.
  const bool systemd = exists(root.path("/run/systemd/system"));
  const auto first = systemd ? CgroupController::Memory : CgroupController::Cpu;
  for (const auto c : {first, CgroupController::Cpu, CgroupController::Memory, CgroupController::Pressure}) {
    if (layout.version(c) == CgroupVersion::None) continue;
    layout.reference_ = c;
    break;
  }
  if (layout.reference_mount().empty())
    return Error(std::errc::no_such_file_or_directory,
                 "no cgroup file system is mounted below " + root.sys("fs/cgroup"));
  layout.unified_ = layout.version(layout.reference_) == CgroupVersion::V2;
  for (const auto& place : layout.places_) layout.unified_ &= place.version != CgroupVersion::V1;
  return layout;
}

std::string CgroupLayout::directory(CgroupController c, std::string_view cgroup) const {
  const auto& base = mount(c);
  if (base.empty()) return {};
  while (!cgroup.empty() && cgroup.front() == '/') cgroup.remove_prefix(1);
  while (!cgroup.empty() && cgroup.back() == '/') cgroup.remove_suffix(1);
  return cgroup.empty() ? base : base + "/" + std::string(cgroup);
}

std::string CgroupLayout::describe() const {
  std::string v1;
  for (const auto& name : kNames)
    if (version(name.controller) == CgroupVersion::V1)
      v1 += (v1.empty() ? "cgroup v1: " : ", ") + std::string(name.v1);
  return v1.empty() ? "cgroup v2" : v1;
}

}  // namespace flash
