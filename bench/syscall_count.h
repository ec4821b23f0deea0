// Purpose: system calls that a stretch of code makes, by name. A forked child runs the code and is stopped by
// ptrace(2) at each call; it marks the stretches itself, so that what it does between them is not counted.
// (Tracepoints would be cheaper, but need a debugfs that containers do not have.)
// Ownership: none.
// Thread rule: the child has one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/result.h"

namespace flash::bench {

/// Passed to the child's code: begins and ends a counted stretch.
class SyscallMarks {
 public:
  void begin() const;
  void end() const;
};

/// Returns whether it came to its end.
using CountedCode = std::function<bool(const SyscallMarks&)>;

/// In the child, `prepare` runs uncounted and at full speed, then the code that it returned (none: it could
/// not) under the tracer. That code and what it holds are destroyed in the child in any case, also where
/// there is no tracer for it. ECANCELED: `stop` was set; the child gets SIGTERM, at which its code shall end.
Result<std::map<std::string, std::uint64_t>> count_syscalls(const std::function<CountedCode()>& prepare,
                                                            const std::atomic<bool>& stop);

}  // namespace flash::bench
