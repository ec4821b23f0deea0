#include "coordinator/identity_commands.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "coordinator/certificates.h"
#include "coordinator/durable_file.h"
#include "coordinator/identity_store.h"
#include "coordinator/keyring.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/setup.h"
#include "core/json.h"
#include "core/printable.h"

namespace flash::coordinator {
namespace {

constexpr const char* kNatsUnit = "flash-coordinator-nats.service";
constexpr const char* kUnit = "flash-coordinator.service";
constexpr const char* kStockUnit = "nats-server.service";
constexpr const char* kStockConfiguration = "/etc/nats-server.conf";
constexpr std::string_view kStockText = "host: 127.0.0.1\nport: 4222\n";

std::int64_t unix_now() {
  return std::time(nullptr);
}

std::string date_of(std::int64_t time) {
  const std::time_t t = time;
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&t, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}

Result<std::string> this_host() {
  char text[256] = "";
  if (gethostname(text, sizeof text - 1) != 0) return Error::from_errno(errno, "gethostname");
  if (is_server_name(text)) return std::string(text);
  return Error(std::errc::invalid_argument,
               "'" + std::string(text) + "' is no name for a server: give one with --server");
}

/// Its exit status; -1: it could not be run.
int systemctl(std::vector<std::string> words) {
  words.insert(words.begin(), "systemctl");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (posix_spawnp(&child, "systemctl", nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// Debian's package starts a server without users on our port.
void stop_stock_server() {
  const auto text = read_whole(kStockConfiguration);
  if (!text || *text != kStockText || systemctl({"is-active", "--quiet", kStockUnit}) != 0) return;
  if (systemctl({"disable", "--quiet", "--now", kStockUnit}) == 0)
    std::printf("stopped %s: it served everybody of this machine on the same port\n", kStockUnit);
}

Result<void> start_services(const Plan& plan) {
  stop_stock_server();
  if (systemctl({"enable", "--quiet", "--now", kNatsUnit, kUnit}) != 0)
    return Error(std::errc::io_error, std::string("systemctl does not start ") + kNatsUnit + " and " + kUnit);
  if (plan.server_files) systemctl({"reload", kNatsUnit});
  for (const Step& step : plan.steps)
    if (step.what == Step::What::Made && step.path.ends_with("/coordinator.creds"))
      systemctl({"restart", kUnit});
  std::printf("running %s, %s\n", kNatsUnit, kUnit);
  return {};
}

/// The account as it is now, with these keys revoked.
Result<std::string> account_without(const CommandLine& line, const std::vector<std::string>& keys,
                                    std::int64_t now) {
  FLASH_TRY(const NKey signer, read_seed(line.identity, "operator.seed"));
  FLASH_TRY(const NKey node, read_seed(line.identity, "node.seed"));
  FLASH_TRY(const NKey enroll, read_seed(line.identity, "enroll.seed"));
  FLASH_TRY(const Jwt present, read_account(line.identity));
  Account account = fleet_account(present.subject, node.public_key(), enroll.public_key());
  account.revoked = present.account.revoked;
  for (const std::string& key : keys) account.revoked[key] = now;
  return account_jwt(signer, account, now);
}

Result<void> write_account(const CommandLine& line, const std::string& jwt) {
  FLASH_CHECK(write_durable(in(line.identity, "account.jwt"), jwt, 0644));
  FLASH_TRY(const std::string conf, accounts_conf(line.identity, jwt));
  return write_durable(in(line.identity, "accounts.conf"), conf, 0644);
}

Result<std::string> url_list(const std::string& directory) {
  FLASH_TRY(const auto servers, read_servers(directory));
  std::string list;
  for (const std::string& url : servers) list += (list.empty() ? "" : ",") + url;
  return list;
}

}  // namespace

std::string identity_store_path(const CommandLine& line) {
  return directory_of(line.store) + "/identity.db";
}

Result<void> run_setup(const CommandLine& line) {
  SetupOptions options{.identity = line.identity,
                       .nats_state = line.nats_state,
                       .listen = line.nats_listen,
                       .servers = line.servers,
                       .host = {}};
  FLASH_TRY(options.host, this_host());
  FLASH_TRY(const Plan steps, plan(options, unix_now()));
  print_text(stdout, describe(steps));
  if (line.dry_run) {
    std::puts("nothing was done: --dry-run");
    return {};
  }
  FLASH_CHECK(carry_out(options, steps));
  if (!line.no_start) FLASH_CHECK(start_services(steps));
  if (!steps.account.empty())
    if (auto pushed = push_account(line.identity, steps.account); !pushed)
      std::printf("servers that run do not know the new permissions yet: %s\n",
                  pushed.error().message().c_str());
  FLASH_TRY(const std::string servers, url_list(line.identity));
  std::printf("nodes reach it at %s; next: flash-coordinator enroll NODE\n", servers.c_str());
  return {};
}

Result<void> run_enroll(const CommandLine& line) {
  const std::int64_t now = unix_now();
  Token token;
  token.node = line.node;
  token.pool = line.pool;
  FLASH_TRY(token.servers, url_list(line.identity));
  FLASH_TRY(token.ca, read_whole(in(line.identity, "ca.pem")));
  FLASH_TRY(const NKey signer, read_seed(line.identity, "enroll.seed"));
  FLASH_TRY(const Jwt account, read_account(line.identity));
  FLASH_TRY(const NKey user, NKey::make(KeyKind::User));
  const std::int64_t expires = now + line.token_lifetime_s;
  FLASH_TRY(token.jwt, role_user_jwt(signer, account.subject, {line.node, user.public_key(), expires}, now));
  token.seed = user.seed();
  FLASH_TRY(const AsOwner owner, AsOwner::of(directory_of(line.store)));
  std::string note;
  FLASH_TRY(IdentityStore store, IdentityStore::open(identity_store_path(line), &note));
  if (!note.empty()) print_line(stderr, "flash-coordinator: " + note);
  FLASH_CHECK(store.add({user.public_key(), line.node, now, expires, ""}));
  std::puts(encode(token).c_str());
  std::fprintf(stderr, "For %s alone, once, until %s. There: flash-sync enroll TOKEN\n", line.node.c_str(),
               date_of(expires).c_str());
  return {};
}

Result<void> run_revoke(const CommandLine& line) {
  const std::int64_t now = unix_now();
  std::vector<std::string> keys;
  {
    FLASH_TRY(const AsOwner owner, AsOwner::of(directory_of(line.store)));
    std::string note;
    FLASH_TRY(IdentityStore store, IdentityStore::open(identity_store_path(line), &note));
    FLASH_TRY(const auto revoked, store.revoke(line.node, now));
    FLASH_TRY(const auto all, store.credentials());
    for (const NodeCredentials& c : all)
      if (c.node == line.node) keys.push_back(c.key);
    std::printf("revoked %zu of %zu keys that %s ever had; tokens that nobody used are void\n",
                revoked.size(), keys.size(), line.node.c_str());
  }
  if (keys.empty()) return Error(std::errc::invalid_argument, line.node + " has no credentials");
  FLASH_TRY(const std::string jwt, account_without(line, keys, now));
  FLASH_CHECK(write_account(line, jwt));
  const auto pushed = push_account(line.identity, jwt);
  if (pushed) return {};
  return Error(std::errc::not_connected,
               "the server was not told, and knows it after its next start: " + pushed.error().message());
}

Result<void> run_identities(const CommandLine& line) {
  FLASH_TRY(const AsOwner owner, AsOwner::of(directory_of(line.store)));
  FLASH_TRY(const IdentityStore store, IdentityStore::open_to_read(identity_store_path(line)));
  FLASH_TRY(const auto credentials, store.credentials());
  FLASH_TRY(const auto tokens, store.tokens());
  FLASH_TRY(const IdentityCounts counts, store.counts());
  if (line.json) {
    nlohmann::json j{{"enrolled", counts.enrolled}, {"renewed", counts.renewed}, {"refused", counts.refused}};
    j["credentials"] = nlohmann::json::array();
    for (const NodeCredentials& c : credentials)
      j["credentials"].push_back({{"node", c.node},
                                  {"key", c.key},
                                  {"enrolled", c.enrolled},
                                  {"issued", c.issued},
                                  {"expires", c.expires},
                                  {"revoked", c.revoked}});
    j["tokens"] = nlohmann::json::array();
    for (const IssuedToken& t : tokens)
      j["tokens"].push_back({{"node", t.node}, {"key", t.key}, {"issued", t.issued}, {"expires", t.expires}});
    std::puts(printable_json(j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).c_str());
    return {};
  }
  for (const NodeCredentials& c : credentials)
    std::printf("%-24s %s until %s%s\n", c.node.c_str(), c.key.c_str(), date_of(c.expires).c_str(),
                c.revoked == 0 ? "" : (", revoked " + date_of(c.revoked)).c_str());
  for (const IssuedToken& t : tokens)
    std::printf("%-24s a token that nobody used, until %s\n", t.node.c_str(), date_of(t.expires).c_str());
  std::printf("%llu enrolled, %llu renewed, %llu refused\n", static_cast<unsigned long long>(counts.enrolled),
              static_cast<unsigned long long>(counts.renewed),
              static_cast<unsigned long long>(counts.refused));
  return {};
}

}  // namespace flash::coordinator
