#include "daemon/hurt_records.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/durable_file.h"
#include "core/json.h"
#include "host/file_io.h"
#include "host/safe_path.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kMost = 4096;            // records
constexpr std::uint64_t kMostTimes = 1 << 20;  // hurts and failures
constexpr double kMostSeconds = 9e9;           // Unix time, as WallTime can hold it

std::string path_in(const std::string& directory) {
  return directory + "/hurts.json";
}

}  // namespace

std::string hurt_records_text(std::span<const HurtRecord> records) {
  json all = json::array();
  for (const HurtRecord& r : records.first(std::min(records.size(), kMost)))
    all.push_back({{"rule", r.rule},
                   {"target", r.target},
                   {"hurts", r.hurts},
                   {"failures", r.failures},
                   {"until_s", seconds(r.out_until.time_since_epoch())}});
  return all.dump(1, ' ', false, json::error_handler_t::replace) + '\n';
}

Result<std::vector<HurtRecord>> parse_hurt_records(std::string_view text) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_array()) return Error(std::errc::invalid_argument, "no JSON array");
  std::vector<HurtRecord> records;
  for (const json& one : all) {
    if (records.size() >= kMost || !one.is_object()) break;
    const auto of = [&one](const char* key) { return one.contains(key) ? one[key] : json(); };
    const json rule = of("rule"), target = of("target"), hurts = of("hurts"), failures = of("failures"),
               until = of("until_s");
    if (!rule.is_string() || !target.is_string() || !hurts.is_number_unsigned() ||
        !failures.is_number_unsigned() || !until.is_number())
      continue;
    HurtRecord r;
    r.rule = rule.get<std::string>();
    r.target = target.get<std::string>();
    r.hurts = std::min(hurts.get<std::uint64_t>(), kMostTimes);
    r.failures = std::min(failures.get<std::uint64_t>(), kMostTimes);
    r.out_until = WallTime(from_seconds(std::clamp(until.get<double>(), 0.0, kMostSeconds)));
    records.push_back(std::move(r));
  }
  return records;
}

Result<std::vector<HurtRecord>> read_hurt_records(const std::string& directory) {
  if (const auto ours = check_directory(directory); !ours) {
    if (ours.error().is(std::errc::no_such_file_or_directory)) return std::vector<HurtRecord>{};
    return ours.error();
  }
  const auto text = read_file(path_in(directory), 4 << 20);
  if (!text && text.error().is(std::errc::no_such_file_or_directory)) return std::vector<HurtRecord>{};
  if (!text) return text.error();
  return parse_hurt_records(*text);
}

Result<void> write_hurt_records(const std::string& directory, std::span<const HurtRecord> records) {
  FLASH_CHECK(check_directory(directory));
  return write_durable_file(path_in(directory), hurt_records_text(records), {.synced = false});
}

}  // namespace flash
