#include "daemon/config_keys.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/algorithms.h"
#include "core/json.h"
#include "host/parse.h"
#include "link/metric_selector.h"
#include "link/sync_messages.h"

namespace flash {

using nlohmann::json;

std::string_view to_string(OnExit e) {
  return e == OnExit::Restore ? "restore" : "keep";
}

std::optional<std::vector<int>> cpus_from_text(std::string_view text) {
  if (text == "all") return std::vector<int>{};
  if (text.empty() || text.ends_with('\n')) return std::nullopt;
  auto cpus = parse_cpu_list(text);
  if (!cpus || cpus->empty()) return std::nullopt;
  return *std::move(cpus);
}

std::string cpus_to_text(const std::vector<int>& cpus) {
  return cpus.empty() ? "all" : format_cpu_list(cpus);
}

namespace {

// --- how a JSON value becomes a field, and back -----------------------------------------------------------

template <class E>
struct Names;
template <>
struct Names<Mode> {
  static constexpr std::array<Mode, 3> kAll = {Mode::Observe, Mode::Recommend, Mode::Control};
};
template <>
struct Names<Task> {
  static constexpr std::array<Task, 2> kAll = {Task::ResourceLimits, Task::CpuFrequency};
};
template <>
struct Names<ForeignWrite> {
  static constexpr std::array<ForeignWrite, 3> kAll = {ForeignWrite::Yield, ForeignWrite::Reassert,
                                                       ForeignWrite::Leave};
};
template <>
struct Names<OnExit> {
  static constexpr std::array<OnExit, 2> kAll = {OnExit::Restore, OnExit::Keep};
};
template <>
struct Names<SloSource> {
  static constexpr std::array<SloSource, 4> kAll = {SloSource::Statsd, SloSource::Prometheus,
                                                    SloSource::Kernel, SloSource::Auto};
};
template <>
struct Names<TimeUnit> {
  static constexpr std::array<TimeUnit, 5> kAll = {TimeUnit::Auto, TimeUnit::Seconds, TimeUnit::Milliseconds,
                                                   TimeUnit::Microseconds, TimeUnit::Nanoseconds};
};
template <>
struct Names<RewardKind> {
  static constexpr std::array<RewardKind, 2> kAll = {RewardKind::Default, RewardKind::Paper};
};

std::string_view choice_name(RewardKind k) {
  return k == RewardKind::Default ? "default" : "paper";
}
template <class E>
std::string_view choice_name(E e) {
  return to_string(e);
}

template <class E>
std::vector<std::string_view> choice_names() {
  std::vector<std::string_view> names;
  for (E e : Names<E>::kAll) names.push_back(choice_name(e));
  return names;
}

template <class E>
requires std::is_enum_v<E>
void assign(E& field, const json& value, double) {
  const auto& name = value.get_ref<const std::string&>();
  for (E e : Names<E>::kAll)
    if (choice_name(e) == name) field = e;
}
template <class E>
requires std::is_enum_v<E> json show(const E& field, double) {
  return std::string(choice_name(field));
}

/// 64.0 is shown as 64: people wrote it so.
json plain_number(double v) {
  if (std::abs(v) < 1e15 && v == std::floor(v)) return static_cast<std::int64_t>(v);
  return v;
}

void assign(double& field, const json& v, double scale) {
  field = v.is_null() ? kUnlimited : v.get<double>() * scale;
}
json show(const double& field, double scale) {
  return std::isinf(field) ? json(nullptr) : plain_number(field / scale);
}
void assign(std::optional<double>& field, const json& v, double scale) {
  field = v.is_null() ? std::nullopt : std::optional<double>(v.get<double>() * scale);
}
json show(const std::optional<double>& field, double scale) {
  return field ? plain_number(*field / scale) : json(nullptr);
}
void assign(Duration& field, const json& v, double) {
  // Rounded, not cut: 0.3 s read, shown and read again is the same.
  field = Duration(std::llround(v.get<double>() * 1e9));
}
json show(const Duration& field, double) {
  return plain_number(seconds(field));
}
void assign(int& field, const json& v, double) {
  field = static_cast<int>(v.get<double>());
}
json show(const int& field, double) {
  return field;
}
void assign(std::uint32_t& field, const json& v, double) {
  field = static_cast<std::uint32_t>(v.get<double>());
}
json show(const std::uint32_t& field, double) {
  return field;
}
void assign(std::uint64_t& field, const json& v, double) {
  field = static_cast<std::uint64_t>(v.get<double>());
}
json show(const std::uint64_t& field, double) {
  return field;
}
void assign(bool& field, const json& v, double) {
  field = v.get<bool>();
}
json show(const bool& field, double) {
  return field;
}
void assign(std::string& field, const json& v, double) {
  field = v.get<std::string>();
}
json show(const std::string& field, double) {
  return field;
}
void assign(std::vector<std::string>& field, const json& v, double) {
  field = v.get<std::vector<std::string>>();
}
json show(const std::vector<std::string>& field, double) {
  return field;
}
void assign(std::vector<int>& field, const json& v, double) {
  field = cpus_from_text(v.get_ref<const std::string&>()).value_or(std::vector<int>{});
}
json show(const std::vector<int>& field, double) {
  return cpus_to_text(field);
}

/// Binds a row to the field that `Field` (a captureless lambda) names. Scale: the file says MiB, the field
/// holds bytes.
template <int Scale = 1, class Field>
ConfigKey bound(Field, ConfigKey key) {
  key.set = [](ConfigDraft& d, const json& v) { assign(Field{}(d), v, Scale); };
  key.get = [](const ConfigDraft& d) { return show(Field{}(d), Scale); };
  return key;
}
constexpr int kMiBScale = 1024 * 1024;

template <class E, class Field>
ConfigKey choice(Field field, ConfigKey key) {
  key.type = KeyType::Choice;
  key.choices = choice_names<E>();
  return bound(field, std::move(key));
}

// --- checks of texts --------------------------------------------------------------------------------------

std::optional<std::string> plain_text(std::string_view v, std::size_t max) {
  if (v.size() > max) return "is longer than " + std::to_string(max) + " bytes";
  for (unsigned char c : v)
    if (c < 0x20 || c == 0x7f) return "has a control character in it";
  return std::nullopt;
}

std::optional<std::string> check_name(std::string_view v) {
  return plain_text(v, 200);
}

std::optional<std::string> check_glob(std::string_view v) {
  if (auto wrong = plain_text(v, 4096)) return wrong;
  if (v.empty()) return "is empty; leave the key out to match everything";
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v[i] == '[') {
      // fnmatch(3) takes an unclosed bracket for itself, which is never what was meant. "[]a]" and "[!]a]"
      // hold a bracket.
      std::size_t close = i + 1;
      if (close < v.size() && (v[close] == '!' || v[close] == '^')) ++close;
      close = v.find(']', close + 1);
      if (close == std::string_view::npos) return "has a '[' without its ']'";
      i = close;
    }
  }
  return std::nullopt;
}

/// Where a backslash was an escape it had to be written twice; no name has two in a row.
std::string single_backslashes(std::string text) {
  const auto both = [](char a, char b) { return a == '\\' && b == '\\'; };
  text.erase(std::unique(text.begin(), text.end(), both), text.end());
  return text;
}

std::optional<std::string> check_cgroup_glob(std::string_view v) {
  if (auto wrong = check_glob(v)) return wrong;
  if (v.front() != '/' && v.front() != '*')
    return "does not begin with '/' (a path below the cgroup hierarchy's root) or '*'";
  return std::nullopt;
}

std::optional<std::string> check_directory(std::string_view v) {
  if (auto wrong = plain_text(v, 4000)) return wrong;
  if (!v.starts_with('/')) return "is not an absolute path";
  const std::string whole = std::string(v) + "/";
  if (whole.find("/../") != std::string::npos) return "has \"..\" in it";
  return std::nullopt;
}

std::optional<std::string> check_directory_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : check_directory(v);
}

std::optional<std::string> check_socket(std::string_view v) {
  if (v.empty()) return std::nullopt;
  if (v.size() > 107) return "is longer than a socket's path may be (107 bytes, unix(7))";
  return check_directory(v);
}

std::optional<std::string> check_given_socket(std::string_view v) {
  if (v.empty()) return "is empty; learner.enabled switches it off";
  return check_socket(v);
}

std::optional<std::string> check_sync_socket(std::string_view v) {
  if (v.empty()) return "is empty; sync.enabled switches it off";
  return check_socket(v);
}

std::optional<std::string> check_url_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : link::wrong_with_url(v);
}

std::optional<std::string> check_selector_or_none(std::string_view v) {
  return v.empty() ? std::nullopt : link::wrong_with_selector(v);
}

std::optional<std::string> check_user(std::string_view v) {
  if (v.empty()) return "is empty";
  if (v.size() > 32) return "is longer than a user's name may be (32 bytes)";
  for (unsigned char c : v)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' &&
        c != '-' && c != '.')
      return "is not a user's name";
  return std::nullopt;
}

std::optional<std::string> check_udp(std::string_view v) {
  constexpr auto kForm = "is not ADDRESS:PORT, such as 127.0.0.1:8125 or [::1]:8125";
  if (v.empty()) return std::nullopt;
  const auto colon = v.rfind(':');
  if (colon == std::string_view::npos) return kForm;
  auto host = v.substr(0, colon);
  const auto port_text = v.substr(colon + 1);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port < 1 || port > 65535)
    return kForm;
  if (host.starts_with('[') && host.ends_with(']') && host.size() > 2) {
    in6_addr address{};
    if (inet_pton(AF_INET6, std::string(host.substr(1, host.size() - 2)).c_str(), &address) != 1)
      return kForm;
    if (!IN6_IS_ADDR_LOOPBACK(&address))
      return "is not a loopback address; StatsD lines are not authenticated";
    return std::nullopt;
  }
  in_addr address{};
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) return kForm;
  if ((ntohl(address.s_addr) >> 24) != 127)
    return "is not a loopback address; StatsD lines are not authenticated";
  return std::nullopt;
}

std::optional<std::string> check_cpus(std::string_view v) {
  if (!cpus_from_text(v)) return "is not \"all\" or a list of CPUs such as \"0-3,8\"";
  return std::nullopt;
}

std::optional<std::string> check_runtime(std::string_view v) {
  for (std::string_view known : {"docker", "podman", "containerd", "crio", "lxc"})
    if (v == known) return std::nullopt;
  return "is not one of docker, podman, containerd, crio, lxc";
}

// --- the table --------------------------------------------------------------------------------------------

#define FIELD(path)      \
  [](auto& d) -> auto& { \
    return d.path;       \
  }

std::vector<ConfigKey> make_table() {
  constexpr auto kLimits = Task::ResourceLimits;
  constexpr auto kFrequency = Task::CpuFrequency;
  std::vector<ConfigKey> t;
  const auto object = [&t](std::string_view pointer, std::string_view meaning,
                           std::optional<Task> only = std::nullopt) {
    t.push_back({.pointer = pointer, .only = only, .meaning = meaning});
  };
  // The order is that of the manual.
  t.push_back(bound(FIELD(config.period), {.pointer = "/period_s",
                                           .type = KeyType::Number,
                                           .min = 0.1,
                                           .max = 60,
                                           .unit = "s",
                                           .meaning = "Time from one tick to the next."}));
  t.push_back(choice<Mode>(
      FIELD(config.loop.mode),
      {.pointer = "/mode",
       .meaning = "What is done for rules that give no mode of their own: observe senses and records, "
                  "recommend decides and records but writes nothing, control writes."}));
  t.push_back(bound(FIELD(config.loop.episode_steps),
                    {.pointer = "/episode_steps",
                     .type = KeyType::Integer,
                     .min = 1,
                     .max = 100000,
                     .unit = "ticks",
                     .meaning = "Length of an episode; the life cycle is judged at its end."}));
  t.push_back(bound(FIELD(config.loop.seed), {.pointer = "/seed",
                                              .type = KeyType::Integer,
                                              .min = 0,
                                              .max = 4294967295.0,
                                              .meaning = "Seed of all randomness in decisions."}));
  t.push_back(
      bound(FIELD(config.state_directory),
            {.pointer = "/state_directory",
             .type = KeyType::Text,
             .check = check_directory,
             .form = "absolute path",
             .meaning = "Where the ledger of original values is kept. Must survive a reboot. A change "
                        "takes effect at the next start."}));

  object("/statsd", "Where applications send their own metrics (StatsD lines).");
  t.push_back(bound(FIELD(config.statsd.socket),
                    {.pointer = "/statsd/socket",
                     .type = KeyType::Text,
                     .check = check_socket,
                     .form = "absolute path or empty",
                     .meaning = "UNIX datagram socket; empty switches it off. Containers that speak "
                                "StatsD are given its directory, and not the one above."}));
  t.push_back(
      bound(FIELD(config.statsd.udp), {.pointer = "/statsd/udp",
                                       .type = KeyType::Text,
                                       .check = check_udp,
                                       .form = "ADDRESS:PORT on loopback, or empty",
                                       .meaning = "UDP address to listen on; empty switches it off."}));

  object("/journal", "The record of every decision, for flashd --replay: 1.5 to 5 KiB each.");
  t.push_back(bound(FIELD(config.journal.enabled),
                    {.pointer = "/journal/enabled", .type = KeyType::Boolean, .meaning = "Keep it."}));
  t.push_back(bound<kMiBScale>(FIELD(config.journal.max_bytes),
                               {.pointer = "/journal/max_mib",
                                .type = KeyType::Number,
                                .min = 1,
                                .max = 1e6,
                                .unit = "MiB",
                                .meaning = "Size of all its files together; the oldest go first. 64 MiB hold "
                                           "four to twelve hours of one target at one tick per second, "
                                           "a few minutes of a hundred."}));
  t.push_back(bound(FIELD(config.journal.directory),
                    {.pointer = "/journal/path",
                     .type = KeyType::Text,
                     .check = check_directory_or_none,
                     .form = "absolute path or empty",
                     .meaning = "Its directory; empty: the directory journal in state_directory. Another one "
                                "must be writable for the service (ReadWritePaths=)."}));

  object("/learner",
         "The learner, flash-learner(8): a process of its own that connects to flashd and reads all of this "
         "from "
         "there.");
  t.push_back(bound(
      FIELD(config.learner.enabled),
      {.pointer = "/learner/enabled", .type = KeyType::Boolean, .meaning = "Listen for a learner at all."}));
  t.push_back(
      bound(FIELD(config.learner.socket), {.pointer = "/learner/socket",
                                           .type = KeyType::Text,
                                           .check = check_given_socket,
                                           .form = "absolute path",
                                           .meaning = "UNIX socket on which flashd listens for it."}));
  t.push_back(bound(FIELD(config.learner.user),
                    {.pointer = "/learner/user",
                     .type = KeyType::Text,
                     .check = check_user,
                     .form = "user name",
                     .meaning = "Who may connect, beside root. Its primary group may use the socket."}));
  const auto one_of = [&t](auto field, std::string_view pointer, std::vector<std::string_view> choices,
                           std::string_view meaning) {
    t.push_back(bound(
        field,
        {.pointer = pointer, .type = KeyType::Choice, .choices = std::move(choices), .meaning = meaning}));
  };
  one_of(FIELD(config.learner.settings.limits_offline), "/learner/limits_offline",
         algorithm_names(action_form(Task::ResourceLimits), LearningPhase::Offline),
         "How policies for limits are learned from logged steps: TD3 with behaviour cloning, or "
         "batch-constrained "
         "Q-learning.");
  one_of(FIELD(config.learner.settings.frequency_offline), "/learner/frequency_offline",
         algorithm_names(action_form(Task::CpuFrequency), LearningPhase::Offline),
         "The same for frequency, or implicit Q-learning.");
  one_of(FIELD(config.learner.settings.frequency_algorithm), "/learner/frequency_algorithm",
         algorithm_names(action_form(Task::CpuFrequency), LearningPhase::Online),
         "How the frequency policy goes on learning while it acts: with a Q-network, or with a table.");
  t.push_back(bound(FIELD(config.learner.settings.double_q),
                    {.pointer = "/learner/double_q",
                     .type = KeyType::Boolean,
                     .meaning = "Choose with one Q-network and value with the other (double Q-learning)."}));
  t.push_back(bound(FIELD(config.learner.settings.discount),
                    {.pointer = "/learner/discount",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 0.9999,
                     .meaning = "What a reward of the next tick is worth now."}));
  t.push_back(bound(FIELD(config.learner.settings.seed), {.pointer = "/learner/seed",
                                                          .type = KeyType::Integer,
                                                          .min = 0,
                                                          .max = 4294967295.0,
                                                          .meaning = "Seed of all randomness in learning."}));
  t.push_back(bound(FIELD(config.learner.settings.learning_starts),
                    {.pointer = "/learner/learning_starts",
                     .type = KeyType::Integer,
                     .min = 1,
                     .max = 1e6,
                     .unit = "transitions",
                     .meaning = "Trusted ones that an agent collects before its first update."}));
  t.push_back(bound(FIELD(config.learner.settings.updates_per_step),
                    {.pointer = "/learner/updates_per_step",
                     .type = KeyType::Integer,
                     .min = 0,
                     .max = 1000,
                     .unit = "updates",
                     .meaning = "Per tick of an agent whose policy acts and learns (ONLINE)."}));
  t.push_back(
      bound(FIELD(config.learner.settings.offline_updates),
            {.pointer = "/learner/offline_updates",
             .type = KeyType::Integer,
             .min = 0,
             .max = 1e6,
             .unit = "updates",
             .meaning = "Per end of an episode of an agent whose policy does not act yet (OFFLINE)."}));
  t.push_back(bound(FIELD(config.learner.settings.publish_interval_s),
                    {.pointer = "/learner/publish_interval_s",
                     .type = KeyType::Number,
                     .min = 0.1,
                     .max = 86400,
                     .unit = "s",
                     .meaning = "Shortest time between two policies for one agent."}));
  t.push_back(
      bound(FIELD(config.learner.settings.snapshot_lifetime_s),
            {.pointer = "/learner/snapshot_lifetime_s",
             .type = KeyType::Number,
             .min = 1,
             .max = 864000,
             .unit = "s",
             .meaning = "How long a policy may decide without a newer one; then the fallback does."}));
  t.push_back(bound(FIELD(config.learner.settings.replay_steps),
                    {.pointer = "/learner/replay_steps",
                     .type = KeyType::Integer,
                     .min = 100,
                     .max = 1e6,
                     .unit = "steps",
                     .meaning = "Steps that are kept in memory per agent to learn from."}));
  t.push_back(bound(FIELD(config.learner.settings.store_max_mib),
                    {.pointer = "/learner/store_max_mib",
                     .type = KeyType::Number,
                     .min = 1,
                     .max = 1e6,
                     .unit = "MiB",
                     .meaning = "Size of the stored steps on disk; the oldest go first."}));
  t.push_back(bound(FIELD(config.learner.settings.store_max_days),
                    {.pointer = "/learner/store_max_days",
                     .type = KeyType::Number,
                     .min = 0.01,
                     .max = 3650,
                     .unit = "days",
                     .meaning = "Age of the stored steps; older ones are deleted."}));

  object("/sync",
         "flash-sync(8), the only process with network: a process of its own that connects to flashd.");
  t.push_back(bound(
      FIELD(config.sync.enabled),
      {.pointer = "/sync/enabled", .type = KeyType::Boolean, .meaning = "Listen for flash-sync at all."}));
  t.push_back(bound(FIELD(config.sync.socket), {.pointer = "/sync/socket",
                                                .type = KeyType::Text,
                                                .check = check_sync_socket,
                                                .form = "absolute path",
                                                .meaning = "UNIX socket on which flashd listens for it."}));
  t.push_back(bound(FIELD(config.sync.user),
                    {.pointer = "/sync/user",
                     .type = KeyType::Text,
                     .check = check_user,
                     .form = "user name",
                     .meaning = "Who may connect, beside root. Its primary group may use the socket."}));

  object("/overhead", "What flashd itself may cost; beyond it, it samples less.");
  t.push_back(
      bound(FIELD(config.overhead.budget_pct),
            {.pointer = "/overhead/budget_pct",
             .type = KeyType::Number,
             .min = 0,
             .max = 100,
             .unit = "percent",
             .meaning = "CPU time of flashd and of its programs in the kernel, as a share of one core. "
                        "Beyond it the period becomes longer or a probe is taken out. 0: no bound."}));
  t.push_back(bound(FIELD(config.overhead.window),
                    {.pointer = "/overhead/window_s",
                     .type = KeyType::Number,
                     .min = 1,
                     .max = 3600,
                     .unit = "seconds",
                     .meaning = "Time over which it is measured; two in a row must be beyond the budget."}));

  object("/restore", "What happens to the knobs when the daemon goes away.");
  t.push_back(choice<OnExit>(FIELD(config.restore.stop),
                             {.pointer = "/restore/stop", .meaning = "After an orderly stop."}));
  t.push_back(choice<OnExit>(FIELD(config.restore.crash),
                             {.pointer = "/restore/crash", .meaning = "After a crash or a kill."}));
  t.push_back(choice<OnExit>(
      FIELD(config.restore.upgrade),
      {.pointer = "/restore/upgrade",
       .meaning = "While the package is upgraded; with keep the new daemon takes over what is in force."}));

  object("/node", "What is kept for everything that is not managed.");
  t.push_back(bound(FIELD(config.loop.capacity.reserve_cores),
                    {.pointer = "/node/reserve_cores",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 8192,
                     .unit = "cores",
                     .meaning = "CPU that is never handed out as limits."}));
  t.push_back(bound<kMiBScale>(FIELD(config.loop.capacity.reserve_memory_bytes),
                               {.pointer = "/node/reserve_mib",
                                .type = KeyType::Number,
                                .min = 0,
                                .max = 1e9,
                                .unit = "MiB",
                                .meaning = "Memory that is never handed out as limits."}));

  t.push_back({.pointer = "/rules",
               .type = KeyType::Rules,
               .meaning = "The rules by name; a name has letters, digits, '.', '_' and '-', at most 64."});
  object("/rules/*", "One rule: which targets, and how they are managed.");
  t.push_back(choice<Task>(FIELD(rule.task), {.pointer = "/rules/*/task",
                                              .meaning = "resource-limits manages cgroups, cpu-frequency a "
                                                         "set of CPUs."}));
  t.push_back(bound(FIELD(rule.priority),
                    {.pointer = "/rules/*/priority",
                     .type = KeyType::Integer,
                     .min = -1000000,
                     .max = 1000000,
                     .meaning = "Where several rules match a target the highest priority wins, then the "
                                "name that sorts first."}));
  // The rule keeps whether a mode was given: without one it follows the daemon's, also when that changes.
  t.push_back(
      {.pointer = "/rules/*/mode",
       .type = KeyType::Choice,
       .nullable = true,
       .choices = choice_names<Mode>(),
       .default_words = "the daemon's mode",
       .meaning = "observe, recommend or control for the targets of this rule.",
       .set =
           [](ConfigDraft& d, const json& v) {
             d.rule.mode_given = !v.is_null();
             if (d.rule.mode_given) assign(d.rule.mode, v, 1);
           },
       .get = [](const ConfigDraft& d) { return d.rule.mode_given ? show(d.rule.mode, 1) : json(); }});
  t.push_back(bound(FIELD(rule.application),
                    {.pointer = "/rules/*/application",
                     .type = KeyType::Text,
                     .check = check_name,
                     .form = "name",
                     .meaning = "Whose metrics and SLO count (the app tag of StatsD lines); empty: the "
                                "target's name."}));
  t.push_back(bound(
      FIELD(rule.allow_kubelet),
      {.pointer = "/rules/*/allow_kubelet",
       .type = KeyType::Boolean,
       .only = kLimits,
       .meaning =
           "Write the kubelet's cgroups (pods and their containers) directly, although it rewrites them."}));

  object("/rules/*/select",
         "Which targets; all parts given must match. A resource-limits rule gives at least one.");
  const auto glob = [&t](auto field, std::string_view pointer, auto check, std::string_view form,
                         std::string_view meaning) {
    ConfigKey key = bound(field, {.pointer = pointer,
                                  .type = KeyType::Text,
                                  .check = check,
                                  .form = form,
                                  .only = Task::ResourceLimits,
                                  .default_words = "any",
                                  .meaning = meaning});
    key.set = [](ConfigDraft& d, const json& v) {
      decltype(field){}(d) = single_backslashes(v.get_ref<const std::string&>());
    };
    t.push_back(std::move(key));
  };
  glob(FIELD(rule.select.cgroup), "/rules/*/select/cgroup", check_cgroup_glob, "glob",
       "The cgroup's path below its hierarchy's root, such as /system.slice/web*; '*' also matches '/'.");
  glob(FIELD(rule.select.unit), "/rules/*/select/unit", check_glob, "glob",
       "The systemd unit whose cgroup it is, as systemctl prints its name; a backslash stands for itself.");
  glob(FIELD(rule.select.container), "/rules/*/select/container", check_glob, "glob",
       "The container's name or id.");
  glob(FIELD(rule.select.container_runtime), "/rules/*/select/container_runtime", check_runtime,
       "one of docker, podman, containerd, crio, lxc", "The container's runtime.");
  glob(FIELD(rule.select.pod_uid), "/rules/*/select/pod_uid", check_glob, "glob",
       "The uid of the Kubernetes pod.");
  t.push_back(
      bound(FIELD(rule.select.cpus), {.pointer = "/rules/*/select/cpus",
                                      .type = KeyType::Text,
                                      .check = check_cpus,
                                      .form = "list of CPUs or all",
                                      .only = kFrequency,
                                      .meaning = "The CPUs whose frequency is controlled, such as "
                                                 "0-3,8. CPU sets of different rules are disjoint."}));

  object("/rules/*/slo", "The service-level objective; without one SLO preservation is 1.");
  t.push_back(bound(FIELD(rule.slo.latency_p99_ms), {.pointer = "/rules/*/slo/latency_p99_ms",
                                                     .type = KeyType::Number,
                                                     .nullable = true,
                                                     .min = 0.001,
                                                     .max = 3600000,
                                                     .unit = "ms",
                                                     .default_words = "not judged",
                                                     .meaning = "Latency that 99 % of the requests keep."}));
  t.push_back(bound(FIELD(rule.slo.throughput_rps), {.pointer = "/rules/*/slo/throughput_rps",
                                                     .type = KeyType::Number,
                                                     .nullable = true,
                                                     .min = 0.001,
                                                     .max = 1e9,
                                                     .unit = "requests/s",
                                                     .default_words = "not judged",
                                                     .meaning = "Requests that are served per second."}));
  t.push_back(choice<SloSource>(
      FIELD(rule.slo.source),
      {.pointer = "/rules/*/slo/source",
       .meaning = "Who says latency and request rate. statsd: the application; prometheus: its metrics page; "
                  "kernel: its TCP sockets, as "
                  "the kernel sees them (flashd(8), REQUESTS; costs some throughput); auto: the application "
                  "while it speaks, compared with the kernel, else the kernel."}));

  object("/rules/*/slo/statsd", "How the application's StatsD lines are read.");
  t.push_back(choice<TimeUnit>(
      FIELD(rule.slo.statsd.unit),
      {.pointer = "/rules/*/slo/statsd/unit",
       .meaning = "Unit of the latencies that the application sends, whatever their type and name say. auto: "
                  "timers (ms) are in ms; histograms (h) and distributions (d) in the unit that their name "
                  "ends in (_seconds, _s, _ms, _us, _ns, ...), else in ms. Some clients send seconds as ms: "
                  "then everything counts as a thousandth, and the objective as kept."}));

  t.push_back(bound(
      FIELD(rule.slo.statsd.senders),
      {.pointer = "/rules/*/slo/statsd/senders",
       .type = KeyType::Texts,
       .check = check_cgroup_glob,
       .form = "globs",
       .meaning =
           "Whose lines are believed beside those of processes in the target's own cgroup: processes "
           "in these cgroups, by the path below the hierarchy's root, and in cgroups below them. \"*\": "
           "anybody's, and what comes over UDP, which does not say who sent it. A rule of cpu-frequency "
           "has no cgroup: name the application's, unless another rule's target has that application."}));

  object("/rules/*/slo/prometheus",
         "The application's own metrics page, read by flash-sync(8): latency, rate and errors of the rule's "
         "targets.");
  t.push_back(
      bound(FIELD(rule.slo.prometheus.url),
            {.pointer = "/rules/*/slo/prometheus/url",
             .type = KeyType::Text,
             .check = check_url_or_none,
             .form = "http or https address, or empty",
             .meaning = "The page, such as http://127.0.0.1:9100/metrics; empty: none. Redirects are not "
                        "followed; no user or password."}));
  t.push_back(bound(FIELD(rule.slo.prometheus.interval_s),
                    {.pointer = "/rules/*/slo/prometheus/interval_s",
                     .type = KeyType::Number,
                     .min = 0.1,
                     .max = 3600,
                     .unit = "s",
                     .meaning = "Time from one look to the next. What covers more than two ticks is used to "
                                "control, not to learn from."}));
  t.push_back(
      bound(FIELD(rule.slo.prometheus.timeout_s), {.pointer = "/rules/*/slo/prometheus/timeout_s",
                                                   .type = KeyType::Number,
                                                   .min = 0.05,
                                                   .max = 60,
                                                   .unit = "s",
                                                   .meaning = "An answer that takes longer is none."}));
  const auto selector = [&t](auto field, std::string_view pointer, std::string_view meaning) {
    t.push_back(bound(field, {.pointer = pointer,
                              .type = KeyType::Text,
                              .check = check_selector_or_none,
                              .form = "metric, with {label=\"value\"} or !=, or empty",
                              .meaning = meaning}));
  };
  selector(FIELD(rule.slo.prometheus.latency), "/rules/*/slo/prometheus/latency",
           "The histogram or summary of request latencies, in seconds unless its name ends in another unit "
           "(_milliseconds, _ms, _microseconds, _us, _nanoseconds, _ns) or unit says another. All series "
           "that match are added up.");
  t.push_back(choice<TimeUnit>(
      FIELD(rule.slo.prometheus.unit),
      {.pointer = "/rules/*/slo/prometheus/unit",
       .meaning = "Unit of the latency metric. auto: what its name ends in, else seconds."}));
  selector(FIELD(rule.slo.prometheus.requests), "/rules/*/slo/prometheus/requests",
           "The counter of requests; empty: the latency metric's count.");
  selector(FIELD(rule.slo.prometheus.errors), "/rules/*/slo/prometheus/errors",
           "The counter of failed requests; empty: not known.");

  object("/rules/*/cpu", "The CPU limit (cpu.max, CFS quota, CPUQuotaPerSecUSec).", kLimits);
  t.push_back(bound(FIELD(rule.cpu.manage), {.pointer = "/rules/*/cpu/manage",
                                             .type = KeyType::Boolean,
                                             .only = kLimits,
                                             .meaning = "Whether the CPU limit is managed at all."}));
  t.push_back(bound(FIELD(rule.cpu.min_cores), {.pointer = "/rules/*/cpu/min_cores",
                                                .type = KeyType::Number,
                                                .min = 0.01,
                                                .max = 8192,
                                                .unit = "cores",
                                                .only = kLimits,
                                                .meaning = "The limit is never set below, unless a cgroup "
                                                           "above the target allows less."}));
  t.push_back(bound(FIELD(rule.cpu.max_cores),
                    {.pointer = "/rules/*/cpu/max_cores",
                     .type = KeyType::Number,
                     .nullable = true,
                     .min = 0.01,
                     .max = 8192,
                     .unit = "cores",
                     .only = kLimits,
                     .default_words = "what the node and the cgroups above the target have",
                     .meaning = "The limit is never set above."}));
  t.push_back(bound(FIELD(rule.cpu.target_utilization), {.pointer = "/rules/*/cpu/target_utilization",
                                                         .type = KeyType::Number,
                                                         .min = 0.05,
                                                         .max = 1,
                                                         .only = kLimits,
                                                         .meaning = "Usage over limit that the fallback "
                                                                    "controller aims at."}));
  t.push_back(bound(FIELD(rule.cpu.tolerance), {.pointer = "/rules/*/cpu/tolerance",
                                                .type = KeyType::Number,
                                                .min = 0,
                                                .max = 1,
                                                .only = kLimits,
                                                .meaning = "No change while usage is this close to the "
                                                           "target, relative to it."}));
  t.push_back(bound(FIELD(rule.cpu.down_stabilization_s),
                    {.pointer = "/rules/*/cpu/down_stabilization_s",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 86400,
                     .unit = "s",
                     .only = kLimits,
                     .meaning = "The limit shrinks only to the highest recommendation of this time."}));

  object("/rules/*/memory", "The memory limit (memory.high, memory.limit_in_bytes, MemoryHigh).", kLimits);
  t.push_back(bound(
      FIELD(rule.memory.manage),
      {.pointer = "/rules/*/memory/manage",
       .type = KeyType::Boolean,
       .only = kLimits,
       .meaning =
           "Whether the memory limit is managed at all. On cgroup v1 the limit is hard: an application that "
           "outgrows it between two periods is killed, not slowed down."}));
  t.push_back(bound<kMiBScale>(FIELD(rule.memory.min_bytes), {.pointer = "/rules/*/memory/min_mib",
                                                              .type = KeyType::Number,
                                                              .min = 1,
                                                              .max = 1e9,
                                                              .unit = "MiB",
                                                              .only = kLimits,
                                                              .meaning = "The limit is never set below, "
                                                                         "unless a cgroup above the target "
                                                                         "allows less."}));
  t.push_back(bound<kMiBScale>(FIELD(rule.memory.max_bytes),
                               {.pointer = "/rules/*/memory/max_mib",
                                .type = KeyType::Number,
                                .nullable = true,
                                .min = 1,
                                .max = 1e9,
                                .unit = "MiB",
                                .only = kLimits,
                                .default_words = "what the node and the cgroups above the target have",
                                .meaning = "The limit is never set above."}));
  t.push_back(bound(FIELD(rule.memory.percentile),
                    {.pointer = "/rules/*/memory/percentile",
                     .type = KeyType::Number,
                     .min = 0.5,
                     .max = 1,
                     .only = kLimits,
                     .meaning = "Of the decaying histogram of usage peaks, that the limit has to cover."}));
  t.push_back(
      bound(FIELD(rule.memory.safety_margin), {.pointer = "/rules/*/memory/safety_margin",
                                               .type = KeyType::Number,
                                               .min = 0,
                                               .max = 10,
                                               .only = kLimits,
                                               .meaning = "Added to the percentile, relative to it."}));
  t.push_back(bound(FIELD(rule.memory.half_life_s), {.pointer = "/rules/*/memory/half_life_s",
                                                     .type = KeyType::Number,
                                                     .min = 1,
                                                     .max = 31536000,
                                                     .unit = "s",
                                                     .only = kLimits,
                                                     .meaning = "After this time a peak counts half."}));

  object("/rules/*/frequency", "The CPU frequency (cpufreq).", kFrequency);
  t.push_back(bound(FIELD(rule.frequency.min_khz),
                    {.pointer = "/rules/*/frequency/min_khz",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1e8,
                     .unit = "kHz",
                     .only = kFrequency,
                     .meaning = "The frequency is never set below; 0: the hardware's lowest."}));
  t.push_back(bound(FIELD(rule.frequency.max_khz), {.pointer = "/rules/*/frequency/max_khz",
                                                    .type = KeyType::Number,
                                                    .nullable = true,
                                                    .min = 1,
                                                    .max = 1e8,
                                                    .unit = "kHz",
                                                    .only = kFrequency,
                                                    .default_words = "the hardware's highest",
                                                    .meaning = "The frequency is never set above."}));
  t.push_back(bound(FIELD(rule.frequency.step_khz),
                    {.pointer = "/rules/*/frequency/step_khz",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1e8,
                     .unit = "kHz",
                     .only = kFrequency,
                     .meaning = "One step of the fallback controller; 0: one step of the hardware's table, "
                                "else 100 MHz."}));
  t.push_back(bound(FIELD(rule.frequency.slack_threshold),
                    {.pointer = "/rules/*/frequency/slack_threshold",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1,
                     .only = kFrequency,
                     .meaning = "Share of the SLO that has to be left over before the frequency falls."}));
  t.push_back(bound(FIELD(rule.frequency.target_utilization),
                    {.pointer = "/rules/*/frequency/target_utilization",
                     .type = KeyType::Number,
                     .min = 0.05,
                     .max = 1,
                     .only = kFrequency,
                     .meaning = "Busy share of the CPUs that is aimed at where no SLO is given."}));
  t.push_back(bound(FIELD(rule.frequency.claim),
                    {.pointer = "/rules/*/frequency/claim",
                     .type = KeyType::Boolean,
                     .only = kFrequency,
                     .meaning = "Control the frequency although another tuning daemon owns it."}));

  object("/rules/*/profile", "When the learned policy may take the seat (AWARE's user profile).");
  t.push_back(bound(FIELD(rule.profile.bootstrap),
                    {.pointer = "/rules/*/profile/bootstrap",
                     .type = KeyType::Boolean,
                     .meaning = "Start with the fallback in charge while the learner learns off line."}));
  t.push_back(bound(FIELD(rule.profile.t_online), {.pointer = "/rules/*/profile/t_online",
                                                   .type = KeyType::Number,
                                                   .min = -10,
                                                   .max = 10,
                                                   .unit = "reward per step",
                                                   .meaning = "Mean reward from which a policy may act and "
                                                              "go on learning."}));
  t.push_back(bound(FIELD(rule.profile.t_serving), {.pointer = "/rules/*/profile/t_serving",
                                                    .type = KeyType::Number,
                                                    .min = -10,
                                                    .max = 10,
                                                    .unit = "reward per step",
                                                    .meaning = "Mean reward from which a policy only "
                                                               "serves; at least t_online."}));
  t.push_back(bound(FIELD(rule.profile.t_var),
                    {.pointer = "/rules/*/profile/t_var",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 10,
                     .unit = "reward per step",
                     .meaning = "Largest standard deviation of the reward with which a policy serves."}));
  t.push_back(
      bound(FIELD(rule.profile.window_episodes), {.pointer = "/rules/*/profile/window_episodes",
                                                  .type = KeyType::Integer,
                                                  .min = 1,
                                                  .max = 1000,
                                                  .unit = "episodes",
                                                  .meaning = "How many recent episodes are judged."}));
  t.push_back(
      bound(FIELD(rule.profile.worse_than_fallback),
            {.pointer = "/rules/*/profile/worse_than_fallback",
             .type = KeyType::Number,
             .min = 0,
             .max = 10,
             .unit = "reward per step",
             .meaning = "A policy that earns less than the fallback did while it learned, by more than "
                        "this, loses the seat."}));

  object("/rules/*/exploration",
         "How far decisions stray so that there is something to learn from. Never while the target starves "
         "or its "
         "SLO is missed.");
  t.push_back(bound(FIELD(rule.exploration.fallback_share),
                    {.pointer = "/rules/*/exploration/fallback_share",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 0.5,
                     .meaning = "Share of ticks in which the fallback's decision is varied; 0: never."}));
  t.push_back(bound(FIELD(rule.exploration.online_share),
                    {.pointer = "/rules/*/exploration/online_share",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 0.5,
                     .meaning = "Most that an acting policy's own schedule may vary; 0: never."}));
  t.push_back(
      bound(FIELD(rule.exploration.max_step),
            {.pointer = "/rules/*/exploration/max_step",
             .type = KeyType::Number,
             .min = 0.001,
             .max = 0.5,
             .meaning = "Largest variation, as share of the knob's range (frequency: at least a level)."}));
  t.push_back(bound(FIELD(rule.exploration.hold_steps), {.pointer = "/rules/*/exploration/hold_steps",
                                                         .type = KeyType::Integer,
                                                         .min = 1,
                                                         .max = 100,
                                                         .unit = "ticks",
                                                         .meaning = "How long a variation lasts."}));

  object("/rules/*/reward", "What a decision earns.");
  t.push_back(choice<RewardKind>(FIELD(rule.reward.kind),
                                 {.pointer = "/rules/*/reward/kind",
                                  .meaning = "default charges for power, paper is FLASH's formula."}));
  t.push_back(bound(FIELD(rule.reward.alpha),
                    {.pointer = "/rules/*/reward/alpha",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1,
                     .meaning = "Weight of SLO preservation against utilisation (resource-limits), or of the "
                                "instruction rate against SLO preservation (cpu-frequency)."}));
  t.push_back(bound(FIELD(rule.reward.power_price), {.pointer = "/rules/*/reward/power_price",
                                                     .type = KeyType::Number,
                                                     .min = 0,
                                                     .max = 10,
                                                     .only = kFrequency,
                                                     .meaning = "Weight of relative power (default only)."}));

  object("/rules/*/guards", "Bounds on what any controller may do.");
  t.push_back(bound(FIELD(rule.guards.max_step_up),
                    {.pointer = "/rules/*/guards/max_step_up",
                     .type = KeyType::Number,
                     .min = 0.001,
                     .max = 100,
                     .meaning = "A knob grows at most by this share of its value per tick; 1 doubles it."}));
  t.push_back(bound(FIELD(rule.guards.max_step_down),
                    {.pointer = "/rules/*/guards/max_step_down",
                     .type = KeyType::Number,
                     .min = 0.001,
                     .max = 1,
                     .meaning = "A knob shrinks at most by this share of its value per tick."}));
  t.push_back(bound(FIELD(rule.guards.flap_budget), {.pointer = "/rules/*/guards/flap_budget",
                                                     .type = KeyType::Integer,
                                                     .min = 0,
                                                     .max = 100000,
                                                     .unit = "reversals",
                                                     .meaning = "Changes of direction allowed per knob and "
                                                                "window; beyond it the knob keeps still."}));
  t.push_back(bound(FIELD(rule.guards.flap_window_steps), {.pointer = "/rules/*/guards/flap_window_steps",
                                                           .type = KeyType::Integer,
                                                           .min = 1,
                                                           .max = 100000,
                                                           .unit = "ticks",
                                                           .meaning = "The window of flap_budget."}));
  t.push_back(bound(FIELD(rule.guards.cpu_pressure_floor),
                    {.pointer = "/rules/*/guards/cpu_pressure_floor",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1,
                     .only = kLimits,
                     .meaning = "CPU pressure (some) at which the CPU limit is no longer cut."}));
  t.push_back(bound(FIELD(rule.guards.memory_pressure_floor),
                    {.pointer = "/rules/*/guards/memory_pressure_floor",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1,
                     .only = kLimits,
                     .meaning = "Memory pressure (full) at which the memory limit is no longer cut."}));
  t.push_back(bound(FIELD(rule.guards.throttled_floor),
                    {.pointer = "/rules/*/guards/throttled_floor",
                     .type = KeyType::Number,
                     .min = 0,
                     .max = 1,
                     .only = kLimits,
                     .meaning = "Share of throttled periods at which the CPU limit is no longer cut, where "
                                "the kernel tells no pressure."}));

  object("/rules/*/contention",
         "What stands for the objective where slo gives none: throttling and pressure.", kLimits);
  t.push_back(
      bound(FIELD(rule.contention.throttled),
            {.pointer = "/rules/*/contention/throttled",
             .type = KeyType::Number,
             .min = 0.01,
             .max = 1,
             .only = kLimits,
             .meaning = "Share of throttled periods above which the objective counts as missed; 1: never."}));
  t.push_back(bound(FIELD(rule.contention.cpu_pressure),
                    {.pointer = "/rules/*/contention/cpu_pressure",
                     .type = KeyType::Number,
                     .min = 0.01,
                     .max = 1,
                     .only = kLimits,
                     .meaning = "CPU pressure (some) above which it does; 1: never."}));
  t.push_back(
      bound(FIELD(rule.contention.memory_pressure),
            {.pointer = "/rules/*/contention/memory_pressure",
             .type = KeyType::Number,
             .min = 0.01,
             .max = 1,
             .only = kLimits,
             .meaning = "Memory pressure (full) above which it does; running into the memory limit while "
                        "nearly all of it is in use, and a kill for lack of memory, always do."}));
  t.push_back(
      bound(FIELD(rule.contention.backoff_s),
            {.pointer = "/rules/*/contention/backoff_s",
             .type = KeyType::Number,
             .min = 10,
             .max = 604800,
             .unit = "s",
             .only = kLimits,
             .meaning = "How long policies are out of the seat after one under which these rose clearly "
                        "above what they were under the rules; twice as long each time, at most a day."}));

  object("/rules/*/lease", "What to do when somebody else writes a knob.");
  t.push_back(choice<ForeignWrite>(
      FIELD(rule.lease.on_foreign_write),
      {.pointer = "/rules/*/lease/on_foreign_write",
       .meaning = "yield: hands off for hold_s; reassert: write again, reassert_limit times, then yield; "
                  "leave: give the knob up until the daemon restarts."}));
  t.push_back(bound(FIELD(rule.lease.reassert_limit), {.pointer = "/rules/*/lease/reassert_limit",
                                                       .type = KeyType::Integer,
                                                       .min = 1,
                                                       .max = 1000,
                                                       .unit = "writes",
                                                       .meaning = "How often reassert writes again."}));
  t.push_back(bound(FIELD(rule.lease.hold_s), {.pointer = "/rules/*/lease/hold_s",
                                               .type = KeyType::Number,
                                               .min = 0,
                                               .max = 31536000,
                                               .unit = "s",
                                               .meaning = "How long a foreign value is respected."}));
  return t;
}
#undef FIELD

std::string number_text(double v) {
  return plain_number(v).dump();
}

// --- the schema -------------------------------------------------------------------------------------------

using ojson = nlohmann::ordered_json;

ojson key_schema(const ConfigKey& key) {
  ojson s;
  const auto typed = [&](const char* type) {
    s["type"] = key.nullable ? ojson(std::vector<std::string>{type, "null"}) : ojson(type);
  };
  switch (key.type) {
    case KeyType::Object:
    case KeyType::Rules:
      s["type"] = "object";
      break;
    case KeyType::Number:
      typed("number");
      break;
    case KeyType::Integer:
      typed("integer");
      break;
    case KeyType::Boolean:
      typed("boolean");
      break;
    case KeyType::Text:
      typed("string");
      break;
    case KeyType::Texts:
      s["type"] = "array";
      s["items"] = {{"type", "string"}};
      s["maxItems"] = kMostTexts;
      break;
    case KeyType::Choice:
      s["enum"] = ojson::array();
      for (std::string_view c : key.choices) s["enum"].push_back(std::string(c));
      if (key.nullable) s["enum"].push_back(nullptr);
      break;
  }
  if (std::isfinite(key.min)) s["minimum"] = ojson::parse(number_text(key.min));
  if (std::isfinite(key.max)) s["maximum"] = ojson::parse(number_text(key.max));
  if (key.get && key.default_words.empty()) s["default"] = ojson::parse(key.get(ConfigDraft{}).dump());
  std::string words(key.meaning);
  if (!key.unit.empty()) words += " Unit: " + std::string(key.unit) + ".";
  if (!key.form.empty()) words += " Form: " + std::string(key.form) + ".";
  if (key.only) words += " Only in " + std::string(to_string(*key.only)) + " rules.";
  s["description"] = words;
  return s;
}

bool is_child(std::string_view parent, std::string_view pointer) {
  return pointer.size() > parent.size() + 1 && pointer.starts_with(parent) && pointer[parent.size()] == '/' &&
         pointer.find('/', parent.size() + 1) == std::string_view::npos;
}

ojson object_schema(std::string_view pointer) {
  ojson s;
  if (const auto* key = find_config_key(pointer)) s = key_schema(*key);
  s["type"] = "object";
  if (const auto* key = find_config_key(pointer); key && key->type == KeyType::Rules) {
    s["propertyNames"] = {{"pattern", "^[A-Za-z0-9._-]{1,64}$"}};
    s["additionalProperties"] = object_schema("/rules/*");
    return s;
  }
  s["additionalProperties"] = false;
  s["properties"] = ojson::object();
  for (const auto& key : config_keys()) {
    if (!is_child(pointer, key.pointer)) continue;
    const bool nested = key.type == KeyType::Object || key.type == KeyType::Rules;
    s["properties"][std::string(key.name())] = nested ? object_schema(key.pointer) : key_schema(key);
  }
  return s;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> kTable = make_table();
  return kTable;
}

const ConfigKey* find_config_key(std::string_view pattern) {
  for (const auto& key : config_keys())
    if (key.pointer == pattern) return &key;
  return nullptr;
}

std::string type_in_words(const ConfigKey& key) {
  std::string words;
  switch (key.type) {
    case KeyType::Object:
    case KeyType::Rules:
      return "object";
    case KeyType::Boolean:
      words = "true or false";
      break;
    case KeyType::Texts:
      words = "list of texts: " + std::string(key.form);
      break;
    case KeyType::Text:
      words = "text: " + std::string(key.form);
      break;
    case KeyType::Choice:
      words = "one of ";
      for (std::size_t i = 0; i < key.choices.size(); ++i)
        words += (i ? ", " : "") + std::string(key.choices[i]);
      break;
    case KeyType::Number:
    case KeyType::Integer:
      words = key.type == KeyType::Number ? "number" : "whole number";
      words += " from " + number_text(key.min) + " to " + number_text(key.max);
      break;
  }
  if (!key.unit.empty()) words += " " + std::string(key.unit);
  if (key.nullable) words += ", or null";
  return words;
}

std::string default_in_words(const ConfigKey& key) {
  if (!key.get) return "-";
  if (!key.default_words.empty()) return std::string(key.default_words);
  return key.get(ConfigDraft{}).dump();
}

std::string config_schema() {
  ojson s;
  s["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  s["title"] = "/etc/flashd/flashd.json, see flashd.json(5)";
  s.update(object_schema(""));
  return s.dump(2) + "\n";
}

}  // namespace flash
