// What the kernel's files hold: the first byte picks the parser, the rest is the text. Any text is either an
// error or a value that such a file can hold.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "collectors/perf_event.h"
#include "fuzz/require.h"
#include "host/parse.h"
#include "host/process_place.h"

namespace flash {
namespace {

void amount(const Result<double>& value) {
  if (value) FUZZ_REQUIRE(*value >= 0);  // +inf is none; NaN is not
}

void flat_keyed(std::string_view text) {
  std::uint64_t usage = 0, periods = 0;
  KeyField fields[] = {{"usage_usec", &usage}, {"nr_periods", &periods, false}};
  const auto parsed = parse_flat_keyed(text, fields);
  FUZZ_REQUIRE(!parsed || fields[0].found);
}

/// Rows passed over are rows of the text, and at least one other was read where there is a value.
template <class T>
void rows(std::string_view text, Result<T> (*parse)(std::string_view, SkippedRows*)) {
  SkippedRows skipped;
  const auto parsed = parse(text, &skipped);
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  FUZZ_REQUIRE(skipped.count <= lines && skipped.first <= lines);
  FUZZ_REQUIRE((skipped.count == 0) == (skipped.first == 0));
  FUZZ_REQUIRE(!parsed || skipped.count < lines);
}

void proc_stat(std::string_view text) {
  CpuTicks total;
  std::array<CpuTicks, 8> cpus;
  SkippedRows skipped;
  const auto parsed = parse_proc_stat(text, total, cpus, &skipped);
  FUZZ_REQUIRE(!parsed || total.present);
}

void mountinfo(std::string_view text) {
  if (const auto mounts = parse_mountinfo(text)) {
    for (const Mount& mount : *mounts) FUZZ_REQUIRE(!mount.type.empty());
  }
}

void process_cgroups(std::string_view text) {
  const auto cgroups = parse_process_cgroups(text);
  if (!cgroups) return;
  FUZZ_REQUIRE(!cgroups->empty());
  for (const ProcessCgroup& c : *cgroups) FUZZ_REQUIRE(c.path.starts_with('/'));
}

void perf(std::string_view text) {
  std::vector<std::uint64_t> words(text.size() / sizeof(std::uint64_t));
  if (!words.empty()) std::memcpy(words.data(), text.data(), words.size() * sizeof words[0]);
  const auto reading = parse_perf_reading(words);
  if (!reading) return;
  FUZZ_REQUIRE(reading->running_ns <= reading->enabled_ns);
  PerfSum sum;
  sum.add({}, *reading);
  FUZZ_REQUIRE(std::isfinite(sum.scaled[0]) && std::isfinite(sum.scaled[1]));
  FUZZ_REQUIRE(sum.coverage() >= 0 && sum.coverage() <= 1);
  (void)judge_pmu(sum, sum.enabled_ns, 1);
}

struct Parser {
  char pick;
  void (*run)(std::string_view text);
};
constexpr Parser kParsers[] = {
    {'u',
     [](std::string_view t) {
       const auto value = parse_u64(t);
       if (value) FUZZ_REQUIRE(*parse_u64(std::to_string(*value)) == *value);
     }},
    {'i',
     [](std::string_view t) {
       const auto value = parse_i64(t);
       if (value) FUZZ_REQUIRE(*parse_i64(std::to_string(*value)) == *value);
     }},
    {'l', [](std::string_view t) { amount(parse_limit_v2(t)); }},
    {'L', [](std::string_view t) { amount(parse_limit_v1(t)); }},
    {'c', [](std::string_view t) { amount(parse_cpu_max(t)); }},
    {'C',
     [](std::string_view t) {
       // Quota and period are two files.
       const auto at = t.find('|');
       amount(
           parse_cfs_limit(t.substr(0, at), at == t.npos ? std::string_view("100000\n") : t.substr(at + 1)));
     }},
    {'k', flat_keyed},
    {'s', [](std::string_view t) { (void)parse_stat_key(t, "inactive_file"); }},
    {'p', [](std::string_view t) { rows(t, parse_pressure); }},
    {'o', [](std::string_view t) { rows(t, parse_io_stat); }},
    {'b', [](std::string_view t) { rows(t, parse_blkio_bytes); }},
    {'t', proc_stat},
    {'m', [](std::string_view t) { rows(t, parse_meminfo); }},
    {'n', mountinfo},
    {'w',
     [](std::string_view t) {
       for (const std::string_view word : split_words(t)) FUZZ_REQUIRE(!word.empty());
     }},
    {'g',
     [](std::string_view t) {
       for (const std::string_view controller : {"", "cpu", "memory"}) {
         const auto path = parse_process_cgroup(t, controller);
         FUZZ_REQUIRE(!path || (path->starts_with('/') && t.find(*path) != t.npos));
       }
     }},
    {'S', [](std::string_view t) { (void)parse_process_start(t); }},
    {'P', perf},
    {'G', process_cgroups},
    {'N',
     [](std::string_view t) {
       const auto namespaces = parse_pid_namespaces(t);
       FUZZ_REQUIRE(!namespaces || *namespaces > 0);
     }},
};

}  // namespace
}  // namespace flash

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const flash::Parser& parser : flash::kParsers)
    if (static_cast<char>(data[0]) == parser.pick) parser.run(text);
  return 0;
}
