#include "coordinator/jwt.h"

#include <openssl/evp.h>

#include <array>

#include "coordinator/text_codes.h"
#include "core/json.h"

namespace flash::coordinator {
namespace {

using nlohmann::json;

constexpr int kClaimsVersion = 2;
constexpr int kUnlimited = -1;
constexpr std::string_view kHeader = R"({"typ":"JWT","alg":"ed25519-nkey"})";
constexpr std::int64_t kLastTime = 253402300799;  // the end of the year 9999
constexpr std::string_view kBeginJwt = "-----BEGIN NATS USER JWT-----",
                           kEndJwt = "------END NATS USER JWT------";
constexpr std::string_view kBeginSeed = "-----BEGIN USER NKEY SEED-----",
                           kEndSeed = "------END USER NKEY SEED------";

Error invalid(const std::string& what) {
  return {std::errc::invalid_argument, what};
}

/// SHA-256 in base32: NATS' way of a unique name for claims.
std::string digest(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), bytes.data(), &size, EVP_sha256(), nullptr);
  return base32({reinterpret_cast<const char*>(bytes.data()), size});
}

Result<std::string> sign(const NKey& signer, json claims) {
  claims["iss"] = signer.public_key();
  claims["nats"]["version"] = kClaimsVersion;
  claims["jti"] = digest(claims.dump());
  const std::string text = base64url(kHeader) + "." + base64url(claims.dump());
  FLASH_TRY(const std::string signature, signer.sign(text));
  return text + "." + base64url(signature);
}

json claims_of(const std::string& name, const std::string& subject, const char* type, std::int64_t now) {
  return {{"name", name}, {"sub", subject}, {"iat", now}, {"nats", {{"type", type}}}};
}

json subjects_of(const Permissions& p) {
  return {{"pub", {{"allow", p.publish}}}, {"sub", {{"allow", p.subscribe}}}};
}

void no_limits_but_permissions(json& o) {
  for (const char* limit : {"subs", "data", "payload"}) o[limit] = kUnlimited;
}

json role_of(const Role& role) {
  json permitted = subjects_of(role.permissions);
  no_limits_but_permissions(permitted);
  permitted["allowed_connection_types"] = json::array({"STANDARD"});
  return {{"kind", "user_scope"}, {"key", role.key}, {"role", role.name}, {"template", permitted}};
}

json limits_of(const Account& account) {
  json limits;
  for (const char* limit : {"subs", "data", "payload", "imports", "exports", "conn"})
    limits[limit] = kUnlimited;
  limits["wildcards"] = true;
  limits["leaf"] = 0;
  for (const char* limit : {"mem_storage", "disk_storage"})
    limits[limit] = account.jetstream ? kUnlimited : 0;
  return limits;
}

json user_claims(const User& user, std::int64_t now) {
  json claims = claims_of(user.name, user.key, "user", now);
  if (user.expires != 0) claims["exp"] = user.expires;
  return claims;
}

/// An object of JSON, not too deep; never throws.
Result<json> object(std::string_view text) {
  constexpr int kDeep = 8;
  bool deep = false;
  const auto look = [&](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDeep;
    return !deep;
  };
  json j = json::parse(text, look, false);
  if (deep || j.is_discarded() || !j.is_object()) return invalid("JWT: not an object");
  return j;
}

Result<std::string> text_of(const json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_string()) return invalid(std::string("JWT: ") + key + " is not a text");
  auto text = it->get<std::string>();
  if (text.size() > 256) return invalid(std::string("JWT: ") + key + " is too long");
  return text;
}

Result<std::int64_t> time_of(const json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end()) return std::int64_t{0};
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() > static_cast<std::uint64_t>(kLastTime))
    return invalid(std::string("JWT: ") + key + " is not a time");
  return it->get<std::int64_t>();
}

Result<void> read_revoked(const json& nats, Account& out) {
  const auto it = nats.find("revocations");
  if (it == nats.end()) return {};
  if (!it->is_object()) return invalid("JWT: revocations is not an object");
  for (const auto& [key, time] : it->items()) {
    if (!time.is_number_unsigned()) return invalid("JWT: revocations: not a time");
    out.revoked[key] = time.get<std::int64_t>();
  }
  return {};
}

/// The lines between two of a .creds file; it has one each.
Result<std::string> between(std::string_view text, std::string_view begin, std::string_view end) {
  const auto from = text.find(begin);
  const auto to = from == text.npos ? text.npos : text.find(end, from);
  if (to == text.npos) return invalid("not a file of NATS credentials");
  std::string inner(text.substr(from + begin.size(), to - from - begin.size()));
  std::erase_if(inner, [](char c) { return c == '\n' || c == '\r' || c == ' '; });
  return inner;
}

}  // namespace

Result<std::string> operator_jwt(const NKey& signer, const std::string& name,
                                 const std::string& system_account, std::int64_t now) {
  json claims = claims_of(name, signer.public_key(), "operator", now);
  claims["nats"]["system_account"] = system_account;
  return sign(signer, std::move(claims));
}

Result<std::string> account_jwt(const NKey& signer, const Account& account, std::int64_t now) {
  json claims = claims_of(account.name, account.key, "account", now);
  json& nats = claims["nats"];
  nats["limits"] = limits_of(account);
  for (const Role& role : account.roles) nats["signing_keys"].push_back(role_of(role));
  if (account.own_users) nats["default_permissions"] = subjects_of(*account.own_users);
  if (!account.revoked.empty()) nats["revocations"] = account.revoked;
  return sign(signer, std::move(claims));
}

Result<std::string> role_user_jwt(const NKey& signer, const std::string& account, const User& user,
                                  std::int64_t now) {
  json claims = user_claims(user, now);
  claims["nats"]["issuer_account"] = account;
  return sign(signer, std::move(claims));
}

Result<std::string> full_user_jwt(const NKey& signer, const User& user, std::int64_t now) {
  json claims = user_claims(user, now);
  no_limits_but_permissions(claims["nats"]);
  return sign(signer, std::move(claims));
}

Result<Jwt> read_claims(std::string_view text) {
  FLASH_TRY(const json j, object(text));
  Jwt jwt;
  FLASH_TRY(jwt.issuer, text_of(j, "iss"));
  FLASH_TRY(jwt.subject, text_of(j, "sub"));
  FLASH_TRY(jwt.name, text_of(j, "name"));
  FLASH_TRY(jwt.issued, time_of(j, "iat"));
  FLASH_TRY(jwt.expires, time_of(j, "exp"));
  const auto nats = j.find("nats");
  if (nats == j.end() || !nats->is_object()) return invalid("JWT: nats is not an object");
  FLASH_TRY(jwt.type, text_of(*nats, "type"));
  if (nats->contains("issuer_account")) {
    FLASH_TRY(jwt.issuer_account, text_of(*nats, "issuer_account"));
  }
  const auto version = nats->find("version");
  if (version == nats->end() || *version != kClaimsVersion)
    return invalid("JWT: not version 2 of NATS' claims");
  FLASH_CHECK(read_revoked(*nats, jwt.account));
  return jwt;
}

Result<Jwt> read_jwt(std::string_view text) {
  if (text.size() > kMaxJwt) return invalid("JWT: too long");
  const auto first = text.find('.'), second = text.find('.', first == text.npos ? first : first + 1);
  if (second == text.npos) return invalid("not a JWT");
  FLASH_TRY(const std::string header, from_base64url(text.substr(0, first)));
  FLASH_TRY(const json head, object(header));
  FLASH_TRY(const std::string algorithm, text_of(head, "alg"));
  if (algorithm != "ed25519-nkey") return invalid("JWT: not signed with an NKey");
  FLASH_TRY(const std::string claims, from_base64url(text.substr(first + 1, second - first - 1)));
  FLASH_TRY(Jwt jwt, read_claims(claims));
  FLASH_TRY(const std::string signature, from_base64url(text.substr(second + 1)));
  FLASH_CHECK(verify(jwt.issuer, text.substr(0, second), signature));
  return jwt;
}

std::string creds_file(const std::string& jwt, const NKey& user) {
  std::string text;
  for (const std::string_view line :
       {kBeginJwt, std::string_view(jwt), kEndJwt, std::string_view(), kBeginSeed})
    text.append(line) += '\n';
  return text + user.seed() + "\n" + std::string(kEndSeed) + "\n";
}

Result<Creds> read_creds(std::string_view text) {
  Creds creds;
  FLASH_TRY(creds.jwt, between(text, kBeginJwt, kEndJwt));
  FLASH_TRY(creds.seed, between(text, kBeginSeed, kEndSeed));
  return creds;
}

}  // namespace flash::coordinator
