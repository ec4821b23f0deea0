// The rows of daemon/config_keys.h, in the order of the manual.
#include <deque>

#include "core/algorithms.h"
#include "daemon/config_binding.h"
#include "daemon/config_limits.h"
#include "daemon/config_text_checks.h"

namespace flash {
namespace {

using namespace config;

// --- limits: a row of daemon/config_limits each -----------------------------------------------------------

/// Pointers of keys that are made and not written here; as long as the program.
std::string_view kept(std::string pointer) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(pointer));
}

void add_limit(std::vector<ConfigKey>& t, const LimitKeys& row) {
  const std::string object = "/rules/*/" + std::string(row.object);
  const Task only = traits(row.knob).task;
  const KnobKind knob = row.knob;
  t.push_back({.pointer = kept(object), .only = only, .meaning = row.meaning});
  ConfigKey manage{
      .pointer = kept(object + "/manage"), .type = KeyType::Boolean, .only = only, .meaning = row.manage};
  manage.set = [knob](ConfigDraft& d, const json& v) { assign(d.rule.limits[knob].manage, v, 1); };
  manage.get = [knob](const ConfigDraft& d) { return show(d.rule.limits[knob].manage, 1); };
  t.push_back(std::move(manage));
  for (const LimitKey& k : row.keys) {
    if (k.name.empty()) break;
    ConfigKey key{.pointer = kept(object + "/" + std::string(k.name)),
                  .type = KeyType::Number,
                  .nullable = k.nullable,
                  .min = k.min,
                  .max = k.max,
                  .unit = k.unit,
                  .only = only,
                  .default_words = k.default_words,
                  .meaning = k.meaning};
    const auto field = k.field;
    const int scale = k.scale;
    key.set = [=](ConfigDraft& d, const json& v) { assign(d.rule.limits[knob].*field, v, scale); };
    key.get = [=](const ConfigDraft& d) { return show(d.rule.limits[knob].*field, scale); };
    t.push_back(std::move(key));
  }
}
}  // namespace

#define FIELD(path)      \
  [](auto& d) -> auto& { \
    return d.path;       \
  }

std::vector<ConfigKey> config_table() {
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
         algorithm_names(action_form(kLimits), LearningPhase::Offline),
         "How policies for limits are learned from logged steps: TD3 with behaviour cloning, or "
         "batch-constrained "
         "Q-learning.");
  one_of(FIELD(config.learner.settings.frequency_offline), "/learner/frequency_offline",
         algorithm_names(action_form(kFrequency), LearningPhase::Offline),
         "The same for frequency, or implicit Q-learning.");
  one_of(FIELD(config.learner.settings.frequency_algorithm), "/learner/frequency_algorithm",
         algorithm_names(action_form(kFrequency), LearningPhase::Online),
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
                     .meaning = "Where several rules of one task match a target the highest priority wins, "
                                "then the name that sorts first."}));
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
      FIELD(rule.group),
      {.pointer = "/rules/*/group",
       .type = KeyType::Text,
       .check = check_short_name_or_none,
       .form = "name or empty",
       .meaning = "Targets of one task whose rules name the same group see each other: how many others there "
                  "are, and what they have, use and keep of their objectives, is part of each one's state. "
                  "Such a state is another than that of a target without a group: policies of one do not fit "
                  "the other. A change of the group begins anew with its targets. Empty: none."}));
  t.push_back(bound(
      FIELD(rule.parameter_sharing),
      {.pointer = "/rules/*/parameter_sharing",
       .type = KeyType::Boolean,
       .meaning =
           "The targets of the group learn together: one policy for all of them, from what each of them "
           "lived through, which a target that comes later begins with. Those of the group's targets "
           "learn together whose rules say so and agree in task, managed limits and reward. Needs a group. "
           "false: each target has a policy of its own."}));
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

  for (const LimitKeys& row : limit_keys) add_limit(t, row);

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

}  // namespace flash
