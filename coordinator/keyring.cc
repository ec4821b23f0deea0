#include "coordinator/keyring.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "coordinator/durable_file.h"
#include "coordinator/messages.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/messages_fleet.h"
#include "coordinator/messages_models.h"
#include "coordinator/messages_pages.h"
#include "core/json.h"

namespace flash::coordinator {
namespace {

constexpr Duration kPushLongest = std::chrono::seconds(3);

/// "4222" of "tls://hub:4222".
std::string port_of(const std::string& url) {
  return url.substr(url.rfind(':') + 1);
}

}  // namespace

Permissions node_permissions() {
  return {.publish = {"flash.v1.up.*.{{name()}}.ep", "flash.v1.hb.*.{{name()}}",
                      "flash.v1.rq.{{name()}}.fleet", "flash.v1.rq.{{name()}}.model",
                      "flash.v1.rq.{{name()}}.nearest", "flash.v1.id.{{name()}}.renew"},
          .subscribe = {"flash.v1.dn.{{name()}}.>", "_INBOX.{{name()}}.>"}};
}

Permissions token_permissions() {
  return {.publish = {"flash.v1.id.{{name()}}.{{subject()}}"}, .subscribe = {"_INBOX.{{subject()}}.>"}};
}

Permissions coordinator_permissions() {
  Permissions p{
      .publish = {"flash.v1.dn.*.fleet", "flash.v1.dn.*.nearest", "flash.v1.dn.*.wm", "flash.v1.co.*",
                  kModelsSubject, kChunkSubjects, "_INBOX.*.>", "$KV.FLASH_LEASE.speaker"},
      .subscribe = {kAllQuestions, kAllFleetQuestions, kAllModelQuestions, kAllHeartbeats, kAllCoordinators,
                    kIdentitySubjects, std::string(kCoordinatorInbox) + ".>"}};
  const std::string api = "$JS.API.";
  for (const std::string stream : {"FLASH_UP", "FLASH_MODELS", "KV_FLASH_LEASE"})
    for (const char* verb : {"STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.INFO."})
      p.publish.push_back(api + verb + stream);
  // What is read message by message, and what by a consumer.
  for (const std::string stream : {"FLASH_MODELS", "KV_FLASH_LEASE"}) {
    p.publish.push_back(api + "STREAM.MSG.GET." + stream);
    p.publish.push_back(api + "DIRECT.GET." + stream);
    p.publish.push_back(api + "DIRECT.GET." + stream + ".>");
  }
  for (const std::string stream : {"FLASH_UP", "FLASH_MODELS"}) {
    for (const char* verb : {"CREATE.", "INFO.", "DELETE."}) {
      p.publish.push_back(api + "CONSUMER." + verb + stream);
      p.publish.push_back(api + "CONSUMER." + verb + stream + ".>");
    }
    p.publish.push_back("$JS.FC." + stream + ".>");
  }
  p.publish.push_back(api + "STREAM.PURGE.FLASH_MODELS");
  return p;
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

std::string host_of(const std::string& url) {
  const auto scheme = url.find("://");
  const std::size_t begin = scheme == url.npos ? 0 : scheme + 3;
  const std::string host = url.substr(begin, url.rfind(':') - begin);
  return !host.empty() && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

Account fleet_account(const std::string& account_key, const std::string& node_key,
                      const std::string& enroll_key) {
  return {.name = "FLASH",
          .key = account_key,
          .jetstream = true,
          .roles = {{"node", node_key, node_permissions()}, {"enroll", enroll_key, token_permissions()}},
          .own_users = coordinator_permissions(),
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
