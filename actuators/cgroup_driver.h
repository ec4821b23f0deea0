// Purpose: limits of cgroups that we may write directly: nobody known, a delegated subtree, or below the
// kubelet when the rule allows it. Which limits there are, and in which files: actuators/limit_files.
//
// Writes go through libcgroup, reads through kept descriptors (1 us against 7 to 19 us of libcgroup's
// getters). libcgroup 2.0.2 as it really is:
//   - cgroup_modify_cgroup() writes every value in the struct, so each write makes a new struct with the one
//     value, and nothing is ever got and then modified; cgroup_create_cgroup() is never called (it enables
//     controllers in all ancestors).
//   - a missing file and a missing cgroup are the same error, and its last errno may be an old one. Where it
//     fails, the file is written directly once: that gives the kernel's own answer.
//   - it looks for mounts in /proc/mounts of the running machine, so for any other root (tests, --root) files
//     are written directly.
//
// Locator: "INODE PATH", the inode of the directory in the hierarchy of that knob (v1: cpu and memory have
// their own). Before every write the path must still lead to that inode: a re-created cgroup is another one.
//
// Owners. A knob whose file the process may not write (a rootless container's, a user's own subdirectory) is
// offered as blocked, before anything is tried. One that is given away while it is in control can be put back
// all the same: the descriptor that was opened for the first write stays writable, whoever owns the file by
// then.
//
// Ownership: keeps one to three file descriptors per knob until it finds the cgroup gone.
// Thread rule: one thread; the first real one initialises libcgroup for the process.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "actuators/limit_files.h"
#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

class CgroupDriver final : public KnobDriver {
 public:
  CgroupDriver(const HostRoot& root, CgroupLayout layout);
  ~CgroupDriver() override;

  std::string_view name() const override { return "cgroupfs"; }
  Result<std::vector<KnobInfo>> discover(const Target& target, const Rule& rule) override;
  Result<KnobReading> read(const KnobRef& ref) override;
  Result<void> write(const KnobRef& ref, double value) override;
  Result<void> restore(const KnobRef& ref, const std::string& raw) override;
  void close(const KnobRef& ref) override;

 private:
  struct Open;
  Result<Open*> open(const KnobRef& ref);
  Result<KnobReading> read_open(const Open& knob) const;
  Result<void> still_there(const Open& knob) const;
  void keep_writable(Open& knob) const;
  Result<void> put(Open& knob, const char* file, const std::string& text);
  Result<void> give_back(Open& knob, const char* file, const std::string& text);
  Open* opened(const KnobRef& ref);
  Result<bool> look(const LimitFile& row, const std::string& why_not, KnobInfo& info);
  static std::string why_blocked(const Target& target, const Rule& rule, const std::string& why_not);

  HostRoot root_;
  CgroupLayout layout_;
  bool libcgroup_ = false;
  std::unordered_map<std::string, std::vector<std::unique_ptr<Open>>> open_;  // by locator
};

/// The locator of a cgroup's knob, for drivers that write cgroups by other means. ENOENT: no such cgroup.
Result<std::string> cgroup_locator(const CgroupLayout& layout, CgroupController controller,
                                   std::string_view cgroup);

}  // namespace flash
