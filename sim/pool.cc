#include "sim/pool.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "workloads/application.h"

namespace flash {
namespace {

constexpr std::uintmax_t kMostBytes = 256ULL << 20;

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

}  // namespace

Result<Pool> make_pool(const PoolOptions& o) {
  FLASH_TRY(const std::vector<Application> applications, applications_of(o));
  FLASH_TRY(const std::vector<Environment> environments, environments_of(o));
  if (applications.empty()) return Error(std::errc::invalid_argument, o.apps + ": no application in it");
  if (environments.empty()) return Error(std::errc::invalid_argument, o.envs + ": no environment in it");
  Pool pool;
  pool.pairs.reserve(o.pairs);
  for (std::size_t i = 0; i < o.pairs; ++i) {
    const Application& application = applications[i % applications.size()];
    const Environment& environment = environments[i % environments.size()];
    PairOptions options;
    options.task = o.task;
    options.reward = o.reward;
    FLASH_TRY(Pair pair, Pair::make(application, environment, options));
    pool.pairs.push_back(std::move(pair));
  }
  return pool;
}

}  // namespace flash
