#include "coordinator/messages_fleet.h"

#include <algorithm>
#include <cassert>

#include "coordinator/messages_cbor.h"

namespace flash::coordinator {
namespace {

constexpr std::string_view kHeartbeats = "flash.v1.hb.";
constexpr std::string_view kCoordinators = "flash.v1.co.";

Result<void> check(const Heartbeat& m) {
  Check c;
  c.name("software", m.software);
  c.name("flashd", m.flashd, true);
  c.name("mode", m.mode, true);
  c.range("agents", static_cast<double>(m.agents), 0, 1e6);
  c.range("outbox", static_cast<double>(m.outbox), 0, kMaxNumber);
  return c.result();
}

Result<void> check(const CoordinatorBeat& m) {
  Check c;
  c.name("instance", m.instance);
  c.range("stream_created_ns", static_cast<double>(m.stream_created_ns), 0, 9.3e18);
  c.range("position", static_cast<double>(m.position), 0, kMaxNumber);
  c.range("lease", static_cast<double>(m.lease), 0, kMaxNumber);
  return c.result();
}

}  // namespace

std::string encode(const Heartbeat& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "heartbeat", 5);
  w.field("software", m.software);
  w.field("flashd", m.flashd);
  w.field("mode", m.mode);
  w.field("agents", m.agents);
  w.field("outbox", m.outbox);
  return w.take();
}

std::string encode(const CoordinatorBeat& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "coordinator", 5);
  w.field("instance", m.instance);
  w.field("stream_created_ns", m.stream_created_ns);
  w.field("position", m.position);
  w.field("in_step", m.in_step);
  w.field("lease", m.lease);
  return w.take();
}

Result<Heartbeat> decode_heartbeat(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "heartbeat"));
  Heartbeat m;
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("flashd", m.flashd);
  f.get("mode", m.mode);
  f.get("agents", m.agents);
  f.get("outbox", m.outbox);
  FLASH_CHECK(f.done({"v", "t", "software", "flashd", "mode", "agents", "outbox"}));
  FLASH_CHECK(check(m));
  return m;
}

Result<CoordinatorBeat> decode_coordinator_beat(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "coordinator"));
  CoordinatorBeat m;
  Fields f = fields_of(j);
  f.get("instance", m.instance);
  f.get("stream_created_ns", m.stream_created_ns);
  f.get("position", m.position);
  f.get("in_step", m.in_step);
  f.get("lease", m.lease);
  FLASH_CHECK(f.done({"v", "t", "instance", "stream_created_ns", "position", "in_step", "lease"}));
  FLASH_CHECK(check(m));
  return m;
}

std::string heartbeat_subject(const Origin& origin) {
  return std::string(kHeartbeats) + origin.pool + "." + origin.node;
}

std::string coordinator_subject(std::string_view name) {
  return std::string(kCoordinators) + std::string(name);
}

std::optional<Origin> heartbeat_origin(std::string_view subject) {
  if (!subject.starts_with(kHeartbeats)) return std::nullopt;
  subject.remove_prefix(kHeartbeats.size());
  const auto dot = subject.find('.');
  if (dot == subject.npos) return std::nullopt;
  const Origin origin{std::string(subject.substr(0, dot)), std::string(subject.substr(dot + 1))};
  return is_token(origin.pool) && is_token(origin.node) ? std::optional(origin) : std::nullopt;
}

std::optional<std::string> coordinator_of(std::string_view subject) {
  if (!subject.starts_with(kCoordinators)) return std::nullopt;
  subject.remove_prefix(kCoordinators.size());
  return is_token(subject) ? std::optional(std::string(subject)) : std::nullopt;
}

}  // namespace flash::coordinator
