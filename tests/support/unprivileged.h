// Purpose: what a test asks of code that runs without root's rights.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace flash {

/// Whether `claim` holds in a process of its own as the user and group 65534 (nobody). REQUIRES: root.
inline bool holds_unprivileged(const std::function<bool()>& claim) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    ::_exit(claim() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace flash
