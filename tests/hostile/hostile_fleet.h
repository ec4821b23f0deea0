// Purpose: a fleet as `flash-coordinator setup` leaves it (accounts, roles, TLS; a real nats-server,
// flash-coordinator and flash-sync), and a neighbour in it that speaks NATS by itself.
// Ownership: as FleetWorld's.
// Thread rule: one thread.
#pragma once

#include <arpa/inet.h>
#include <grp.h>
#include <nats/nats.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>

#include "coordinator/authority.h"
#include "coordinator/durable_file.h"
#include "coordinator/jwt.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/text_codes.h"
#include "tests/system/fleet_world.h"

namespace flash::fleet_world {

/// A connection with somebody's credentials, that says whatever it likes.
class Stranger {
 public:
  Stranger(const std::string& url, const std::string& ca, const std::string& creds,
           const std::string& inbox) {
    natsOptions* o = nullptr;
    natsOptions_Create(&o);
    natsOptions_SetURL(o, url.c_str());
    natsOptions_SetSecure(o, true);
    natsOptions_LoadCATrustedCertificates(o, ca.c_str());
    natsOptions_SetUserCredentialsFromFiles(o, creds.c_str(), nullptr);
    natsOptions_SetErrorHandler(
        o, [](natsConnection*, natsSubscription*, natsStatus, void*) {}, nullptr);
    if (!inbox.empty()) natsOptions_SetCustomInboxPrefix(o, inbox.c_str());
    // libnats 3.4: one of 256 fails.
    for (int i = 0; i < 5 && !connection_; ++i) natsConnection_Connect(&connection_, o);
    natsOptions_Destroy(o);
  }
  ~Stranger() {
    for (natsSubscription* s : subscriptions_) natsSubscription_Destroy(s);
    natsConnection_Destroy(connection_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool connected() const { return connection_ && !natsConnection_IsClosed(connection_); }
  void say(const std::string& subject, const std::string& bytes, const std::string& reply = {}) {
    const auto size = static_cast<int>(bytes.size());
    const natsStatus said =
        reply.empty()
            ? natsConnection_Publish(connection_, subject.c_str(), bytes.data(), size)
            : natsConnection_PublishRequest(connection_, subject.c_str(), reply.c_str(), bytes.data(), size);
    EXPECT_EQ(said, NATS_OK) << subject;
  }
  /// The server has handled all that was said.
  void flush() { EXPECT_EQ(natsConnection_FlushTimeout(connection_, 10000), NATS_OK); }
  void hear(const std::string& subject) {
    natsSubscription* s = nullptr;
    if (natsConnection_SubscribeSync(&s, connection_, subject.c_str()) != NATS_OK) return;
    natsSubscription_SetPendingLimits(s, 1'000'000, 1 << 30);
    subscriptions_.push_back(s);
  }
  struct Heard {
    std::string subject, bytes, seal;
  };
  /// What has come since.
  std::vector<Heard> heard() {
    std::vector<Heard> out;
    for (natsSubscription* s : subscriptions_) {
      natsMsg* m = nullptr;
      while (natsSubscription_NextMsg(&m, s, 1) == NATS_OK) {
        const char* seal = nullptr;
        const bool sealed = natsMsgHeader_Get(m, "Flash-Seal", &seal) == NATS_OK && seal;
        out.push_back({natsMsg_GetSubject(m),
                       std::string(natsMsg_GetData(m), static_cast<std::size_t>(natsMsg_GetDataLength(m))),
                       sealed ? seal : ""});
        natsMsg_Destroy(m);
      }
    }
    return out;
  }
  /// The answer, as an honest one asks; empty: none.
  std::string request(const std::string& subject, const std::string& bytes, std::int64_t ms = 5000) {
    natsMsg* m = nullptr;
    if (natsConnection_Request(&m, connection_, subject.c_str(), bytes.data(), static_cast<int>(bytes.size()),
                               ms) != NATS_OK)
      return {};
    std::string out(natsMsg_GetData(m), static_cast<std::size_t>(natsMsg_GetDataLength(m)));
    natsMsg_Destroy(m);
    return out;
  }

 private:
  natsConnection* connection_ = nullptr;
  std::vector<natsSubscription*> subscriptions_;
};

inline std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof in;
  bind(fd, reinterpret_cast<sockaddr*>(&in), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&in), &size);
  close(fd);
  return ntohs(in.sin_port);
}

class HostileFleet : public FleetWorld {
 protected:
  void SetUp() override {
    if (access(kNatsServer, X_OK) != 0) GTEST_SKIP() << "nats-server is not installed";
    char name[] = "/tmp/flashd-test-hostile-XXXXXX";
    folder_ = mkdtemp(name);
    port_ = std::to_string(free_port());
    ASSERT_EQ(
        run({program("flash-coordinator"), "setup", "--no-start", "--identity", identity(), "--nats-state",
             folder_ + "/nats", "--server", "localhost", "--nats-listen", "127.0.0.1:" + port_}),
        0)
        << text_of(folder_ + "/run.log");
    const std::string log = folder_ + "/nats.log";
    nats_ = std::make_unique<Process>(std::vector<std::string>{kNatsServer, "-c", identity() + "/nats.conf"},
                                      log);
    ASSERT_TRUE(await([&] { return text_of(log).find("Server is ready") != std::string::npos; }))
        << text_of(log);
    coordinators_["c1"] = std::make_unique<Process>(
        std::vector<std::string>{program("flash-coordinator"), "--identity", identity(), "--store",
                                 store("c1"), "--listen", "none", "--name", "c1", "--judge-interval", "1"},
        folder_ + "/c1.log");
    ASSERT_TRUE(await([&] { return lease() > 0; })) << text_of(folder_ + "/c1.log");
  }

  static std::string program(const std::string& name) {
    return std::string(FLASH_BINARY_DIR) + "/bin/" + name;
  }
  std::string identity() const { return folder_ + "/identity"; }
  std::string server() const { return "tls://localhost:" + port_; }
  int run(const std::vector<std::string>& command, const std::string& out = "/run.log") {
    std::filesystem::remove(folder_ + out);
    Process process(command, folder_ + out);
    int status = -1;
    waitpid(process.pid(), &status, 0);
    return status;
  }
  std::string token_for(const std::string& node) {
    const std::string line = ([&] {
      run({program("flash-coordinator"), "--identity", identity(), "--store", store("c1"), "enroll", node},
          "/token.log");
      return text_of(folder_ + "/token.log");
    })();
    const auto at = line.find("flash1.");
    return at == line.npos ? "" : line.substr(at, line.find_first_of(" \n", at) - at);
  }
  void enroll(const std::string& node) {
    const std::string token = token_for(node);
    ASSERT_TRUE(await([&] {
      return run({program("flash-sync"), "--identity", folder_ + "/" + node + ".id", "enroll", token}) == 0;
    })) << text_of(folder_ + "/run.log");
  }
  std::string creds_of(const std::string& node) const { return folder_ + "/" + node + ".id/node.creds"; }
  std::unique_ptr<Stranger> as_node(const std::string& node) {
    auto s = std::make_unique<Stranger>(server(), identity() + "/ca.pem", creds_of(node), "_INBOX." + node);
    EXPECT_TRUE(s->connected());
    return s;
  }
  /// Who sees all that is said in the account: signed with its key for this test.
  std::unique_ptr<Stranger> observer() {
    const auto account = coordinator::NKey::from_seed(trimmed(identity() + "/account.seed"));
    const auto key = coordinator::NKey::make(coordinator::KeyKind::User);
    const nlohmann::json all = {{"allow", {">"}}};
    const nlohmann::json claims = {{"name", "observer"},
                                   {"sub", key->public_key()},
                                   {"iss", account->public_key()},
                                   {"iat", 1'700'000'000},
                                   {"jti", "observer"},
                                   {"nats",
                                    {{"type", "user"},
                                     {"version", 2},
                                     {"pub", all},
                                     {"sub", all},
                                     {"subs", -1},
                                     {"data", -1},
                                     {"payload", -1}}}};
    const std::string text = coordinator::base64url(R"({"typ":"JWT","alg":"ed25519-nkey"})") + "." +
                             coordinator::base64url(claims.dump());
    const std::string jwt = text + "." + coordinator::base64url(*account->sign(text));
    std::ofstream(folder_ + "/observer.creds") << coordinator::creds_file(jwt, *key);
    auto s = std::make_unique<Stranger>(server(), identity() + "/ca.pem", folder_ + "/observer.creds", "");
    EXPECT_TRUE(s->connected());
    s->hear(">");
    s->flush();
    return s;
  }
  static std::string trimmed(const std::string& path) {
    std::string text = text_of(path);
    std::erase(text, '\n');
    return text;
  }
  /// A real flash-sync with that node's credentials; its flashd is the test.
  void start_enrolled(const std::string& name, std::vector<std::string> more = {}) {
    if (!std::filesystem::exists(creds_of(name))) enroll(name);
    auto node = std::make_unique<Node>();
    node->name = name;
    const std::string base = folder_ + "/" + name;
    auto listener = link::Listener::listen(base + ".sock", std::nullopt);
    ASSERT_TRUE(listener) << listener.error().message();
    node->listener = std::move(*listener);
    std::vector<std::string> command = {
        program("flash-sync"), "--socket",   base + ".sock", "--listen",      "none", "--textfile", "none",
        "--identity",          base + ".id", "--outbox",     base + ".outbox"};
    command.insert(command.end(), more.begin(), more.end());
    node->sync = std::make_unique<Process>(command, base + ".log");
    nodes_[name] = std::move(node);
  }
  std::uint64_t lease() {
    const auto j = fleet("c1");
    if (j.is_object())
      for (const auto& c : j["coordinators"])
        if (!c["lease"].is_null()) return c["lease"].get<std::uint64_t>();
    return 0;
  }
  nlohmann::json node_of(const std::string& name) {
    const auto j = fleet("c1");
    if (j.is_object())
      for (const auto& n : j["nodes"])
        if (n["node"] == name) return n;
    return {};
  }
  /// This node is told that its records are safe: nothing waits in its outbox.
  bool is_told(const std::string& name) {
    const std::int64_t after = now_us();
    return await([&] {
      hear();
      const auto n = node_of(name);
      return n.is_object() && n.value("outbox", 1) == 0 && n.value("last_seen_us", std::int64_t{0}) > after;
    });
  }
  static std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace flash::fleet_world
