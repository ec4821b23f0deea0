#include "link/messages.h"

#include <array>
#include <cassert>
#include <cmath>

#include "core/json.h"
#include "link/cbor.h"
#include "link/episode_cbor.h"
#include "link/neighbour_cbor.h"

namespace flash::link {
namespace {

using cbor::at;
using cbor::begin;
using cbor::Check;
using cbor::Fields;
using cbor::fields_of;
using cbor::invalid;
using cbor::parse;
using cbor::type_of;
using cbor::unknown_type;
using cbor::Writer;
using nlohmann::json;

constexpr double kMaxNumber = 1e12;  // of what is measured: a loss, a time

// --- bounds: one place for both directions and both ends ------------------------------------------------

Result<void> check(const LearningSettings& s, const std::string& path) {
  Check c(path);
  c.one_of("limits_offline", s.limits_offline, {"td3+bc", "bcq"});
  c.one_of("frequency_offline", s.frequency_offline, {"td3+bc", "iql", "bcq"});
  c.one_of("frequency_algorithm", s.frequency_algorithm, {"q-learning", "tabular-q"});
  c.range("discount", s.discount, 0, 0.9999);
  c.range("learning_starts", s.learning_starts, 1, 1e6);
  c.range("updates_per_step", s.updates_per_step, 0, 1000);
  c.range("offline_updates", s.offline_updates, 0, 1e6);
  c.range("publish_interval_s", s.publish_interval_s, 0.1, 86400);
  c.range("snapshot_lifetime_s", s.snapshot_lifetime_s, 1, 864000);
  c.range("replay_steps", s.replay_steps, 100, 1e6);
  c.range("store_max_mib", s.store_max_mib, 1, 1e6);
  c.range("store_max_days", s.store_max_days, 0.01, 3650);
  return c.result();
}

Result<void> check(const HelloDown& m) {
  Check c;
  c.name("software", m.software);
  c.range("period_s", m.period_s, 0.01, 3600);
  c.range("episode_steps", m.episode_steps, 1, 1e6);
  FLASH_CHECK(c.result());
  return check(m.settings, "settings.");
}

Result<void> check(const Announce& m) {
  Check c;
  c.name("agent", m.agent);
  c.name("key", m.key);
  c.name("application", m.application, true);
  c.name("rule", m.rule, true);
  c.range("state_dim", m.state_dim, 1, kMaxDim);
  c.range("action_dim", m.action_dim, 1, kMaxDim);
  if (m.state_names.size() != m.state_dim)
    c.fail("state_names",
           std::to_string(m.state_names.size()) + " names for a state of " + std::to_string(m.state_dim));
  for (const std::string& name : m.state_names) c.name("state_names", name);
  c.name("reward", m.reward, true);
  return c.result();
}

Result<void> check(const Gone& m) {
  Check c;
  c.name("agent", m.agent);
  return c.result();
}

Result<void> check(const Step& m, const std::string& path) {
  Check c(path);
  c.name("agent", m.agent);
  if (m.seq == 0) c.fail("seq", "0, counts from 1");
  c.numbers("state", m.state);
  c.numbers("action", m.action);
  c.numbers("fallback", m.fallback);
  if (!std::isfinite(m.reward)) c.fail("reward", "not finite");
  return c.result();
}

Result<void> check(const Steps& m) {
  Check c;
  c.count("steps", m.steps.size(), 1, kMaxStepsPerMessage, "steps");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.steps.size(); ++i) FLASH_CHECK(check(m.steps[i], at("steps", i)));
  return {};
}

Result<void> check(const Verdict& m) {
  Check c;
  c.name("agent", m.agent);
  c.name("reason", m.reason, true);
  if (m.accepted != m.reason.empty()) c.fail("reason", "given exactly where a policy is refused");
  return c.result();
}

Result<void> check(const NearestPair& m) {
  Check c;
  c.name("agent", m.agent);
  FLASH_CHECK(c.result());
  return cbor::check(m.neighbour, "neighbour.");
}

Result<void> check(const HelloUp& m) {
  Check c;
  c.name("software", m.software);
  c.name("blas", m.blas, true);
  return c.result();
}

Result<void> check(const Stored& m, const std::string& path = "") {
  Check c(path);
  c.name("agent", m.agent);
  return c.result();
}

Result<void> check(const Acknowledge& m) {
  Check c;
  c.count("stored", m.stored.size(), 0, kMaxAgents, "agents");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.stored.size(); ++i) FLASH_CHECK(check(m.stored[i], at("stored", i)));
  return {};
}

Result<void> check(const Offer& m) {
  Check c;
  c.name("agent", m.agent);
  c.count("policy", m.policy.size(), 1, kMaxMessage, "bytes");
  return c.result();
}

Result<void> check(const Embedded& m) {
  Check c;
  c.name("agent", m.agent);
  cbor::check_model(c, m.model, false);
  if (m.embedding.empty()) c.fail("embedding", "empty");
  c.numbers("embedding", m.embedding, kMaxEmbedding);
  return c.result();
}

Result<void> check(const Status& m) {
  Check c;
  c.name("agent", m.agent, true);
  c.name("doing", m.doing);
  c.range("loss", m.loss, -kMaxNumber, kMaxNumber);
  c.range("update_us", m.update_us, 0, kMaxNumber);
  c.range("rss_mib", m.rss_mib, 0, kMaxNumber);
  c.range("cpu_share", m.cpu_share, 0, kMaxNumber);
  return c.result();
}

// --- writing: RFC 8949, definite lengths, the shortest head ---------------------------------------------

enum Flag : std::uint32_t {
  kExplored = 1,
  kEndOfEpisode = 2,
  kStateTrusted = 4,
  kRewardGiven = 8,
  kRewardTrusted = 16,
  kAllFlags = 31,
};

void write(Writer& w, const Step& s) {
  w.head(Writer::kMap, 12);
  w.field("agent", s.agent);
  w.field("seq", s.seq);
  w.field("time_us", s.time_us);
  w.field("episode", s.episode);
  w.field("step", s.step);
  w.field("stage", to_string(s.stage));
  w.field("by", to_string(s.controller));
  w.field("flags", (s.explored ? kExplored : 0u) | (s.end_of_episode ? kEndOfEpisode : 0u) |
                       (s.state_trusted ? kStateTrusted : 0u) | (s.reward_given ? kRewardGiven : 0u) |
                       (s.reward_trusted ? kRewardTrusted : 0u));
  w.field("state", s.state);
  w.field("action", s.action);
  w.field("fallback", s.fallback);
  w.field("reward", s.reward);
}

void write(Writer& w, const LearningSettings& s) {
  w.head(Writer::kMap, 14);
  w.field("limits_offline", s.limits_offline);
  w.field("frequency_offline", s.frequency_offline);
  w.field("frequency_algorithm", s.frequency_algorithm);
  w.field("double_q", s.double_q);
  w.field("discount", s.discount);
  w.field("seed", s.seed);
  w.field("learning_starts", s.learning_starts);
  w.field("updates_per_step", s.updates_per_step);
  w.field("offline_updates", s.offline_updates);
  w.field("publish_interval_s", s.publish_interval_s);
  w.field("snapshot_lifetime_s", s.snapshot_lifetime_s);
  w.field("replay_steps", s.replay_steps);
  w.field("store_max_mib", s.store_max_mib);
  w.field("store_max_days", s.store_max_days);
}

void write(Writer& w, const HelloDown& m) {
  begin(w, kVersion, "hello", 5);
  w.field("software", m.software);
  w.field("epoch", m.epoch);
  w.field("period_s", m.period_s);
  w.field("episode_steps", m.episode_steps);
  w.text("settings");
  write(w, m.settings);
}

void write(Writer& w, const Announce& m) {
  begin(w, kVersion, "announce", 10);
  w.field("agent", m.agent);
  w.field("key", m.key);
  w.field("task", to_string(m.task));
  w.field("application", m.application);
  w.field("rule", m.rule);
  w.field("state_dim", m.state_dim);
  w.field("action_dim", m.action_dim);
  w.text("state_names");
  w.head(Writer::kArray, m.state_names.size());
  for (const std::string& name : m.state_names) w.text(name);
  w.field("reward", m.reward);
  w.field("model_version", m.model_version);
}

void write(Writer& w, const Gone& m) {
  begin(w, kVersion, "gone", 1);
  w.field("agent", m.agent);
}

void write(Writer& w, const Steps& m) {
  begin(w, kVersion, "steps", 1);
  w.text("steps");
  w.head(Writer::kArray, m.steps.size());
  for (const Step& s : m.steps) write(w, s);
}

void write(Writer& w, const Verdict& m) {
  begin(w, kVersion, "verdict", 4);
  w.field("agent", m.agent);
  w.field("version", m.version);
  w.field("accepted", m.accepted);
  w.field("reason", m.reason);
}

void write(Writer& w, const NearestPair& m) {
  begin(w, kVersion, "nearest-pair", 2);
  w.field("agent", m.agent);
  w.text("neighbour");
  cbor::write(w, m.neighbour);
}

void write(Writer& w, const HelloUp& m) {
  begin(w, kVersion, "hello", 3);
  w.field("software", m.software);
  w.field("blas", m.blas);
  w.field("pid", m.pid);
}

void write(Writer& w, const Stored& m) {
  begin(w, kVersion, "stored", 2);
  w.field("agent", m.agent);
  w.field("seq", m.seq);
}

void write(Writer& w, const Acknowledge& m) {
  begin(w, kVersion, "acknowledge", 1);
  w.text("stored");
  w.head(Writer::kArray, m.stored.size());
  for (const Stored& s : m.stored) {
    w.head(Writer::kMap, 2);
    w.field("agent", s.agent);
    w.field("seq", s.seq);
  }
}

void write(Writer& w, const Offer& m) {
  begin(w, kVersion, "offer", 2);
  w.field("agent", m.agent);
  w.text("policy");
  w.bytes(m.policy);
}

void write(Writer& w, const Embedded& m) {
  begin(w, kVersion, "embedded", 3);
  w.field("agent", m.agent);
  w.field("model", m.model);
  w.field("embedding", m.embedding);
}

void write(Writer& w, const Status& m) {
  begin(w, kVersion, "status", 9);
  w.field("agent", m.agent);
  w.field("doing", m.doing);
  w.field("transitions", m.transitions);
  w.field("updates", m.updates);
  w.field("episodes", m.episodes);
  w.field("loss", m.loss);
  w.field("update_us", m.update_us);
  w.field("rss_mib", m.rss_mib);
  w.field("cpu_share", m.cpu_share);
}

template <class Message>
std::string encode_any(const Message& message) {
  assert(validate(message));
  Writer w;
  std::visit([&w](const auto& m) { write(w, m); }, message);
  return w.take();
}

// --- reading --------------------------------------------------------------------------------------------

Result<void> read(const json& j, LearningSettings& s) {
  if (!j.is_object()) return invalid("settings: not a map");
  Fields f(j, "settings.");
  f.get("limits_offline", s.limits_offline);
  f.get("frequency_offline", s.frequency_offline);
  f.get("frequency_algorithm", s.frequency_algorithm);
  f.get("double_q", s.double_q);
  f.get("discount", s.discount);
  f.get("seed", s.seed);
  f.get("learning_starts", s.learning_starts);
  f.get("updates_per_step", s.updates_per_step);
  f.get("offline_updates", s.offline_updates);
  f.get("publish_interval_s", s.publish_interval_s);
  f.get("snapshot_lifetime_s", s.snapshot_lifetime_s);
  f.get("replay_steps", s.replay_steps);
  f.get("store_max_mib", s.store_max_mib);
  f.get("store_max_days", s.store_max_days);
  return f.done({"limits_offline", "frequency_offline", "frequency_algorithm", "double_q", "discount", "seed",
                 "learning_starts", "updates_per_step", "offline_updates", "publish_interval_s",
                 "snapshot_lifetime_s", "replay_steps", "store_max_mib", "store_max_days"});
}

Result<void> read(const json& j, HelloDown& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("epoch", m.epoch);
  f.get("period_s", m.period_s);
  f.get("episode_steps", m.episode_steps);
  const json* settings = f.find("settings");
  FLASH_CHECK(f.done({"v", "t", "software", "epoch", "period_s", "episode_steps", "settings"}));
  return read(*settings, m.settings);
}

Result<void> read(const json& j, Announce& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("key", m.key);
  f.get_enum("task", m.task, known_tasks(), "a task");
  f.get("application", m.application);
  f.get("rule", m.rule);
  f.get("state_dim", m.state_dim);
  f.get("action_dim", m.action_dim);
  const json* names = f.list("state_names", kMaxDim, "names");
  f.get("reward", m.reward);
  f.get("model_version", m.model_version);
  FLASH_CHECK(f.done({"v", "t", "agent", "key", "task", "application", "rule", "state_dim", "action_dim",
                      "state_names", "reward", "model_version"}));
  for (const json& name : *names) {
    if (!name.is_string()) return invalid("state_names: not a text");
    m.state_names.push_back(name.get_ref<const std::string&>());
  }
  return {};
}

Result<void> read(const json& j, Gone& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  return f.done({"v", "t", "agent"});
}

Result<void> read(const json& j, Step& m, const std::string& path) {
  if (!j.is_object()) return invalid(path.substr(0, path.size() - 1) + ": not a map");
  Fields f(j, path);
  std::uint32_t flags = 0;
  f.get("agent", m.agent);
  f.get("seq", m.seq);
  f.get("time_us", m.time_us);
  f.get("episode", m.episode);
  f.get("step", m.step);
  f.get_enum("stage", m.stage, cbor::kStages, "a stage");
  f.get_enum("by", m.controller, std::array{Controller::None, Controller::Fallback, Controller::Learned},
             "a controller");
  f.get("flags", flags);
  f.get("state", m.state);
  f.get("action", m.action);
  f.get("fallback", m.fallback);
  f.get("reward", m.reward);
  if (flags & ~kAllFlags) f.fail("flags", "unknown bits");
  m.explored = flags & kExplored;
  m.end_of_episode = flags & kEndOfEpisode;
  m.state_trusted = flags & kStateTrusted;
  m.reward_given = flags & kRewardGiven;
  m.reward_trusted = flags & kRewardTrusted;
  return f.done({"agent", "seq", "time_us", "episode", "step", "stage", "by", "flags", "state", "action",
                 "fallback", "reward"});
}

Result<void> read(const json& j, Steps& m) {
  Fields f = fields_of(j);
  const json* list = f.list("steps", kMaxStepsPerMessage, "steps");
  FLASH_CHECK(f.done({"v", "t", "steps"}));
  m.steps.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) FLASH_CHECK(read((*list)[i], m.steps[i], at("steps", i)));
  return {};
}

Result<void> read(const json& j, Verdict& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("version", m.version);
  f.get("accepted", m.accepted);
  f.get("reason", m.reason);
  return f.done({"v", "t", "agent", "version", "accepted", "reason"});
}

Result<void> read(const json& j, NearestPair& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  const json* neighbour = f.find("neighbour");
  FLASH_CHECK(f.done({"v", "t", "agent", "neighbour"}));
  return cbor::read(*neighbour, "neighbour.", m.neighbour);
}

Result<void> read(const json& j, HelloUp& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("blas", m.blas);
  f.get("pid", m.pid);
  return f.done({"v", "t", "software", "blas", "pid"});
}

Result<void> read(const json& j, Stored& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("seq", m.seq);
  return f.done({"v", "t", "agent", "seq"});
}

Result<void> read(const json& j, Acknowledge& m) {
  Fields f = fields_of(j);
  const json* list = f.list("stored", kMaxAgents, "agents");
  FLASH_CHECK(f.done({"v", "t", "stored"}));
  m.stored.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) return invalid("stored[" + std::to_string(i) + "]: not a map");
    Fields one((*list)[i], at("stored", i));
    one.get("agent", m.stored[i].agent);
    one.get("seq", m.stored[i].seq);
    FLASH_CHECK(one.done({"agent", "seq"}));
  }
  return {};
}

Result<void> read(const json& j, Offer& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  const json* policy = f.find("policy");
  if (policy && !policy->is_binary()) f.fail("policy", "not bytes");
  FLASH_CHECK(f.done({"v", "t", "agent", "policy"}));
  const auto& bytes = policy->get_binary();
  m.policy.assign(bytes.begin(), bytes.end());
  return {};
}

Result<void> read(const json& j, Embedded& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("model", m.model);
  f.get("embedding", m.embedding);
  return f.done({"v", "t", "agent", "model", "embedding"});
}

Result<void> read(const json& j, Status& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("doing", m.doing);
  f.get("transitions", m.transitions);
  f.get("updates", m.updates);
  f.get("episodes", m.episodes);
  f.get("loss", m.loss);
  f.get("update_us", m.update_us);
  f.get("rss_mib", m.rss_mib);
  f.get("cpu_share", m.cpu_share);
  return f.done({"v", "t", "agent", "doing", "transitions", "updates", "episodes", "loss", "update_us",
                 "rss_mib", "cpu_share"});
}

template <class T, class Message>
Result<Message> read_as(const json& j) {
  T m;
  FLASH_CHECK(read(j, m));
  FLASH_CHECK(check(m));
  return Message(std::move(m));
}

}  // namespace

Result<void> validate(const LearningSettings& settings) {
  return check(settings, "");
}

Result<void> validate(const Down& message) {
  return std::visit([](const auto& m) { return check(m); }, message);
}

Result<void> validate(const Up& message) {
  return std::visit([](const auto& m) { return check(m); }, message);
}

std::string encode(const Down& message) {
  return encode_any(message);
}

std::string encode(const Up& message) {
  return encode_any(message);
}

std::string encode_step(const Step& step) {
  assert(check(step, ""));
  Writer w;
  w.reserve(step.agent.size() + 4 * (step.state.size() + step.action.size() + step.fallback.size()) + 160);
  write(w, step);
  return w.take();
}

std::string join_steps(std::span<const std::string_view> steps) {
  assert(!steps.empty() && steps.size() <= kMaxStepsPerMessage);
  std::size_t size = kStepsOverhead;
  for (std::string_view s : steps) size += s.size();
  Writer w;
  w.reserve(size);
  begin(w, kVersion, "steps", 1);
  w.text("steps");
  w.head(Writer::kArray, steps.size());
  for (std::string_view s : steps) w.raw(s);
  return w.take();
}

Result<Down> decode_down(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j, kVersion));
  if (type == "hello") return read_as<HelloDown, Down>(j);
  if (type == "announce") return read_as<Announce, Down>(j);
  if (type == "gone") return read_as<Gone, Down>(j);
  if (type == "steps") return read_as<Steps, Down>(j);
  if (type == "verdict") return read_as<Verdict, Down>(j);
  if (type == "nearest-pair") return read_as<NearestPair, Down>(j);
  return unknown_type(type);
}

Result<Up> decode_up(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j, kVersion));
  if (type == "hello") return read_as<HelloUp, Up>(j);
  if (type == "stored") return read_as<Stored, Up>(j);
  if (type == "acknowledge") return read_as<Acknowledge, Up>(j);
  if (type == "offer") return read_as<Offer, Up>(j);
  if (type == "embedded") return read_as<Embedded, Up>(j);
  if (type == "status") return read_as<Status, Up>(j);
  return unknown_type(type);
}

}  // namespace flash::link
