#include <array>
#include <string_view>

#include "core/json.h"
#include "lab/workloads/segment.h"

namespace flash {

namespace {

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state;
}

}  // namespace

std::uint64_t run_text_json(SegmentScratch& scratch, std::uint64_t bytes) {
  auto& text = scratch.text;
  text = "{\"orders\":[";
  for (int i = 0; i == 0 || text.size() + 2 < bytes; ++i) {
    next_random(scratch.seed);
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

void extend_with_words(std::vector<std::uint8_t>& text, std::uint64_t bytes) {
  constexpr std::string_view kWords[] = {"request ", "latency ",   "target ", "the ",
                                         "of ",      "frequency ", "limit\n"};
  for (std::uint64_t state = 7 + text.size(); text.size() < bytes;) {
    next_random(state);
    const auto word = kWords[(state >> 33) % std::size(kWords)];
    text.insert(text.end(), word.begin(), word.end());
    text.push_back(static_cast<std::uint8_t>('a' + (state >> 57) % 26));
  }
}

std::uint64_t run_text_search(SegmentScratch& scratch, std::uint64_t bytes) {
  constexpr std::size_t kBuckets = 1024;
  auto& input = scratch.input;
  extend_with_words(input, bytes);
  input[next_random(scratch.seed) % bytes] = 'z';
  auto& counts = scratch.table;
  counts.assign(kBuckets, 0);
  std::uint32_t hash = 0;
  for (const std::uint8_t c : std::span(input).first(bytes)) {
    const bool letter = (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
    if (letter) {
      hash = (hash ^ c) * 16777619U;
    } else if (hash != 0) {
      ++counts[(hash >> 7) % kBuckets];
      hash = 0;
    }
  }
  std::uint64_t distinct = 0;
  for (const auto count : counts) {
    distinct += count > 0;
  }
  return distinct * 1'000'003 + counts[scratch.seed % kBuckets];
}

std::uint64_t run_web_page(SegmentScratch& scratch, std::uint64_t bytes) {
  auto& page = scratch.text;
  page = "<!doctype html><html><body><table>";
  const auto escape = [&page](std::string_view text) {
    for (const char c : text) {
      switch (c) {
        case '<':
          page += "&lt;";
          break;
        case '>':
          page += "&gt;";
          break;
        case '&':
          page += "&amp;";
          break;
        default:
          page += c;
      }
    }
  };
  while (page.size() < bytes) {
    next_random(scratch.seed);
    page += "<tr><td>";
    escape("customer <" + std::to_string(scratch.seed >> 44) + "> & sons");
    page += "</td><td class=\"amount\">";
    escape(std::to_string((scratch.seed >> 20) % 1'000'000));
    page += "</td></tr>";
  }
  page += "</table></body></html>";
  std::uint64_t checksum = page.size();
  for (std::size_t i = 0; i < page.size(); i += 61) {
    checksum = checksum * 31 + static_cast<unsigned char>(page[i]);
  }
  return checksum;
}

}  // namespace flash
