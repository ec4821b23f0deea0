#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "cli/agents.h"
#include "cli/commands.h"
#include "cli/commands_impl.h"

namespace flash::cli {

using nlohmann::json;

namespace {

constexpr std::uint32_t kDefaultRewards = 20;
constexpr std::uint32_t kSparkWidth = 30;

Colour stage_colour(const std::string& stage) {
  return stage == "serving" ? Colour::Green : stage == "online" ? Colour::Yellow : Colour::None;
}

std::string knobs_text(const json& agent) {
  std::string out;
  for (const auto& [name, knob] : agent["knobs"].items()) {
    if (!out.empty()) out += ", ";
    out += safe_text(name) + " " + knob_text(name, number_of(knob["current"]));
    const std::string lease = knob["lease"].get<std::string>();
    if (lease != "ours" && lease != "unclaimed") out += " (" + safe_text(lease) + ")";
  }
  return out.empty() ? "-" : out;
}

/// "v7 td3+bc", "-" without a learned policy.
std::string model_text(const json& agent) {
  const json& m = agent["model"];
  if (m.is_null()) return "-";
  const std::string algorithm = text_of(m["algorithm"]);
  return "v" + m["version"].dump() + (algorithm.empty() ? "" : " " + algorithm);
}

std::uint64_t count_of(const json& counters, const char* key) {
  return counters.is_object() && counters.contains(key) && counters[key].is_number()
             ? counters[key].get<std::uint64_t>()
             : 0;
}

/// "0.31 % of one core (process 0.3, requests 0, schedule 0.01), budget 1 %".
std::string overhead_words(const json& parts, const json& budget) {
  double total = 0;
  std::string each;
  for (const auto& [part, pct] : parts.items()) {
    total += pct.get<double>();
    each += (each.empty() ? "" : ", ") + safe_text(part) + " " + number_text(pct.get<double>());
  }
  const double most = number_of(budget);
  return number_text(total) + " % of one core (" + each + "), " +
         (most > 0 ? "budget " + number_text(most) + " %" : "no bound");
}

std::vector<std::vector<Cell>> agent_rows(const json& agents) {
  std::vector<std::vector<Cell>> rows;
  std::vector<Cell> head;
  for (const char* title :
       {"TARGET", "TASK", "MODE", "STAGE", "CONTROLLER", "REWARD", "MEAN", "FALLBACK", "MODEL", "KNOBS"})
    head.push_back({title, Colour::Bold});
  rows.push_back(head);
  for (const auto& a : agents) {
    const bool held = a["held"] == true;
    rows.push_back({{text_of(a["target"])},
                    {text_of(a["task"])},
                    {held ? "held" : text_of(a["mode"]), held ? Colour::Yellow : Colour::None},
                    {text_of(a["stage"]), stage_colour(text_of(a["stage"]))},
                    {text_of(a["controller"]), a["controller"] == "learned" ? Colour::Green : Colour::None},
                    {number_text(number_of(a["reward"]))},
                    {number_text(number_of(a["reward_mean"]))},
                    {number_text(number_of(a["reward_fallback"]["mean"]))},
                    {model_text(a)},
                    {knobs_text(a)}});
  }
  return rows;
}

}  // namespace

Exit print_status(BusClient& bus, const Invocation& i, const Style& style) {
  const json s = daemon_status(bus);
  if (i.json) {
    print(s);
    return Exit::Ok;
  }
  const bool disabled = s["disabled"] == true;
  std::vector<std::vector<Cell>> rows = {
      {{"flashd"}, {text_of(s["version"])}},
      {{"mode"},
       {disabled ? "disabled: " + text_of(s["disabled_reason"]) : text_of(s["mode"]),
        disabled ? Colour::Red : Colour::None}},
      {{"learner"}, {text_of(s["learner"])}},
  };
  if (const json& c = s["learner_counters"]; count_of(c, "connections") + count_of(c, "refused_peers") > 0) {
    const auto of = [&c](const char* key) { return std::to_string(count_of(c, key)); };
    rows.push_back({{"learning"},
                    {of("sent_steps") + " steps sent, " + of("acknowledged_steps") + " stored, " +
                     of("dropped_steps") + " dropped; " + of("offers") + " policies offered, " +
                     of("accepted") + " accepted, " + of("refused") + " refused"}});
    if (const std::string last = text_of(s["learner_error"]); last != "-" && !last.empty())
      rows.push_back({{""}, {"last error: " + last, Colour::Yellow}});
  }
  if (const std::string sync = text_of(s["sync"]); !sync.empty() && sync != "-") {
    const json& c = s["sync_counters"];
    rows.push_back({{"sync"},
                    {sync + (count_of(c, "readings") > 0 ? "; " + std::to_string(count_of(c, "readings")) +
                                                               " readings of metrics pages"
                                                         : std::string())}});
  }
  if (const json& c = s["journal"]; count_of(c, "decisions") + count_of(c, "dropped") > 0)
    rows.push_back({{"journal"},
                    {std::to_string(count_of(c, "decisions")) + " decisions recorded, " +
                         std::to_string(count_of(c, "dropped")) + " dropped",
                     count_of(c, "dropped") > 0 ? Colour::Yellow : Colour::None}});
  char text[128];
  std::snprintf(text, sizeof text, "%llu, every %g s, the last took %llu us",
                static_cast<unsigned long long>(s["ticks"].get<std::uint64_t>()), s["period_s"].get<double>(),
                static_cast<unsigned long long>(s["tick_us"].get<std::uint64_t>()));
  rows.push_back({{"ticks"}, {text}});
  if (const json& parts = s["overhead_pct"]; parts.is_object() && !parts.empty())
    rows.push_back({{"overhead"}, {overhead_words(parts, s["overhead_budget_pct"])}});
  std::string agents = std::to_string(s["agents"].get<int>());
  for (const auto& [stage, n] : s["stages"].items())
    if (n != 0) agents += ", " + n.dump() + " " + safe_text(stage);
  rows.push_back({{"agents"}, {agents}});
  for (const auto& d : s["degraded"])
    rows.push_back({{"degraded"}, {text_of(d["part"]) + ": " + text_of(d["reason"]), Colour::Yellow}});
  std::cout << table(style, rows);
  return Exit::Ok;
}

Exit print_agents(BusClient& bus, const Invocation& i, const Style& style) {
  const json agents = all_agents(bus);
  if (i.json)
    print(agents);
  else if (agents.empty())
    std::cout << "No agents: no rule selects a target that exists.\n";
  else
    std::cout << table(style, agent_rows(agents));
  return Exit::Ok;
}

namespace {

/// What is known of the learned policy: the model, whether it promises to be better, what was refused.
void learned_rows(const json& a, std::vector<std::vector<Cell>>& rows) {
  if (const json& m = a["model"]; !m.is_null()) {
    rows.push_back({{"model"},
                    {"version " + m["version"].dump() + ", " + text_of(m["algorithm"]) + ", from " +
                     m["data_steps"].dump() + " steps, expires " + text_of(m["expires"])}});
    if (const std::string lineage = text_of(m["model"]); !lineage.empty()) rows.push_back({{""}, {lineage}});
    if (m["embedding_size"] != 0)
      rows.push_back({{""}, {"embedding of " + m["embedding_size"].dump() + " numbers"}});
  }
  if (const json& e = a["estimate"]; !e.is_null()) {
    const auto of = [&e](const char* key) { return number_text(number_of(e[key])); };
    rows.push_back({{"estimate"},
                    {of("learned") + " per step, fallback " + of("fallback") + ": better by " + of("lower") +
                     " to " + of("upper") + " (95 %, " + text_of(e["method"]) + ", " +
                     e["transitions"].dump() + " transitions)"}});
  }
  if (const json& d = a["drift"]; !d.is_null()) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f deviations from training", number_of(d["shift"]));
    const bool far = d["drifted"] == true;
    rows.push_back({{"drift"}, {text_of(d["entry"]) + " is " + text, far ? Colour::Yellow : Colour::None}});
  }
  const json& s = a["snapshots"];
  if (s["offered"].is_number() && s["offered"] != 0) {
    rows.push_back({{"policies"},
                    {s["offered"].dump() + " offered, " + s["accepted"].dump() + " accepted, " +
                         s["refused"].dump() + " refused",
                     s["refused"] != 0 ? Colour::Yellow : Colour::None}});
    if (!s["last_refusal"].is_null())
      rows.push_back(
          {{""}, {"refused at " + text_of(s["last_refusal_at"]) + ": " + text_of(s["last_refusal"])}});
  }
  if (const double share = number_of(a["explored_share"]); share > 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%.0f %% of the last 100 decisions", share * 100);
    rows.push_back({{"explored"}, {text}});
  }
}

}  // namespace

Exit print_agent(BusClient& bus, const Invocation& i, const Style& style) {
  const json a = one_agent(bus, i.arguments[0]);
  if (i.json) {
    print(a);
    return Exit::Ok;
  }
  std::vector<std::vector<Cell>> rows;
  for (const char* key :
       {"target", "name", "task", "application", "rule", "group", "cgroup", "unit", "owner", "mode"})
    if (!a[key].is_null() && a[key] != "") rows.push_back({{key}, {text_of(a[key])}});
  const json& container = a["container"];
  if (!container.is_null())
    rows.push_back({{"container"},
                    {text_of(container["runtime"]) + " " + text_of(container["name"]) + " " +
                     text_of(container["id"])}});
  if (!a["cpus"].empty()) rows.push_back({{"cpus"}, {a["cpus"].dump()}});
  rows.push_back(
      {{"stage"},
       {text_of(a["stage"]) + " since " + text_of(a["stage_since"]), stage_colour(text_of(a["stage"]))}});
  // The current stage is the line above.
  for (std::size_t n = a["stages"].size(), k = n; k-- > 0;) {
    const json& s = a["stages"][k];
    const std::string why = text_of(s["reason"]);
    if (k + 1 == n) {
      if (!why.empty()) rows.push_back({{""}, {"because " + why}});
    } else {
      rows.push_back({{""},
                      {"before: " + text_of(s["stage"]) + " since " + text_of(s["since"]) +
                           (why.empty() ? "" : ": " + why),
                       Colour::Dim}});
    }
  }
  if (const std::string waiting = text_of(a["waiting_for"]); !waiting.empty() && waiting != "-")
    rows.push_back({{"waiting for"}, {waiting}});
  const std::string reason = text_of(a["controller_reason"]);
  rows.push_back({{"controller"}, {text_of(a["controller"]) + (reason.empty() ? "" : ": " + reason)}});
  rows.push_back({{"episode"}, {a["episode"].dump() + ", step " + a["step"].dump()}});
  rows.push_back(
      {{"reward"},
       {number_text(number_of(a["reward"])) + " (mean " + number_text(number_of(a["reward_mean"])) +
        ", deviation " + number_text(number_of(a["reward_stddev"])) + ")"}});
  const json& fallback = a["reward_fallback"];
  if (fallback["count"] != 0)
    rows.push_back({{"fallback"},
                    {"earned " + number_text(number_of(fallback["mean"])) + " per step under control (" +
                     fallback["count"].dump() + " steps)"}});
  if (a["held"] == true)
    rows.push_back({{"held"},
                    {(a["held_until"].is_null() ? "until released" : "until " + text_of(a["held_until"])) +
                         ": " + text_of(a["hold_reason"]),
                     Colour::Yellow}});
  for (const auto& [name, k] : a["knobs"].items()) {
    std::string text = knob_text(name, number_of(k["current"])) + ", originally " +
                       knob_text(name, number_of(k["original"])) + ", " + text_of(k["lease"]) + ", " +
                       k["writes"].dump() + " writes";
    if (k["writable"] != true) text += ", not writable";
    if (k["reason"] != "") text += ": " + text_of(k["reason"]);
    rows.push_back({{safe_text(name)}, {text, k["writable"] == true ? Colour::None : Colour::Yellow}});
  }
  learned_rows(a, rows);
  if (a["learning"].is_string() && a["learning"] != "")
    rows.push_back({{"learning"}, {text_of(a["learning"])}});
  if (a["nearest_pair"].is_string() && a["nearest_pair"] != "")
    rows.push_back({{"nearest pair"}, {text_of(a["nearest_pair"])}});
  std::cout << table(style, rows);
  return Exit::Ok;
}

namespace {

std::vector<double> rewards_of(BusClient& bus, const json& agent, std::uint32_t n) {
  std::vector<double> out;
  const json answer = bus.call(agent["path"].get<std::string>(), kAgentInterface, "GetRewards", "u", n);
  for (const auto& r : answer.at(0)) out.push_back(number_of(r));
  return out;
}

json rewards_json(const std::vector<double>& rewards) {
  json out = json::array();
  for (double r : rewards) out.push_back(number_json(r));
  return out;
}

}  // namespace

Exit print_rewards(BusClient& bus, const Invocation& i, const Style& style) {
  const json a = one_agent(bus, i.arguments[0]);
  const auto rewards = rewards_of(bus, a, i.lines_given ? i.lines : kDefaultRewards);
  if (i.json) {
    print({{"name", a["name"]},
           {"target", a["target"]},
           {"rewards", rewards_json(rewards)},
           {"reward_mean", a["reward_mean"]},
           {"reward_stddev", a["reward_stddev"]}});
    return Exit::Ok;
  }
  for (double r : rewards) std::cout << number_text(r) << '\n';
  std::cout << sparkline(style, rewards) << "  mean " << number_text(number_of(a["reward_mean"]))
            << ", deviation " << number_text(number_of(a["reward_stddev"]))
            << " of those that may be trusted\n";
  return Exit::Ok;
}

namespace {

std::size_t terminal(bool rows, std::size_t otherwise) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return otherwise;
  const std::size_t n = rows ? size.ws_row : size.ws_col;
  return n > 0 ? n : otherwise;
}

}  // namespace

Exit print_why(BusClient& bus, const Invocation& i, const Style& style) {
  const json a = one_agent(bus, i.arguments[0]);
  const json answer =
      bus.call(a["path"].get<std::string>(), kAgentInterface, "Why", "u", i.lines_given ? i.lines : 1u);
  const json& decisions = answer.at(0);
  if (i.json) {
    json list = json::array();
    for (const auto& d : decisions) list.push_back(json::parse(d.get<std::string>(), nullptr, false));
    print({{"name", a["name"]}, {"target", a["target"]}, {"decisions", list}});
    return Exit::Ok;
  }
  std::cout << paint(style, Colour::Bold, text_of(a["target"])) << " (" << text_of(a["task"]) << ", mode "
            << text_of(a["mode"]) << ", stage " << text_of(a["stage"]) << ")\n";
  if (decisions.empty()) std::cout << "No decision yet.\n";
  for (const auto& d : decisions) std::cout << decision_text(d.get<std::string>(), terminal(false, 100));
  return Exit::Ok;
}

namespace {

// -- watch --------------------------------------------------------------------------------------------------

/// SIGINT and SIGTERM end the wait instead of the process, so that the cursor comes back.
class Interrupts {
 public:
  Interrupts() {
    sigemptyset(&set_);
    for (int s : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set_, s);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~Interrupts() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// False when the user wants to end.
  bool sleep(double seconds) {
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(seconds);
    time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
    const int s = sigtimedwait(&set_, nullptr, &time);
    return s < 0 || s == SIGWINCH;
  }

 private:
  sigset_t set_{}, before_{};
};

std::string watch_text(const json& status, const json& agents, const json& recent, const Style& style,
                       std::size_t height) {
  const std::time_t now = std::time(nullptr);
  char clock[32] = "";
  std::tm parts{};
  if (localtime_r(&now, &parts)) std::strftime(clock, sizeof clock, "%H:%M:%S", &parts);
  const bool disabled = status["disabled"] == true;
  std::string out = paint(style, Colour::Bold, "flashd " + text_of(status["version"])) + "  " + clock +
                    "  mode " + text_of(status["mode"]) + "  learner " + text_of(status["learner"]) +
                    "  tick " + status["ticks"].dump() + " (" + status["tick_us"].dump() + " us)\n";
  if (disabled) out += paint(style, Colour::Red, "disabled: " + text_of(status["disabled_reason"])) + "\n";
  for (const auto& d : status["degraded"])
    out += paint(style, Colour::Yellow, text_of(d["part"]) + ": " + text_of(d["reason"])) + "\n";
  out += "\n";
  auto rows = agent_rows(agents);
  const auto before_knobs = static_cast<std::ptrdiff_t>(rows[0].size()) - 1;
  rows[0].insert(rows[0].begin() + before_knobs, Cell{"REWARDS", Colour::Bold});
  for (std::size_t i = 1; i < rows.size(); ++i) {
    std::vector<double> values;
    for (const auto& r : recent[i - 1]) values.push_back(number_of(r));
    rows[i].insert(rows[i].begin() + before_knobs, Cell{sparkline(style, values), Colour::None});
  }
  out += table(style, rows);
  if (rows.size() - 1 < status["agents"].get<std::size_t>() && height > 0)
    out += "... and " + std::to_string(status["agents"].get<std::size_t>() - (rows.size() - 1)) + " more\n";
  return out;
}

}  // namespace

Exit watch(BusClient& bus, const Invocation& i, const Style& style) {
  const bool live = isatty(STDOUT_FILENO) && !i.json;
  Interrupts interrupts;
  struct Cursor {
    bool live;
    explicit Cursor(bool on) : live(on) {
      if (live) std::cout << "\x1b[?25l" << std::flush;
    }
    ~Cursor() {
      if (live) std::cout << "\x1b[?25h" << std::flush;
    }
  } cursor(live);
  for (std::uint64_t n = 1;; ++n) {
    const json status = daemon_status(bus);
    json agents = all_agents(bus);
    // Heading, degraded parts, blank line, column titles, "... and more".
    const std::size_t height = live ? terminal(true, 24) : 0;
    const std::size_t taken = 5 + status["degraded"].size() + (status["disabled"] == true ? 1 : 0);
    if (live && agents.size() + taken > height) {
      const std::size_t room = height > taken ? height - taken : 1;
      agents.erase(agents.begin() + static_cast<std::ptrdiff_t>(room), agents.end());
    }
    json recent = json::array();
    for (auto& a : agents) {
      try {
        recent.push_back(rewards_json(rewards_of(bus, a, kSparkWidth)));
      } catch (const CliError& e) {
        if (e.code() != Exit::NoSuchTarget) throw;
        recent.push_back(json::array());  // the target went away since it was listed
      }
    }
    if (i.json) {
      for (std::size_t k = 0; k < agents.size(); ++k) agents[k]["recent_rewards"] = recent[k];
      const json line = {{"time", time_json(static_cast<std::uint64_t>(std::time(nullptr)) * 1'000'000)},
                         {"status", status},
                         {"agents", agents}};
      std::cout << safe_json(line, -1) << '\n' << std::flush;
    } else {
      const std::string text = watch_text(status, agents, recent, style, height);
      std::cout << (live ? "\x1b[H\x1b[J" : n > 1 ? "\n" : "") << text << std::flush;
    }
    if (!std::cout) return Exit::Failure;  // the reader of a pipe went away
    if (i.count != 0 && n >= i.count) return Exit::Ok;
    if (!interrupts.sleep(i.interval_s)) return Exit::Ok;
  }
}

Exit verify(BusClient& bus, const Invocation& i, const Style&) {
  const json answer = bus.call(kManagerPath, kManagerInterface, "Verify");
  const json& differences = answer.at(0);
  if (i.json) {
    print({{"ok", differences.empty()}, {"differences", differences}});
  } else {
    for (const auto& line : differences) std::cout << text_of(line) << '\n';
    if (differences.empty()) std::cout << "What is in force is what was written.\n";
  }
  return differences.empty() ? Exit::Ok : Exit::Different;
}

Exit doctor(BusClient& bus, const Invocation& i, const Style& style) {
  const json s = daemon_status(bus);
  const json& sources = s["sources"];
  if (i.json) {
    print({{"sources", sources}, {"degraded", s["degraded"]}});
    return Exit::Ok;
  }
  std::vector<std::vector<Cell>> rows = {{{"SIGNAL", Colour::Bold},
                                          {"SOURCE", Colour::Bold},
                                          {"TARGETS", Colour::Bold},
                                          {"WHY NOT A BETTER ONE", Colour::Bold}}};
  for (const auto& row : sources) {
    const std::string source = text_of(row["source"]);
    const std::string reason = text_of(row["reason"]);
    const Colour colour = source == "none"    ? Colour::Red
                          : reason.empty()    ? Colour::Green
                          : source == "proxy" ? Colour::Red
                                              : Colour::Yellow;
    rows.push_back({{text_of(row["signal"])}, {source, colour}, {row["targets"].dump()}, {reason}});
  }
  std::cout << table(style, rows);
  if (sources.empty()) std::cout << "This flashd does not say where its signals come from.\n";
  for (const auto& d : s["degraded"])
    std::cout << paint(style, Colour::Yellow, text_of(d["part"]) + ": " + text_of(d["reason"])) << '\n';
  return Exit::Ok;
}

std::string decision_text(std::string_view text, std::size_t width) {
  const json d = json::parse(text, nullptr, false);
  if (d.is_discarded()) return "  (flashd's answer is not JSON)\n";
  if (!d.is_object() || !d.contains("words") || !d["words"].is_string()) return safe_json(d, 2) + "\n";
  std::string out;
  if (d.contains("seq") && d.contains("time"))
    out += "Decision " + text_of(d["seq"]) + " at " + text_of(d["time"]) + ":\n";
  std::string_view words = d["words"].get_ref<const std::string&>();
  while (!words.empty()) {
    const auto end = words.find('\n');
    out += wrapped(safe_text(words.substr(0, end)), width, "  ");
    words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
  }
  return out;
}

}  // namespace flash::cli
