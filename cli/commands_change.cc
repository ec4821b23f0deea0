#include <iostream>
#include <string>

#include "cli/agents.h"
#include "cli/commands_impl.h"

namespace flash::cli {

using nlohmann::json;

namespace {

Exit done(const Invocation& i, json result, const std::string& words) {
  if (i.json) {
    result["ok"] = true;
    print(result);
  } else {
    std::cout << words << '\n';
  }
  return Exit::Ok;
}

std::string who(const std::string& target) {
  return target.empty() ? "all targets" : safe_text(target);
}

}  // namespace

Exit set_mode(BusClient& bus, const Invocation& i, const Style&) {
  const std::string target = i.arguments.size() == 2 ? i.arguments[0] : "";
  const std::string mode = i.arguments.back();
  bus.change("SetMode", "ss", target.c_str(), mode.c_str());
  if (!target.empty())
    return done(i, {{"target", target}, {"mode", mode}},
                "Mode of " + who(target) + " is now " + safe_text(mode) + ".");
  // The global mode is not everybody's: say who does not follow, lest somebody thinks that all obey.
  json others = json::array();
  std::string words = "The global mode is now " + safe_text(mode) + ".";
  for (const auto& a : all_agents(bus))
    if (a["mode"] != mode) {
      others.push_back(a["name"]);
      words += "\n" + text_of(a["target"]) + " keeps the mode " + text_of(a["mode"]) + " (rule " +
               text_of(a["rule"]) + ").";
    }
  return done(i, {{"target", target}, {"mode", mode}, {"others", others}}, words);
}

Exit hold(BusClient& bus, const Invocation& i, const Style&) {
  const std::string target = i.all ? "" : i.arguments[0];
  bus.change("Hold", "sts", target.c_str(), i.hold_s, i.reason.c_str());
  return done(i, {{"target", target}, {"seconds", i.hold_s}, {"reason", i.reason}},
              "Hands off " + who(target) +
                  (i.hold_s ? " for " + std::to_string(i.hold_s) + " s." : " until released."));
}

Exit release(BusClient& bus, const Invocation& i, const Style&) {
  const std::string target = i.all ? "" : i.arguments[0];
  bus.change("Release", "s", target.c_str());
  return done(i, {{"target", target}}, "Released " + who(target) + ".");
}

Exit disable(BusClient& bus, const Invocation& i, const Style& style) {
  const json answer = bus.change("Disable", "s", i.reason.c_str());
  const bool complete = answer.at(0).get<bool>();
  json items = json::array();
  for (const auto& k : answer.at(1))
    items.push_back({{"knob", k[0]}, {"target", k[1]}, {"restored", k[2]}, {"message", k[3]}});
  if (i.json) {
    print({{"ok", complete}, {"complete", complete}, {"items", items}});
  } else {
    for (const auto& k : items)
      std::cout << text_of(k["target"]) << ' ' << text_of(k["knob"]) << ": "
                << (k["restored"] == true ? "restored" : paint(style, Colour::Red, "NOT restored"))
                << (k["message"] == "" ? "" : " (" + text_of(k["message"]) + ")") << '\n';
    std::cout << (complete ? "Disabled: every setting is back at its original value.\n"
                           : "Disabled, but not every setting is back.\n");
  }
  return complete ? Exit::Ok : Exit::Failure;
}

Exit enable(BusClient& bus, const Invocation& i, const Style&) {
  bus.change("Enable");
  return done(i, json::object(), "Enabled.");
}

Exit reload(BusClient& bus, const Invocation& i, const Style&) {
  bus.change("Reload");
  return done(i, json::object(), "The configuration was read again.");
}

}  // namespace flash::cli
