#include <iostream>
#include <string>
#include <vector>

#include "cli/agents.h"
#include "cli/commands_impl.h"

namespace flash::cli {

using nlohmann::json;

namespace {

constexpr const char* kSyncPath = "/org/flashd/Sync";
constexpr const char* kSyncInterface = "org.flashd.Sync1";

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

}  // namespace

Exit cluster(BusClient& bus, const Invocation& i, const Style& style) {
  const json answer = bus.call(kSyncPath, "org.freedesktop.DBus.Properties", "GetAll", "s", kSyncInterface);
  const json state = cluster_json(answer.at(0));
  if (i.json)
    print(state);
  else
    std::cout << table(style, cluster_rows(state));
  return Exit::Ok;
}

}  // namespace flash::cli
