#include "host/parse.h"

#include <algorithm>
#include <charconv>
#include <optional>

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

/// The same where a row that has none is just passed over: no message is made.
template <class T = std::uint64_t>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
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

/// The rows of a text, one after another, and what becomes of them.
class Rows {
 public:
  Rows(std::string_view text, SkippedRows* skipped) : rest_(text), skipped_(skipped) {}

  /// False at the end. Empty rows are none.
  bool next(std::string_view& row) {
    while (!rest_.empty()) {
      row = take(rest_, '\n');
      ++number_;
      if (row.ends_with('\r')) row.remove_suffix(1);
      if (row.find_first_not_of(" \t") != std::string_view::npos) return true;
    }
    return false;
  }
  /// The row that next() gave last cannot be read.
  void skip(std::string_view row) {
    if (own_.count++ == 0) {
      own_.first = number_;
      shown_ = row;
    }
    if (!skipped_) return;
    if (skipped_->count++ == 0) skipped_->first = number_;
  }
  /// Why nothing was found.
  Error nothing(std::string_view wanted) const {
    if (own_.count > 0) return invalid(shown_, wanted);
    return Error(std::errc::invalid_argument, "no " + std::string(wanted.substr(wanted.find(' ') + 1)));
  }
  bool skipped_any() const { return own_.count > 0; }

 private:
  std::string_view rest_;
  SkippedRows* skipped_;
  SkippedRows own_;
  std::string_view shown_;
  std::uint32_t number_ = 0;
};

/// "key value" and nothing else. False: the value is no number.
bool last_number(std::string_view line, std::uint64_t& value) {
  const auto word = take_word(line);
  const auto number = number_in(word);
  if (!number || !take_word(line).empty()) return false;
  value = *number;
  return true;
}

/// "8:0".
bool is_device(std::string_view word) {
  const auto major = take(word, ':');
  const auto digits = [](std::string_view t) {
    return !t.empty() && t.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return digits(major) && digits(word);
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

Result<void> parse_flat_keyed(std::string_view text, std::span<KeyField> fields, SkippedRows* skipped) {
  for (auto& field : fields) field.found = false;
  Rows rows(text, skipped);
  std::size_t missing = fields.size();
  for (std::string_view row; missing > 0 && rows.next(row);) {
    auto line = row;
    const auto key = take_word(line);
    for (auto& field : fields) {
      if (field.found || field.key != key) continue;
      field.found = last_number(line, *field.value);
      if (field.found)
        --missing;
      else
        rows.skip(row);
      break;
    }
  }
  for (const auto& field : fields)
    if (field.required && !field.found)
      return Error(std::errc::invalid_argument,
                   "no line '" + std::string(field.key) + "' with a non-negative number");
  if (missing == fields.size() && missing > 0) return rows.nothing("a line with a non-negative number");
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

Result<PressureTotals> parse_pressure(std::string_view text, SkippedRows* skipped) {
  PressureTotals totals;
  Rows rows(text, skipped);
  for (std::string_view row; rows.next(row);) {
    auto line = row;
    const auto name = take_word(line);
    const bool some = name == "some", full = name == "full";
    std::optional<std::uint64_t> us;
    for (auto field = take_word(line); !field.empty(); field = take_word(line)) {
      if (take(field, '=') != "total") continue;
      if (const auto total = number_in(field)) us = *total;
    }
    if ((!some && !full) || !us) {
      rows.skip(row);
      continue;
    }
    (some ? totals.some_us : totals.full_us) = *us;
    totals.has_some |= some;
    totals.has_full |= full;
  }
  if (!totals.has_some && !totals.has_full) return rows.nothing("a line of a pressure file");
  return totals;
}

Result<IoBytes> parse_io_stat(std::string_view text, SkippedRows* skipped) {
  IoBytes sum;
  Rows rows(text, skipped);
  bool any = false;
  for (std::string_view row; rows.next(row);) {
    auto line = row;
    bool good = is_device(take_word(line));
    IoBytes bytes;
    for (auto field = take_word(line); good && !field.empty(); field = take_word(line)) {
      const auto key = take(field, '=');
      if (key != "rbytes" && key != "wbytes") continue;
      const auto number = number_in(field);
      good = number.has_value();
      if (good) (key == "rbytes" ? bytes.read : bytes.written) = *number;
    }
    if (!good) {
      rows.skip(row);
      continue;
    }
    any = true;
    if (!add_checked(sum.read, bytes.read) || !add_checked(sum.written, bytes.written)) return overflow();
  }
  if (!any && rows.skipped_any()) return rows.nothing("a line of a device with its number");
  return sum;
}

Result<IoBytes> parse_blkio_bytes(std::string_view text, SkippedRows* skipped) {
  IoBytes sum;
  Rows rows(text, skipped);
  bool any = false;
  for (std::string_view row; rows.next(row);) {
    auto line = row;
    const auto device = take_word(line);
    if (device == "Total") {
      any = true;  // a file without a device has this row alone
      continue;
    }
    const auto operation = take_word(line);
    std::uint64_t bytes = 0;
    if (!is_device(device) || !last_number(line, bytes)) {
      rows.skip(row);
      continue;
    }
    any = true;
    const bool read = operation == "Read";
    if (!read && operation != "Write") continue;
    if (!add_checked(read ? sum.read : sum.written, bytes)) return overflow();
  }
  if (!any && rows.skipped_any()) return rows.nothing("a line of a device with its number");
  return sum;
}

Result<void> parse_proc_stat(std::string_view text, CpuTicks& total, std::span<CpuTicks> per_cpu,
                             SkippedRows* skipped) {
  total = {};
  std::fill(per_cpu.begin(), per_cpu.end(), CpuTicks{});
  Rows rows(text, skipped);
  for (std::string_view row; rows.next(row);) {
    // CPU lines come first; the interrupt counters after them are long.
    if (row.starts_with("intr ")) break;
    auto line = row;
    const auto name = take_word(line);
    if (!name.starts_with("cpu")) {
      rows.skip(row);
      continue;
    }
    CpuTicks* ticks = &total;
    bool good = true;
    if (name.size() > 3) {
      const auto cpu = number_in<std::uint32_t>(name.substr(3));
      good = cpu.has_value();
      ticks = good && *cpu < per_cpu.size() ? &per_cpu[*cpu] : nullptr;
    }
    CpuTicks now;
    now.present = true;
    for (std::size_t i = 0; good && i < 7; ++i) {  // user nice system idle iowait irq softirq
      const auto number = number_in(take_word(line));
      good = number && add_checked(i == 3 || i == 4 ? now.idle : now.busy, *number);
    }
    if (!good)
      rows.skip(row);
    else if (ticks)
      *ticks = now;
  }
  if (!total.present) return rows.nothing("a line 'cpu' with its ticks");
  return {};
}

Result<MemInfo> parse_meminfo(std::string_view text, SkippedRows* skipped) {
  MemInfo info;
  const std::pair<std::string_view, std::optional<std::uint64_t>*> wanted[] = {
      {"MemTotal:", &info.total_bytes}, {"MemAvailable:", &info.available_bytes}};
  Rows rows(text, skipped);
  for (std::string_view row; (!info.total_bytes || !info.available_bytes) && rows.next(row);) {
    auto line = row;
    const auto key = take_word(line);
    for (const auto& [name, value] : wanted) {
      if (key != name || *value) continue;
      const auto kib = number_in(take_word(line));
      if (kib && *kib <= (std::uint64_t{1} << 53) && take_word(line) == "kB")
        *value = *kib * 1024;
      else
        rows.skip(row);
    }
  }
  if (!info.total_bytes && !info.available_bytes)
    return rows.nothing("a line MemTotal or MemAvailable in kB");
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

Result<std::vector<Mount>> parse_mountinfo(std::string_view text, SkippedRows* skipped) {
  std::vector<Mount> mounts;
  Rows rows(text, skipped);
  for (std::string_view row; rows.next(row);) {
    auto line = row;
    for (int skip = 0; skip < 3; ++skip) take_word(line);  // mount id, parent id, device
    const auto root = take_word(line);
    const auto point = take_word(line);
    // Options and any number of optional fields, ended by a lone "-".
    std::string_view field = take_word(line);
    while (!field.empty() && field != "-") field = take_word(line);
    if (line.starts_with(' ')) line.remove_prefix(1);
    const auto type = take(line, ' ');
    take(line, ' ');  // source; may be empty
    const auto options = take(line, ' ');
    // The root is no path where it has a name instead ("net:[4026531840]" of `ip netns`).
    if (field != "-" || !point.starts_with('/') || type.empty())
      rows.skip(row);
    else
      mounts.push_back(
          {unescape_octal(root), unescape_octal(point), std::string(type), std::string(options)});
  }
  if (mounts.empty() && rows.skipped_any()) return rows.nothing("a line of mountinfo");
  return mounts;
}

Result<std::string_view> parse_process_cgroup(std::string_view text, std::string_view controller) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view path = take(rest, '\n');  // "4:cpu,cpuacct:/a:b"
    const std::string_view number = take(path, ':');
    std::string_view controllers = take(path, ':');
    bool here = controller.empty() && number == "0" && controllers.empty();
    while (!here && !controller.empty() && !controllers.empty()) here = take(controllers, ',') == controller;
    if (!here) continue;
    if (!path.starts_with('/')) return invalid(path, "the path of a cgroup");
    return path;
  }
  return invalid(text.substr(0, text.find('\n')), "a process' place in the hierarchy");
}

Result<std::uint64_t> parse_process_start(std::string_view text) {
  constexpr int kBefore = 19;  // fields from the state, which follows the name, to the start
  const std::size_t name_ends = text.rfind(')');
  std::string_view rest =
      name_ends == std::string_view::npos ? std::string_view() : chomp(text.substr(name_ends + 1));
  for (int i = 0; i < kBefore; ++i) take_word(rest);
  return parse_number<std::uint64_t>(take_word(rest), "the start of a process");
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
