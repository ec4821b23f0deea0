#include "link/peer.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

namespace flash::link {
namespace {

constexpr Duration kListenRetry = std::chrono::seconds(5);

}  // namespace

// --- server ---------------------------------------------------------------------------------------------

Server::Server(Bounds bounds) : bounds_(bounds), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

void Server::watch(int fd, int op, std::uint32_t events) const {
  epoll_event e = {};
  e.events = events;
  e.data.fd = fd;
  (void)epoll_ctl(epoll_.get(), op, fd, &e);
}

bool Server::listen(Now now, const std::string& path, std::optional<gid_t> group) {
  listen_at_ = now.mono + kListenRetry;
  auto opened = Listener::listen(path, group);
  if (!opened) {
    const bool news = trouble_ != opened.error().message();
    trouble_ = opened.error().message();
    return !news;
  }
  trouble_.clear();
  listener_ = std::move(*opened);
  deaf_ = false;
  watch(listener_->fd(), EPOLL_CTL_ADD, EPOLLIN);
  return true;
}

void Server::stop_listening() {
  listener_.reset();
  listen_at_ = {};
}

Server::Arrival Server::accept(Now now, const std::function<std::string(const Connection&)>& judge) {
  if (!listener_ || deaf_) return {};
  if (!arrivals_.has(now, bounds_.peers_per_s)) {
    deaf_ = true;
    watch(listener_->fd(), EPOLL_CTL_MOD, 0);
    return {};
  }
  auto accepted = listener_->accept();
  if (!accepted) {
    // Without descriptors accept() fails while the peer waits: closing the listener ends the busy loop.
    listener_.reset();
    listen_at_ = now.mono + kListenRetry;
    return {Door::Trouble, accepted.error().message()};
  }
  if (!*accepted) return {};
  (void)arrivals_.take(now, bounds_.peers_per_s);
  Connection peer = std::move(**accepted);
  if (std::string why = judge(peer); !why.empty()) return {Door::Refused, std::move(why)};
  if (connection_.open()) {
    const auto who = peer.peer();
    return {Door::OneTooMany, std::to_string(who ? who->pid : 0)};
  }
  if (now.mono < refuse_until_) return {Door::TooEarly, {}};
  connection_ = std::move(peer);
  connected_at_ = now.mono;
  said_.reset();
  watched_ = EPOLLIN;
  watch(connection_.fd(), EPOLL_CTL_ADD, watched_);
  return {Door::In, {}};
}

void Server::hear_again() {
  if (!deaf_ || !listener_) return;
  deaf_ = false;
  watch(listener_->fd(), EPOLL_CTL_MOD, EPOLLIN);
}

void Server::rearm(bool reading, bool writing) {
  if (!connection_.open()) return;
  const std::uint32_t events = (reading ? static_cast<std::uint32_t>(EPOLLIN) : 0u) |
                               (writing ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
  if (events == watched_) return;
  watch(connection_.fd(), EPOLL_CTL_MOD, events);
  watched_ = events;
}

// --- client ---------------------------------------------------------------------------------------------

Client::Client(Options options, Random random)
    : options_(std::move(options)), random_(random), retry_(options_.retry_first) {}

void Client::later(Now now) {
  // Half to all of the interval: clients of a fleet, or restarts, do not fall into step.
  retry_at_ = now.mono + from_seconds(seconds(retry_) * random_.uniform(0.5, 1));
  retry_ = std::min(retry_ * 2, options_.retry_longest);
}

Client::Attempt Client::connect(Now now) {
  if (open() || now.mono < retry_at_) return {};
  later(now);
  auto connection = Connection::connect(options_.socket);
  if (!connection) return {Way::Unreachable, connection.error().message()};
  const auto peer = connection->peer();
  if (!peer) return {Way::NotTrusted, peer.error().message()};
  if (peer->uid != 0 && peer->uid != geteuid() && peer->uid != options_.listener)
    return {Way::NotTrusted, "the listener runs as user " + std::to_string(peer->uid) + ", not as root"};
  connection_ = std::move(*connection);
  connected_at_ = now.mono;
  return {Way::Connected, {}};
}

void Client::close(Now now) {
  connection_.close();
  later(now);
}

}  // namespace flash::link
