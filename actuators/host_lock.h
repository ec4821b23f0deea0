// Purpose: one flashd per host, whatever its state directory is: two of them would take each other's values
// for originals. A lock on a file that does not depend on the configuration, and which says where the ledger
// of the one who had it last is.
// Ownership: owns the descriptor; the kernel drops the lock with the process.
// Thread rule: one thread.
#pragma once

#include <string>

#include "core/result.h"
#include "host/file_io.h"

namespace flash {

class HostLock {
 public:
  /// Makes the file's directory if need be. EWOULDBLOCK: another flashd has it; the message names its
  /// process.
  static Result<HostLock> take(const std::string& path, const std::string& state_directory);

  /// What previous_directory() would be, without the lock.
  static std::string last_directory(const std::string& path);

  /// The state directory of the flashd before this one on this host, since it was booted; empty: none.
  const std::string& previous_directory() const { return previous_; }

 private:
  HostLock(Fd file, std::string previous) : file_(std::move(file)), previous_(std::move(previous)) {}

  Fd file_;
  std::string previous_;
};

}  // namespace flash
