#include "coordinator/messages_pages.h"

#include <cassert>

#include "coordinator/messages_cbor.h"

namespace flash::coordinator {
namespace {

constexpr std::string_view kAsk = "flash.v1.rq.", kSay = "flash.v1.dn.", kFleet = ".fleet";

void check_reward(Check& c, std::string_view field, const std::optional<double>& reward) {
  if (reward) c.range(field, *reward, link::kLeastReward, link::kMostReward);
}

Result<void> check(const FleetRow& row, const std::string& path) {
  Check c(path);
  c.name("node", row.node);
  c.name("pool", row.pool, true);
  c.name("target", row.target, true);
  c.name("application", row.application, true);
  c.range("agents", static_cast<double>(row.agents), 0, kMaxNumber);
  c.range("serving", static_cast<double>(row.serving), 0, kMaxNumber);
  check_reward(c, "reward", row.reward);
  check_reward(c, "fallback", row.fallback);
  c.range("time_us", static_cast<double>(row.time_us), 0, 1e17);
  return c.result();
}

Result<void> check(const FleetPage& page) {
  Check c;
  c.range("total", static_cast<double>(page.total), 0, kMaxNumber);
  c.count("rows", page.rows.size(), 0, kFleetRows, "rows");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < page.rows.size(); ++i)
    FLASH_CHECK(check(page.rows[i], link::cbor::at("rows", i)));
  return {};
}

void write_reward(Writer& w, std::string_view field, const std::optional<double>& reward) {
  w.field(std::string(field) + "_known", reward.has_value());
  w.field(field, reward.value_or(0));
}

void read_reward(Fields& f, std::string_view field, std::optional<double>& reward) {
  bool known = false;
  double value = 0;
  f.get(std::string(field) + "_known", known);
  f.get(field, value);
  reward = known ? std::optional(value) : std::nullopt;
}

void write(Writer& w, const FleetRow& row) {
  w.head(Writer::kMap, 13);
  w.field("node", row.node);
  w.field("pool", row.pool);
  w.field("target", row.target);
  w.field("application", row.application);
  w.field("task", to_string(row.task));
  w.field("stage", to_string(row.stage));
  w.field("agents", row.agents);
  w.field("serving", row.serving);
  write_reward(w, "reward", row.reward);
  write_reward(w, "fallback", row.fallback);
  w.field("time_us", row.time_us);
}

Result<void> read(const json& map, const std::string& path, FleetRow& row) {
  if (!map.is_object()) return link::cbor::invalid(path + " not a map");
  Fields f(map, path);
  f.get("node", row.node);
  f.get("pool", row.pool);
  f.get("target", row.target);
  f.get("application", row.application);
  f.get_enum("task", row.task, known_tasks(), "a task");
  f.get_enum("stage", row.stage, link::cbor::kStages, "a stage");
  f.get("agents", row.agents);
  f.get("serving", row.serving);
  read_reward(f, "reward", row.reward);
  read_reward(f, "fallback", row.fallback);
  f.get("time_us", row.time_us);
  return f.done({"node", "pool", "target", "application", "task", "stage", "agents", "serving",
                 "reward_known", "reward", "fallback_known", "fallback", "time_us"});
}

}  // namespace

Result<void> validate(const FleetQuestion& m) {
  Check c;
  c.name("text", m.text, true);
  c.range("offset", static_cast<double>(m.offset), 0, static_cast<double>(kMaxFleetOffset));
  return c.result();
}

std::string encode(const FleetQuestion& m) {
  assert(validate(m));
  Writer w;
  begin(w, kVersion, "fleet?", 4);
  w.field("id", m.id);
  w.field("agents", m.agents);
  w.field("text", m.text);
  w.field("offset", m.offset);
  return w.take();
}

std::string encode(const FleetPage& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "fleet", 3);
  w.field("id", m.id);
  w.field("total", m.total);
  w.text("rows");
  w.head(Writer::kArray, m.rows.size());
  for (const FleetRow& row : m.rows) write(w, row);
  return w.take();
}

Result<FleetQuestion> decode_fleet_question(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "fleet?"));
  Fields f = fields_of(j);
  FleetQuestion m;
  f.get("id", m.id);
  f.get("agents", m.agents);
  f.get("text", m.text);
  f.get("offset", m.offset);
  FLASH_CHECK(f.done({"v", "t", "id", "agents", "text", "offset"}));
  FLASH_CHECK(validate(m));
  return m;
}

Result<FleetPage> decode_fleet_page(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "fleet"));
  Fields f = fields_of(j);
  FleetPage m;
  f.get("id", m.id);
  f.get("total", m.total);
  const json* rows = f.list("rows", kFleetRows, "rows");
  FLASH_CHECK(f.done({"v", "t", "id", "total", "rows"}));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    FleetRow row;
    FLASH_CHECK(read((*rows)[i], link::cbor::at("rows", i), row));
    m.rows.push_back(std::move(row));
  }
  FLASH_CHECK(check(m));
  return m;
}

std::string fleet_question_subject(std::string_view node) {
  return std::string(kAsk).append(node).append(kFleet);
}

std::string fleet_page_subject(std::string_view node) {
  return std::string(kSay).append(node).append(kFleet);
}

std::optional<std::string> fleet_asking_node(std::string_view subject) {
  if (!subject.starts_with(kAsk) || !subject.ends_with(kFleet)) return std::nullopt;
  if (subject.size() < kAsk.size() + kFleet.size()) return std::nullopt;
  subject.remove_prefix(kAsk.size());
  subject.remove_suffix(kFleet.size());
  if (!is_token(subject)) return std::nullopt;
  return std::string(subject);
}

}  // namespace flash::coordinator
