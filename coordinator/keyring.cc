#include "coordinator/keyring.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coordinator/durable_file.h"

namespace flash::coordinator {
namespace {

constexpr Duration kPushLongest = std::chrono::seconds(3);

/// "4222" of "tls://hub:4222".
std::string port_of(const std::string& url) {
  return url.substr(url.rfind(':') + 1);
}

}  // namespace

Permissions node_permissions() {
  return {.publish = {"flash.v1.up.*.{{name()}}.>", "flash.v1.hb.*.{{name()}}", "flash.v1.rq.{{name()}}.>",
                      "flash.v1.id.{{name()}}.renew",
                      // Models: the stream has nothing else.
                      "$JS.API.STREAM.MSG.GET.FLASH_MODELS"},
          .subscribe = {"flash.v1.dn.{{name()}}.>", "flash.v1.bc.>", "flash.v1.ck.>", "_INBOX.{{name()}}.>"}};
}

Permissions token_permissions() {
  return {.publish = {"flash.v1.id.{{name()}}.{{subject()}}"}, .subscribe = {"_INBOX.{{subject()}}.>"}};
}

Result<NKey> read_seed(const std::string& directory, const char* name) {
  FLASH_TRY(std::string text, read_whole(in(directory, name)));
  std::erase_if(text, [](char c) { return c == '\n' || c == ' '; });
  auto key = NKey::from_seed(text);
  if (!key) return std::move(key).error().context(in(directory, name));
  return key;
}

Result<Jwt> read_account(const std::string& directory) {
  const std::string path = in(directory, "account.jwt");
  FLASH_TRY(std::string text, read_whole(path));
  std::erase(text, '\n');
  auto jwt = read_jwt(text);
  if (!jwt) return std::move(jwt).error().context(path);
  return jwt;
}

Result<std::vector<std::string>> read_servers(const std::string& directory) {
  FLASH_TRY(const std::string text, read_whole(in(directory, "servers")));
  std::vector<std::string> urls;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) urls.push_back(line);
  if (urls.empty()) return Error(std::errc::invalid_argument, in(directory, "servers") + " is empty");
  return urls;
}

Account fleet_account(const std::string& account_key, const std::string& node_key,
                      const std::string& enroll_key) {
  return {.name = "FLASH",
          .key = account_key,
          .jetstream = true,
          .roles = {{"node", node_key, node_permissions()}, {"enroll", enroll_key, token_permissions()}},
          .revoked = {}};
}

Result<NatsOptions> own_servers(const std::string& directory, const char* creds) {
  FLASH_TRY(const auto servers, read_servers(directory));
  NatsOptions options;
  options.url = "tls://localhost:" + port_of(servers.front());
  for (const std::string& url : servers)
    if (options.url.find(url) == options.url.npos) options.url += "," + url;
  options.credentials = in(directory, creds);
  options.ca = in(directory, "ca.pem");
  return options;
}

Result<void> push_account(const std::string& directory, const std::string& jwt) {
  FLASH_TRY(NatsOptions options, own_servers(directory, "system.creds"));
  options.name = "flash-coordinator";
  FLASH_TRY(const auto nats, Nats::connect_surely(options));
  FLASH_TRY(const std::string answer, nats->request("$SYS.REQ.CLAIMS.UPDATE", jwt, kPushLongest));
  const auto j = nlohmann::json::parse(answer, nullptr, false);
  if (j.is_object() && j.contains("data")) return {};
  return Error(std::errc::permission_denied,
               "the server does not take the account: " + answer.substr(0, 200));
}

}  // namespace flash::coordinator
