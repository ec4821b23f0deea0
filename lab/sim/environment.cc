#include "lab/sim/environment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/json.h"
#include "core/random.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kTextMax = 256U << 20;
constexpr std::size_t kPoolMax = 100000;
constexpr std::size_t kStepsMax = 64;

struct NumberKey {
  std::string_view key;
  double low, high;
  bool required, whole;
  void (*set)(Environment& e, double value);
};

constexpr NumberKey kKeys[] = {
    {"cores", 1, 1024, true, true, [](Environment& e, double v) { e.cores = static_cast<int>(v); }},
    {"memory_mib", 64, 1e8, true, false, [](Environment& e, double v) { e.memory_mib = v; }},
    {"cycles_factor", 0.05, 20, false, false, [](Environment& e, double v) { e.cycles_factor = v; }},
    {"stall_factor", 0.05, 20, false, false, [](Environment& e, double v) { e.stall_factor = v; }},
    {"noise", 0, 0.5, false, false, [](Environment& e, double v) { e.noise = v; }},
    {"interference", 0, 0.9, false, false, [](Environment& e, double v) { e.interference = v; }},
};
constexpr NumberKey kPowerKeys[] = {
    {"idle_w", 0, 1e4, true, false, [](Environment& e, double v) { e.power.idle_w = v; }},
    {"max_w", 0, 1e4, true, false, [](Environment& e, double v) { e.power.max_w = v; }},
    {"exponent", 1, 4, false, false, [](Environment& e, double v) { e.power.exponent = v; }},
};

/// A key comes from outside: one short line, whatever it is.
Error wrong(std::string_view file, std::string key, const std::string& what) {
  if (key.size() > 120) key.replace(120, std::string::npos, "...");
  for (char& c : key)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return Error(std::errc::invalid_argument, std::string(file) + ": " + key + ": " + what);
}

Result<double> number(const json& value, double low, double high, std::string_view file,
                      const std::string& key) {
  if (!value.is_number()) return wrong(file, key, "expected a number");
  const double v = value.get<double>();
  if (!(v >= low && v <= high)) {
    char range[80];
    std::snprintf(range, sizeof range, "%g is not between %g and %g", v, low, high);
    return wrong(file, key, range);
  }
  return v;
}

Result<void> numbers(const json& object, std::span<const NumberKey> keys, std::string_view file,
                     const std::string& where, Environment& e) {
  for (const NumberKey& row : keys) {
    const std::string key = where + "/" + std::string(row.key);
    const auto found = object.find(row.key);
    if (found == object.end()) {
      if (row.required) return wrong(file, key, "is missing");
      continue;
    }
    FLASH_TRY(const double v, number(*found, row.low, row.high, file, key));
    if (row.whole && v != std::floor(v)) return wrong(file, key, "expected a whole number");
    row.set(e, v);
  }
  return {};
}

template <std::size_t N>
bool in_table(const NumberKey (&keys)[N], std::string_view key) {
  return std::any_of(std::begin(keys), std::end(keys), [key](const NumberKey& k) { return k.key == key; });
}

Result<Environment> read(const json& object, std::string_view file, const std::string& where) {
  if (!object.is_object()) return wrong(file, where, "expected an object");
  for (const auto& [key, value] : object.items())
    if (key != "name" && key != "frequencies_khz" && key != "power" && !in_table(kKeys, key))
      return wrong(file, where + "/" + key, "unknown key");
  Environment e;
  const auto name = object.find("name");
  if (name == object.end() || !name->is_string()) return wrong(file, where + "/name", "expected a text");
  e.name = name->get<std::string>();
  if (e.name.empty() || e.name.size() > 200)
    return wrong(file, where + "/name", "expected 1 to 200 characters");
  FLASH_CHECK(numbers(object, kKeys, file, where, e));

  const std::string table = where + "/frequencies_khz";
  const auto steps = object.find("frequencies_khz");
  if (steps == object.end() || !steps->is_array() || steps->empty() || steps->size() > kStepsMax)
    return wrong(file, table, "expected a list of 1 to 64 frequencies");
  for (const json& step : *steps) {
    FLASH_TRY(const double khz, number(step, 1e4, 2e7, file, table));
    if (!e.frequencies_khz.empty() && khz <= e.frequencies_khz.back())
      return wrong(file, table, "frequencies are not ascending");
    e.frequencies_khz.push_back(khz);
  }
  if (const auto power = object.find("power"); power != object.end()) {
    if (!power->is_object()) return wrong(file, where + "/power", "expected an object");
    for (const auto& [key, value] : power->items())
      if (!in_table(kPowerKeys, key)) return wrong(file, where + "/power/" + key, "unknown key");
    FLASH_CHECK(numbers(*power, kPowerKeys, file, where + "/power", e));
    if (e.power.max_w > 0 && e.power.max_w <= e.power.idle_w)
      return wrong(file, where + "/power/max_w", "is not above idle_w");
  }
  return e;
}

Result<json> document(std::string_view text, std::string_view file) {
  if (text.size() > kTextMax)
    return Error(std::errc::file_too_large, std::string(file) + ": more than 256 MiB");
  // A key that is there twice would silently win over the first.
  std::vector<std::set<std::string>> seen;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 8) deep = true;
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end && !seen.empty()) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.empty() &&
        !seen.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return !deep;
  };
  json root = json::parse(text, watch, false);
  if (deep) return Error(std::errc::invalid_argument, std::string(file) + ": nested too deeply");
  if (root.is_discarded()) return Error(std::errc::invalid_argument, std::string(file) + ": not JSON");
  if (!twice.empty()) return wrong(file, "/" + twice, "is there twice");
  return root;
}

std::vector<double> steps(double low_mhz, double high_mhz) {
  std::vector<double> all;
  for (double mhz = low_mhz; mhz <= high_mhz + 1; mhz += 100) all.push_back(1000 * mhz);
  return all;
}

}  // namespace

Result<Environment> parse_environment(std::string_view text, std::string_view file) {
  FLASH_TRY(const json root, document(text, file));
  return read(root, file, "");
}

Result<std::vector<Environment>> parse_environments(std::string_view text, std::string_view file) {
  FLASH_TRY(const json root, document(text, file));
  if (!root.is_object()) return wrong(file, "/", "expected an object");
  for (const auto& [key, value] : root.items())
    if (key != "version" && key != "environments") return wrong(file, "/" + key, "unknown key");
  if (!root.contains("version") || root["version"] != json(1)) return wrong(file, "/version", "expected 1");
  const auto list = root.find("environments");
  if (list == root.end() || !list->is_array() || list->empty() || list->size() > kPoolMax)
    return wrong(file, "/environments", "expected a list of 1 to 100000 environments");
  std::vector<Environment> all;
  for (std::size_t i = 0; i < list->size(); ++i) {
    FLASH_TRY(Environment e, read((*list)[i], file, "/environments/" + std::to_string(i)));
    all.push_back(std::move(e));
  }
  return all;
}

std::string to_json_text(std::span<const Environment> environments) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Environment& e : environments) {
    nlohmann::ordered_json j;
    j["name"] = e.name;
    j["cores"] = e.cores;
    j["memory_mib"] = e.memory_mib;
    j["frequencies_khz"] = e.frequencies_khz;
    j["power"] = {{"idle_w", e.power.idle_w}, {"max_w", e.power.max_w}, {"exponent", e.power.exponent}};
    j["cycles_factor"] = e.cycles_factor;
    j["stall_factor"] = e.stall_factor;
    j["noise"] = e.noise;
    j["interference"] = e.interference;
    list.push_back(std::move(j));
  }
  return nlohmann::ordered_json{{"version", 1}, {"environments", std::move(list)}}.dump(1) + "\n";
}

std::span<const Environment> processors() {
  static const std::array<Environment, 3> all = [] {
    std::array<Environment, 3> p;
    p[0] = {"xeon-e5-2683-v3", 14, 65536, steps(1200, 3000), {38, 120, 2.4}, 1.25, 1.10, 0.01, 0};
    p[1] = {"xeon-e5-2695-v4", 18, 65536, steps(1200, 3100), {36, 120, 2.5}, 1.18, 1.05, 0.01, 0};
    p[2] = {"epyc-7302p", 16, 65536, steps(1500, 3300), {50, 155, 2.8}, 1.05, 1.20, 0.01, 0};
    return p;
  }();
  return all;
}

std::vector<Environment> generate_environments(std::size_t count, std::uint64_t seed) {
  std::vector<Environment> all;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Random random = Random(seed).fork(i);
    Environment e = processors()[random.below(processors().size())];
    const int whole = e.cores;
    e.cores = 2 << random.below(3);
    e.memory_mib = 1024.0 * e.cores * static_cast<double>(2 << random.below(2));
    const double share = static_cast<double>(e.cores) / whole;
    e.power.idle_w *= share * random.uniform(0.6, 1.4);
    e.power.max_w *= share;
    e.power.exponent = random.uniform(1.8, 3.0);
    e.cycles_factor *= random.uniform(0.85, 1.2);
    e.stall_factor *= std::exp(random.uniform(std::log(0.7), std::log(1.6)));
    e.noise = random.uniform(0.003, 0.03);
    e.interference = random.uniform() < 0.5 ? 0 : random.uniform(0.05, 0.35);
    e.name += "-" + std::to_string(e.cores) + "c-" + std::to_string(i);
    all.push_back(std::move(e));
  }
  return all;
}

}  // namespace flash
