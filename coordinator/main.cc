// flash-coordinator: collects what the agents of all nodes earn, from NATS into a store, and shows the fleet.
// flash-coordinator(8).
#include <signal.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

#include "coordinator/collector.h"
#include "coordinator/command_line.h"
#include "coordinator/durable_file.h"
#include "coordinator/fleet.h"
#include "coordinator/identity_commands.h"
#include "coordinator/keyring.h"
#include "coordinator/model_desk.h"
#include "coordinator/model_watch.h"
#include "coordinator/registrar.h"
#include "coordinator/version.h"
#include "coordinator/web.h"
#include "core/printable.h"
#include "core/process.h"
#include "core/service_log.h"

namespace flash::coordinator {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr Duration kWait = std::chrono::milliseconds(500);
constexpr Duration kRetryFirst = std::chrono::milliseconds(250), kRetryLongest = std::chrono::seconds(10);

sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

/// Waits that long for being told to end.
bool told_to_end(Duration longest) {
  const sigset_t set = end_signals();
  const auto whole = std::chrono::floor<std::chrono::seconds>(longest);
  const timespec time{whole.count(), (longest - whole).count()};
  return sigtimedwait(&set, nullptr, &time) > 0;
}

int fail(const Error& error) {
  flash::print_line(stderr, "flash-coordinator: " + error.message());
  return kExitFailure;
}

int show_fleet(const CommandLine& line) {
  auto store = Store::open_to_read(line.store);
  if (!store) return fail(store.error());
  const auto text = line.json ? fleet_json(*store) : fleet_text(*store);
  if (!text) return fail(text.error());
  if (line.json)
    std::fputs(printable_json(*text).c_str(), stdout);
  else
    print_text(stdout, *text);
  return 0;
}

/// The host's up to its first dot, as a coordinator may be called.
std::string host_name() {
  char text[256] = "";
  if (gethostname(text, sizeof text - 1) != 0) return "coordinator";
  const std::string name(text, std::strcspn(text, "."));
  return is_token(name) ? name : "coordinator";
}

/// Of this host, where others than its own users may ask for the page: its name, and those that nodes reach
/// it by.
std::vector<std::string> page_names(const CommandLine& line) {
  if (http::check_address(line.listen, true)) return {};
  std::vector<std::string> names = line.servers;
  char text[256] = "";
  if (gethostname(text, sizeof text - 1) == 0) names.emplace_back(text);
  if (const auto servers = read_servers(line.identity))
    for (const std::string& url : *servers) names.push_back(host_of(url));
  return names;
}

/// What setup made, unless the operator names another server.
Result<void> choose_server(CommandLine& line) {
  line.nats.inbox_prefix = kCoordinatorInbox;
  if (!line.nats.url.empty()) return {};
  line.nats.url = "nats://127.0.0.1:4222";
  if (!exists(in(line.identity, "coordinator.creds"))) return {};
  FLASH_TRY(NatsOptions made, own_servers(line.identity, "coordinator.creds"));
  if (!line.nats.credentials.empty()) made.credentials = line.nats.credentials;
  if (!line.nats.ca.empty()) made.ca = line.nats.ca;
  made.inbox_prefix = kCoordinatorInbox;
  line.nats = made;
  return {};
}

int change_models(CommandLine line) {
  if (auto chosen = choose_server(line); !chosen) return fail(chosen.error());
  line.nats.name = std::string("flash-coordinator model ") + flash::kVersion;
  line.model.replicas = line.stream.replicas;
  std::string warning;
  const auto text = run_model_command(line.model, line.nats, flash::kVersion, warning);
  if (!warning.empty()) flash::print_line(stderr, "flash-coordinator: " + warning);
  if (!text) return fail(text.error());
  print_text(stdout, *text);
  return 0;
}

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(read_clocks().wall.time_since_epoch()).count();
}

/// Says a state once, however often it is met.
class Status {
 public:
  explicit Status(const ServiceLog& log) : log_(log) {}
  void operator()(int priority, const std::string& text) {
    if (text == said_) return;
    said_ = text;
    log_(priority, text);
    sd_notify(0, ("STATUS=" + text).c_str());
  }

 private:
  const ServiceLog& log_;
  std::string said_;
};

/// None where the key that signs nodes is not here.
Result<std::unique_ptr<RegistrarThread>> start_registrar(const CommandLine& line, const ServiceLog& log) {
  if (!exists(in(line.identity, "node.seed"))) return std::unique_ptr<RegistrarThread>();
  FLASH_TRY(NKey key, read_seed(line.identity, "node.seed"));
  FLASH_TRY(const Jwt account, read_account(line.identity));
  std::string note;
  FLASH_TRY(IdentityStore store, IdentityStore::open(identity_store_path(line), &note));
  if (!note.empty()) log(LOG_WARNING, note);
  Registrar registrar(std::move(key), account.subject, line.credentials_lifetime_s, std::move(store), log);
  return std::make_unique<RegistrarThread>(line.nats, std::move(registrar), log);
}

int end_of(const Result<void>& done) {
  return done ? 0 : fail(done.error());
}

int run(CommandLine line) {
  const sigset_t set = end_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const ServiceLog log("flash-coordinator", line.log_level);
  std::string note;
  auto store = Store::open(line.store, &note);
  if (!store) return fail(store.error());
  if (!note.empty()) log(LOG_WARNING, note);
  if (auto chosen = choose_server(line); !chosen) return fail(chosen.error());
  line.nats.name = std::string("flash-coordinator ") + flash::kVersion;
  auto registrar = start_registrar(line, log);
  if (!registrar) return fail(registrar.error());
  char instance[17];
  std::snprintf(instance, sizeof instance, "%016llx", static_cast<unsigned long long>(random_seed()));
  Collector collector({line.nats, line.stream, line.name.empty() ? host_name() : line.name, line.retention},
                      instance, *store, log);
  std::unique_ptr<Web> web;
  if (!line.listen.empty()) {
    auto opened = Web::open({.listen = line.listen, .store = line.store, .names = page_names(line)}, log);
    if (opened) {
      web = std::move(*opened);
      log(LOG_INFO, "serving http://" + web->address() + "/");
    } else {
      log(LOG_WARNING, "no web page: " + opened.error().message());  // records are collected all the same
    }
  }
  const ModelDeskThread desk(line.nats, log);
  ModelWatch models(line.nats, line.stream.replicas, *store, from_seconds(line.judge_interval_s), log);
  Status status(log);
  sd_notify(0, "READY=1");
  Duration retry = kRetryFirst, pause{};
  while (!told_to_end(pause)) {
    pause = {};
    auto done = collector.connected() ? collector.collect(kWait) : collector.connect();
    if (web)
      web->set({.connected = collector.connected(),
                .server = line.nats.url,
                .node_states = collector.node_states()});
    if (done && collector.connected()) {
      status(LOG_INFO, "connected to " + line.nats.url);
      retry = kRetryFirst;
      models.look(clock_now(CLOCK_MONOTONIC), wall_us());
    } else if (!done) {
      status(LOG_WARNING, done.error().message());
      pause = retry;
      retry = std::min(retry * 2, kRetryLongest);
    }
  }
  sd_notify(0, "STOPPING=1");
  collector.finish();
  return 0;
}

}  // namespace
}  // namespace flash::coordinator

int main(int argc, char** argv) {
  using flash::coordinator::CommandLine;
  auto line = flash::coordinator::parse_command_line(flash::words_of(argc, argv));
  if (!line) {
    flash::print_line(stderr, "flash-coordinator: " + line.error().message());
    flash::print_text(stderr, "Try 'flash-coordinator --help'.\n");
    return flash::coordinator::kExitUsage;
  }
  switch (line->command) {
    case CommandLine::Command::Help:
      std::fputs(flash::coordinator::help_text().c_str(), stdout);
      return 0;
    case CommandLine::Command::Version:
      std::printf("flash-coordinator %s\n", flash::kVersion);
      return 0;
    case CommandLine::Command::Fleet:
      return flash::coordinator::show_fleet(*line);
    case CommandLine::Command::Model:
      return flash::coordinator::change_models(*line);
    case CommandLine::Command::Setup:
      return flash::coordinator::end_of(run_setup(*line));
    case CommandLine::Command::Enroll:
      return flash::coordinator::end_of(run_enroll(*line));
    case CommandLine::Command::Revoke:
      return flash::coordinator::end_of(run_revoke(*line));
    case CommandLine::Command::Identities:
      return flash::coordinator::end_of(run_identities(*line));
    case CommandLine::Command::Run:
      break;
  }
  umask(0027);
  return flash::coordinator::run(*line);
}
