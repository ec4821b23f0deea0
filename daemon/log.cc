#include "daemon/log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace flash {
namespace {

int level = LOG_INFO;

/// Is stderr the journal? systemd puts "DEVICE:INODE" of the stream into $JOURNAL_STREAM (systemd.exec(5)).
bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat st = {};
  if (!stream || fstat(STDERR_FILENO, &st) != 0) return false;
  unsigned long long device = 0, inode = 0;
  return std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 && device == st.st_dev && inode == st.st_ino;
}

}  // namespace

void set_log_level(int priority) {
  level = priority;
}

void log(int priority, std::string_view message, std::initializer_list<LogField> fields) {
  if (priority > level) return;
  static const bool journal = stderr_is_journal();
  if (journal) {
    std::vector<std::string> lines;
    lines.reserve(fields.size() + 2);
    lines.push_back("MESSAGE=" + std::string(message));
    lines.push_back("PRIORITY=" + std::to_string(priority));
    for (const LogField& f : fields) lines.push_back(std::string(f.key) + "=" + f.value);
    std::vector<iovec> iov;
    iov.reserve(lines.size());
    for (std::string& l : lines) iov.push_back({l.data(), l.size()});
    if (sd_journal_sendv(iov.data(), static_cast<int>(iov.size())) >= 0) return;
  }
  static constexpr const char* kNames[] = {"emerg",   "alert",  "crit", "error",
                                           "warning", "notice", "info", "debug"};
  std::fprintf(stderr, "flashd: %s: %.*s\n", kNames[priority & 7], static_cast<int>(message.size()),
               message.data());
}

}  // namespace flash
