#include <cstring>

#include "lab/workloads/segment.h"
#include "lab/workloads/working_set.h"

namespace flash {

namespace {

constexpr std::size_t kMatchMin = 4;
constexpr std::size_t kMatchMax = 255;
constexpr std::size_t kLiteralsMax = 255;
constexpr std::size_t kDistanceMax = 65535;

// A token: how many literals follow, the length of the match after them (0: none) and its distance.
void put_token(std::vector<std::uint8_t>& out, const std::uint8_t* literals, std::size_t count,
               std::size_t length, std::size_t distance) {
  while (count > kLiteralsMax) {
    out.insert(out.end(), {std::uint8_t{kLiteralsMax}, 0, 0, 0});
    out.insert(out.end(), literals, literals + kLiteralsMax);
    literals += kLiteralsMax;
    count -= kLiteralsMax;
  }
  out.insert(out.end(), {static_cast<std::uint8_t>(count), static_cast<std::uint8_t>(length),
                         static_cast<std::uint8_t>(distance >> 8), static_cast<std::uint8_t>(distance)});
  out.insert(out.end(), literals, literals + count);
}

void compress(std::span<const std::uint8_t> in, std::vector<std::uint32_t>& table,
              std::vector<std::uint8_t>& out) {
  constexpr int kHashBits = 12;
  table.assign(std::size_t{1} << kHashBits, 0);
  out.clear();
  std::size_t literal_start = 0;
  for (std::size_t i = 0; i + kMatchMin <= in.size();) {
    std::uint32_t word;
    std::memcpy(&word, &in[i], sizeof word);
    auto& slot = table[(word * 2654435761U) >> (32 - kHashBits)];
    const std::size_t candidate = slot;
    slot = static_cast<std::uint32_t>(i);
    std::size_t length = 0;
    if (candidate < i && i - candidate <= kDistanceMax) {
      while (i + length < in.size() && length < kMatchMax && in[candidate + length] == in[i + length]) {
        ++length;
      }
    }
    if (length < kMatchMin) {
      ++i;
      continue;
    }
    put_token(out, &in[literal_start], i - literal_start, length, i - candidate);
    i += length;
    literal_start = i;
  }
  put_token(out, in.data() + literal_start, in.size() - literal_start, 0, 0);
}

// Rows of the tables: 128 bytes, the first row of each page belongs to WorkingSet::touch().
constexpr std::size_t kRow = 128;
static_assert(kRow == kTouchedBytes);
constexpr std::size_t kRowsPerPage = kPageBytes / kRow - 1;

std::span<const std::uint8_t> table_of(SegmentScratch& scratch) {
  if (scratch.memory.size() >= kPageBytes) {
    return scratch.memory;
  }
  scratch.small_memory.resize(4 * kPageBytes);
  return scratch.small_memory;
}

const std::uint8_t* row_of(std::span<const std::uint8_t> table, std::size_t row) {
  return table.data() + row / kRowsPerPage * kPageBytes + (1 + row % kRowsPerPage) * kRow;
}

std::uint64_t load(const std::uint8_t* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::uint64_t run_compress(SegmentScratch& scratch, std::uint64_t bytes) {
  auto& input = scratch.input;
  extend_with_words(input, bytes);
  input[scratch.seed++ % bytes] ^= 1U;  // never twice the same text
  compress(std::span(input).first(bytes), scratch.table, scratch.output);
  return scratch.output.size();
}

std::uint64_t run_decompress(SegmentScratch& scratch, std::uint64_t bytes) {
  auto& packed = scratch.packed;
  auto& plain = scratch.output;
  if (scratch.input.size() < bytes) {
    extend_with_words(scratch.input, bytes);
    compress(scratch.input, scratch.table, packed);
  }
  plain.clear();
  for (std::size_t at = 0; at + 4 <= packed.size() && plain.size() < bytes;) {
    const std::size_t literals = packed[at];
    const std::size_t length = packed[at + 1];
    const std::size_t distance = std::size_t{packed[at + 2]} << 8 | packed[at + 3];
    at += 4;
    plain.insert(plain.end(), packed.begin() + static_cast<std::ptrdiff_t>(at),
                 packed.begin() + static_cast<std::ptrdiff_t>(at + literals));
    at += literals;
    for (std::size_t i = 0, from = plain.size() - distance; i < length; ++i) {
      plain.push_back(plain[from + i]);
    }
  }
  return plain.size() + plain[scratch.seed++ % plain.size()];
}

std::uint64_t run_table_scan(SegmentScratch& scratch, std::uint64_t items) {
  const auto table = table_of(scratch);
  const std::size_t rows = table.size() / kPageBytes * kRowsPerPage;
  std::size_t row = (scratch.seed * 2654435761U) % rows;  // another part of the table each time
  ++scratch.seed;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < items; ++i) {
    const std::uint8_t* at = row_of(table, row);
    const std::uint64_t customer = load(at);
    const std::uint64_t amount = load(at + 64);
    if (((customer ^ i) * 0x9E3779B97F4A7C15U) >> 62 != 0) {  // three rows in four, in no order
      sum += amount + i;
    }
    row = row + 1 == rows ? 0 : row + 1;
  }
  return sum;
}

std::uint64_t run_table_lookup(SegmentScratch& scratch, std::uint64_t lookups) {
  const auto table = table_of(scratch);
  const std::size_t rows = table.size() / kPageBytes * kRowsPerPage;
  std::uint64_t key = scratch.seed;
  for (std::uint64_t i = 0; i < lookups; ++i) {
    key = (key + load(row_of(table, (key >> 33) % rows))) * 6364136223846793005U + 1442695040888963407U;
  }
  scratch.seed = key;
  return key;
}

}  // namespace flash
