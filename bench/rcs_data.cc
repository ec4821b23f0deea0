#include "bench/rcs_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <system_error>

namespace flash::bench {
namespace {

constexpr std::size_t kMaxBytes = 64u << 20, kMaxRows = 1u << 20, kMaxColumns = 512, kMaxField = 1u << 12;
constexpr std::size_t kMaxFiles = 64;
constexpr double kLargest = 1e18;
/// What a vCPU is worth in memory where a provider gives no CPU share (AWS Lambda: one per 1769 MiB).
constexpr double kMibPerCpu = 1769;

using Row = std::vector<std::string>;

Error invalid(const std::string& file, std::size_t line, const std::string& what) {
  return Error(std::errc::invalid_argument,
               file + (line > 0 ? ", line " + std::to_string(line) : "") + ": " + what);
}

/// RFC 4180: fields may be quoted, with "" for a quote and with line breaks inside.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }
  /// False at the end. `line()` is where the row began.
  Result<bool> next(Row& row) {
    row.clear();
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) skip_break();
    if (at_ >= text_.size()) return false;
    line_ = here_;
    while (true) {
      row.emplace_back();
      if (row.size() > kMaxColumns) return invalid(file_, line_, "more than 512 columns");
      if (auto done = field(row.back()); !done) return std::move(done).error();
      if (at_ >= text_.size()) return true;
      if (text_[at_] == ',') {
        ++at_;
        continue;
      }
      skip_break();
      return true;
    }
  }
  std::size_t line() const { return line_; }

 private:
  void skip_break() {
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    ++at_;
    ++here_;
  }
  Result<void> field(std::string& out) {
    const bool quoted = at_ < text_.size() && text_[at_] == '"';
    if (quoted) ++at_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\0') return invalid(file_, here_, "a zero byte");
      if (quoted && c == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
          ++at_;
        } else {
          ++at_;
          if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
            return invalid(file_, here_, "text after a closing quote");
          return {};
        }
      } else if (!quoted && (c == ',' || c == '\n' || c == '\r')) {
        return {};
      }
      if (c == '\n') ++here_;
      out += c;
      if (out.size() > kMaxField) return invalid(file_, here_, "a field of more than 4096 bytes");
    }
    if (quoted) return invalid(file_, line_, "a quote that is not closed");
    return {};
  }
  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0, here_ = 1, line_ = 1;
};

/// One row by the names of its columns.
class Record {
 public:
  Record(const std::map<std::string, std::size_t>& columns, const Row& row, const std::string& file,
         std::size_t line)
      : columns_(columns), row_(row), file_(file), line_(line) {}

  std::string_view text(const std::string& column) const {
    const auto it = columns_.find(column);
    return it == columns_.end() || it->second >= row_.size() ? std::string_view() : row_[it->second];
  }
  /// Absent: an empty field or NaN, as data frames write what is missing.
  Result<std::optional<double>> number(const std::string& column) const {
    std::string_view v = text(column);
    while (v.starts_with(' ')) v.remove_prefix(1);
    while (v.ends_with(' ')) v.remove_suffix(1);
    if (v.empty() || v == "nan" || v == "NaN" || v == "NA") return std::optional<double>();
    double x = 0;
    const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), x);
    if (error != std::errc() || end != v.data() + v.size() || !std::isfinite(x) || std::abs(x) > kLargest)
      return wrong(column, "'" + std::string(v.substr(0, 40)) + "' is not a number");
    return std::optional<double>(x);
  }
  /// At least `least`; absent is an error.
  Result<double> required(const std::string& column, double least) const {
    FLASH_TRY(const std::optional<double> x, number(column));
    if (!x) return wrong(column, "is empty");
    if (*x < least) return wrong(column, "is below " + std::to_string(least));
    return *x;
  }
  Result<std::string> name(const std::string& column) const {
    const auto v = text(column);
    if (v.empty()) return wrong(column, "is empty");
    if (v.size() > 256) return wrong(column, "is longer than 256 bytes");
    return std::string(v);
  }
  Error wrong(const std::string& column, const std::string& what) const {
    return invalid(file_, line_, "column '" + column + "' " + what);
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  const Row& row_;
  const std::string& file_;
  std::size_t line_;
};

/// A run and where it belongs. No value: a run that failed.
struct Parsed {
  std::string application, name;
  std::vector<double> context;
  PerformanceRun run;
};
using ParseRow = Result<std::optional<Parsed>> (*)(const Record& r);

Result<std::optional<Parsed>> parse_chunkfunc(const Record& r) {
  const auto status = r.text("http_status");
  FLASH_TRY(const std::optional<double> time, r.number("exec_time_ms"));
  if ((!status.empty() && status != "200") || !time || !(*time > 0)) return std::optional<Parsed>();
  Parsed p;
  FLASH_TRY(p.application, r.name("function"));
  FLASH_TRY(const double memory, r.required("memory_mib", 1));
  FLASH_TRY(const std::optional<double> cpu, r.number("cpu_millicores"));
  FLASH_TRY(const std::optional<double> input, r.number("input_size_bytes"));
  const double millicores = cpu && *cpu > 0 ? *cpu : memory / kMibPerCpu * 1000;
  p.name =
      p.application + " " + std::string(r.text("provider")) + " " + std::string(r.text("input_size_bytes"));
  p.context = {std::log(std::max(1.0, input.value_or(1)))};
  p.run = {{std::log2(memory), std::log2(millicores / 1000)}, *time, {}};
  return std::optional<Parsed>(std::move(p));
}

/// A code of a category as one entry per value; a value that was never seen is none of them.
void one_of(std::vector<double>& to, std::optional<double> code, int values) {
  for (int v = 0; v < values; ++v) to.push_back(code && *code == v ? 1 : 0);
}

constexpr int kCodes = 3;

Result<std::optional<Parsed>> parse_cloudbandit(const Record& r) {
  FLASH_TRY(const std::optional<double> time, r.number("target_runtime"));
  if (r.text("status") != "ok" || !time || !(*time > 0)) return std::optional<Parsed>();
  Parsed p;
  FLASH_TRY(p.application, r.name("workload"));
  FLASH_TRY(const std::string provider, r.name("provider"));
  FLASH_TRY(const double nodes, r.required("nodes", 1));
  p.name = p.application + " " + provider;
  FLASH_TRY(const std::optional<double> vcpu, r.number(provider + "_vcpu"));
  p.run.time = *time;
  p.run.configuration = {std::log2(nodes), vcpu.value_or(0)};
  for (const char* other : {"A", "B", "C"}) {
    const bool mine = provider == other;
    FLASH_TRY(const std::optional<double> family, r.number(std::string(other) + "_family"));
    FLASH_TRY(const std::optional<double> type, r.number(std::string(other) + "_type"));
    p.run.configuration.push_back(mine ? 1 : 0);
    one_of(p.run.configuration, mine ? family : std::nullopt, kCodes);
    one_of(p.run.configuration, mine ? type : std::nullopt, kCodes);
  }
  return std::optional<Parsed>(std::move(p));
}

constexpr const char* kSizelessMetrics[] = {"userDiff_mean", "sysDiff_mean", "vContextSwitches_mean",
                                            "heapUsed_mean", "fsWrite_mean", "netByRx_mean"};

Result<std::optional<Parsed>> parse_sizeless(const Record& r) {
  Parsed p;
  FLASH_TRY(p.application, r.name("function"));
  // Known bad measurements, glitches of the platform.
  for (const char* bad : {"matmul", "driver", "orchestrator"})
    if (p.application == bad) return std::optional<Parsed>();
  FLASH_TRY(const std::optional<double> time, r.number("duration_mean"));
  if (!time || !(*time > 0)) return std::optional<Parsed>();
  FLASH_TRY(const double memory, r.required("memory_mib", 1));
  p.name = p.application + " " + std::string(r.text("source")) + " " + std::string(r.text("rep"));
  p.run = {{std::log2(memory)}, *time, {}};
  for (const char* metric : kSizelessMetrics) {
    FLASH_TRY(const std::optional<double> x, r.number(metric));
    p.run.metrics.push_back(std::log1p(std::max(0.0, x.value_or(0))));
  }
  return std::optional<Parsed>(std::move(p));
}

struct Format {
  const char* kind;
  std::vector<std::string> columns;  // that tell it
  ParseRow parse;
  PerformanceSet empty;
};

std::vector<Format> formats() {
  PerformanceSet chunkfunc{"chunkfunc", {"log2 memory", "log2 cpu"}, {true, true}, {}, {"ln input size"}, {}};
  PerformanceSet cloudbandit{"cloudbandit", {"log2 nodes", "vcpu"}, {true, true}, {}, {}, {}};
  for (const char* provider : {"A", "B", "C"}) {
    cloudbandit.configuration.push_back(provider);
    for (const char* code : {"family", "type"})
      for (int v = 0; v < kCodes; ++v)
        cloudbandit.configuration.push_back(std::string(provider) + " " + code + " " + std::to_string(v));
  }
  cloudbandit.everywhere.resize(cloudbandit.configuration.size(), false);
  PerformanceSet sizeless{"sizeless", {"log2 memory"}, {true}, {}, {}, {}};
  sizeless.metrics.assign(std::begin(kSizelessMetrics), std::end(kSizelessMetrics));
  return {{"chunkfunc", {"function", "memory_mib", "exec_time_ms"}, parse_chunkfunc, chunkfunc},
          {"cloudbandit",
           {"workload", "provider", "nodes", "target_runtime", "status"},
           parse_cloudbandit,
           cloudbandit},
          {"sizeless", {"function", "memory_mib", "duration_mean"}, parse_sizeless, sizeless}};
}

/// Runs of one configuration become one: the mean time, the mean metrics.
void average(PerformanceInstance& instance) {
  std::map<std::vector<double>, std::pair<PerformanceRun, double>> by_configuration;
  for (const PerformanceRun& run : instance.runs) {
    auto [it, fresh] = by_configuration.try_emplace(run.configuration, run, 1.0);
    if (fresh) continue;
    auto& [sum, count] = it->second;
    sum.time += run.time;
    for (std::size_t m = 0; m < sum.metrics.size(); ++m) sum.metrics[m] += run.metrics[m];
    ++count;
  }
  instance.runs.clear();
  for (auto& [configuration, summed] : by_configuration) {
    auto& [run, count] = summed;
    run.time /= count;
    for (double& m : run.metrics) m /= count;
    instance.runs.push_back(std::move(run));
  }
}

/// Adds what `text` holds; `instances` are by name.
Result<void> add_file(PerformanceSet& set, std::map<std::string, PerformanceInstance>& instances,
                      std::string_view text, const std::string& file) {
  if (text.size() > kMaxBytes) return invalid(file, 0, "is larger than 64 MiB");
  CsvReader reader(text, file);
  Row row;
  FLASH_TRY(const bool any, reader.next(row));
  if (!any) return invalid(file, 0, "is empty");
  std::map<std::string, std::size_t> columns;
  for (std::size_t c = 0; c < row.size(); ++c) columns.emplace(row[c], c);
  const Format* format = nullptr;
  static const std::vector<Format> all = formats();
  for (const Format& f : all)
    if (std::all_of(f.columns.begin(), f.columns.end(),
                    [&](const std::string& name) { return columns.contains(name); }))
      format = &f;
  if (format == nullptr) return invalid(file, 1, "has the columns of no known data set");
  if (set.kind.empty()) set = format->empty;
  if (set.kind != format->kind)
    return invalid(file, 1, std::string("is of ") + format->kind + ", the files before it of " + set.kind);
  const std::size_t width = row.size();
  while (true) {
    FLASH_TRY(const bool more, reader.next(row));
    if (!more) return {};
    if (row.size() != width)
      return invalid(file, reader.line(),
                     std::to_string(row.size()) + " columns, the header has " + std::to_string(width));
    if (++set.rows > kMaxRows) return invalid(file, reader.line(), "more than 1048576 rows");
    const Record record(columns, row, file, reader.line());
    FLASH_TRY(std::optional<Parsed> parsed, format->parse(record));
    if (!parsed) {
      ++set.skipped;
      continue;
    }
    PerformanceInstance& instance = instances[parsed->name];
    instance.application = std::move(parsed->application);
    instance.name = std::move(parsed->name);
    instance.context = std::move(parsed->context);
    instance.runs.push_back(std::move(parsed->run));
  }
}

Result<PerformanceSet> finish(PerformanceSet set, std::map<std::string, PerformanceInstance> instances,
                              const std::string& path) {
  for (auto& [name, instance] : instances) {
    average(instance);
    set.instances.push_back(std::move(instance));
  }
  if (set.instances.empty()) return invalid(path, 0, "has no run that succeeded");
  return set;
}

}  // namespace

Result<PerformanceSet> parse_performance(std::string_view text, const std::string& file) {
  PerformanceSet set;
  std::map<std::string, PerformanceInstance> instances;
  if (auto added = add_file(set, instances, text, file); !added) return std::move(added).error();
  return finish(std::move(set), std::move(instances), file);
}

Result<PerformanceSet> read_performance(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> files;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".csv") files.push_back(it->path().string());
  } else if (!error) {
    files.push_back(path);
  }
  if (error) return Error(error, path + ": " + error.message());
  if (files.empty()) return invalid(path, 0, "has no .csv file");
  if (files.size() > kMaxFiles) return invalid(path, 0, "has more than 64 files");
  std::sort(files.begin(), files.end());
  PerformanceSet set;
  std::map<std::string, PerformanceInstance> instances;
  for (const std::string& file : files) {
    const auto size = fs::file_size(file, error);
    if (error) return Error(error, file + ": " + error.message());
    if (size > kMaxBytes) return invalid(file, 0, "is larger than 64 MiB");
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in) return invalid(file, 0, "cannot be read");
    if (auto added = add_file(set, instances, text, file); !added) return std::move(added).error();
  }
  return finish(std::move(set), std::move(instances), path);
}

}  // namespace flash::bench
