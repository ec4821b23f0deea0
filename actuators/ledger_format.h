// Purpose: the ledger's file as bytes: records with a checksum each, and one over all of them at the end.
// Inner part of Ledger. Ownership: LedgerWriter fills the caller's text. Thread rule: pure functions.
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
  /// The file's last line; `crc` is that of everything before it.
  void end(std::uint32_t crc);

 private:
  std::string& out_;
};

/// The whole file but its end, as short as it can be.
std::string serialise(const LedgerContents& contents);

}  // namespace flash::ledger
