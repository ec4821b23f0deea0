// StatsdCollector, the reading of its sockets: how much at once, how much of a core it may take, and who sent it.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectors/statsd_collector.h"

namespace flash {
namespace {

// The kernel accounts a small datagram with about this much (skb and its overhead); used only so that a flood
// of tiny lines costs budget too.
constexpr std::size_t kMinDatagramCost = 64;
/// Waking up costs, too.
constexpr Duration kShortestRest = std::chrono::milliseconds(20);
/// More than is looked at: what the kernel cannot hand over it does not open here either.
constexpr std::size_t kControlBytes =
    CMSG_SPACE(sizeof(std::uint32_t)) + CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(timespec));

}  // namespace

std::size_t StatsdCollector::drain(std::optional<Duration> woke) {
  if (options_.clocks) now_ = options_.clocks();
  left_ = rest() > Duration{};
  if (left_) {
    rested_ = true;
    rested_ago_ = 0;
    return 0;
  }
  if (senders_) follow_door();
  if (options_.cpu) metered_ = woke ? *woke : options_.cpu();
  metering_.reset();
  const Duration before = cost_.all();
  std::size_t taken = 0;
  for (int fd : fds_) taken += drain(fd);
  if (metering_) charge();
  const auto share = std::chrono::duration_cast<Duration>((cost_.all() - before) / kMostReading);
  read_until_ = std::max(read_until_, now_.boot) + share;
  return taken;
}

Duration StatsdCollector::rest() const {
  const auto ahead = std::chrono::duration_cast<Duration>(kMostReadingAtOnce / kMostReading);
  const Duration over = read_until_ - now_.boot - ahead;
  return over > Duration{} ? std::max(over, kShortestRest) : Duration{};
}

/// The CPU time since the last call goes to what was read.
void StatsdCollector::charge() {
  const Duration now = options_.cpu();
  (*metering_ ? cost_.believed : cost_.refused) += std::max(now - metered_, Duration{});
  metered_ = now;
}

void StatsdCollector::meter(bool believed) {
  if (!options_.cpu || metering_ == believed) return;
  if (metering_) charge();
  metering_ = believed;
}

std::size_t StatsdCollector::drain(int fd) {
  std::size_t datagrams = 0, cost = 0;
  while (true) {
    if (datagrams >= options_.max_datagrams_per_drain || cost >= options_.max_bytes_per_drain) {
      left_ = true;
      break;
    }
    alignas(cmsghdr) char control[kControlBytes];
    iovec part{buffer_.data(), buffer_.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0) {
      if (errno == EINTR) continue;
      break;
    }
    ++datagrams;
    cost += std::max(static_cast<std::size_t>(size), kMinDatagramCost);
    std::string_view text(buffer_.data(), static_cast<std::size_t>(size));
    const Origin origin = origin_of(message);
    if (message.msg_flags & MSG_TRUNC) {
      ++counters_.truncated;
      const std::size_t last = text.rfind('\n');
      text = text.substr(0, last == std::string_view::npos ? 0 : last);
    }
    take(origin, text, is_udp(fd));
  }
  return datagrams;
}

StatsdCollector::Origin StatsdCollector::origin_of(const msghdr& message) {
  Origin origin;
  auto* whole = const_cast<msghdr*>(&message);  // CMSG_NXTHDR() wants it so
  for (cmsghdr* c = CMSG_FIRSTHDR(whole); c; c = CMSG_NXTHDR(whole, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    const std::size_t bytes = c->cmsg_len - CMSG_LEN(0);
    if (c->cmsg_type == SO_RXQ_OVFL && bytes >= sizeof(std::uint32_t)) {
      std::uint32_t dropped = 0;  // since the socket was opened
      std::memcpy(&dropped, CMSG_DATA(c), sizeof dropped);
      counters_.dropped = std::max<std::uint64_t>(counters_.dropped, dropped);
    } else if (c->cmsg_type == SCM_CREDENTIALS && bytes >= sizeof(ucred)) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(c), sizeof credentials);
      origin.pid = credentials.pid;
    } else if (c->cmsg_type == SCM_TIMESTAMPNS && bytes >= sizeof(timespec)) {
      timespec at{};
      std::memcpy(&at, CMSG_DATA(c), sizeof at);
      origin.sent =
          std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec) - (now_.wall - now_.boot);
    } else if (c->cmsg_type == SCM_RIGHTS) {
      // Descriptors that nobody asked for would stay open here.
      for (std::size_t i = 0; i + 1 <= bytes / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        ::close(fd);
      }
    }
  }
  return origin;
}

void StatsdCollector::take(const Origin& origin, std::string_view text, bool udp) {
  if (!senders_) {
    meter(true);
    ingest(text);
    return;
  }
  const StatsdSenders::Sender& sender =
      udp ? senders_->nobody() : senders_->find(origin.pid, origin.sent, now_.boot);
  meter(!sender.applications.empty());
  if (sender.applications.empty()) {
    ++counters_.datagrams;
    counters_.bytes += text.size();
    ++counters_.strangers;
    note_stranger(sender, udp, {});
    return;
  }
  if (!senders_->afford(sender, text.size(), now_.boot)) {
    ++counters_.datagrams;
    counters_.bytes += text.size();
    ++counters_.over_budget;
    for (const std::string& name : sender.applications)
      if (const auto app = applications_.find(name); app != applications_.end()) app->second.cut = true;
    note_cut(sender.account.empty() ? "senders that are not known" : sender.account);
    return;
  }
  if (sender.named && !sender.target) admit(sender.cgroup);
  speaker_ = &sender;
  speaker_over_udp_ = udp;
  ingest(text);
  speaker_ = nullptr;
}

}  // namespace flash
