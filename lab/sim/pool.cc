#include "lab/sim/pool.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "core/csv.h"
#include "core/random.h"
#include "lab/sim/noise.h"
#include "lab/sim/simulated_task.h"
#include "lab/workloads/application.h"
#include "lab/workloads/trace.h"
#include "lab/workloads/trace_file.h"

namespace flash {
namespace {

constexpr std::uintmax_t kMostBytes = 256ULL << 20;
constexpr std::uint64_t kHiddenEnvironment = 1, kHiddenApplication = 2;  // streams of chance

Result<std::string> read_pool(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return Error(std::errc::no_such_file_or_directory, path + ": cannot be read");
  if (in.tellg() < 0 || static_cast<std::uintmax_t>(in.tellg()) > kMostBytes)
    return Error(std::errc::file_too_large, path + ": more than 256 MiB");
  in.seekg(0);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

Result<std::vector<Application>> applications_of(const PoolOptions& o) {
  if (o.apps.empty()) return generate_applications(o.pairs, o.seed);
  FLASH_TRY(const std::string text, read_pool(o.apps));
  auto parsed = parse_applications(text, o.apps);
  if (auto* error = std::get_if<UsageError>(&parsed))
    return Error(std::errc::invalid_argument, std::move(error->message));
  return std::get<std::vector<Application>>(std::move(parsed));
}

Result<std::vector<Environment>> environments_of(const PoolOptions& o) {
  if (o.envs.empty()) return generate_environments(o.pairs, o.seed ^ 0x5eedULL);
  FLASH_TRY(const std::string text, read_pool(o.envs));
  return parse_environments(text, o.envs);
}

constexpr std::uint64_t kOrder = 1, kLoad = 2, kRedrawn = 3;  // of varied()
/// A share of varied pairs has nothing but the segments of the pool's application: two hundred are few to
/// tell how memory, the spread of the work and the objective show in an embedding.
constexpr double kOtherApplication = 0.5;
/// A share of varied pairs is on a node of another size: limits are chosen from a range that ends with the
/// node's.
constexpr double kOtherSize = 0.5, kFewestCores = 2, kMostCores = 96;

/// PoolKind::Hidden of environments: how much of the work waits for cycles differs.
void hide(Environment& e, Task task, Random random) {
  e.cycles_factor *= log_uniform(random, 0.6, 1.6);
  const double widest = simulated_task(task).widest_stall;
  e.stall_factor *= log_uniform(random, 1 / widest, widest);
}

/// PoolKind::Hidden of applications, on the environment where it will run: about as busy as any other, so
/// that CPU use says little, and the rest from wide ranges.
void hide(Application& a, const Environment& e, Task task, Random random) {
  a.service_cv = log_uniform(random, 0.05, 1.5);
  a.burst = random.uniform() < 0.3 ? 1 : log_uniform(random, 1.5, 30);
  a.memory_per_request_kib = log_uniform(random, 16, 8192);
  const RequestCost cost = request_cost(a);
  const double cpu_s = cost.cycles * e.cycles_factor / 1000 / e.top_khz() + cost.stall_s * e.stall_factor;
  const double own_s = cpu_s + cost.off_cpu_s, parallel = std::min<double>(a.workers, e.cores);
  const double usual_s = own_s * (1 + 2.33 * a.service_cv) + (a.burst - 1) * 2 * own_s / parallel;
  const SimulatedTask& row = simulated_task(task);
  const double room = log_uniform(random, row.least_slo_room, row.most_slo_room);
  a.slo_p99_ms = std::max(5.0, 1000 * usual_s * room);
  const double most = random.uniform(0.25, 0.5) * std::min(a.workers / own_s, e.cores / cpu_s);
  if (row.hidden_load != nullptr) a.trace = row.hidden_load(most, random);
}

/// Another load of an application whose own has this mean rate.
std::string other_load(double mean, Random& random) {
  const double rate = mean * log_uniform(random, 0.03, 1.3);
  if (random.uniform() < 0.35) return "flat:" + number_text(rate);
  const double on_s = random.uniform() < 0.5 ? 60 : log_uniform(random, 10, 300);
  const double off_s = log_uniform(random, 30, 1800), share = on_s / (on_s + off_s);
  const double low = random.uniform() < 0.5 ? 0 : rate * random.uniform(0, 0.8);
  const double high = std::min((rate - low * (1 - share)) / share, 6 * mean);
  return "bursty:" + number_text(low) + "," + number_text(high) + "," + number_text(off_s) + "," +
         number_text(on_s) + "," + std::to_string(random.below(1'000'000));
}

Error einval(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

/// How a row's trace is spelt, and its mean rate.
struct RecordedLoad {
  std::string text;
  double mean = 0;
};

/// The file's loads, at most `most`; rows without a request are left out.
Result<void> add_loads(const std::string& path, std::size_t most, std::vector<RecordedLoad>& loads) {
  if (path.find(',') != std::string::npos) return einval(path + ": a trace's path has no comma");
  FLASH_TRY(CsvReader rows, CsvReader::open(path));
  FLASH_TRY([[maybe_unused]] const bool any, rows.next());
  const std::span<const std::string_view> header = rows.fields();
  const auto add = [&](const std::string& text) -> std::optional<UsageError> {
    auto trace = Trace::parse(text);
    if (auto* error = std::get_if<UsageError>(&trace)) return std::move(*error);
    const double mean = std::get<Trace>(trace).mean_rate();
    if (mean > 0) loads.push_back({text, mean});
    return std::nullopt;
  };
  if (trace_format(header) != TraceFormat::Other) {
    const std::size_t before = loads.size();
    for (std::uint64_t row = 1; loads.size() - before < most; ++row) {
      const auto wrong = add("azure:" + path + ",row=" + std::to_string(row));
      if (!wrong) continue;
      if (row > 1 && says_no_such_row(*wrong)) break;
      return einval(wrong->message);
    }
    return {};
  }
  if (header.size() < 2) return einval(path + ": neither a trace of Azure Functions nor a series of counts");
  const auto named = column_of(header, "requests");
  const auto wrong = add("series:" + path + ",column=" + std::string(header[named.value_or(1)]) +
                         ",step_s=" + (column_of(header.subspan(0, 1), "second") ? "1" : "60"));
  if (wrong) return einval(wrong->message);
  return {};
}

Result<void> replace_traces(std::vector<Application>& applications, const std::string& path) {
  std::vector<std::string> files;
  std::error_code not_a_folder;
  if (std::filesystem::is_directory(path, not_a_folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, not_a_folder))
      if (entry.path().extension() == ".csv") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    if (files.empty()) return einval(path + ": no .csv file in it");
  } else {
    files.push_back(path);
  }
  std::vector<RecordedLoad> loads;
  for (const std::string& file : files) FLASH_CHECK(add_loads(file, applications.size(), loads));
  if (loads.empty()) return einval(path + ": no row has a request");
  for (std::size_t i = 0; i < applications.size(); ++i) {
    Application& a = applications[i];
    const RecordedLoad& load = loads[i % loads.size()];
    auto own = Trace::parse(a.trace);
    if (auto* error = std::get_if<UsageError>(&own)) return einval(a.name + ": " + error->message);
    const double scale = std::clamp(std::get<Trace>(own).mean_rate() / load.mean, 1e-6, 1e6);
    a.trace = load.text + ",scale=" + number_text(scale);
  }
  return {};
}

}  // namespace

std::string_view to_string(PoolKind kind) {
  return kind == PoolKind::Hidden ? "hidden" : "drawn";
}

Parsed<PoolKind> parse_pool_kind(std::string_view text) {
  for (const PoolKind kind : {PoolKind::Drawn, PoolKind::Hidden})
    if (text == to_string(kind)) return kind;
  return UsageError{"unknown pool '" + std::string(text) + "' (drawn, hidden)"};
}

Result<Pool> make_pool(const PoolOptions& o) {
  FLASH_TRY(std::vector<Application> applications, applications_of(o));
  FLASH_TRY(std::vector<Environment> environments, environments_of(o));
  if (applications.empty()) return Error(std::errc::invalid_argument, o.apps + ": no application in it");
  if (environments.empty()) return Error(std::errc::invalid_argument, o.envs + ": no environment in it");
  const bool hidden = o.kind == PoolKind::Hidden;
  if (hidden && o.envs.empty())
    for (std::size_t i = 0; i < environments.size(); ++i)
      hide(environments[i], o.task, Random(o.seed).fork(i).fork(kHiddenEnvironment));
  if (hidden && o.apps.empty())
    for (std::size_t i = 0; i < applications.size(); ++i)
      hide(applications[i], environments[i % environments.size()], o.task,
           Random(o.seed).fork(i).fork(kHiddenApplication));
  if (applications.size() > o.pairs) applications.resize(o.pairs);
  if (!o.traces.empty()) FLASH_CHECK(replace_traces(applications, o.traces));
  Pool pool;
  pool.kind = o.kind;
  pool.pairs.reserve(o.pairs);
  pool.different = std::min(o.pairs, std::lcm(applications.size(), environments.size()));
  for (std::size_t i = 0; i < o.pairs; ++i) {
    const Application& application = applications[i % applications.size()];
    const Environment& environment = environments[i % environments.size()];
    PairOptions options;
    options.task = o.task;
    options.reward = o.reward;
    // With instructions counted, the reward's elasticity of speed would be in the state, and RAPL tells of
    // the power curve.
    if (hidden) options.instruction_counter = options.rapl = false;
    FLASH_TRY(Pair pair, Pair::make(application, environment, options));
    pool.pairs.push_back(std::move(pair));
  }
  return pool;
}

std::string words_of_copies(const Pool& pool) {
  if (pool.different >= pool.pairs.size()) return {};
  return std::to_string(pool.pairs.size()) + " pairs are " + std::to_string(pool.different) +
         " different ones and copies of them: intervals over pairs are too narrow (fewer pairs, or more "
         "applications and environments)";
}

Result<Pool> varied(const Pool& pool, std::uint64_t seed) {
  if (pool.kind == PoolKind::Hidden) return Pool(pool);
  Random random = Random(seed).fork(kOrder);
  std::vector<std::size_t> order(pool.pairs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  Pool out;
  out.pairs.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    Application application = pool.pairs[i].application();
    if (Random other = Random(seed).fork(kRedrawn).fork(i); other.uniform() < kOtherApplication)
      application = redrawn(application, other.next());
    PairOptions options = pool.pairs[i].options();
    Random chance = Random(seed).fork(kLoad).fork(i);
    const double kind = chance.uniform();
    if (kind < 0.12) {
      options.load *= log_uniform(chance, 0.03, 1);
    } else if (kind < 0.57) {
      application.trace = generate_trace(application, chance.next());
    } else if (kind < 0.85) {
      const auto own = Trace::parse(application.trace);
      if (const auto* error = std::get_if<UsageError>(&own))
        return einval(application.name + ": " + error->message);
      application.trace = other_load(std::get<Trace>(own).mean_rate(), chance);
    }
    Environment environment = pool.pairs[order[i]].environment();
    if (chance.uniform() < kOtherSize) {
      const int cores = static_cast<int>(std::lround(log_uniform(chance, kFewestCores, kMostCores)));
      environment.memory_mib *= static_cast<double>(cores) / environment.cores;
      environment.cores = cores;
    }
    FLASH_TRY(Pair pair, Pair::make(application, environment, options));
    out.pairs.push_back(std::move(pair));
  }
  return out;
}

}  // namespace flash
