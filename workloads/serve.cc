#include "workloads/serve.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <ostream>
#include <thread>
#include <unordered_map>

#include "workloads/histogram.h"
#include "workloads/http.h"
#include "workloads/statsd.h"
#include "workloads/working_set.h"

namespace flash {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto kFlushPeriod = std::chrono::milliseconds(100);
constexpr int kBacklog = 1024;

struct Connection {
  UniqueFd fd;
  std::string input;
  SteadyTime arrived;  // when the newest byte of input reached the kernel
  // EPOLL_CTL_MOD hands the connection to whoever sees its next event. The kernel orders the two, but only
  // this pair of operations says so to the C++ memory model.
  std::atomic<bool> released{true};
};

/// Time since the kernel received the bytes just read; zero where it does not say.
nanoseconds age_of(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      timespec stamp{};
      timespec now{};
      std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
      clock_gettime(CLOCK_REALTIME, &now);
      const auto age =
          std::chrono::seconds(now.tv_sec - stamp.tv_sec) + nanoseconds(now.tv_nsec - stamp.tv_nsec);
      // The wall clock may be set between stamp and read; such an age is no measurement.
      return age > nanoseconds(0) && age < std::chrono::minutes(1) ? age : nanoseconds(0);
    }
  }
  return nanoseconds(0);
}

enum class ReadEnd { WouldBlock, Closed };

ReadEnd read_all(Connection& connection) {
  char buffer[4096];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec)) + 64];
  for (;;) {
    iovec space{buffer, sizeof buffer};
    msghdr message{};
    message.msg_iov = &space;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto size = ::recvmsg(connection.fd.get(), &message, MSG_DONTWAIT);
    if (size < 0) {
      return errno == EAGAIN || errno == EINTR ? ReadEnd::WouldBlock : ReadEnd::Closed;
    }
    if (size == 0) {
      return ReadEnd::Closed;
    }
    connection.input.append(buffer, static_cast<std::size_t>(size));
    connection.arrived = steady_clock::now() - age_of(message);
    if (connection.input.size() > 2 * kHttpHeadMax) {
      return ReadEnd::Closed;  // a flood, not requests
    }
  }
}

class Service {
 public:
  Service(const ServeOptions& options, UniqueFd listener, UniqueFd stop_signals, StatsdEmitter& statsd)
      : options_(options),
        listener_(std::move(listener)),
        stop_signals_(std::move(stop_signals)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        statsd_(statsd),
        memory_(options.memory_mib << 20, 0) {}

  void run_until_stopped() {
    watch(listener_.get(), EPOLLIN, &listener_);
    watch(stop_signals_.get(), EPOLLIN, &stop_signals_);
    std::vector<std::thread> workers;
    for (std::uint64_t i = 0; i < options_.threads; ++i) {
      workers.emplace_back([this, i] { work(i + 1); });
    }
    socket_loop();
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (auto& worker : workers) {
      worker.join();
    }
    statsd_.flush();
  }

  const LatencyHistogram& latency() const { return latency_; }

 private:
  void watch(int fd, std::uint32_t events, void* who) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = who;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }

  void socket_loop() {
    auto next_flush = steady_clock::now() + kFlushPeriod;
    for (;;) {
      epoll_event events[64];
      const int count =
          epoll_wait(epoll_.get(), events, std::size(events), static_cast<int>(kFlushPeriod.count()));
      for (int i = 0; i < count; ++i) {
        void* who = events[i].data.ptr;
        if (who == &stop_signals_) {
          return;
        }
        if (who == &listener_) {
          accept_all();
        } else {
          on_readable(static_cast<Connection*>(who));
        }
      }
      if (const auto now = steady_clock::now(); now >= next_flush) {
        statsd_.flush();
        next_flush = now + kFlushPeriod;
      }
    }
  }

  void accept_all() {
    for (;;) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) {
        return;  // nothing more, or out of descriptors: the next event tries again
      }
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      setsockopt(fd.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
      auto connection = std::make_unique<Connection>();
      connection->fd = std::move(fd);
      Connection* raw = connection.get();
      {
        const std::lock_guard lock(mutex_);
        connections_.emplace(raw, std::move(connection));
      }
      watch(raw->fd.get(), EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, raw);
    }
  }

  void on_readable(Connection* connection) {
    connection->released.load(std::memory_order_acquire);
    const ReadEnd end = read_all(*connection);
    // A request that came together with the end of the stream is still answered (half-closed client).
    if (parse_http_request(connection->input).state != HttpParse::Incomplete) {
      const std::lock_guard lock(mutex_);
      ready_.push_back(connection);
      wake_.notify_one();
    } else if (end == ReadEnd::Closed) {
      close(connection);
    } else {
      rearm(connection);
    }
  }

  void rearm(Connection* connection) {
    connection->released.store(true, std::memory_order_release);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
    event.data.ptr = connection;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection->fd.get(), &event);
  }

  void close(Connection* connection) {
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
  }

  void work(std::uint64_t seed) {
    SegmentScratch scratch;
    scratch.seed = seed;
    for (;;) {
      Connection* connection = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_.load() || !ready_.empty(); });
        if (stop_.load()) {
          return;
        }
        connection = ready_.front();
        ready_.pop_front();
        memory_.touch();
      }
      answer(connection, scratch);
    }
  }

  void answer(Connection* connection, SegmentScratch& scratch) {
    const HttpRequest request = parse_http_request(connection->input);
    const bool usable = request.state == HttpParse::Complete;
    const bool keep_alive = usable && request.keep_alive;
    const bool is_work = usable && request.method == "GET" && request.path == "/work";
    std::string response;
    if (!usable) {
      response = format_http_response(400, "this is not a request of HTTP/1.1 without a body\n", false);
    } else if (request.method != "GET") {
      response = format_http_response(405, "only GET\n", keep_alive);
    } else if (is_work) {
      const auto checksum =
          run_units(*options_.segment, options_.segment->payload_default, options_.work, scratch, stop_);
      response = format_http_response(200, std::to_string(checksum) + "\n", keep_alive);
    } else if (request.path == "/healthz") {
      response = format_http_response(200, "ok\n", keep_alive);
    } else {
      response = format_http_response(404, "GET /work or /healthz\n", keep_alive);
    }
    // A response of some hundred bytes fits the socket's buffer unless the client reads nothing at all.
    const auto sent =
        ::send(connection->fd.get(), response.data(), response.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (is_work) {
      const auto latency = steady_clock::now() - connection->arrived;
      statsd_.record(latency);
      const std::lock_guard lock(mutex_);
      latency_.record(latency);
    }
    if (!keep_alive || sent != static_cast<ssize_t>(response.size())) {
      close(connection);
      return;
    }
    connection->input.erase(0, request.size);
    if (parse_http_request(connection->input).state != HttpParse::Incomplete) {
      const std::lock_guard lock(mutex_);
      ready_.push_back(connection);
    } else {
      rearm(connection);  // the connection may be another thread's from here on
    }
  }

  const ServeOptions& options_;
  UniqueFd listener_;
  UniqueFd stop_signals_;
  UniqueFd epoll_;
  StatsdEmitter& statsd_;

  std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  std::deque<Connection*> ready_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  LatencyHistogram latency_;
  WorkingSet memory_;
};

std::string bound_address(int fd, const Endpoint& wanted) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::uint16_t port = 0;  // sin_port and sin6_port lie at the same place
  std::memcpy(&port, reinterpret_cast<char*>(&address) + offsetof(sockaddr_in, sin_port), sizeof port);
  return wanted.text.substr(0, wanted.text.rfind(':') + 1) + std::to_string(ntohs(port));
}

}  // namespace

ServeOptions::ServeOptions()
    : listen(std::get<Endpoint>(parse_endpoint("127.0.0.1:8080"))), segment(&segments().front()) {}

std::vector<OptionRow> option_rows(ServeOptions& o) {
  return {
      {"--listen", "ADDRESS:PORT", "where to serve (127.0.0.1:8080); port 0 takes a free one",
       parsed_into(o.listen, parse_endpoint)},
      {"--segment", "NAME", "kind of work (floating-point); calibrate lists them",
       parsed_into(o.segment, find_segment)},
      {"--work", "N", "units of work per request (100); calibrate says what 10 ms are",
       integer_into(o.work, 1, 10'000'000)},
      {"--threads", "N", "requests worked on at a time (2)", integer_into(o.threads, 1, 256)},
      {"--statsd", "PATH|ADDRESS:PORT", "listener for latencies and counts (none)", text_into(o.statsd)},
      {"--app", "NAME", "application named in the metrics (flash-workload)",
       parsed_into(o.app, parse_app_name)},
      {"--memory-mib", "N", "working set kept and written in turn (0)",
       integer_into(o.memory_mib, 0, 1U << 20)},
  };
}

int run(const ServeOptions& options, std::ostream& out, std::ostream& err) {
  auto statsd = StatsdEmitter::open(options.statsd, options.app);
  if (auto* error = std::get_if<UsageError>(&statsd)) {
    err << "flash-workload serve: --statsd: " << error->message << "\n";
    return 2;
  }
  auto& emitter = *std::get<std::unique_ptr<StatsdEmitter>>(statsd);
  UniqueFd stop_signals = open_stop_signals();
  UniqueFd listener(
      ::socket(options.listen.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&options.listen.address),
             options.listen.size) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    err << "flash-workload serve: cannot listen on " << options.listen.text << ": " << std::strerror(errno)
        << "\n";
    return 1;
  }
  const std::string address = bound_address(listener.get(), options.listen);
  Service service(options, std::move(listener), std::move(stop_signals), emitter);
  out << "listening on " << address << ", " << options.work << " units of " << options.segment->name
      << " per request" << std::endl;
  service.run_until_stopped();
  const auto& latency = service.latency();
  const auto totals = emitter.totals();
  char line[200];
  std::snprintf(
      line, sizeof line,
      "served %lu requests: p50 %.2f ms, p99 %.2f ms, max %.2f ms; metric packets sent %lu, dropped %lu\n",
      latency.count(), to_ms(latency.percentile(50)), to_ms(latency.percentile(99)), to_ms(latency.max()),
      totals.packets_sent, totals.packets_dropped);
  out << line << std::flush;
  return 0;
}

}  // namespace flash
