// Purpose: who sends StatsD lines, and for which applications that process may speak: those of rules whose
// target it lives in, and those whose rule names its cgroup (slo.statsd.senders). Also a budget per sender,
// so that what one sends takes nothing from others: the same that the door keeps in the kernel
// (bpf/statsd_door.h), for machines where that cannot be loaded.
//
// How a sender is known: the kernel says the sender's process number and when it sent. A process that has
// that number now, and had started before then, is the sender: numbers are given again only when their
// process is gone. What is known of a process is kept while it lives, and its cgroup is read again for what
// it sent since the last time. A process that ended before its datagram was read is not known.
//
// Ownership: keeps copies, and two descriptors per recent sender, of which there are at most kMostSenders.
// Thread rule: one thread. No clock: the caller says when.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/bpf/statsd_door.bpf.h"
#include "core/target.h"
#include "core/time.h"
#include "host/cgroup_layout.h"
#include "host/held_process.h"
#include "host/host_root.h"

namespace flash {

/// Budgets in bytes, a datagram costing FLASH_DATAGRAM_COST beside its own. The largest datagram fits in
/// each. A target's processes: what is left at 6,000 small datagrams per second, or 40,000 lines in large
/// ones.
inline constexpr flash_budget kMemberBudget = {2 << 20, 4 << 20};
/// Senders that may speak for no application are read a little, so that they can be named.
inline constexpr flash_budget kStrangerBudget = {8 << 10, 128 << 10};
inline constexpr flash_budget kStrangersBudget = {32 << 10, 256 << 10};
/// Where a rule lets anybody speak.
inline constexpr flash_budget kAnybodysBudget = {4 << 20, 8 << 20};

class StatsdSenders {
 public:
  static constexpr std::size_t kMostSenders = 256;

  struct Sender {
    std::string cgroup;                     // its path; empty: not known
    std::vector<std::string> applications;  // that it may speak for, ascending
    bool target = false;                    // it lives in a target that it may speak for
    bool named = false;                     // a rule names its cgroup, not just anybody's
    std::string account;                    // whose budget it spends
    bool may_speak_for(std::string_view application) const;
  };

  /// `layout`: null where there are no cgroups; then only rules that let anybody speak are spoken for.
  StatsdSenders(HostRoot root, const CgroupLayout* layout);

  void track(const Target& target);
  void untrack(TargetId id);
  /// A rule lets anybody speak for its application.
  const CgroupLayout* layout() const { return layout_ ? &*layout_ : nullptr; }
  bool anybody() const { return anybody_ > 0; }
  /// What both sides of the socket keep.
  flash_door_settings budgets() const;
  /// Grows when the applications that senders may speak for may have changed.
  std::uint64_t generation() const { return generation_; }

  /// Who sent it. `sent` and `now` on CLOCK_BOOTTIME; `now` is not after this call. Good until the next call.
  const Sender& find(pid_t pid, Duration sent, Duration now);
  /// An unknown sender: it may speak for applications that anybody may speak for.
  const Sender& nobody();

  /// Is there so much left of the sender's budget? Taken, if so.
  bool afford(const Sender& sender, std::size_t bytes, Duration now);

  /// Forgets processes that sent nothing since the last call.
  void end_tick();
  /// Does a rule name this cgroup, or one above it?
  bool names(const std::string& cgroup) const;
  /// What rules name without wildcards.
  std::vector<std::string> spelled_out() const;
  /// Directory of a cgroup in the hierarchy that stands for it; empty: there is none.
  std::string directory_of(const std::string& cgroup) const;

 private:
  struct Voice {
    std::string application;
    std::string cgroup;  // the target's; empty: it has none
    std::vector<std::string> senders;
    bool anybody = false;
  };
  struct Known {
    HeldProcess process;
    Duration alive_at{};  // it was, at this time
    std::string text;     // of its cgroups then
    Sender sender;
    std::uint64_t generation = 0;
    bool spoke = false;  // in this tick
  };
  bool look(Known& known, Duration now);
  void place(Known& known);
  void give_voice(Sender& sender) const;

  HostRoot root_;
  std::optional<CgroupLayout> layout_;
  std::string controller_;  // as /proc/PID/cgroup has it; empty: v2
  std::unordered_map<TargetId, Voice> voices_;
  std::size_t anybody_ = 0;
  std::uint64_t generation_ = 1;
  std::unordered_map<pid_t, Known> known_;
  Sender nobody_;
  std::uint64_t nobody_generation_ = 0;
  std::vector<char> buffer_;
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::unordered_map<std::string, __u64, NameHash, std::equal_to<>> paid_ns_;  // by account
  __u64 strangers_paid_ns_ = 0;
};

}  // namespace flash
