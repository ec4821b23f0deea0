#include "coordinator/setup.h"

#include <grp.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "coordinator/certificates.h"
#include "coordinator/durable_file.h"
#include "coordinator/keyring.h"

namespace flash::coordinator {
namespace {

constexpr std::int64_t kDay = 86400;
constexpr std::int64_t kAuthorityLives = 20 * 365 * kDay, kServerLives = 2 * 365 * kDay;
constexpr std::int64_t kRenewBefore = 60 * kDay;
constexpr const char* kAlways[] = {"localhost", "127.0.0.1", "::1"};

using What = Step::What;

std::string quoted(const std::string& text) {
  return "\"" + text + "\"";
}

std::string accounts_text(const std::string& operator_text, const std::string& system_text,
                          const std::string& account_text) {
  const auto subject = [](const std::string& jwt) {
    const auto read = read_jwt(jwt);
    return read ? read->subject : std::string();
  };
  return "# Who is who: made by flash-coordinator setup, and again by revoke.\n"
         "operator: " +
         operator_text +
         "\n"
         "system_account: " +
         subject(system_text) +
         "\n"
         "resolver_preload: {\n"
         "  " +
         subject(system_text) + ": " + system_text +
         "\n"
         "  " +
         subject(account_text) + ": " + account_text +
         "\n"
         "}\n";
}

/// Collects the steps; what was planned before counts as if it were on the disk.
class Planner {
 public:
  Planner(const SetupOptions& options, std::int64_t now) : o_(options), now_(now) {}

  Result<Plan> run() {
    FLASH_CHECK(keys());
    FLASH_CHECK(accounts());
    FLASH_CHECK(users());
    FLASH_CHECK(addresses());
    FLASH_CHECK(tls());
    FLASH_CHECK(configuration());
    return std::move(plan_);
  }

 private:
  std::string path(const char* name) const { return in(o_.identity, name); }

  /// ENOENT: it is neither there nor planned.
  Result<std::string> content(const char* name) const {
    for (const Step& step : plan_.steps)
      if (step.path == path(name)) return step.content;
    return read_whole(path(name));
  }

  void add(What what, const char* name, std::string text, Readers readers, std::string why = {}) {
    plan_.steps.push_back({what, path(name), std::move(text), readers, std::move(why)});
  }

  /// The file as it is; made where it is missing.
  template <class Make>
  Result<std::string> keep_or_make(const char* name, Readers readers, Make make) {
    auto text = read_whole(path(name));
    const bool missing = !text && text.error().is(std::errc::no_such_file_or_directory);
    if (!text && !missing) return text;
    if (missing) {
      FLASH_TRY(text, make());
    }
    add(missing ? What::Made : What::Kept, name, *text, readers);
    return text;
  }

  Result<NKey> key(const char* name, KeyKind kind, Readers readers = Readers::Root) {
    FLASH_TRY(std::string seed, keep_or_make(name, readers, [&]() -> Result<std::string> {
                FLASH_TRY(const NKey made, NKey::make(kind));
                return made.seed() + "\n";
              }));
    std::erase(seed, '\n');
    auto read = NKey::from_seed(seed);
    if (read && read->kind() == kind) return read;
    return Error(std::errc::invalid_argument, path(name) + ": not the seed that belongs there");
  }

  Result<void> keys() {
    FLASH_TRY(operator_, key("operator.seed", KeyKind::Operator));
    FLASH_TRY(account_, key("account.seed", KeyKind::Account));
    FLASH_TRY(system_, key("system.seed", KeyKind::Account));
    FLASH_TRY(node_, key("node.seed", KeyKind::Account, Readers::Coordinator));
    FLASH_TRY(enroll_, key("enroll.seed", KeyKind::Account));
    return {};
  }

  Result<void> accounts() {
    FLASH_CHECK(keep_or_make("operator.jwt", Readers::All, [&] {
      return operator_jwt(*operator_, "flashd", system_->public_key(), now_);
    }));
    FLASH_CHECK(keep_or_make("system.jwt", Readers::All, [&] {
      return account_jwt(
          *operator_,
          {.name = "SYS", .key = system_->public_key(), .jetstream = false, .roles = {}, .revoked = {}},
          now_);
    }));
    return fleet();
  }

  /// The account is signed again where it says something else than this release would.
  Result<void> fleet() {
    Account account = fleet_account(account_->public_key(), node_->public_key(), enroll_->public_key());
    if (!exists(path("account.jwt"))) {
      FLASH_TRY(std::string made, account_jwt(*operator_, account, now_));
      add(What::Made, "account.jwt", std::move(made), Readers::All);
      return {};
    }
    FLASH_TRY(const std::string present, read_whole(path("account.jwt")));
    FLASH_TRY(const Jwt jwt, read_account(o_.identity));
    account.revoked = jwt.account.revoked;
    // An Ed25519 signature of the same is the same.
    FLASH_TRY(std::string same, account_jwt(*operator_, account, jwt.issued));
    if (same == present) {
      add(What::Kept, "account.jwt", present, Readers::All);
      return {};
    }
    FLASH_TRY(plan_.account, account_jwt(*operator_, account, now_));
    add(What::Renewed, "account.jwt", plan_.account, Readers::All, "permissions of this release");
    return {};
  }

  Result<std::string> user(const NKey& signer, const char* name) {
    FLASH_TRY(const NKey made, NKey::make(KeyKind::User));
    FLASH_TRY(const std::string jwt, full_user_jwt(signer, {name, made.public_key(), 0}, now_));
    return creds_file(jwt, made);
  }

  Result<void> users() {
    FLASH_CHECK(keep_or_make("coordinator.creds", Readers::Coordinator,
                             [&] { return user(*account_, "coordinator"); }));
    FLASH_CHECK(keep_or_make("system.creds", Readers::Root, [&] { return user(*system_, "root"); }));
    return {};
  }

  Result<void> addresses() {
    std::vector<std::string> urls;
    if (exists(path("servers"))) {
      FLASH_TRY(urls, read_servers(o_.identity));
    }
    const std::size_t before = urls.size();
    std::vector<std::string> wanted = o_.servers;
    if (urls.empty() && wanted.empty()) wanted.push_back(o_.host);
    const std::string& with_port = urls.empty() ? o_.listen : urls.front();
    const std::string port = with_port.substr(with_port.rfind(':') + 1);
    for (const std::string& name : wanted) {
      const bool v6 = name.find(':') != name.npos;
      const std::string url = "tls://" + (v6 ? "[" + name + "]" : name) + ":" + port;
      if (std::find(urls.begin(), urls.end(), url) == urls.end()) urls.push_back(url);
    }
    std::string text;
    for (const std::string& url : urls) text += url + "\n";
    const What what = before == 0 ? What::Made : urls.size() > before ? What::Renewed : What::Kept;
    add(what, "servers", text, Readers::All, "names were added");
    // All of them, given now or before: a certificate that is made again has the names of the lost one.
    for (const std::string& url : urls) names_.push_back(host_of(url));
    return {};
  }

  Result<Certified> authority() {
    const bool have = exists(path("ca.key")) && exists(path("ca.pem"));
    Certified made;
    if (!have) {
      FLASH_TRY(made, make_authority(now_, now_ + kAuthorityLives));
    }
    FLASH_TRY(made.key, keep_or_make("ca.key", Readers::Root, [&] { return Result<std::string>(made.key); }));
    FLASH_TRY(made.certificate,
              keep_or_make("ca.pem", Readers::All, [&] { return Result<std::string>(made.certificate); }));
    return made;
  }

  Result<void> tls() {
    FLASH_TRY(const Certified ca, authority());
    std::vector<std::string> names;
    const bool have = exists(path("server.pem")) && exists(path("server.key"));
    std::string why;
    if (have) {
      FLASH_TRY(const std::string pem, read_whole(path("server.pem")));
      FLASH_TRY(const CertificateFacts facts, read_certificate(pem));
      names = facts.names;
      if (facts.expires < now_ + kRenewBefore) why = "it is about to expire";
    }
    for (const std::string& name : wanted_names())
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
        why = "names were added";
      }
    if (have && why.empty()) return keep("server.key", "server.pem");
    FLASH_TRY(Certified made, make_server_certificate(ca, names, now_, now_ + kServerLives));
    const What what = have ? What::Renewed : What::Made;
    add(what, "server.key", std::move(made.key), Readers::NatsServer, why);
    add(what, "server.pem", std::move(made.certificate), Readers::All, why);
    plan_.server_files = plan_.server_files || have;
    return {};
  }

  std::vector<std::string> wanted_names() const {
    std::vector<std::string> names = names_;
    names.insert(names.end(), std::begin(kAlways), std::end(kAlways));
    return names;
  }

  Result<void> keep(const char* key, const char* certificate) {
    FLASH_TRY(std::string text, read_whole(path(key)));
    add(What::Kept, key, std::move(text), Readers::NatsServer);
    FLASH_TRY(text, read_whole(path(certificate)));
    add(What::Kept, certificate, std::move(text), Readers::All);
    return {};
  }

  Result<void> configuration() {
    FLASH_TRY(const std::string operator_text, content("operator.jwt"));
    FLASH_TRY(const std::string system_text, content("system.jwt"));
    FLASH_TRY(const std::string account_text, content("account.jwt"));
    const std::string accounts = accounts_text(operator_text, system_text, account_text);
    auto present = read_whole(path("accounts.conf"));
    const What what = !present ? What::Made : *present == accounts ? What::Kept : What::Renewed;
    plan_.server_files = plan_.server_files || what == What::Renewed;
    add(what, "accounts.conf", accounts, Readers::All, "accounts changed");
    // The operator's from then on.
    FLASH_CHECK(keep_or_make("nats.conf", Readers::All, [&] { return Result<std::string>(nats_conf()); }));
    return {};
  }

  std::string nats_conf() const;

  const SetupOptions& o_;
  const std::int64_t now_;
  Plan plan_;
  std::optional<NKey> operator_, account_, system_, node_, enroll_;
  std::vector<std::string> names_;
};

std::string Planner::nats_conf() const {
  return "# nats-server for flash-coordinator: made once by flash-coordinator setup, yours to edit. "
         "docs/CLUSTER.md has a\n"
         "# cluster of three. No leaf nodes, no websockets, no MQTT, no monitoring port: nothing here uses "
         "them, and\n"
         "# nats-server before 2.10.27 has holes there.\n"
         "server_name: " +
         quoted(o_.host) +
         "\n"
         "listen: " +
         quoted(o_.listen) +
         "\n"
         "include accounts.conf\n"
         "resolver: { type: full, dir: " +
         quoted(o_.nats_state + "/accounts") +
         ", allow_delete: false }\n"
         "tls {\n"
         "  cert_file: " +
         quoted(path("server.pem")) +
         "\n"
         "  key_file: " +
         quoted(path("server.key")) +
         "\n"
         "  timeout: 5\n"
         "}\n"
         "jetstream {\n"
         "  store_dir: " +
         quoted(o_.nats_state) +
         "\n"
         "  max_file_store: 16GB\n"
         "  max_memory_store: 64MB\n"
         "}\n"
         "max_payload: 1MB\n"
         "max_control_line: 4KB\n"
         "write_deadline: \"5s\"\n"
         "logtime: false\n";
}

std::optional<gid_t> group_of(Readers readers) {
  const char* name = readers == Readers::Coordinator  ? "_flash-coordinator"
                     : readers == Readers::NatsServer ? "_flash-nats"
                                                      : nullptr;
  const group* entry = name ? getgrnam(name) : nullptr;
  return entry ? std::optional(entry->gr_gid) : std::nullopt;
}

mode_t mode_of(Readers readers) {
  return readers == Readers::All ? 0644 : readers == Readers::Root ? 0600 : 0640;
}

}  // namespace

bool Plan::changes() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.what != What::Kept; });
}

Result<Plan> plan(const SetupOptions& options, std::int64_t now) {
  return Planner(options, now).run();
}

Result<void> carry_out(const SetupOptions& options, const Plan& plan) {
  if (mkdir(options.identity.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "mkdir " + options.identity);
  for (const Step& step : plan.steps)
    if (step.what != What::Kept)
      FLASH_CHECK(write_durable(step.path, step.content, mode_of(step.readers), group_of(step.readers)));
  return {};
}

std::string describe(const Plan& plan) {
  std::string text;
  std::size_t kept = 0;
  for (const Step& step : plan.steps) {
    if (step.what == What::Kept) {
      ++kept;
    } else if (step.what == What::Made) {
      text += "made    " + step.path + "\n";
    } else {
      text += "renewed " + step.path + ": " + step.why + "\n";
    }
  }
  return text + "kept    " + std::to_string(kept) + " of " + std::to_string(plan.steps.size()) + " files\n";
}

Result<std::string> accounts_conf(const std::string& directory, const std::string& account_jwt) {
  FLASH_TRY(const std::string operator_text, read_whole(in(directory, "operator.jwt")));
  FLASH_TRY(const std::string system_text, read_whole(in(directory, "system.jwt")));
  return accounts_text(operator_text, system_text, account_jwt);
}

}  // namespace flash::coordinator
