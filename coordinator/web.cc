#include "coordinator/web.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "coordinator/site.h"
#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr Duration kFresh = std::chrono::seconds(1);  // a view is good for so long
constexpr unsigned kConnections = 256;

double bytes_of(const std::string& path) {
  struct stat s {};
  return stat(path.c_str(), &s) == 0 ? static_cast<double>(s.st_size) : 0;
}

}  // namespace

Web::Web(WebOptions options, LogSink say) : options_(std::move(options)), say_(std::move(say)) {}

Result<std::unique_ptr<Web>> Web::open(WebOptions options, LogSink say) {
  auto web = std::unique_ptr<Web>(new Web(std::move(options), std::move(say)));
  FLASH_TRY(web->endpoint_,
            http::Endpoint::open(
                web->options_.listen, [w = web.get()](const http::Request& r) { return w->answer(r); },
                {.loopback_only = false, .names = web->options_.names, .connections = kConnections}));
  web->ending_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (web->ending_ < 0) return Error::from_errno(errno, "eventfd");
  web->thread_ = std::thread([w = web.get()] { w->work(); });
  return web;
}

Web::~Web() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    (void)!write(ending_, &one, sizeof one);
    thread_.join();
  }
  if (ending_ >= 0) close(ending_);
}

void Web::set(LiveState live) {
  const std::lock_guard lock(mutex_);
  live_ = std::move(live);
}

void Web::work() {
  while (true) {
    const Duration longest =
        std::min<Duration>(endpoint_->run(clock_now(CLOCK_MONOTONIC)), std::chrono::seconds(60));
    std::array<pollfd, 2> fds = {pollfd{ending_, POLLIN, 0}, pollfd{endpoint_->fd(), POLLIN, 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(longest).count();
    poll(fds.data(), fds.size(), static_cast<int>(ms));
    if (fds[0].revents != 0) return;
  }
}

Result<void> Web::refresh() {
  const Duration now = clock_now(CLOCK_MONOTONIC);
  if (view_ && now - read_at_ < kFresh) return {};
  if (!view_) {
    FLASH_TRY(view_, FleetView::open(options_.store));
  }
  LiveState live;
  {
    const std::lock_guard lock(mutex_);
    live = live_;
  }
  FLASH_CHECK(view_->refresh(clock_now(CLOCK_REALTIME).count() / 1000, live));
  read_at_ = clock_now(CLOCK_MONOTONIC);
  return {};
}

http::Response Web::answer(const http::Request& request) {
  ++requests_;
  if (auto page = page_answer(request.target)) return std::move(*page);
  if (auto done = refresh(); !done) {
    const std::string why = done.error().message();
    if (why != said_) say_(LOG_WARNING, "cannot show the fleet: " + why);
    said_ = why;
    view_.reset();
    return unavailable(why);
  }
  said_.clear();
  return fleet_site(*view_, own_state(), request);
}

OwnState Web::own_state() const {
  OwnState own;
  own.store_bytes = bytes_of(options_.store) + bytes_of(options_.store + "-wal");
  own.requests = static_cast<double>(requests_);
  own.cpu_seconds = seconds(clock_now(CLOCK_PROCESS_CPUTIME_ID));
  own.rss_bytes = resident_bytes();
  return own;
}

}  // namespace flash::coordinator
