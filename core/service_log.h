// Purpose: how a program of this project logs: events with journald fields where stderr is the journal, lines
// elsewhere. Programs log; rooms return errors.
// Ownership: value.
// Thread rule: any thread.
#pragma once

#include <syslog.h>

#include <span>
#include <string>
#include <string_view>

namespace flash {

struct LogField {
  std::string_view key;  // upper case, "FLASHD_TARGET"
  std::string value;
};

class ServiceLog {
 public:
  /// `program` is static; what is less important than `level` (syslog's priorities) is not said.
  explicit ServiceLog(const char* program, int level = LOG_INFO);

  void set_level(int level) { level_ = level; }
  /// One line, whatever `text` holds (core/printable.h); fields stay as they are for journalctl to match.
  /// MESSAGE_ID among the fields makes events of a kind findable: journalctl MESSAGE_ID=...
  void operator()(int priority, std::string_view text, std::span<const LogField> fields = {}) const;

 private:
  const char* program_;
  int level_;
  bool journal_;
};

}  // namespace flash
