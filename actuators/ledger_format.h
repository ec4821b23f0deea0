// Purpose: the ledger's file as bytes: records with a checksum each, and one over all of them at the end of
// each append.
// Inner part of Ledger.
// Ownership: LedgerWriter fills the caller's text.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "actuators/ledger.h"

namespace flash::ledger {

/// Appends records to `out`.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  void version();
  void boot(std::string_view boot_id);
  void keep(bool keep, std::string_view reason);
  void original(const LedgerEntry& e);
  void intent(std::uint64_t id, double value);
  void confirmed(std::uint64_t id, double value);
  void dropped(std::uint64_t id);
  /// The file's last line; `crc` is that of everything before it, with earlier ends as superseded() makes
  /// them.
  void end(std::uint32_t crc);

 private:
  std::string& out_;
};

/// An end that others follow. The file keeps it, with another byte at kTypeAt, which is written once what
/// follows is whole: a process killed before that leaves an end in force and behind it what it did not
/// finish, and a file that lost its last lines has no end in force. The two bytes differ in several bits.
inline constexpr std::size_t kTypeAt = 9;
inline constexpr char kSuperseded = 'S';
std::string superseded(std::string_view end);

/// The whole file but its end, as short as it can be.
std::string serialise(const LedgerContents& contents);

}  // namespace flash::ledger
