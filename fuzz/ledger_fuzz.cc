// The ledger's file after any damage. First the bytes as they are; then each line again under a checksum that
// is right, so that what the checksum protects is reached too. Never fatal; what is read can be acted upon.
#include <cstdint>
#include <string>
#include <string_view>

#include "actuators/ledger.h"
#include "fuzz/require.h"

namespace {

std::uint32_t crc32(std::string_view text) {
  std::uint32_t crc = ~0U;
  for (const unsigned char byte : text) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) ? 0xEDB88320U ^ (crc >> 1) : crc >> 1;
  }
  return ~crc;
}

std::string with_checksums(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.size() > 9 && line[8] == ' ') line.remove_prefix(9);  // its own checksum, as in the seeds
    std::uint32_t crc = crc32(line);
    char digits[8];
    for (int i = 7; i >= 0; --i, crc >>= 4) digits[i] = "0123456789abcdef"[crc & 15];
    out.append(digits, sizeof digits).append(" ").append(line).append("\n");
  }
  return out;
}

void read(std::string_view text) {
  const flash::LedgerContents contents = flash::parse_ledger(text);
  for (const auto& [id, entry] : contents.entries) {
    FUZZ_REQUIRE(id == entry.id);
    FUZZ_REQUIRE(static_cast<std::size_t>(entry.ref.kind.kind) < flash::kKnobs.size());
    FUZZ_REQUIRE(entry.ref.target.kind == flash::TargetKind::Cgroup ||
                 entry.ref.target.kind == flash::TargetKind::CpuSet);
  }
  FUZZ_REQUIRE(contents.size <= text.size());
  // A torn tail is no record; all others were understood or are problems.
  if (text.ends_with('\n')) FUZZ_REQUIRE(!contents.torn_tail);
  FUZZ_REQUIRE(contents.records + contents.problems.size() <= text.size());
  for (const std::string& problem : contents.problems) FUZZ_REQUIRE(!problem.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(text);
  read(with_checksums(text));
  return 0;
}
