#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "lab/workloads/segment.h"

namespace flash {

std::uint64_t run_floating_point(SegmentScratch& scratch, std::uint64_t operations) {
  double x = 1.0 + static_cast<double>(scratch.seed % 1024) / 1024.0;
  for (std::uint64_t i = 0; i < operations; ++i) {
    x = x * 0.9999993 + 1e-3;  // each step waits for the last: no vector unit can shorten it
    if (i % 8 == 0) {
      x = std::sqrt(x * x + 1e-6);
    }
  }
  scratch.seed = std::bit_cast<std::uint64_t>(x) >> 20;
  return scratch.seed;
}

std::uint64_t run_matrix(SegmentScratch& scratch, std::uint64_t dimension) {
  const std::size_t n = dimension;
  const std::size_t size = n * n;
  auto& numbers = scratch.numbers;
  for (std::size_t i = numbers.size(); i < 2 * size; ++i) {
    numbers.push_back(static_cast<double>((i * 2654435761U) % 1000) / 1000.0);
  }
  scratch.product.resize(std::max(scratch.product.size(), size));
  const double* a = numbers.data();
  const double* b = a + size;
  double* c = scratch.product.data();
  for (std::size_t i = 0; i < n; ++i) {
    double* row = c + i * n;
    std::fill(row, row + n, 0.0);
    for (std::size_t k = 0; k < n; ++k) {
      const double factor = a[i * n + k];
      for (std::size_t j = 0; j < n; ++j) {
        row[j] += factor * b[k * n + j];
      }
    }
  }
  scratch.seed = std::bit_cast<std::uint64_t>(c[scratch.seed % size] + 1.0) >> 20;
  return scratch.seed;
}

std::uint64_t run_image(SegmentScratch& scratch, std::uint64_t dimension) {
  constexpr std::size_t kChannels = 3;
  const std::size_t n = dimension;
  auto& in = scratch.input;
  auto& out = scratch.output;
  const std::size_t bytes = n * n * kChannels;
  for (std::size_t i = in.size(); i < bytes; ++i) {
    in.push_back(static_cast<std::uint8_t>((i * 2654435761U) >> 13));
  }
  out.assign(bytes, 0);
  in[scratch.seed++ % bytes] ^= 1U;
  const auto at = [&](std::size_t y, std::size_t x, std::size_t c) -> unsigned {
    return in[(y * n + x) * kChannels + c];
  };
  for (std::size_t y = 1; y + 1 < n; ++y) {
    for (std::size_t x = 1; x + 1 < n; ++x) {
      for (std::size_t c = 0; c < kChannels; ++c) {
        const unsigned sum = at(y - 1, x - 1, c) + 2 * at(y - 1, x, c) + at(y - 1, x + 1, c) +
                             2 * at(y, x - 1, c) + 4 * at(y, x, c) + 2 * at(y, x + 1, c) +
                             at(y + 1, x - 1, c) + 2 * at(y + 1, x, c) + at(y + 1, x + 1, c);
        out[(y * n + x) * kChannels + c] = static_cast<std::uint8_t>(sum / 16);
      }
    }
  }
  std::uint64_t checksum = 0;
  for (std::size_t y = 0; y + 1 < n; y += 2) {
    for (std::size_t x = 0; x + 1 < n; x += 2) {
      for (std::size_t c = 0; c < kChannels; ++c) {
        const auto pixel = [&](std::size_t dy, std::size_t dx) -> unsigned {
          return out[((y + dy) * n + x + dx) * kChannels + c];
        };
        checksum = checksum * 31 + (pixel(0, 0) + pixel(0, 1) + pixel(1, 0) + pixel(1, 1)) / 4;
      }
    }
  }
  return checksum;
}

std::uint64_t run_sort(SegmentScratch& scratch, std::uint64_t items) {
  auto& table = scratch.table;
  table.resize(items);
  for (auto& item : table) {
    scratch.seed = scratch.seed * 6364136223846793005U + 1442695040888963407U;
    item = static_cast<std::uint32_t>(scratch.seed >> 32);
  }
  std::sort(table.begin(), table.end());
  return table.empty() ? 0 : table[table.size() / 2];
}

namespace {

// FIPS 180-4, 4.2.2.
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using HashState = std::array<std::uint32_t, 8>;

void hash_block(HashState& state, const std::uint8_t* block) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 |
           std::uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const auto s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const auto s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const auto t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const auto t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const HashState add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) {
    state[i] += add[i];
  }
}

}  // namespace

std::uint64_t run_hash(SegmentScratch& scratch, std::uint64_t bytes) {
  constexpr std::size_t kBlock = 64;
  const std::size_t blocks = bytes / kBlock + 1;
  auto& input = scratch.input;
  extend_with_words(input, blocks * kBlock);
  ++input[0];
  HashState state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (std::size_t i = 0; i < blocks; ++i) {
    hash_block(state, input.data() + i * kBlock);
  }
  return std::uint64_t{state[0]} << 32 | state[1];
}

}  // namespace flash
