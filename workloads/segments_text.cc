#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "workloads/segment.h"

namespace flash {

std::uint64_t run_text_json(SegmentScratch& scratch) {
  constexpr int kOrders = 40;
  auto& text = scratch.text;
  text = "{\"orders\":[";
  for (int i = 0; i < kOrders; ++i) {
    scratch.seed = scratch.seed * 6364136223846793005U + 1442695040888963407U;
    text += (i == 0 ? "" : ",");
    text += "{\"id\":" + std::to_string(i) + ",\"customer\":\"c" + std::to_string(scratch.seed >> 50) +
            "\",\"paid\":" + (scratch.seed & 1U ? "true" : "false") +
            ",\"cents\":" + std::to_string((scratch.seed >> 40) % 10000) + "}";
  }
  text += "]}";
  const auto document = nlohmann::json::parse(text);
  std::uint64_t sum = 0;
  for (const auto& order : document.at("orders")) {
    sum += order.at("cents").get<std::uint64_t>() + order.at("customer").get_ref<const std::string&>().size();
  }
  return sum;
}

std::uint64_t run_compress(SegmentScratch& scratch) {
  constexpr std::size_t kInput = 16 * 1024;
  constexpr int kHashBits = 12;
  constexpr std::size_t kMatchMin = 4;
  auto& input = scratch.input;
  auto& output = scratch.output;
  auto& table = scratch.table;
  if (input.size() != kInput) {
    constexpr std::string_view kWords[] = {"request ", "latency ",   "target ", "the ",
                                           "of ",      "frequency ", "limit\n"};
    input.clear();
    for (std::uint64_t state = 7; input.size() < kInput;) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const auto word = kWords[(state >> 33) % std::size(kWords)];
      input.insert(input.end(), word.begin(), word.end());
      input.push_back(static_cast<std::uint8_t>('a' + (state >> 57) % 26));
    }
    input.resize(kInput);
    output.reserve(2 * kInput);
  }
  table.assign(std::size_t{1} << kHashBits, 0);
  output.clear();
  input[scratch.seed++ % kInput] ^= 1U;  // never twice the same text
  std::size_t literal_start = 0;
  for (std::size_t i = 0; i + kMatchMin <= kInput;) {
    std::uint32_t word;
    std::memcpy(&word, &input[i], sizeof word);
    auto& slot = table[(word * 2654435761U) >> (32 - kHashBits)];
    const std::size_t candidate = slot;
    slot = static_cast<std::uint32_t>(i);
    std::size_t length = 0;
    if (candidate < i) {
      while (i + length < kInput && length < 255 && input[candidate + length] == input[i + length]) {
        ++length;
      }
    }
    if (length < kMatchMin) {
      ++i;
      continue;
    }
    output.insert(output.end(), input.begin() + static_cast<std::ptrdiff_t>(literal_start),
                  input.begin() + static_cast<std::ptrdiff_t>(i));
    const std::size_t distance = i - candidate;
    output.insert(output.end(), {static_cast<std::uint8_t>(length), static_cast<std::uint8_t>(distance >> 8),
                                 static_cast<std::uint8_t>(distance)});
    i += length;
    literal_start = i;
  }
  output.insert(output.end(), input.begin() + static_cast<std::ptrdiff_t>(literal_start), input.end());
  return output.size();
}

}  // namespace flash
