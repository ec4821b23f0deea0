#include "coordinator/messages_models.h"

#include <algorithm>
#include <cassert>

#include "coordinator/authority.h"
#include "coordinator/messages_cbor.h"
#include "core/command_line.h"
#include "core/digest.h"
#include "core/target.h"

namespace flash::coordinator {
namespace {

constexpr std::string_view kChunks = "flash.v1.ck.";
constexpr std::string_view kAsk = "flash.v1.rq.", kModel = ".model";

/// What both entries have.
template <class Entry>
void check_entry(Check& c, const Entry& e) {
  if (!task_from_name(e.name)) c.fail("name", "not a task");
  c.range("version", static_cast<double>(e.version), 1, static_cast<double>(link::kMaxModelVersion));
  c.range("since_us", static_cast<double>(e.since_us), 0, kMaxNumber);
}

Result<void> check(const OfferedModel& m, std::size_t i) {
  Check c(link::cbor::at("offered", i));
  check_entry(c, m);
  c.range("share", m.share, 0, 100);
  c.range("published_us", static_cast<double>(m.published_us), 0, kMaxNumber);
  return c.result();
}

Result<void> check(const WithdrawnModel& m, std::size_t i) {
  Check c(link::cbor::at("withdrawn", i));
  check_entry(c, m);
  c.name("reason", m.reason);
  return c.result();
}

Result<void> check(const Models& m) {
  Check c;
  c.count("offered", m.offered.size(), 0, kMaxOfferedModels, "models");
  c.count("withdrawn", m.withdrawn.size(), 0, kMaxWithdrawnModels, "models");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.offered.size(); ++i) FLASH_CHECK(check(m.offered[i], i));
  for (std::size_t i = 0; i < m.withdrawn.size(); ++i) FLASH_CHECK(check(m.withdrawn[i], i));
  return {};
}

Result<void> check(const SignedManifest& m) {
  Check c;
  c.count("manifest", m.manifest.size(), 1, link::kMaxManifestBytes, "bytes");
  c.count("signature", m.signature.size(), kSignatureBytes, kSignatureBytes, "bytes");
  return c.result();
}

void check_subject(Check& c, const std::string& subject) {
  if (!is_model_subject(subject)) c.fail("subject", "not of a model");
}

Result<void> check(const ModelQuestion& m) {
  Check c;
  check_subject(c, m.subject);
  return c.result();
}

Result<void> check(const ModelAnswer& m) {
  Check c;
  check_subject(c, m.subject);
  c.count("bytes", m.bytes.size(), 0, link::kModelChunkBytes, "bytes");
  c.count("seal", m.seal.size(), 0, kMaxSeal, "characters");
  if (!m.found && (!m.bytes.empty() || !m.seal.empty())) c.fail("bytes", "of what was not found");
  return c.result();
}

void write(Writer& w, const OfferedModel& m) {
  w.head(Writer::kMap, 5);
  w.field("name", m.name);
  w.field("version", m.version);
  w.field("share", m.share);
  w.field("published_us", m.published_us);
  w.field("since_us", m.since_us);
}

void write(Writer& w, const WithdrawnModel& m) {
  w.head(Writer::kMap, 4);
  w.field("name", m.name);
  w.field("version", m.version);
  w.field("reason", m.reason);
  w.field("since_us", m.since_us);
}

Result<void> read(const json& j, const std::string& path, OfferedModel& m) {
  if (!j.is_object()) return link::cbor::invalid(path + " not a map");
  Fields f(j, path);
  f.get("name", m.name);
  f.get("version", m.version);
  f.get("share", m.share);
  f.get("published_us", m.published_us);
  f.get("since_us", m.since_us);
  return f.done({"name", "version", "share", "published_us", "since_us"});
}

Result<void> read(const json& j, const std::string& path, WithdrawnModel& m) {
  if (!j.is_object()) return link::cbor::invalid(path + " not a map");
  Fields f(j, path);
  f.get("name", m.name);
  f.get("version", m.version);
  f.get("reason", m.reason);
  f.get("since_us", m.since_us);
  return f.done({"name", "version", "reason", "since_us"});
}

template <class Entry>
Result<void> read_list(const json& list, const char* name, std::vector<Entry>& out) {
  for (std::size_t i = 0; i < list.size(); ++i)
    FLASH_CHECK(read(list[i], link::cbor::at(name, i), out.emplace_back()));
  return {};
}

template <class Entry>
void write_list(Writer& w, std::string_view name, const std::vector<Entry>& list) {
  w.text(name);
  w.head(Writer::kArray, list.size());
  for (const Entry& e : list) write(w, e);
}

std::string subject_of(std::string_view name, std::uint64_t version) {
  return version_subjects(name) + std::to_string(version) + ".";
}

}  // namespace

std::string encode(const Models& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "models", 2);
  write_list(w, "offered", m.offered);
  write_list(w, "withdrawn", m.withdrawn);
  return w.take();
}

std::string encode(const SignedManifest& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "signed-manifest", 2);
  w.text("manifest");
  w.bytes(m.manifest);
  w.text("signature");
  w.bytes(m.signature);
  return w.take();
}

std::string encode(const ModelQuestion& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "model?", 1);
  w.field("subject", m.subject);
  return w.take();
}

std::string encode(const ModelAnswer& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "model", 4);
  w.field("subject", m.subject);
  w.field("found", m.found);
  w.text("bytes");
  w.bytes(m.bytes);
  w.text("seal");
  w.bytes(m.seal);
  return w.take();
}

Result<ModelQuestion> decode_model_question(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "model?"));
  ModelQuestion m;
  Fields f = fields_of(j);
  f.get("subject", m.subject);
  FLASH_CHECK(f.done({"v", "t", "subject"}));
  FLASH_CHECK(check(m));
  return m;
}

Result<ModelAnswer> decode_model_answer(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "model"));
  ModelAnswer m;
  Fields f = fields_of(j);
  f.get("subject", m.subject);
  f.get("found", m.found);
  f.get_bytes("bytes", m.bytes);
  f.get_bytes("seal", m.seal);
  FLASH_CHECK(f.done({"v", "t", "subject", "found", "bytes", "seal"}));
  FLASH_CHECK(check(m));
  return m;
}

Result<Models> decode_models(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "models"));
  Models m;
  Fields f = fields_of(j);
  const json* offered = f.list("offered", kMaxOfferedModels, "models");
  const json* withdrawn = f.list("withdrawn", kMaxWithdrawnModels, "models");
  FLASH_CHECK(f.done({"v", "t", "offered", "withdrawn"}));
  FLASH_CHECK(read_list(*offered, "offered", m.offered));
  FLASH_CHECK(read_list(*withdrawn, "withdrawn", m.withdrawn));
  FLASH_CHECK(check(m));
  return m;
}

Result<SignedManifest> decode_signed_manifest(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "signed-manifest"));
  SignedManifest m;
  Fields f = fields_of(j);
  f.get_bytes("manifest", m.manifest);
  f.get_bytes("signature", m.signature);
  FLASH_CHECK(f.done({"v", "t", "manifest", "signature"}));
  FLASH_CHECK(check(m));
  return m;
}

std::string version_subjects(std::string_view name) {
  return std::string(kChunks) + std::string(name) + ".";
}

std::string manifest_subject(std::string_view name, std::uint64_t version) {
  return subject_of(name, version) + "manifest";
}

std::string chunk_subject(std::string_view name, std::uint64_t version, std::size_t chunk) {
  return subject_of(name, version) + std::to_string(chunk);
}

bool is_model_subject(std::string_view subject) {
  if (subject == kModelsSubject) return true;
  if (!subject.starts_with(kChunks)) return false;
  std::string_view rest = subject.substr(kChunks.size());
  const auto first = rest.find('.'), second = rest.find('.', first == rest.npos ? first : first + 1);
  if (second == rest.npos) return false;
  const std::string_view name = rest.substr(0, first), last = rest.substr(second + 1);
  const auto version = parse_integer(rest.substr(first + 1, second - first - 1));
  if (!task_from_name(name) || !version || *version == 0 || *version > link::kMaxModelVersion) return false;
  if (manifest_subject(name, *version) == subject) return true;
  const auto chunk = parse_integer(last);
  return chunk && *chunk < link::kMaxModelBytes / link::kModelChunkBytes &&
         chunk_subject(name, *version, *chunk) == subject;
}

std::string model_question_subject(std::string_view node) {
  return std::string(kAsk).append(node).append(kModel);
}

std::optional<std::string> model_asking_node(std::string_view subject) {
  if (!subject.starts_with(kAsk) || !subject.ends_with(kModel) ||
      subject.size() <= kAsk.size() + kModel.size())
    return std::nullopt;
  subject.remove_prefix(kAsk.size());
  subject.remove_suffix(kModel.size());
  return is_token(subject) ? std::optional(std::string(subject)) : std::nullopt;
}

bool in_share(std::string_view node, std::string_view name, std::uint64_t version, std::uint32_t share) {
  const std::string digest =
      sha256(std::string(node) + "\n" + std::string(name) + "\n" + std::to_string(version));
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i)
    number = number << 8 | static_cast<unsigned char>(digest[i]);
  return number % 100 < share;
}

bool is_withdrawn(const Models& models, std::string_view name, std::uint64_t version) {
  return std::any_of(models.withdrawn.begin(), models.withdrawn.end(),
                     [&](const WithdrawnModel& w) { return w.name == name && w.version == version; });
}

std::uint64_t wanted_version(const Models& models, std::string_view node, std::string_view name) {
  std::uint64_t newest = 0;
  for (const OfferedModel& o : models.offered)
    if (o.name == name && !is_withdrawn(models, name, o.version) && in_share(node, name, o.version, o.share))
      newest = std::max(newest, o.version);
  return newest;
}

}  // namespace flash::coordinator
