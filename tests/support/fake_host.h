// Purpose: a machine as a folder of files. A test spells the tree as one nested expression and gets readers
// on it:
//   FakeHost host{cgroup_v2({dir("app.slice", {file("memory.high", "1.5\n")})})};
//   EXPECT_EQ(host.cgroup("/app.slice")->memory_limit().error().code(), std::errc::invalid_argument);
// Ownership: FakeHost owns a temporary folder and removes it.
// Thread rule: one thread.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/cgroup.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

/// A file or, with `entries`, a folder.
struct FakeEntry {
  std::string name;  // may hold slashes
  bool is_dir = false;
  std::string text;
  std::vector<FakeEntry> entries;
};

inline FakeEntry file(std::string name, std::string text) {
  return {std::move(name), false, std::move(text), {}};
}
inline FakeEntry dir(std::string name, std::vector<FakeEntry> entries = {}) {
  return {std::move(name), true, {}, std::move(entries)};
}
inline FakeEntry proc(std::vector<FakeEntry> entries) {
  return dir("proc", std::move(entries));
}
inline FakeEntry sys(std::vector<FakeEntry> entries) {
  return dir("sys", std::move(entries));
}
/// The unified hierarchy, at sys/fs/cgroup.
inline FakeEntry cgroup_v2(std::vector<FakeEntry> entries) {
  entries.push_back(file("cgroup.controllers", "cpuset cpu io memory pids\n"));
  return dir("sys/fs/cgroup", std::move(entries));
}
/// One v1 hierarchy: cgroup_v1("memory", ...), cgroup_v1("cpu,cpuacct", ...).
inline FakeEntry cgroup_v1(const std::string& controller, std::vector<FakeEntry> entries) {
  return dir("sys/fs/cgroup/" + controller, std::move(entries));
}

class FakeHost {
 public:
  FakeHost(std::initializer_list<FakeEntry> entries) : FakeHost(std::vector<FakeEntry>(entries)) {}
  explicit FakeHost(const std::vector<FakeEntry>& entries) {
    // In memory where that is possible: trees are small, short-lived and many.
    std::string name = "/dev/shm/flash-fake-host-XXXXXX";
    if (!::mkdtemp(name.data())) {
      name = (std::filesystem::temp_directory_path() / "flash-fake-host-XXXXXX").string();
      if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp " + name);
    }
    path_ = name;
    add("", entries);
  }
  ~FakeHost() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  HostRoot root() const { return HostRoot(path_.string()); }
  const std::filesystem::path& path() const { return path_; }
  Result<CgroupLayout> layout() const { return CgroupLayout::detect(root()); }
  Result<Cgroup> cgroup(std::string path) const {
    FLASH_TRY(const auto found, layout());
    return Cgroup::open(found, std::move(path));
  }

  /// Adds (or overwrites) entries below `below` ("sys/fs/cgroup/app.slice").
  void add(const std::string& below, const std::vector<FakeEntry>& entries) {
    std::filesystem::create_directories(path_ / below);
    for (const auto& entry : entries) {
      const std::string name = below.empty() ? entry.name : below + "/" + entry.name;
      if (entry.is_dir)
        add(name, entry.entries);
      else
        write(name, entry.text);
    }
  }
  /// Same inode, new text: descriptors kept open see it, as with a kernel file.
  void write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// A file or whole folder goes. Descriptors kept open read nothing any more (the kernel: ENODEV).
  void remove(const std::string& name) {
    const auto target = path_ / name;
    if (std::filesystem::is_directory(target)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(target))
        if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 0);
    } else if (std::filesystem::is_regular_file(target)) {
      std::filesystem::resize_file(target, 0);
    }
    std::filesystem::remove_all(target);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace flash
