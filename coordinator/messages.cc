#include "coordinator/messages.h"

#include <algorithm>
#include <cassert>

#include "coordinator/messages_cbor.h"
#include "link/message_set.h"

namespace flash::coordinator {
namespace {

constexpr std::string_view kUp = "flash.v1.up.";
constexpr std::string_view kDown = "flash.v1.dn.";
constexpr std::string_view kRequests = "flash.v1.rq.";
constexpr std::string_view kEpisodes = ".ep";
constexpr std::string_view kWatermarks = ".wm";
constexpr std::string_view kNearest = ".nearest";

void check_run(Check& c, const std::string& run) {
  const bool hex = std::all_of(run.begin(), run.end(),
                               [](char x) { return (x >= '0' && x <= '9') || (x >= 'a' && x <= 'f'); });
  if (run.size() != 32 || !hex) c.fail("run", "not 32 hexadecimal digits");
}

/// Of a Record, or of its place.
template <class Placed>
Result<void> check_place(const Placed& m) {
  Check c;
  check_run(c, m.run);
  c.range("seq", static_cast<double>(m.seq), 1, kMaxNumber);
  if (m.prev >= m.seq) c.fail("prev", "not below seq");
  return c.result();
}

Result<void> check(const Record& m) {
  FLASH_CHECK(check_place(m));
  return link::cbor::check(m.episode, "episode.");
}

Result<void> check(const Watermark& m) {
  Check c;
  check_run(c, m.run);
  c.range("seq", static_cast<double>(m.seq), 0, kMaxNumber);
  c.range("lease", static_cast<double>(m.lease), 0, kMaxNumber);
  return c.result();
}

Result<void> check(const NearestAnswer& m) {
  Check c;
  c.name("agent", m.agent);
  FLASH_CHECK(c.result());
  return m.neighbour ? link::cbor::check(*m.neighbour, "neighbour.") : Result<void>();
}

std::string subject(std::string_view prefix, std::string_view node, std::string_view suffix) {
  return std::string(prefix) + std::string(node) + std::string(suffix);
}

}  // namespace

Result<void> validate(const link::NearestQuestion& m) {
  Check c;
  c.name("agent", m.agent);
  c.name("model", m.model, false, link::kMaxModel);
  if (m.embedding.empty()) c.fail("embedding", "empty");
  c.numbers("embedding", m.embedding, link::kMaxEmbedding);
  return c.result();
}

std::string encode_episode(const link::Episode& episode) {
  Writer w;
  link::cbor::write(w, episode);
  return w.take();
}

std::string encode_record(std::string_view run, std::uint64_t seq, std::uint64_t prev,
                          std::string_view episode) {
  Writer w;
  begin(w, kVersion, "episode", 4);
  w.field("run", run);
  w.field("seq", seq);
  w.field("prev", prev);
  w.text("episode");
  w.raw(episode);
  return w.take();
}

std::string encode(const Record& m) {
  assert(check(m));
  return encode_record(m.run, m.seq, m.prev, encode_episode(m.episode));
}

std::string encode(const Watermark& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "watermark", 3);
  w.field("run", m.run);
  w.field("seq", m.seq);
  w.field("lease", m.lease);
  return w.take();
}

std::string encode(const link::NearestQuestion& m) {
  assert(validate(m));
  Writer w;
  begin(w, kVersion, "nearest?", 4);
  w.field("agent", m.agent);
  w.field("task", to_string(m.task));
  w.field("model", m.model);
  w.field("embedding", m.embedding);
  return w.take();
}

std::string encode(const NearestAnswer& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "nearest", 2);
  w.field("agent", m.agent);
  w.text("neighbours");
  w.head(Writer::kArray, m.neighbour ? 1 : 0);
  if (m.neighbour) link::cbor::write(w, *m.neighbour);
  return w.take();
}

Result<Record> decode_record(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "episode"));
  Record m;
  Fields f = fields_of(j);
  f.get("run", m.run);
  f.get("seq", m.seq);
  f.get("prev", m.prev);
  const json* episode = f.find("episode");
  FLASH_CHECK(f.done({"v", "t", "run", "seq", "prev", "episode"}));
  FLASH_CHECK(link::cbor::read(*episode, "episode.", m.episode));
  FLASH_CHECK(check(m));
  return m;
}

Result<RecordPlace> decode_record_place(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "episode"));
  RecordPlace m;
  Fields f = fields_of(j);
  f.get("run", m.run);
  f.get("seq", m.seq);
  f.get("prev", m.prev);
  (void)f.find("episode");
  FLASH_CHECK(f.done({"v", "t", "run", "seq", "prev", "episode"}));
  FLASH_CHECK(check_place(m));
  return m;
}

Result<Watermark> decode_watermark(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "watermark"));
  Watermark m;
  Fields f = fields_of(j);
  f.get("run", m.run);
  f.get("seq", m.seq);
  f.get("lease", m.lease);
  FLASH_CHECK(f.done({"v", "t", "run", "seq", "lease"}));
  FLASH_CHECK(check(m));
  return m;
}

Result<link::NearestQuestion> decode_nearest_question(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "nearest?"));
  link::NearestQuestion m;
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get_enum("task", m.task, known_tasks(), "a task");
  f.get("model", m.model);
  f.get("embedding", m.embedding);
  FLASH_CHECK(f.done({"v", "t", "agent", "task", "model", "embedding"}));
  FLASH_CHECK(validate(m));
  return m;
}

Result<NearestAnswer> decode_nearest_answer(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "nearest"));
  NearestAnswer m;
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  const json* list = f.list("neighbours", 1, "neighbours");
  FLASH_CHECK(f.done({"v", "t", "agent", "neighbours"}));
  if (!list->empty()) FLASH_CHECK(link::cbor::read(list->front(), "neighbour.", m.neighbour.emplace()));
  FLASH_CHECK(check(m));
  return m;
}

bool is_token(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), allowed);
}

std::string record_subject(const Origin& origin) {
  return std::string(kUp) + origin.pool + "." + origin.node + std::string(kEpisodes);
}

std::string watermark_subject(std::string_view node) {
  return subject(kDown, node, kWatermarks);
}

std::string question_subject(std::string_view node) {
  return subject(kRequests, node, kNearest);
}

std::string answer_subject(std::string_view node) {
  return subject(kDown, node, kNearest);
}

std::string all_for_node(std::string_view node) {
  return subject(kDown, node, ".>");
}

std::optional<std::string> asking_node(std::string_view subject) {
  if (!subject.starts_with(kRequests) || !subject.ends_with(kNearest) ||
      subject.size() <= kRequests.size() + kNearest.size())
    return std::nullopt;
  subject.remove_prefix(kRequests.size());
  subject.remove_suffix(kNearest.size());
  return is_token(subject) ? std::optional(std::string(subject)) : std::nullopt;
}

std::optional<Origin> origin_of(std::string_view subject) {
  if (!subject.starts_with(kUp) || !subject.ends_with(kEpisodes)) return std::nullopt;
  subject.remove_prefix(kUp.size());
  subject.remove_suffix(std::min(kEpisodes.size(), subject.size()));
  const auto dot = subject.find('.');
  if (dot == subject.npos) return std::nullopt;
  const Origin origin{std::string(subject.substr(0, dot)), std::string(subject.substr(dot + 1))};
  return is_token(origin.pool) && is_token(origin.node) ? std::optional(origin) : std::nullopt;
}

}  // namespace flash::coordinator
