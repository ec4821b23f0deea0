#include <cctype>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/agents.h"
#include "cli/commands_impl.h"

namespace flash::cli {

using nlohmann::json;

namespace {

constexpr const char* kSyncPath = "/org/flashd/Sync";
constexpr const char* kSyncInterface = "org.flashd.Sync1";
constexpr std::uint64_t kPageRows = 50;       // as org.flashd.Sync(5) has it
constexpr std::uint64_t kMostRows = 100'000;  // then the web page is the better place

std::uint64_t number_at(const json& properties, const char* name) {
  return properties.at(name).get<std::uint64_t>();
}

/// The bus' properties under stable keys; what a node without a server does not know is null.
json cluster_json(const json& p) {
  const bool configured = p.at("Configured").get<bool>();
  const auto known = [configured](const json& value) { return configured ? value : json(); };
  return {{"version", p.at("Version")},
          {"flashd_connected", p.at("FlashdConnected")},
          {"configured", configured},
          {"connected", p.at("Connected")},
          {"server", known(p.at("Server"))},
          {"node", known(p.at("Node"))},
          {"pool", known(p.at("Pool"))},
          {"outbox", p.at("Outbox")},
          {"taken", p.at("Taken")},
          {"published", p.at("Published")},
          {"confirmed", p.at("Confirmed")},
          {"thinned", p.at("Thinned")},
          {"last_watermark", time_json(number_at(p, "LastWatermark"))},
          {"trouble", p.at("Trouble") == "" ? json() : p.at("Trouble")}};
}

std::vector<std::vector<Cell>> cluster_rows(const json& c) {
  std::vector<std::vector<Cell>> rows = {{{"flash-sync"}, {text_of(c["version"])}}};
  const bool flashd = c["flashd_connected"] == true;
  rows.push_back(
      {{"flashd"}, {flashd ? "connected" : "not connected", flashd ? Colour::Green : Colour::Yellow}});
  if (c["configured"] != true) {
    rows.push_back({{"coordinator"}, {"none: flash-sync runs without --nats", Colour::Yellow}});
    return rows;
  }
  const bool connected = c["connected"] == true;
  rows.push_back({{"server"},
                  {text_of(c["server"]) + (connected ? ", connected" : ", not connected"),
                   connected ? Colour::Green : Colour::Red}});
  rows.push_back({{"node"}, {text_of(c["node"]) + " in pool " + text_of(c["pool"])}});
  rows.push_back({{"outbox"}, {c["outbox"].dump() + " records wait for the coordinator"}});
  rows.push_back({{"records"},
                  {c["taken"].dump() + " taken, " + c["confirmed"].dump() + " confirmed, " +
                       c["thinned"].dump() + " thinned out",
                   c["thinned"] != 0 ? Colour::Yellow : Colour::None}});
  rows.push_back({{"watermark"},
                  {c["last_watermark"].is_null() ? "none since the start"
                                                 : "moved at " + text_of(c["last_watermark"])}});
  if (!c["trouble"].is_null()) rows.push_back({{"trouble"}, {text_of(c["trouble"]), Colour::Yellow}});
  return rows;
}

json row_json(const json& r, bool agents) {
  json j = {{"node", r[0]}, {"pool", r[1]}};
  if (agents) {
    j["target"] = r[2];
    j["application"] = r[3];
    j["task"] = r[4];
    j["stage"] = r[5];
  } else {
    j["agents"] = r[6];
    j["serving"] = r[7];
  }
  j["reward_mean"] = number_json(r[8]);
  j["reward_fallback"] = number_json(r[9]);
  j["time"] = time_json(r[10].get<std::uint64_t>());
  j["time_us"] = r[10];
  return j;
}

/// All rows that match, a page at a time; what comes and goes meanwhile may be missed.
json all_rows(BusClient& bus, const std::string& what, const std::string& text) {
  json rows = json::array();
  std::uint64_t offset = 0;
  while (offset < kMostRows) {
    const json answer =
        bus.call(kSyncPath, kSyncInterface, "Fleet", "sst", what.c_str(), text.c_str(), offset);
    const json& page = answer.at(1);
    for (const auto& row : page) rows.push_back(row_json(row, what == "agents"));
    offset += kPageRows;
    if (offset >= answer.at(0).get<std::uint64_t>()) break;
  }
  return rows;
}

std::vector<std::vector<Cell>> fleet_rows(const json& rows, bool agents) {
  using Column = std::pair<std::string, std::string>;  // title, key
  const Column reward{"reward", "reward_mean"}, fallback{"fallback", "reward_fallback"};
  const auto same = [](const char* key) { return Column{key, key}; };
  const std::vector<Column> columns =
      agents ? std::vector<Column>{same("node"), same("target"), same("application"),
                                   same("task"), same("stage"),  reward,
                                   fallback,     same("time")}
             : std::vector<Column>{same("node"), same("pool"), same("agents"), same("serving"),
                                   reward,       fallback,     same("time")};
  std::vector<std::vector<Cell>> out(1);
  for (auto [title, key] : columns) {
    for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    out[0].push_back({title, Colour::Bold});
  }
  for (const json& row : rows) {
    std::vector<Cell> cells;
    for (const auto& [title, key] : columns)
      cells.push_back({key.starts_with("reward_") ? number_text(number_of(row[key])) : text_of(row[key])});
    out.push_back(std::move(cells));
  }
  return out;
}

Exit print_fleet(BusClient& bus, const Invocation& i, const Style& style) {
  const std::string& what = i.arguments[0];
  const json rows = all_rows(bus, what, i.arguments.size() > 1 ? i.arguments[1] : "");
  if (i.json)
    print(rows);
  else if (rows.empty())
    std::cout << "None.\n";
  else
    std::cout << table(style, fleet_rows(rows, what == "agents"));
  return Exit::Ok;
}

}  // namespace

Exit cluster(BusClient& bus, const Invocation& i, const Style& style) {
  if (!i.arguments.empty() && i.arguments[0] != "status") return print_fleet(bus, i, style);
  const json answer = bus.call(kSyncPath, "org.freedesktop.DBus.Properties", "GetAll", "s", kSyncInterface);
  const json state = cluster_json(answer.at(0));
  if (i.json)
    print(state);
  else
    std::cout << table(style, cluster_rows(state));
  return Exit::Ok;
}

}  // namespace flash::cli
