// Purpose: cgroups to measure on: a tree of files in memory that looks like a v2 or v1 host and whose
// counters move, or real cgroups of our own.
// Ownership: BenchTree owns what it made and removes it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "host/host_root.h"

namespace flash::bench {

enum class TreeKind : std::uint8_t { FakeV2, FakeV1, Real };
std::string_view to_string(TreeKind k);  // "v2", "v1", "real"

/// Waits a little for the kernel to take leave of processes that ended in it.
void remove_cgroup(const std::string& directory);

class BenchTree {
 public:
  static Result<std::unique_ptr<BenchTree>> make(TreeKind kind, int targets);
  ~BenchTree();
  BenchTree(const BenchTree&) = delete;
  BenchTree& operator=(const BenchTree&) = delete;

  HostRoot root() const { return HostRoot(kind_ == TreeKind::Real ? "/" : directory_); }
  /// Selects our cgroups and nothing else.
  std::string glob() const { return "/" + group_ + "/*"; }
  const std::string& directory() const { return directory_; }
  std::string state_directory() const { return directory_ + "/state"; }
  /// One second of load on every cgroup: usage swings between 10 % and 90 % of a core. Fake trees only.
  void advance(std::uint64_t step);

 private:
  BenchTree(TreeKind kind, int targets) : kind_(kind), targets_(targets) {}
  Result<void> build_fake();
  Result<void> build_real();
  void put(const std::string& below, std::string_view text);

  const TreeKind kind_;
  const int targets_;
  std::string directory_;  // in memory: the fake machine, and the ledger
  std::string group_;
  std::vector<std::string> made_;  // real cgroups, parents first
  std::vector<std::uint64_t> usage_us_;
};

}  // namespace flash::bench
