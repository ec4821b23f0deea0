// flash-sync: the only process of flashd's with network: scrapes applications' metrics, serves flashd's own,
// reports to the coordinator.
// flash-sync(8).
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "coordinator/messages_enrol.h"
#include "core/printable.h"
#include "core/process.h"
#include "core/service_log.h"
#include "http/endpoint.h"
#include "http/metrics_text.h"
#include "sync/bus_service.h"
#include "sync/command_line.h"
#include "sync/metrics_page.h"
#include "sync/node_identity.h"
#include "sync/scraper.h"
#include "sync/session.h"
#include "sync/uplink.h"
#include "sync/version.h"

namespace flash::sync {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

/// systemd's watchdog, fed by the loop itself.
class Watchdog {
 public:
  Watchdog() {
    std::uint64_t us = 0;
    if (sd_watchdog_enabled(0, &us) > 0) every_ = std::chrono::microseconds(us / 3);
  }
  Duration feed(Duration now) {
    if (every_ == Duration{}) return std::chrono::seconds(60);
    if (now - fed_ >= every_) {
      sd_notify(0, "WATCHDOG=1");
      fed_ = now;
    }
    return every_;
  }

 private:
  Duration every_{}, fed_{};
};

/// The host's name up to its first dot, as a node may be called.
Result<std::string> host_name() {
  char text[256] = "";
  if (gethostname(text, sizeof text - 1) != 0) return Error::from_errno(errno, "gethostname");
  const std::string name(text, std::strcspn(text, "."));
  if (coordinator::is_token(name)) return name;
  return Error(std::errc::invalid_argument, "'" + name + "' is no name for a node: give one with --node");
}

/// For systemd's status line.
std::string words_of(const UplinkState& s) {
  return (s.connected ? "NATS connected" : "NATS away") +
         (s.trouble.empty() ? std::string() : ": " + s.trouble);
}

/// What flashd's own metrics say of it.
NodeStatus node_status(const std::vector<link::sync::Family>& families) {
  NodeStatus s;
  double agents = 0;
  for (const link::sync::Family& f : families)
    for (std::size_t i = 0; i < f.values.size(); ++i) {
      const std::string label = f.labels.empty() ? "" : f.label_values[i * f.labels.size()];
      if (f.name == "flashd_build") s.flashd = label;
      if (f.name == "flashd_mode" && f.values[i] == 1) s.mode = label;
      if (f.name == "flashd_agents") agents += f.values[i];
    }
  s.agents = static_cast<std::uint64_t>(std::clamp(agents, 0.0, 1e6));
  return s;
}

void say_uplink(const UplinkState& s, OwnState& own) {
  own.nats_connected = s.connected;
  own.published = static_cast<double>(s.published);
  own.violations = static_cast<double>(s.violations);
  own.outbox_records = static_cast<double>(s.outbox.waiting);
  own.taken = static_cast<double>(s.outbox.taken);
  own.confirmed = static_cast<double>(s.outbox.confirmed);
  own.thinned = static_cast<double>(s.outbox.thinned);
  own.nearest_asked = static_cast<double>(s.nearest_asked);
  own.nearest_answered = static_cast<double>(s.nearest_answered);
  own.refused = static_cast<double>(s.refused);
  own.models = s.models;
}

void say_uplink(const UplinkState& s, BusState& bus) {
  bus.connected = s.connected;
  bus.published = s.published;
  bus.outbox = s.outbox.waiting;
  bus.taken = s.outbox.taken;
  bus.confirmed = s.outbox.confirmed;
  bus.thinned = s.outbox.thinned;
  bus.last_watermark_us = s.last_watermark_us;
  bus.trouble = s.trouble;
}

int enroll_node(const CommandLine& line) {
  std::string token = line.token;
  if (token == "-" && !std::getline(std::cin, token)) token.clear();
  const auto identity = enroll(token, line.identity);
  if (!identity) {
    flash::print_line(stderr, "flash-sync: not enrolled: " + identity.error().message());
    return kExitFailure;
  }
  std::printf("enrolled as %s at %s; next: systemctl restart flash-sync\n", identity->origin.node.c_str(),
              identity->nats.url.c_str());
  return 0;
}

class Program {
 public:
  explicit Program(const CommandLine& line) : line_(line), log_("flash-sync", line.log_level) {}
  ~Program() {
    if (signals_ >= 0) close(signals_);
  }
  int run();

 private:
  Result<void> start();
  Result<void> use_identity();
  Result<void> start_uplink(const Random& random);
  void scrapes(const std::vector<link::sync::Scrape>& wanted);
  void reading(const link::sync::Reading& r);
  void metrics(std::vector<link::sync::Family> families);
  Duration ask_for_metrics(Duration now);
  http::Response answer(const http::Request& request) const;
  std::string page(http::PageFormat format) const;
  void write_page();
  void say_status();
  BusState bus_state() const;

  CommandLine line_;
  ServiceLog log_;
  int signals_ = -1;
  std::unique_ptr<Scraper> scraper_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<http::Endpoint> endpoint_;
  std::unique_ptr<Uplink> uplink_;  // none without --nats
  std::unique_ptr<BusService> bus_;
  std::vector<link::sync::Family> flashd_;
  Duration flashd_at_{};
  Duration ask_at_{};
  bool written_ = false;
  std::string said_status_, said_write_;
};

Result<void> Program::start() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGINT);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals_ < 0) return Error::from_errno(errno, "signalfd");

  const Random random(random_seed());
  FLASH_CHECK(use_identity());
  if (!line_.nats.url.empty()) FLASH_CHECK(start_uplink(random));
  SessionOptions options;
  options.socket = line_.socket;
  options.software = std::string("flash-sync ") + kVersion;
  if (!line_.flashd_user.empty()) {
    const passwd* entry = getpwnam(line_.flashd_user.c_str());
    if (!entry) return Error(std::errc::invalid_argument, "no user '" + line_.flashd_user + "'");
    options.flashd_uid = entry->pw_uid;
  }
  SessionCallbacks callbacks;
  callbacks.scrapes = [this](const auto& wanted) { scrapes(wanted); };
  callbacks.metrics = [this](auto families) { metrics(std::move(families)); };
  callbacks.say = log_;
  if (uplink_)
    callbacks.episode = [this](std::uint64_t epoch, const auto& e) { return uplink_->put(epoch, e); };
  session_ = std::make_unique<Session>(std::move(options), std::move(callbacks), random.fork(1));
  ScraperOptions scraping;
  scraping.user_agent = std::string("flash-sync/") + kVersion;
  FLASH_TRY(scraper_,
            Scraper::open(std::move(scraping), random.fork(2), [this](const auto& r) { reading(r); }));
  if (!line_.listen.empty()) {
    FLASH_TRY(endpoint_,
              http::Endpoint::open(line_.listen, [this](const http::Request& r) { return answer(r); }));
    log_(LOG_INFO, "serving http://" + endpoint_->address() + "/metrics");
  }
  bus_ = std::make_unique<BusService>(
      BusCallbacks{[this] { return bus_state(); },
                   [this](const auto& question) { return uplink_ && uplink_->ask(question); }, log_});
  return {};
}

/// What enrolment made, unless the operator names a server.
Result<void> Program::use_identity() {
  if (!line_.nats.url.empty()) return {};
  FLASH_TRY(const auto identity, read_identity(line_.identity));
  if (!identity) return {};
  line_.nats = identity->nats;
  line_.origin = identity->origin;
  return {};
}

Result<void> Program::start_uplink(const Random& random) {
  UplinkOptions options;
  options.nats = line_.nats;
  options.nats.name = std::string("flash-sync ") + kVersion;
  options.origin = line_.origin;
  options.software = options.nats.name;
  options.outbox = line_.outbox;
  options.max_records = line_.outbox_records;
  options.models.directory = line_.models;
  options.models.keys = line_.model_keys;
  options.models.software = kVersion;
  options.models.every = from_seconds(line_.models_interval_s);
  if (options.origin.node.empty()) {
    FLASH_TRY(options.origin.node, host_name());
  }
  // Answers go nowhere else.
  options.nats.inbox_prefix = coordinator::inbox_prefix(options.origin.node);
  line_.origin = options.origin;
  FLASH_TRY(uplink_, Uplink::open(std::move(options), random.fork(3), log_));
  return {};
}

void Program::scrapes(const std::vector<link::sync::Scrape>& wanted) {
  scraper_->set(clock_now(CLOCK_MONOTONIC), wanted);
  log_(LOG_INFO, "scraping " + std::to_string(wanted.size()) + " metrics pages");
  if (wanted.empty() && !session_->connected()) {
    flashd_.clear();  // nothing there is true any more
    if (uplink_) uplink_->set_status({});
    write_page();
  }
  ask_at_ = {};
}

void Program::reading(const link::sync::Reading& r) {
  if (!r.reason.empty())
    log_(LOG_DEBUG, "rule " + r.rule + ": " + std::string(to_string(r.state)) + ": " + r.reason);
  session_->send(r);
}

void Program::metrics(std::vector<link::sync::Family> families) {
  flashd_ = std::move(families);
  flashd_at_ = clock_now(CLOCK_MONOTONIC);
  if (uplink_) uplink_->set_status(node_status(flashd_));
  write_page();
}

Duration Program::ask_for_metrics(Duration now) {
  if (!session_->connected()) return std::chrono::seconds(60);
  if (now >= ask_at_) {
    session_->want_metrics();
    ask_at_ = now + from_seconds(line_.metrics_interval_s);
  }
  return ask_at_ - now;
}

http::Response Program::answer(const http::Request& request) const {
  if (request.target.path != std::vector<std::string>{"metrics"})
    return {.status = 404, .body = "GET /metrics\n", .headers = {}};
  const http::PageFormat format = http::format_for(request.accept);
  return {.type = std::string(http::content_type(format)), .body = page(format), .headers = {}};
}

std::string Program::page(http::PageFormat format) const {
  OwnState own;
  own.connected = session_->connected();
  own.scrapes = static_cast<double>(scraper_->size());
  const ScraperCounters& c = scraper_->counters();
  own.pages = static_cast<double>(c.pages);
  own.unreachable = static_cast<double>(c.unreachable);
  own.invalid = static_cast<double>(c.invalid);
  own.bytes = static_cast<double>(c.bytes);
  own.without_turn = static_cast<double>(c.without_turn);
  own.cpu_seconds = seconds(clock_now(CLOCK_PROCESS_CPUTIME_ID));
  own.rss_bytes = resident_bytes();
  if (uplink_) say_uplink(uplink_->state(), own);
  if (!flashd_.empty()) own.metrics_age_s = seconds(clock_now(CLOCK_MONOTONIC) - flashd_at_);
  std::vector<link::sync::Family> all = flashd_;
  for (auto& family : own_families(own, kVersion)) all.push_back(std::move(family));
  return http::render(all, format);
}

void Program::write_page() {
  if (line_.textfile.empty()) return;
  auto written = write_textfile(line_.textfile, page(http::PageFormat::Prometheus));
  const std::string trouble = written ? "" : written.error().message();
  if (trouble != said_write_ && !trouble.empty()) log_(LOG_WARNING, "no textfile: " + trouble);
  said_write_ = trouble;
  written_ = written_ || written;
}

void Program::say_status() {
  const std::string status = session_->state() + ", " + std::to_string(scraper_->size()) + " pages scraped" +
                             (uplink_ ? ", " + words_of(uplink_->state()) : "");
  if (status == said_status_) return;
  said_status_ = status;
  sd_notify(0, ("STATUS=" + status).c_str());
}

BusState Program::bus_state() const {
  BusState bus;
  bus.version = kVersion;
  bus.flashd_connected = session_->connected();
  bus.configured = uplink_ != nullptr;
  if (!uplink_) return bus;
  bus.server = line_.nats.url;
  bus.node = line_.origin.node;
  bus.pool = line_.origin.pool;
  say_uplink(uplink_->state(), bus);
  return bus;
}

int Program::run() {
  if (auto started = start(); !started) {
    log_(LOG_ERR, started.error().message());
    sd_notify(0, ("STATUS=" + started.error().message()).c_str());
    return started.error().is(std::errc::invalid_argument) ? kExitUsage : kExitFailure;
  }
  sd_notify(0, "READY=1");
  Watchdog watchdog;
  while (true) {
    const Now now = read_clocks();
    scraper_->perform(now.mono);
    Duration longest = watchdog.feed(now.mono);
    longest = std::min(longest, ask_for_metrics(now.mono));
    longest = std::min(longest, session_->run(now));
    longest = std::min(longest, scraper_->start_due(now.mono));
    if (endpoint_) longest = std::min(longest, endpoint_->run(now.mono));
    if (uplink_) {
      for (const auto& s : uplink_->stored()) session_->episodes_stored(s.epoch, s.number);
      for (const auto& pair : uplink_->nearest()) session_->send(pair);
      for (const auto& page : uplink_->pages()) bus_->answered(page);
    }
    say_status();
    longest = std::min(longest, bus_->run(now.mono));
    std::array<pollfd, 7> fds{};
    std::size_t n = 0;
    fds[n++] = {signals_, POLLIN, 0};
    if (session_->fd() >= 0)
      fds[n++] = {session_->fd(), static_cast<short>(POLLIN | (session_->wants_to_write() ? POLLOUT : 0)), 0};
    if (endpoint_) fds[n++] = {endpoint_->fd(), POLLIN, 0};
    if (uplink_) {
      fds[n++] = {uplink_->fd(), POLLIN, 0};
      fds[n++] = {uplink_->nearest_fd(), POLLIN, 0};
      fds[n++] = {uplink_->pages_fd(), POLLIN, 0};
    }
    if (bus_->fd() >= 0) fds[n++] = {bus_->fd(), bus_->events(), 0};
    scraper_->wait({fds.data(), n}, longest);
    if (fds[0].revents != 0) break;
  }
  sd_notify(0, "STOPPING=1");
  // What is not written any more must not be taken for the present.
  if (written_) unlink(line_.textfile.c_str());
  return 0;
}

}  // namespace
}  // namespace flash::sync

int main(int argc, char** argv) {
  using flash::sync::CommandLine;
  auto line = flash::sync::parse_command_line(flash::words_of(argc, argv));
  if (!line) {
    flash::print_line(stderr, "flash-sync: " + line.error().message());
    flash::print_text(stderr, "Try 'flash-sync --help'.\n");
    return flash::sync::kExitUsage;
  }
  switch (line->command) {
    case CommandLine::Command::Help:
      std::fputs(flash::sync::help_text().c_str(), stdout);
      return 0;
    case CommandLine::Command::Version:
      std::printf("flash-sync %s\n", flash::kVersion);
      return 0;
    case CommandLine::Command::Enroll:
      return flash::sync::enroll_node(*line);
    case CommandLine::Command::Run:
      break;
  }
  umask(0022);
  return flash::sync::Program(*line).run();
}
