// Purpose: the durable record of what every knob was before we touched it, so that another process can put it
// back after a stop, a crash or kill -9.
//
// <directory>/ledger is a text file of records; one record is one line:
//
//   <crc32 of the rest, 8 hex digits> <type>\t<field>\t...\n         (tab, newline and backslash are escaped)
//   V 2                       the file has an end (E); one of an earlier version has not, and is read as well
//   B boot-id                 the records below belong to this boot
//   K keep|restore reason     what the restorer shall do if it finds this file now
//   O id kind target-kind target driver locator value raw when
//                             the original, before our first write
//   I id value                we are about to write value
//   W id value                value was read back after our write
//   D id                      restored, or given up to another writer: forget it
//   E crc                     the end: CRC-32 of all bytes before it
//
// What it must survive. The settings themselves (cgroup files, cpufreq files, systemd's runtime properties)
// do not survive a reboot, so records of another boot only say that there is nothing to put back. Within a
// boot the enemy is kill -9: what write(2) took is in the page cache and survives it. Hence an original is
// synced with fdatasync (one per begin(), and only if it brings a new original) before the knob is first
// written; intents, confirmations and drops are written without a sync. A lost confirmation leaves an open
// intent, which restore reads as "ours"; a lost drop leaves an entry whose knob is either at its original
// (nothing to do) or at a value that is not ours (left alone).
//
// And damage: what is not as it was written is never acted upon, and always said. Each line has its checksum;
// lines that are missing or out of place, and a file that was cut off, are seen at the end, which each write
// puts further down. Originals, and the boot that they are of, are in the file twice, not next to each other.
// Records whose boot cannot be read count as this boot's, but then only the very values that we wrote are
// ours.
//
// Who may write it. The directory and the files belong to root (or the process's user) and nobody else can
// write them; our files are no links. Whoever removes or replaces the file while knobs are under control is
// noticed before the next write: no knob is written, and the file is written again (ensure()).
//
// Ownership: owns its descriptors and an exclusive lock on <directory>/ledger.lock, which the kernel drops
// with the process.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actuators/crc32.h"
#include "core/ports.h"
#include "core/result.h"
#include "core/time.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

struct LedgerEntry {
  std::uint64_t id = 0;
  KnobRef ref;
  double original = 0;
  std::string raw;          // what the driver's restore() takes
  std::int64_t when_s = 0;  // wall clock, seconds: of the first write
  double confirmed = 0;     // last value read back after a write of ours; NaN: none yet
  double intended = 0;      // last value announced; NaN: none
  /// Announced and not confirmed: whatever is in force now may be ours (drivers round).
  bool open_intent = false;
  std::string boot;  // of which boot; empty: not to be read
  /// The file was damaged: a value that we know nothing of may still be ours, so it is not taken for settled.
  bool doubtful = false;
};

struct LedgerContents {
  std::string boot_id;
  std::map<std::uint64_t, LedgerEntry> entries;  // by id
  bool keep = false;
  std::string keep_reason;
  std::vector<std::string> problems;  // "line 7: checksum does not match"
  /// The last line was cut short, as a crash in mid-write leaves it. No problem: its write never happened.
  bool torn_tail = false;
  /// The end that a file of this version has is missing: a part was lost. What a process that was killed did
  /// not finish is behind an end.
  bool cut_short = false;
  std::size_t records = 0;  // readable ones
  std::size_t size = 0;     // bytes before a torn tail
  Crc32 crc;                // of these, but for `end`
  std::string end;          // the last line, if it is an end and nothing follows
};

/// Pure; accepts any bytes. Every readable record counts, an unreadable one is named in `problems`.
LedgerContents parse_ledger(std::string_view text);

struct LedgerIntent {
  std::uint64_t id = 0;  // in/out: 0 for a knob that has no entry yet
  const KnobRef* ref = nullptr;
  double original = 0;
  std::string_view raw;
  double value = 0;
};

struct LedgerValue {
  std::uint64_t id = 0;
  double value = 0;
};

/// What ensure() found.
enum class LedgerState : std::uint8_t {
  Same,
  Opened,     // only now. Its entries are those of an earlier process
  Rewritten,  // it had been removed or replaced
};

class Ledger {
 public:
  /// Creates the directory if need be. EWOULDBLOCK: another process (a running flashd) has it. EPERM: others
  /// could write it. A file that has problems is kept beside it as ledger.damaged. Entries of another boot
  /// are set aside in previous_boot().
  static Result<Ledger> open(const std::string& directory, std::string boot_id);
  /// One that takes nothing: every begin() fails with `reason`, so that no knob is written (a dry run).
  static Ledger unwritable(std::string reason);
  /// The same until `open`, which ensure() calls now and then, gives one.
  static Ledger waiting(std::string reason, std::function<Result<Ledger>()> open);
  ~Ledger();
  Ledger(Ledger&&) noexcept = default;
  Ledger& operator=(Ledger&&) noexcept = delete;

  /// Is there a file, and is it still the one at its path? Else opens or writes it, again after 1, 2, 4 ...
  /// 60 s if that fails; the error says why no knob is written.
  Result<LedgerState> ensure(Now now);
  /// While `reason` is not empty, begin() and ensure() fail with it: somebody else may be in control.
  void forbid(std::string reason) { forbidden_ = std::move(reason); }
  /// Why no knob is written now, though knobs should be; empty: they are.
  const std::string& trouble() const;

  /// Before a write. On an error the file is as it was, and the caller must write no knob.
  Result<void> begin(Now now, std::span<LedgerIntent> intents);
  /// After it, with what was read back.
  Result<void> confirm(std::span<const LedgerValue> values);
  /// The knob is at its original again, has vanished, or belongs to another writer now.
  Result<void> drop(std::span<const std::uint64_t> ids);
  /// What the restorer shall do if it finds this ledger after we ended, however we ended.
  Result<void> set_keep(bool keep, std::string_view reason);

  const LedgerEntry* find(const KnobRef& ref) const;
  const LedgerEntry* find(std::uint64_t id) const;
  const std::map<std::uint64_t, LedgerEntry>& entries() const { return contents_.entries; }
  const std::vector<LedgerEntry>& previous_boot() const { return previous_boot_; }
  const std::vector<std::string>& problems() const { return contents_.problems; }
  bool keep() const { return contents_.keep; }
  const std::string& keep_reason() const { return contents_.keep_reason; }
  const std::string& path() const { return path_; }

 private:
  Ledger() = default;
  Ledger(std::string directory, Fd lock);
  static Result<Fd> lock(const std::string& directory);
  Result<void> load(std::string boot_id);
  Result<void> append(std::string_view text, bool durable);
  Result<void> compact();
  bool in_place() const;
  void take(Ledger&& other);

  std::string directory_, path_;
  std::string unwritable_;  // not empty: why nothing is taken
  std::string forbidden_;
  std::function<Result<Ledger>()> open_;  // while there is none
  Duration retry_at_{}, retry_after_{};
  Fd lock_;
  Fd file_;
  static constexpr std::size_t kCompactAbove = 1 << 20;
  std::size_t size_ = 0;  // of the file
  Crc32 crc_;             // of the same without its end
  std::string end_;       // its last line; empty: it has none
  std::size_t compact_above_ = kCompactAbove;
  std::uint64_t next_id_ = 1;
  std::string owed_;  // drops that could not be written
  LedgerContents contents_;
  std::vector<LedgerEntry> previous_boot_;
};

/// /proc/sys/kernel/random/boot_id below the root; empty where there is none (fake roots).
std::string boot_id(const HostRoot& root);

}  // namespace flash
