#include "core/service_log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/printable.h"

namespace flash {
namespace {

/// Is stderr the journal? systemd puts "DEVICE:INODE" of the stream into $JOURNAL_STREAM (systemd.exec(5)).
bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat st = {};
  if (!stream || fstat(STDERR_FILENO, &st) != 0) return false;
  unsigned long long device = 0, inode = 0;
  return std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 && device == st.st_dev && inode == st.st_ino;
}

bool to_journal(int priority, std::string_view text, std::span<const LogField> fields) {
  std::vector<std::string> lines;
  lines.reserve(fields.size() + 2);
  lines.push_back("MESSAGE=" + std::string(text));
  lines.push_back("PRIORITY=" + std::to_string(priority));
  for (const LogField& f : fields) lines.push_back(std::string(f.key) + "=" + f.value);
  std::vector<iovec> iov;
  iov.reserve(lines.size());
  for (std::string& l : lines) iov.push_back({l.data(), l.size()});
  return sd_journal_sendv(iov.data(), static_cast<int>(iov.size())) >= 0;
}

}  // namespace

ServiceLog::ServiceLog(const char* program, int level)
    : program_(program), level_(level), journal_(stderr_is_journal()) {}

void ServiceLog::operator()(int priority, std::string_view text, std::span<const LogField> fields) const {
  if (priority > level_) return;
  const std::string line = printable_line(text);
  if (journal_ && to_journal(priority, line, fields)) return;
  static constexpr const char* kNames[] = {"emerg",   "alert",  "crit", "error",
                                           "warning", "notice", "info", "debug"};
  std::fprintf(stderr, "%s: %s: %s\n", program_, kNames[priority & 7], line.c_str());
}

}  // namespace flash
