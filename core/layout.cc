#include "core/layout.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

#include "core/json.h"
#include "core/tensor_file.h"
#include "core/utf8.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kDigestDigits = 16;
constexpr std::size_t kMaxReward = 256;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "layout: " + std::move(message));
}

std::string quoted(const std::string& name) {
  return "'" + name + "'";
}

bool plain_text(std::string_view text, std::size_t most) {
  if (text.size() > most || !is_utf8(text)) return false;
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

Result<void> check_names(const std::vector<std::string>& names, const char* what) {
  if (names.empty() || names.size() > kMaxLayoutEntries)
    return invalid(std::to_string(names.size()) + " names of " + what + ", 1 to " +
                   std::to_string(kMaxLayoutEntries) + " are allowed");
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (name.empty() || !plain_text(name, kMaxLayoutName))
      return invalid(std::string("a name of ") + what + " is empty, too long or no plain text");
    if (!seen.insert(name).second) return invalid(quoted(name) + " is there twice");
  }
  return {};
}

std::string difference(const std::vector<std::string>& theirs, const std::vector<std::string>& ours,
                       const std::string& what) {
  for (std::size_t i = 0; i < std::min(theirs.size(), ours.size()); ++i)
    if (theirs[i] != ours[i])
      return what + " " + std::to_string(i) + " is " + quoted(theirs[i]) + " there, " + quoted(ours[i]) +
             " here";
  if (theirs.size() == ours.size()) return "";
  const auto& longer = theirs.size() > ours.size() ? theirs : ours;
  return "it knows " + std::to_string(theirs.size()) + ", here are " + std::to_string(ours.size()) + "; " +
         what + " " + quoted(longer[std::min(theirs.size(), ours.size())]) + " is only " +
         (theirs.size() > ours.size() ? "there" : "here");
}

/// A list of texts. False: something else.
bool take_names(const json& object, const char* key, std::vector<std::string>& names) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_array() || at->size() > kMaxLayoutEntries) return false;
  for (const json& name : *at) {
    if (!name.is_string()) return false;
    names.push_back(name.get<std::string>());
  }
  return true;
}

// Of 0.1.0, for good: files that say no names mean these, whatever those of today are.
constexpr std::array<std::string_view, 9> kLimitsState = {
    "cpu_limit",     "memory_limit", "cpu_utilization", "memory_utilization", "sp_latency",
    "sp_throughput", "load_change",  "cpu_use",         "memory_use"};
constexpr std::array<std::string_view, 2> kLimitsKnobs = {"cpu-limit", "memory-limit"};
constexpr std::array<std::string_view, 14> kFrequencyState = {
    "ips",       "ips_known",   "cpu_usage",   "frequency",    "sp_latency",     "sp_throughput",
    "ips_gain",  "cpu_usage_3", "cpu_usage_8", "cpu_usage_64", "cpu_usage_peak", "latency",
    "latency_8", "latency_64"};
constexpr std::array<std::string_view, 1> kFrequencyKnob = {"cpu-frequency"};
struct Before {
  Task task;
  std::span<const std::string_view> state, actions;
  std::uint32_t levels = 0;
};
constexpr std::array<Before, 2> kBeforeNamed = {{
    {Task::ResourceLimits, kLimitsState, kLimitsKnobs, 0},
    {Task::CpuFrequency, kFrequencyState, kFrequencyKnob, 11},
}};

}  // namespace

std::string SpaceLayout::digest() const {
  // Names hold no control character: these separate.
  std::string text(to_string(task));
  for (const auto* names : {&state, &actions}) {
    text += '\n';
    for (const std::string& name : *names) text.append(name).append("\t");
  }
  text.append("\n").append(std::to_string(levels));
  return sha256_hex(text).substr(0, kDigestDigits);
}

Result<void> SpaceLayout::check() const {
  FLASH_CHECK(check_names(state, "state entries"));
  FLASH_CHECK(check_names(actions, "actions"));
  const bool discrete = form() == ActionForm::Discrete;
  if (discrete && actions.size() != 1) return invalid("levels of more than one knob");
  if (discrete ? levels < 1 || levels > kMaxLayoutEntries : levels != 0)
    return invalid(std::to_string(levels) + " levels of " + std::string(to_string(form())) + " actions");
  if (!plain_text(reward, kMaxReward)) return invalid("the reward is too long or no plain text");
  return {};
}

std::string difference(const SpaceLayout& theirs, const SpaceLayout& ours) {
  if (theirs.task != ours.task)
    return "the task is " + std::string(to_string(theirs.task)) + " there, " +
           std::string(to_string(ours.task)) + " here";
  if (std::string d = difference(theirs.state, ours.state, "state entry"); !d.empty()) return d;
  if (std::string d = difference(theirs.actions, ours.actions, "action"); !d.empty()) return d;
  if (theirs.levels != ours.levels)
    return std::to_string(theirs.levels) + " levels there, " + std::to_string(ours.levels) + " here";
  if (!theirs.reward.empty() && !ours.reward.empty() && theirs.reward != ours.reward)
    return "the reward is " + quoted(theirs.reward) + " there, " + quoted(ours.reward) + " here";
  return "";
}

Result<void> same_layout(const SpaceLayout& theirs, const SpaceLayout& ours) {
  if (const std::string d = difference(theirs, ours); !d.empty())
    return Error(std::errc::invalid_argument, "another layout: " + d);
  return {};
}

std::optional<SpaceLayout> layout_before_named(Task task) {
  for (const Before& b : kBeforeNamed) {
    if (b.task != task) continue;
    SpaceLayout layout;
    layout.task = task;
    layout.state.assign(b.state.begin(), b.state.end());
    layout.actions.assign(b.actions.begin(), b.actions.end());
    layout.levels = b.levels;
    return layout;
  }
  return std::nullopt;
}

JsonBox layout_to_json(const SpaceLayout& layout) {
  JsonBox box;
  *box = {{"task", to_string(layout.task)}, {"state", layout.state}, {"actions", layout.actions}};
  if (layout.levels != 0) box["levels"] = layout.levels;
  if (!layout.reward.empty()) box["reward"] = layout.reward;
  return box;
}

Result<SpaceLayout> layout_from_json(const JsonBox& box) {
  const json& object = *box;
  if (!object.is_object()) return invalid("not an object");
  for (const auto& [key, value] : object.items())
    if (key != "task" && key != "state" && key != "actions" && key != "levels" && key != "reward")
      return invalid("an unknown key '" + key.substr(0, 32) + "'");
  SpaceLayout layout;
  const json name = object.value("task", json());
  const auto task = name.is_string() ? task_from_name(name.get_ref<const std::string&>()) : std::nullopt;
  if (!task) return invalid("task: not a name that is known");
  layout.task = *task;
  if (!take_names(object, "state", layout.state)) return invalid("state: not a list of names");
  if (!take_names(object, "actions", layout.actions)) return invalid("actions: not a list of names");
  if (const auto at = object.find("levels"); at != object.end()) {
    if (!at->is_number_integer() || *at < 0 || *at > kMaxLayoutEntries)
      return invalid("levels: not a number of them");
    layout.levels = at->get<std::uint32_t>();
  }
  if (const auto at = object.find("reward"); at != object.end()) {
    if (!at->is_string()) return invalid("reward: not a text");
    layout.reward = at->get<std::string>();
  }
  FLASH_CHECK(layout.check());
  return layout;
}

}  // namespace flash
