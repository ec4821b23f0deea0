#include "learner/log.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

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

}  // namespace

Say make_log(int level) {
  return [level, journal = stderr_is_journal()](const Event& event) {
    if (event.priority > level) return;
    if (journal) {
      std::vector<std::string> lines = {"MESSAGE=" + event.message,
                                        "PRIORITY=" + std::to_string(event.priority)};
      if (!event.id.empty()) lines.push_back("MESSAGE_ID=" + std::string(event.id));
      for (const EventField& f : event.fields) lines.push_back(std::string(f.key) + "=" + f.value);
      std::vector<iovec> iov;
      iov.reserve(lines.size());
      for (std::string& l : lines) iov.push_back({l.data(), l.size()});
      if (sd_journal_sendv(iov.data(), static_cast<int>(iov.size())) >= 0) return;
    }
    static constexpr const char* kNames[] = {"emerg",   "alert",  "crit", "error",
                                             "warning", "notice", "info", "debug"};
    std::fprintf(stderr, "flash-learner: %s: %s\n", kNames[event.priority & 7], event.message.c_str());
  };
}

}  // namespace flash
