#include "daemon/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>

#include "core/json.h"
#include "core/result.h"
#include "daemon/config_check.h"
#include "daemon/config_keys.h"
#include "daemon/config_limits.h"
#include "daemon/config_text.h"
#include "host/safe_path.h"
#include "policy/task.h"

namespace flash {
namespace {

using nlohmann::json;

/// RFC 7396, section 2, keeping track of where each value came from.
void merge(json& target, const json& patch, const std::string& pointer, const ConfigPlaces& from,
           ConfigPlaces& origins) {
  if (!target.is_object()) target = json::object();
  for (const auto& [name, value] : patch.items()) {
    const std::string at = pointer + "/" + escaped(name);
    if (value.is_null()) {
      target.erase(name);
      continue;
    }
    if (const auto it = from.find(at); it != from.end()) origins[at] = it->second;
    if (value.is_object())
      merge(target[name], value, at, from, origins);
    else
      target[name] = value;
  }
}

class Build {
 public:
  Build(const json& doc, const ConfigPlaces& origins, ConfigErrors& errors)
      : doc_(doc), origins_(origins), errors_(errors) {}

  DaemonConfig run() {
    fill(doc_, "");
    DaemonConfig config = draft_.config;
    if (const auto rules = doc_.find("rules"); rules != doc_.end()) {
      for (const auto& [name, value] : rules->items()) {
        const std::string pointer = "/rules/" + name;
        draft_.rule = Rule{};
        draft_.rule.name = name;
        draft_.rule.mode = config.loop.mode;
        fill(value, pointer);
        check(draft_.rule, value, pointer);
        config.rules.push_back(std::make_shared<const Rule>(draft_.rule));
      }
    }
    check_overlaps(config.rules);
    check_scrapes(config.rules);
    std::stable_sort(config.rules.begin(), config.rules.end(),
                     [](const auto& a, const auto& b) { return a->priority > b->priority; });
    return config;
  }

 private:
  void fail(const std::string& pointer, std::string_view what) {
    // The nearest enclosing value that is written somewhere.
    for (std::string at = pointer;; at.resize(at.rfind('/'))) {
      if (const auto it = origins_.find(at); it != origins_.end())
        return errors_.add(it->second, pointer, what);
      if (at.empty()) return errors_.add({}, pointer, what);
    }
  }

  /// Sets the fields of all leaves below, rules excepted.
  void fill(const json& value, const std::string& pointer) {
    for (const auto& [name, child] : value.items()) {
      const std::string at = pointer + "/" + name;
      const auto& key = *find_config_key(pattern_of(at));
      if (key.type == KeyType::Rules) continue;
      if (key.type == KeyType::Object)
        fill(child, at);
      else
        key.set(draft_, child);
    }
  }

  void check_only(const json& value, const std::string& pointer, Task task) {
    for (const auto& [name, child] : value.items()) {
      const std::string at = pointer + "/" + name;
      const auto& key = *find_config_key(pattern_of(at));
      if (key.only && *key.only != task) {
        fail(at, "only " + std::string(to_string(*key.only)) + " rules have this; the rule's task is " +
                     std::string(to_string(task)));
      } else if (key.type == KeyType::Object) {
        check_only(child, at, task);
      }
    }
  }

  void check(const Rule& rule, const json& value, const std::string& pointer) {
    check_only(value, pointer, rule.task);
    const auto& s = rule.select;
    if (task_spec(rule.task).target == TargetKind::Cgroup && s.cgroup.empty() && s.unit.empty() &&
        s.container.empty() && s.container_runtime.empty() && s.pod_uid.empty())
      fail(pointer + "/select",
           "selects nothing: give cgroup, unit, container, container_runtime or pod_uid");
    if (rule.parameter_sharing && rule.group.empty())
      fail(pointer + "/parameter_sharing", "there is nobody to learn together with: give a group");
    check_page(rule, pointer);
    for (const LimitKeys& row : limit_keys) {
      const LimitKey *low = row.key_of(&LimitOptions::min), *high = row.key_of(&LimitOptions::max);
      const LimitOptions& limit = rule.limits[row.knob];
      if (low && high)
        ordered(limit.min, limit.max, low->scale, pointer + "/" + std::string(row.object), low->name,
                high->name);
    }
    ordered(rule.frequency.min_khz, rule.frequency.max_khz, 1, pointer + "/frequency", "min_khz", "max_khz");
    ordered(rule.profile.t_online, rule.profile.t_serving, 1, pointer + "/profile", "t_online", "t_serving");
  }

  void ordered(double low, double high, double scale, const std::string& pointer, std::string_view low_name,
               std::string_view high_name) {
    if (low <= high) return;
    const std::string low_at = pointer + "/" + std::string(low_name);
    const bool low_written = origins_.contains(low_at) && doc_.contains(json::json_pointer(low_at));
    fail(low_written ? low_at : pointer + "/" + std::string(high_name),
         std::string(low_name) + " (" + number(low / scale) + ") is greater than " + std::string(high_name) +
             " (" + number(high / scale) + ")");
  }

  static std::string number(double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? std::to_string(static_cast<long long>(v))
                                                    : json(v).dump();
  }

  /// Two rules of one task that control one CPU would fight; a priority cannot help where sets overlap in part.
  void check_overlaps(const std::vector<std::shared_ptr<const Rule>>& rules) {
    std::vector<const Rule*> of_cpus;
    for (const auto& r : rules)
      if (task_spec(r->task).target == TargetKind::CpuSet) of_cpus.push_back(r.get());
    for (std::size_t i = 0; i < of_cpus.size() && !errors_.full(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (of_cpus[j]->task != of_cpus[i]->task) continue;
        const auto& a = of_cpus[j]->select.cpus;
        const auto& b = of_cpus[i]->select.cpus;
        std::vector<int> both;
        if (a.empty() || b.empty())
          both = a.empty() ? b : a;
        else
          std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
        const bool overlap = !both.empty() || (a.empty() && b.empty());
        if (overlap) {
          fail("/rules/" + of_cpus[i]->name + "/select/cpus",
               "CPUs " + cpus_to_text(both) + " are selected by rule \"" + of_cpus[j]->name + "\" too");
          break;
        }
      }
    }
  }

  void check_page(const Rule& rule, const std::string& pointer) {
    const auto& p = rule.slo.prometheus;
    if (!p.url.empty() && p.latency.empty() && p.requests.empty())
      fail(pointer + "/slo/prometheus", "nothing is read from the page: give latency or requests");
    const bool wanted = rule.slo.source == SloSource::Prometheus;
    if (p.url.empty() && wanted)
      fail(pointer + "/slo/source", "prometheus needs the page's address: give /slo/prometheus/url");
    if (!p.url.empty() && !wanted && rule.slo.source != SloSource::Auto)
      fail(pointer + "/slo/prometheus/url", "nobody would read the page: slo.source is " +
                                                std::string(to_string(rule.slo.source)) +
                                                ", not prometheus or auto");
  }

  void check_scrapes(const std::vector<std::shared_ptr<const Rule>>& rules) {
    std::size_t scrapes = 0;
    for (const auto& rule : rules)
      if (!rule->slo.prometheus.url.empty() && ++scrapes == link::sync::kMaxScrapes + 1)
        fail("/rules/" + rule->name + "/slo/prometheus/url",
             "more than " + std::to_string(link::sync::kMaxScrapes) + " rules have a metrics page");
  }

  const json& doc_;
  const ConfigPlaces& origins_;
  ConfigErrors& errors_;
  ConfigDraft draft_;
};

/// What is in a file is root's word only if nobody else can write or replace it.
Result<void> check_place(const Fd& file, const std::string& path) {
  FLASH_CHECK(check_owner(file, path));
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  if (error) return Error(error, path + ": " + error.message());
  return check_directory(resolved.parent_path().string(), true);
}

Result<std::string> read_config_file(const std::string& path, bool any_owner) {
  // O_NONBLOCK: a FIFO put in place of the file must not hang the daemon.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Error::from_errno(errno, path);
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return Error::from_errno(errno, path);
  if (!S_ISREG(st.st_mode)) return Error(std::errc::invalid_argument, path + ": is not a regular file");
  if (!any_owner) FLASH_CHECK(check_place(file, path));
  std::string text;
  while (text.size() <= kConfigMaxBytes) {
    const auto old = text.size();
    text.resize(old + 65536);
    const auto n = ::read(file.get(), text.data() + old, 65536);
    if (n < 0) return Error::from_errno(errno, path);
    text.resize(old + static_cast<std::size_t>(n));
    if (n == 0) break;
  }
  return text;
}

}  // namespace

ConfigResult parse_config(const std::vector<ConfigText>& texts) {
  ConfigResult result;
  for (const auto& t : texts) result.files.push_back(t.name);
  ConfigErrors errors(texts);
  json doc = json::object();
  ConfigPlaces origins;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].text.size() > kConfigMaxBytes) {
      errors.add({i, 1}, "",
                 "the file is larger than " + std::to_string(kConfigMaxBytes / 1024) +
                     " KiB, that is no "
                     "configuration");
      continue;
    }
    const auto file = parse_config_text(texts[i].text, i, errors);
    if (!file) continue;
    check_config(*file, i > 0, errors);
    if (errors.empty()) merge(doc, file->root, "", file->places, origins);
  }
  if (errors.empty()) {
    DaemonConfig config = Build(doc, origins, errors).run();
    if (errors.empty()) result.config = std::move(config);
  }
  result.errors = errors.lines();
  return result;
}

ConfigResult load_config(const ConfigPaths& paths) {
  std::vector<std::string> names = {paths.main};
  std::vector<std::string> failures;
  std::error_code error;
  std::vector<std::string> drop_ins;
  for (std::filesystem::directory_iterator it(paths.drop_ins, error), end; !error && it != end;
       it.increment(error)) {
    const auto name = it->path().filename().string();
    if (name.ends_with(".json") && !name.starts_with('.')) drop_ins.push_back(it->path().string());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    failures.push_back(paths.drop_ins + ": " + error.message());
  if (drop_ins.size() > kConfigMaxDropIns) {
    failures.push_back(paths.drop_ins + ": more than " + std::to_string(kConfigMaxDropIns) + " drop-ins");
    drop_ins.clear();
  }
  if (!error && !paths.any_owner)
    if (auto place = check_directory(paths.drop_ins); !place) failures.push_back(place.error().message());
  std::sort(drop_ins.begin(), drop_ins.end());
  names.insert(names.end(), drop_ins.begin(), drop_ins.end());

  std::vector<ConfigText> texts;
  for (const auto& name : names) {
    auto text = read_config_file(name, paths.any_owner);
    if (text)
      texts.push_back({name, *std::move(text)});
    else
      failures.push_back(text.error().message());
  }
  if (!failures.empty()) {
    ConfigResult result;
    result.files = names;
    result.errors = failures;
    // What can be read is still checked, so that everything wrong is told at once. Without the main file the
    // others would be judged as if one of them were it.
    if (!texts.empty() && texts[0].name == paths.main) {
      const auto rest = parse_config(texts).errors;
      result.errors.insert(result.errors.end(), rest.begin(), rest.end());
    }
    return result;
  }
  return parse_config(texts);
}

json describe(const DaemonConfig& config) {
  json doc = json::object();
  ConfigDraft draft{config, Rule{}};
  const auto put = [&draft](json& into, const std::string& pointer, const ConfigKey& key) {
    json value = key.get(draft);
    // "Any" has no spelling of its own for globs: it is the key's absence.
    if (value.is_string() && value.get_ref<const std::string&>().empty() && key.check && key.check(""))
      return;
    into[json::json_pointer(pointer)] = std::move(value);
  };
  for (const auto& key : config_keys())
    if (key.get && !key.pointer.starts_with("/rules/")) put(doc, std::string(key.pointer), key);
  doc["rules"] = json::object();
  constexpr std::string_view kRule = "/rules/*";
  for (const auto& rule : config.rules) {
    draft.rule = *rule;
    json& into = doc["rules"][rule->name] = json::object();
    for (const auto& key : config_keys()) {
      if (!key.get || !key.pointer.starts_with("/rules/*/")) continue;
      if (key.only && *key.only != rule->task) continue;
      put(into, std::string(key.pointer.substr(kRule.size())), key);
    }
  }
  return doc;
}

}  // namespace flash
