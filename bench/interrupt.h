// Purpose: how a measurement ends early. A flag that the handler of signals sets is asked by loops and waits,
// which then return, so that destructors remove what was made.
// Ownership: none.
// Thread rule: any thread; stop_at_signals() once, from main().
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/result.h"

namespace flash::bench {

constexpr int kAsk_ms = 50;  // between looks at the flag of what waits for something else: poll(2)

/// Set by the first SIGHUP, SIGINT or SIGTERM after stop_at_signals().
inline std::atomic<bool> stopped = false;

/// For what has to be undone at the end. What nohup and shells had us ignore stays ignored.
inline void stop_at_signals() {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM})
    if (::signal(signal, [](int) { stopped = true; }) == SIG_IGN) ::signal(signal, SIG_IGN);
}

inline Error interrupted() {
  return Error(std::errc::operation_canceled, "interrupted");
}

/// Sleeps. ECANCELED as soon as `stop` is set.
inline Result<void> wait(std::chrono::nanoseconds time, const std::atomic<bool>& stop) {
  const auto until = std::chrono::steady_clock::now() + time;
  for (auto now = until - time; !stop && now < until; now = std::chrono::steady_clock::now())
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(until - now, std::chrono::milliseconds(20)));
  if (stop) return interrupted();
  return {};
}

/// In a forked child: SIGTERM, so that it cleans up too, when `parent` ends.
inline void end_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::raise(SIGTERM);
}

}  // namespace flash::bench
