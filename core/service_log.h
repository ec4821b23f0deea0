// Purpose: how a program of the house logs: lines on stderr that journald sorts by priority (sd-daemon(3)),
// in words on a terminal. Programs log; rooms return errors. Ownership: value. Thread rule: any thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace flash {

class ServiceLog {
 public:
  /// `program` is static; what is less important than `level` is not said (syslog's priorities).
  ServiceLog(const char* program, int level)
      : program_(program), level_(level), journal_(std::getenv("JOURNAL_STREAM") != nullptr) {}

  void operator()(int priority, const std::string& text) const {
    if (priority > level_) return;
    static constexpr const char* kNames[] = {"emerg",   "alert",  "crit", "error",
                                             "warning", "notice", "info", "debug"};
    if (journal_)
      std::fprintf(stderr, "<%d>%s\n", priority, text.c_str());
    else
      std::fprintf(stderr, "%s: %s: %s\n", program_, kNames[priority & 7], text.c_str());
  }

 private:
  const char* program_;
  int level_;
  bool journal_;
};

}  // namespace flash
