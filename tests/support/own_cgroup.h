// Purpose: a cgroup of a test on the running kernel.
// Ownership: removes it again.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/target.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash {

/// One cgroup of the path (which begins with "/flashd-test-") in every hierarchy that serves what flashd
/// reads.
class OwnCgroup {
 public:
  OwnCgroup(const CgroupLayout& layout, std::string path) : path_(std::move(path)) {
    using C = CgroupController;
    for (const auto c : {layout.reference(), C::Cpu, C::CpuAcct, C::Memory, C::Io, C::Pids, C::Pressure}) {
      const auto directory = layout.directory(c, path_);
      if (directory.empty() || std::ranges::count(directories_, directory) > 0) continue;
      if (::mkdir(directory.c_str(), 0755) == 0)
        directories_.push_back(directory);
      else
        ADD_FAILURE() << Error::from_errno(errno, directory).message();
    }
    if (!directories_.empty()) inode_ = inode_of(directories_.front()).value_or(0);
  }
  ~OwnCgroup() { remove(); }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  void remove() {
    using namespace std::chrono_literals;
    for (const auto& directory : directories_) {
      // EBUSY: the kernel has not yet taken leave of a process that ended.
      for (int i = 0; i < 200 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i)
        std::this_thread::sleep_for(10ms);
    }
    directories_.clear();
  }
  const std::string& path() const { return path_; }
  /// One per hierarchy, the layout's reference first.
  const std::vector<std::string>& directories() const { return directories_; }
  Target target() const {
    Target t;
    t.id = {TargetKind::Cgroup, inode_};
    t.cgroup = path_;
    return t;
  }

 private:
  std::string path_;
  std::vector<std::string> directories_;
  std::uint64_t inode_ = 0;
};

}  // namespace flash
