#include "coordinator/messages_enrol.h"

#include <algorithm>
#include <cassert>

#include "coordinator/messages_cbor.h"
#include "coordinator/nkey.h"
#include "coordinator/text_codes.h"

namespace flash::coordinator {
namespace {

constexpr std::string_view kTokenPrefix = "flash1.";
constexpr std::string_view kIdentity = "flash.v1.id.", kRenew = "renew";
constexpr std::size_t kMaxServers = 2048, kMaxCa = 8192, kMaxReason = 256;

bool is_user_key(std::string_view text) {
  const auto kind = kind_of_public(text);
  return kind && *kind == KeyKind::User;
}

/// Printable ASCII; line feeds where PEM has them.
void check_text(Check& c, std::string_view field, const std::string& text, std::size_t most,
                bool lines = false) {
  c.count(field, text.size(), 0, most, "characters");
  for (const char x : text)
    if ((x < 0x20 || x > 0x7e) && !(lines && x == '\n')) c.fail(field, "not printable");
}

Result<void> check(const Token& m) {
  Check c;
  check_text(c, "servers", m.servers, kMaxServers);
  if (m.servers.empty()) c.fail("servers", "empty");
  check_text(c, "ca", m.ca, kMaxCa, true);
  if (!is_token(m.pool)) c.fail("pool", "not 1 to 64 letters, digits, - and _");
  if (!is_token(m.node)) c.fail("node", "not 1 to 64 letters, digits, - and _");
  check_text(c, "jwt", m.jwt, kMaxNodeJwt);
  const auto key = NKey::from_seed(m.seed);
  if (!key || key->kind() != KeyKind::User) c.fail("seed", "not a user's");
  return c.result();
}

Result<void> check(const Wish& m) {
  Check c;
  if (!is_user_key(m.key)) c.fail("key", "not a user's public key");
  return c.result();
}

Result<void> check(const Credentials& m) {
  Check c;
  check_text(c, "jwt", m.jwt, kMaxNodeJwt);
  if (m.jwt.empty()) c.fail("jwt", "empty");
  return c.result();
}

Result<void> check(const Refusal& m) {
  Check c;
  check_text(c, "reason", m.reason, kMaxReason);
  if (m.reason.empty()) c.fail("reason", "empty");
  return c.result();
}

}  // namespace

std::string encode(const Token& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "token", 6);
  w.field("servers", m.servers);
  w.field("ca", m.ca);
  w.field("pool", m.pool);
  w.field("node", m.node);
  w.field("jwt", m.jwt);
  w.field("seed", m.seed);
  return std::string(kTokenPrefix) + base64url(w.take());
}

Result<Token> decode_token(std::string_view text) {
  if (!text.starts_with(kTokenPrefix) || text.size() > kMaxToken)
    return Error(std::errc::invalid_argument, "not a token of flash-coordinator enroll");
  FLASH_TRY(const std::string bytes, from_base64url(text.substr(kTokenPrefix.size())));
  FLASH_TRY(const json j, parse(bytes, "token"));
  Token m;
  Fields f = fields_of(j);
  f.get("servers", m.servers);
  f.get("ca", m.ca);
  f.get("pool", m.pool);
  f.get("node", m.node);
  f.get("jwt", m.jwt);
  f.get("seed", m.seed);
  FLASH_CHECK(f.done({"v", "t", "servers", "ca", "pool", "node", "jwt", "seed"}));
  FLASH_CHECK(check(m));
  return m;
}

std::string without_tokens(std::string_view words) {
  std::string out;
  for (std::size_t at = words.find(kTokenPrefix); at != words.npos; at = words.find(kTokenPrefix)) {
    out.append(words.substr(0, at + kTokenPrefix.size())).append("...");
    words.remove_prefix(at + kTokenPrefix.size());
    words.remove_prefix(std::min(words.find_first_not_of(kBase64Url), words.size()));
  }
  return out.append(words);
}

std::string encode(const Wish& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "wish", 1);
  w.field("key", m.key);
  return w.take();
}

std::string encode(const Credentials& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "credentials", 1);
  w.field("jwt", m.jwt);
  return w.take();
}

std::string encode(const Refusal& m) {
  assert(check(m));
  Writer w;
  begin(w, kVersion, "refusal", 1);
  w.field("reason", m.reason);
  return w.take();
}

Result<Wish> decode_wish(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes, "wish"));
  Wish m;
  Fields f = fields_of(j);
  f.get("key", m.key);
  FLASH_CHECK(f.done({"v", "t", "key"}));
  FLASH_CHECK(check(m));
  return m;
}

Result<Credentials> decode_credentials(std::string_view bytes) {
  FLASH_TRY(const json j, link::cbor::parse(bytes));
  FLASH_TRY(const std::string type, link::cbor::type_of(j, kVersion));
  Fields f = fields_of(j);
  if (type == "refusal") {
    Refusal refusal;
    f.get("reason", refusal.reason);
    FLASH_CHECK(f.done({"v", "t", "reason"}));
    FLASH_CHECK(check(refusal));
    return Error(std::errc::permission_denied, "the coordinator refuses: " + refusal.reason);
  }
  if (type != "credentials") return link::cbor::unknown_type(type);
  Credentials m;
  f.get("jwt", m.jwt);
  FLASH_CHECK(f.done({"v", "t", "jwt"}));
  FLASH_CHECK(check(m));
  return m;
}

std::string wish_subject(const Petitioner& p) {
  return std::string(kIdentity) + p.node + "." + (p.token.empty() ? std::string(kRenew) : p.token);
}

std::optional<Petitioner> petitioner_of(std::string_view subject) {
  if (!subject.starts_with(kIdentity)) return std::nullopt;
  subject.remove_prefix(kIdentity.size());
  const auto dot = subject.find('.');
  if (dot == subject.npos) return std::nullopt;
  Petitioner p{std::string(subject.substr(0, dot)), std::string(subject.substr(dot + 1))};
  if (p.token == kRenew) p.token.clear();
  return is_token(p.node) && (p.token.empty() ? subject.ends_with(kRenew) : is_user_key(p.token))
             ? std::optional(std::move(p))
             : std::nullopt;
}

std::string inbox_prefix(std::string_view user) {
  return "_INBOX." + std::string(user);
}

bool is_inbox_of(std::string_view reply, std::string_view user) {
  constexpr std::size_t kMaxReply = 256;
  const std::string prefix = inbox_prefix(user) + ".";
  if (!is_token(user) || reply.size() > kMaxReply || !reply.starts_with(prefix)) return false;
  reply.remove_prefix(prefix.size());
  while (true) {
    const auto dot = reply.find('.');
    if (!is_token(reply.substr(0, dot))) return false;
    if (dot == reply.npos) return true;
    reply.remove_prefix(dot + 1);
  }
}

}  // namespace flash::coordinator
