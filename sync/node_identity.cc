#include "sync/node_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "coordinator/durable_file.h"
#include "coordinator/jwt.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/nkey.h"
#include "core/json.h"

namespace flash::sync {

using coordinator::NKey;

namespace {

constexpr Duration kAnswerLongest = std::chrono::seconds(5);
constexpr mode_t kOwn = 0600;

std::string in(const std::string& directory, const char* name) {
  return directory + "/" + name;
}

std::string server_json(const coordinator::Token& token) {
  return nlohmann::json{{"servers", token.servers}, {"pool", token.pool}, {"node", token.node}}.dump() + "\n";
}

/// What coordinator.json says, where it is one.
Result<NodeIdentity> parse_identity(const std::string& directory, std::string_view text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  const auto word = [&](const char* key) {
    const bool there = j.is_object() && j.contains(key) && j[key].is_string();
    return there ? j[key].get<std::string>() : std::string();
  };
  NodeIdentity identity;
  identity.nats.url = word("servers");
  identity.origin = {word("pool"), word("node")};
  if (identity.nats.url.empty() || !coordinator::is_token(identity.origin.pool) ||
      !coordinator::is_token(identity.origin.node))
    return Error(std::errc::invalid_argument,
                 in(directory, "coordinator.json") + ": not what enrolment writes");
  identity.nats.credentials = in(directory, "node.creds");
  if (coordinator::exists(in(directory, "ca.pem"))) identity.nats.ca = in(directory, "ca.pem");
  identity.nats.inbox_prefix = coordinator::inbox_prefix(identity.origin.node);
  return identity;
}

/// The answer must be for the key that was asked for, for this node, and of the same account as `before`.
Result<std::string> check_credentials(const std::string& jwt, const NKey& key, const std::string& node,
                                      const coordinator::Jwt& before) {
  FLASH_TRY(const coordinator::Jwt read, coordinator::read_jwt(jwt));
  if (read.type != "user" || read.subject != key.public_key() || read.name != node)
    return Error(std::errc::bad_message, "the coordinator's answer is for another key or node");
  if (read.issuer_account != before.issuer_account)
    return Error(std::errc::bad_message, "the coordinator's answer is of another account");
  return jwt;
}

/// Files that the library must read, of a token that is used once.
class TokenFiles {
 public:
  explicit TokenFiles(const std::string& directory)
      : creds_(in(directory, "token.creds")), ca_(in(directory, "token.pem")) {}
  ~TokenFiles() {
    unlink(creds_.c_str());
    unlink(ca_.c_str());
  }
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  Result<coordinator::NatsOptions> write(const coordinator::Token& token, const NKey& user) const {
    FLASH_CHECK(coordinator::write_durable(creds_, coordinator::creds_file(token.jwt, user), kOwn));
    coordinator::NatsOptions nats{.url = token.servers,
                                  .credentials = creds_,
                                  .ca = {},
                                  .name = "flash-sync enroll",
                                  .inbox_prefix = coordinator::inbox_prefix(user.public_key())};
    if (token.ca.empty()) return nats;
    FLASH_CHECK(coordinator::write_durable(ca_, token.ca, kOwn));
    nats.ca = ca_;
    return nats;
  }

 private:
  std::string creds_, ca_;
};

Result<std::string> ask(coordinator::Nats& nats, const coordinator::Petitioner& who, const NKey& key,
                        const std::string& jwt) {
  FLASH_TRY(const coordinator::Jwt before, coordinator::read_jwt(jwt));
  FLASH_TRY(const std::string answer,
            nats.request(coordinator::wish_subject(who),
                         coordinator::encode(coordinator::Wish{key.public_key()}), kAnswerLongest));
  FLASH_TRY(const coordinator::Credentials given, coordinator::decode_credentials(answer));
  return check_credentials(given.jwt, key, who.node, before);
}

std::string parent_of(const std::string& directory) {
  const auto slash = directory.rfind('/');
  return slash == directory.npos ? "." : directory.substr(0, std::max<std::size_t>(slash, 1));
}

}  // namespace

Result<std::optional<NodeIdentity>> read_identity(const std::string& directory) {
  const auto text = coordinator::read_whole(in(directory, "coordinator.json"));
  if (!text && text.error().is(std::errc::no_such_file_or_directory)) return std::optional<NodeIdentity>();
  if (!text) return text.error();
  FLASH_TRY(NodeIdentity identity, parse_identity(directory, *text));
  return std::optional(std::move(identity));
}

Result<NodeIdentity> enroll(std::string_view text, const std::string& directory) {
  FLASH_TRY(const coordinator::Token token, coordinator::decode_token(text));
  FLASH_TRY(const NKey user, NKey::from_seed(token.seed));
  FLASH_TRY(const NKey own, NKey::make(coordinator::KeyKind::User));
  FLASH_TRY(const coordinator::AsOwner owner, coordinator::AsOwner::of(parent_of(directory)));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "mkdir " + directory);
  const TokenFiles files(directory);
  FLASH_TRY(const coordinator::NatsOptions as_token, files.write(token, user));
  FLASH_TRY(const auto nats, coordinator::Nats::connect_surely(as_token));
  FLASH_TRY(const std::string jwt, ask(*nats, {token.node, user.public_key()}, own, token.jwt));
  if (!token.ca.empty()) FLASH_CHECK(coordinator::write_durable(in(directory, "ca.pem"), token.ca, kOwn));
  if (token.ca.empty()) unlink(in(directory, "ca.pem").c_str());
  FLASH_CHECK(
      coordinator::write_durable(in(directory, "node.creds"), coordinator::creds_file(jwt, own), kOwn));
  // The last one: only now is the node enrolled.
  FLASH_CHECK(coordinator::write_durable(in(directory, "coordinator.json"), server_json(token), kOwn));
  return parse_identity(directory, server_json(token));
}

Result<std::int64_t> renewal_time(const std::string& credentials) {
  FLASH_TRY(const std::string text, coordinator::read_whole(credentials));
  FLASH_TRY(const coordinator::Creds creds, coordinator::read_creds(text));
  FLASH_TRY(const coordinator::Jwt jwt, coordinator::read_jwt(creds.jwt));
  return jwt.expires == 0 ? 0 : jwt.expires - (jwt.expires - jwt.issued) / 3;
}

Result<void> renew(coordinator::Nats& nats, const std::string& node, const std::string& credentials) {
  FLASH_TRY(const std::string text, coordinator::read_whole(credentials));
  FLASH_TRY(const coordinator::Creds creds, coordinator::read_creds(text));
  FLASH_TRY(const NKey own, NKey::from_seed(creds.seed));
  FLASH_TRY(const std::string jwt, ask(nats, {node, ""}, own, creds.jwt));
  return coordinator::write_durable(credentials, coordinator::creds_file(jwt, own), kOwn);
}

}  // namespace flash::sync
