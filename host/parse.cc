#include "host/parse.h"

#include <algorithm>
#include <charconv>

namespace flash {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Error invalid(std::string_view text, std::string_view what) {
  // Text comes from outside: bounded, and no control characters into messages.
  std::string shown;
  for (char c : text.substr(0, 40)) shown += (c < ' ' || c > '~') ? '?' : c;
  return Error(std::errc::invalid_argument, "'" + shown + "' is not " + std::string(what));
}

template <class T>
Result<T> parse_number(std::string_view text, std::string_view what) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec == std::errc::result_out_of_range) return Error(ec, std::string(what) + " out of range");
  if (ec != std::errc() || end != text.data() + text.size()) return invalid(text, what);
  return value;
}

/// Takes the text up to `sep` off the front; the separator is dropped.
std::string_view take(std::string_view& rest, char sep) {
  const auto at = rest.find(sep);
  const auto head = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
  return head;
}

/// Takes the next word off the front, skipping spaces and tabs.
std::string_view take_word(std::string_view& rest) {
  const auto begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    rest = {};
    return {};
  }
  const auto end = rest.find_first_of(" \t", begin);
  const auto word = rest.substr(begin, end == std::string_view::npos ? end : end - begin);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end);
  return word;
}

bool add_checked(std::uint64_t& sum, std::uint64_t value) {
  return !__builtin_add_overflow(sum, value, &sum);
}

const Error& overflow() {
  static const Error error(std::errc::result_out_of_range, "sum over devices out of range");
  return error;
}

}  // namespace

std::string_view chomp(std::string_view text) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return text;
}

Result<std::uint64_t> parse_u64(std::string_view text) {
  return parse_number<std::uint64_t>(chomp(text), "a non-negative number");
}

Result<std::int64_t> parse_i64(std::string_view text) {
  return parse_number<std::int64_t>(chomp(text), "a number");
}

Result<double> parse_limit_v2(std::string_view text) {
  if (chomp(text) == "max") return kInf;
  FLASH_TRY(const auto bytes, parse_u64(text));
  return static_cast<double>(bytes);
}

Result<double> parse_limit_v1(std::string_view text) {
  FLASH_TRY(const auto bytes, parse_u64(text));
  // PAGE_COUNTER_MAX pages; the largest page of any architecture is 64 KiB.
  constexpr std::uint64_t kUnlimitedFrom = (std::uint64_t{1} << 63) - 65536;
  return bytes >= kUnlimitedFrom ? kInf : static_cast<double>(bytes);
}

Result<double> parse_cpu_max(std::string_view text) {
  std::string_view rest = chomp(text);
  const auto quota_text = take(rest, ' ');
  FLASH_TRY(const auto period, parse_number<std::uint64_t>(rest, "a period in us"));
  if (period == 0) return Error(std::errc::invalid_argument, "CPU period of 0");
  if (quota_text == "max") return kInf;
  FLASH_TRY(const auto quota, parse_number<std::uint64_t>(quota_text, "a quota in us or 'max'"));
  return static_cast<double>(quota) / static_cast<double>(period);
}

Result<double> parse_cfs_limit(std::string_view quota_text, std::string_view period_text) {
  FLASH_TRY(const auto quota, parse_i64(quota_text));
  FLASH_TRY(const auto period, parse_u64(period_text));
  if (period == 0) return Error(std::errc::invalid_argument, "CPU period of 0");
  if (quota == -1) return kInf;
  if (quota < 0) return invalid(chomp(quota_text), "a quota in us or -1");
  return static_cast<double>(quota) / static_cast<double>(period);
}

Result<void> parse_flat_keyed(std::string_view text, std::span<KeyField> fields) {
  for (auto& field : fields) field.found = false;
  std::size_t missing = fields.size();
  while (!text.empty() && missing > 0) {
    auto line = take(text, '\n');
    const auto key = take(line, ' ');
    for (auto& field : fields) {
      if (field.found || field.key != key) continue;
      auto number = parse_number<std::uint64_t>(line, "a non-negative number");
      if (!number) return std::move(number).error().context(key);
      *field.value = *number;
      field.found = true;
      --missing;
      break;
    }
  }
  for (const auto& field : fields)
    if (field.required && !field.found)
      return Error(std::errc::invalid_argument, "no line '" + std::string(field.key) + "'");
  return {};
}

Result<std::uint64_t> parse_stat_key(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; ++at) {
    const bool line_start = at == 0 || text[at - 1] == '\n';
    const auto after = at + key.size();
    if (!line_start || after >= text.size() || text[after] != ' ') continue;
    auto rest = text.substr(after + 1);
    return parse_number<std::uint64_t>(take(rest, '\n'), "a non-negative number");
  }
  return Error(std::errc::invalid_argument, "no line '" + std::string(key) + "'");
}

Result<PressureTotals> parse_pressure(std::string_view text) {
  PressureTotals totals;
  bool has_some = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto line = take(rest, '\n');
    const bool some = line.starts_with("some ");
    const bool full = line.starts_with("full ");
    const auto at = line.rfind(" total=");
    if ((!some && !full) || at == std::string_view::npos) return invalid(line, "a line of a pressure file");
    FLASH_TRY(const auto us, parse_number<std::uint64_t>(line.substr(at + 7), "a total in us"));
    (some ? totals.some_us : totals.full_us) = us;
    has_some |= some;
    totals.has_full |= full;
  }
  if (!has_some) return Error(std::errc::invalid_argument, "no line 'some'");
  return totals;
}

Result<IoBytes> parse_io_stat(std::string_view text) {
  IoBytes sum;
  while (!text.empty()) {
    auto line = take(text, '\n');
    const auto device = take_word(line);
    if (device.find(':') == std::string_view::npos) return invalid(device, "a device number");
    while (!line.empty()) {
      auto field = take_word(line);
      if (field.empty()) break;
      const auto key = take(field, '=');
      if (key != "rbytes" && key != "wbytes") continue;
      FLASH_TRY(const auto bytes, parse_number<std::uint64_t>(field, "a number of bytes"));
      if (!add_checked(key == "rbytes" ? sum.read : sum.written, bytes)) return overflow();
    }
  }
  return sum;
}

Result<IoBytes> parse_blkio_bytes(std::string_view text) {
  IoBytes sum;
  while (!text.empty()) {
    auto line = take(text, '\n');
    const auto device = take_word(line);
    if (device == "Total") continue;
    if (device.find(':') == std::string_view::npos) return invalid(device, "a device number");
    const auto operation = take_word(line);
    if (operation != "Read" && operation != "Write") continue;
    FLASH_TRY(const auto bytes, parse_number<std::uint64_t>(take_word(line), "a number of bytes"));
    if (!add_checked(operation == "Read" ? sum.read : sum.written, bytes)) return overflow();
  }
  return sum;
}

Result<void> parse_proc_stat(std::string_view text, CpuTicks& total, std::span<CpuTicks> per_cpu) {
  total = {};
  std::fill(per_cpu.begin(), per_cpu.end(), CpuTicks{});
  // CPU lines come first; the interrupt counters after them are long.
  while (text.starts_with("cpu")) {
    auto line = take(text, '\n');
    auto name = take_word(line).substr(3);
    CpuTicks* ticks = &total;
    if (!name.empty()) {
      FLASH_TRY(const auto cpu, parse_number<std::uint32_t>(name, "a CPU number"));
      ticks = cpu < per_cpu.size() ? &per_cpu[cpu] : nullptr;
    }
    std::array<std::uint64_t, 7> t{};  // user nice system idle iowait irq softirq
    for (auto& field : t) {
      FLASH_TRY(field, parse_number<std::uint64_t>(take_word(line), "a number of ticks"));
    }
    if (!ticks) continue;
    for (std::size_t i : {0, 1, 2, 5, 6})
      if (!add_checked(ticks->busy, t[i])) return overflow();
    for (std::size_t i : {3, 4})
      if (!add_checked(ticks->idle, t[i])) return overflow();
    ticks->present = true;
  }
  if (!total.present) return Error(std::errc::invalid_argument, "no line 'cpu'");
  return {};
}

Result<MemInfo> parse_meminfo(std::string_view text) {
  MemInfo info;
  const std::pair<std::string_view, std::uint64_t*> wanted[] = {{"MemTotal:", &info.total_bytes},
                                                                {"MemAvailable:", &info.available_bytes}};
  std::size_t found = 0;
  while (!text.empty() && found < 2) {
    auto line = take(text, '\n');
    const auto key = take_word(line);
    for (const auto& [name, value] : wanted) {
      if (key != name) continue;
      FLASH_TRY(const auto kib, parse_number<std::uint64_t>(take_word(line), "a number of kB"));
      if (take_word(line) != "kB" || kib > (std::uint64_t{1} << 53))
        return invalid(key, "a line of /proc/meminfo");
      *value = kib * 1024;
      ++found;
    }
  }
  if (found < 2) return Error(std::errc::invalid_argument, "no MemTotal or MemAvailable");
  return info;
}

namespace {

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape_octal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ptr == text.data() + i + 4 &&
        value < 256) {
      out += static_cast<char>(value);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<std::vector<Mount>> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const auto whole = take(text, '\n');
    if (whole.empty()) continue;
    auto line = whole;
    for (int skip = 0; skip < 3; ++skip) take_word(line);  // mount id, parent id, device
    const auto root = take_word(line);
    const auto point = take_word(line);
    // Options and any number of optional fields, ended by a lone "-".
    std::string_view field = take_word(line);
    while (!field.empty() && field != "-") field = take_word(line);
    const auto type = take_word(line);
    take_word(line);  // source
    const auto options = take_word(line);
    if (field != "-" || !root.starts_with('/') || !point.starts_with('/') || type.empty())
      return invalid(whole, "a line of mountinfo");
    mounts.push_back({unescape_octal(root), unescape_octal(point), std::string(type), std::string(options)});
  }
  return mounts;
}

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  text = chomp(text);
  if (text.empty()) return cpus;
  std::string_view rest = text;
  bool more = true;
  while (more) {
    more = rest.find(',') != std::string_view::npos;
    auto range = take(rest, ',');
    const bool pair = range.find('-') != std::string_view::npos;
    FLASH_TRY(const auto first, parse_number<std::uint32_t>(take(range, '-'), "a CPU number"));
    auto last = first;
    if (pair) {
      FLASH_TRY(last, parse_number<std::uint32_t>(range, "a CPU number"));
    }
    if (last < first || last > static_cast<std::uint32_t>(kMaxCpu)) return invalid(text, "a list of CPUs");
    if (cpus.size() > static_cast<std::size_t>(kMaxCpu)) return invalid(text, "a list of CPUs");
    for (auto cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string format_cpu_list(std::span<const int> cpus) {
  std::string out;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    if (!out.empty()) out += ',';
    out += std::to_string(cpus[i]);
    if (end > i) out += '-' + std::to_string(cpus[end]);
    i = end + 1;
  }
  return out;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  text = chomp(text);
  for (auto word = take_word(text); !word.empty(); word = take_word(text)) words.push_back(word);
  return words;
}

}  // namespace flash
