// Purpose: system calls that a stretch of code makes, by name. A forked child runs the code and is stopped by
// ptrace(2) at each call; it marks the stretches itself, so that what it does between them is not counted.
// (Tracepoints would be cheaper, but need a debugfs that containers do not have.)
// Ownership: none. Thread rule: the child has one thread.
#pragma once

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

/// `prepare` runs uncounted and at full speed, then `code` under the tracer.
Result<std::map<std::string, std::uint64_t>> count_syscalls(
    const std::function<bool()>& prepare, const std::function<void(const SyscallMarks&)>& code);

}  // namespace flash::bench
