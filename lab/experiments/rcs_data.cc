#include "lab/experiments/rcs_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>

#include "core/command_line.h"
#include "core/csv.h"
#include "core/printable.h"

namespace flash::lab {
namespace {

constexpr std::size_t kMaxRows = 1u << 20, kMaxFiles = 64;
constexpr double kLargest = 1e18;
/// What a vCPU is worth in memory where a provider gives no CPU share (AWS Lambda: one per 1769 MiB).
constexpr double kMibPerCpu = 1769;

Error invalid(const std::string& file, const std::string& what) {
  return Error(std::errc::invalid_argument, file + ": " + what);
}

/// Where a column is, by its name in small letters.
using Columns = std::map<std::string, std::size_t, std::less<>>;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// One row by the names of its columns.
class Record {
 public:
  Record(const Columns& columns, const CsvReader& rows) : columns_(columns), rows_(rows) {}

  std::string_view text(const std::string& column) const {
    const auto it = columns_.find(lower(column));
    return it == columns_.end() || it->second >= rows_.fields().size() ? std::string_view()
                                                                       : rows_.fields()[it->second];
  }
  /// Absent: an empty field or NaN, as data frames write what is missing.
  Result<std::optional<double>> number(const std::string& column) const {
    const std::string_view v = text(column);
    const std::string word = lower(v);
    if (v.empty() || word == "nan" || word == "na" || word == "null" || word == "none")
      return std::optional<double>();
    const auto x = parse_real(v);
    if (!x || std::abs(*x) > kLargest)
      return wrong(column, "'" + printable_line(v.substr(0, 40)) + "' is not a number");
    return x;
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
    return rows_.wrong("column '" + column + "' " + what);
  }

 private:
  const Columns& columns_;
  const CsvReader& rows_;
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

/// Adds what the rows hold; `instances` are by name.
Result<void> add_file(PerformanceSet& set, std::map<std::string, PerformanceInstance>& instances,
                      CsvReader& rows) {
  FLASH_TRY(const bool any, rows.next());
  if (!any) return invalid(rows.name(), "is empty");
  const std::size_t width = rows.fields().size();
  Columns columns;
  for (std::size_t c = 0; c < width; ++c) columns.emplace(lower(rows.fields()[c]), c);
  const Format* format = nullptr;
  static const std::vector<Format> all = formats();
  for (const Format& f : all)
    if (std::all_of(f.columns.begin(), f.columns.end(),
                    [&](const std::string& name) { return columns.contains(name); }))
      format = &f;
  if (format == nullptr) return rows.wrong("has the columns of no known data set");
  if (set.kind.empty()) set = format->empty;
  if (set.kind != format->kind)
    return rows.wrong(std::string("is of ") + format->kind + ", the files before it of " + set.kind);
  while (true) {
    FLASH_TRY(const bool more, rows.next());
    if (!more) return {};
    if (rows.fields().size() != width)
      return rows.wrong(std::to_string(rows.fields().size()) + " columns, the header has " +
                        std::to_string(width));
    if (++set.rows > kMaxRows) return rows.wrong("more than " + std::to_string(kMaxRows) + " rows");
    FLASH_TRY(std::optional<Parsed> parsed, format->parse(Record(columns, rows)));
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
  if (set.instances.empty()) return invalid(path, "has no run that succeeded");
  return set;
}

}  // namespace

Result<PerformanceSet> parse_performance(std::string_view text, const std::string& file) {
  PerformanceSet set;
  std::map<std::string, PerformanceInstance> instances;
  CsvReader rows(text, file);
  FLASH_CHECK(add_file(set, instances, rows));
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
  if (files.empty()) return invalid(path, "has no .csv file");
  if (files.size() > kMaxFiles) return invalid(path, "has more than 64 files");
  std::sort(files.begin(), files.end());
  PerformanceSet set;
  std::map<std::string, PerformanceInstance> instances;
  for (const std::string& file : files) {
    FLASH_TRY(CsvReader rows, CsvReader::open(file));
    FLASH_CHECK(add_file(set, instances, rows));
  }
  return finish(std::move(set), std::move(instances), path);
}

}  // namespace flash::lab
