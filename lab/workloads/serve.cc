#include "lab/workloads/serve.h"

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

#include "lab/workloads/histogram.h"
#include "lab/workloads/http.h"
#include "lab/workloads/metrics_page.h"
#include "lab/workloads/report.h"
#include "lab/workloads/request_work.h"
#include "lab/workloads/statsd.h"
#include "lab/workloads/text_file.h"

namespace flash {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto kFlushPeriod = std::chrono::milliseconds(100);
constexpr int kBacklog = 1024;

struct Connection {
  UniqueFd fd;
  std::string input;
  RequestMemory memory;  // of the request that waits or is worked on
  SteadyTime arrived;    // when the newest byte of input reached the kernel
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

std::uint64_t hot_bytes(const Application& application) {
  return static_cast<std::uint64_t>(application.memory_mib * application.hot_share * 1024 * 1024);
}
std::uint64_t cold_bytes(const Application& application) {
  return static_cast<std::uint64_t>(application.memory_mib * 1024 * 1024) - hot_bytes(application);
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
        memory_(hot_bytes(options.application), cold_bytes(options.application)) {}

  void run_until_stopped() {
    watch(listener_.get(), EPOLLIN, &listener_);
    watch(stop_signals_.get(), EPOLLIN, &stop_signals_);
    std::vector<std::thread> workers;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(options_.application.workers); ++i) {
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

  ServiceReport report() const {
    ServiceReport report;
    report.application = options_.application.name;
    report.slo_ms = options_.application.slo_p99_ms;
    report.over_slo = over_slo_;
    report.latency = latency_;
    return report;
  }

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
    const HttpRequest request = parse_http_request(connection->input);
    if (request.state == HttpParse::Complete && request.path == "/metrics") {
      answer(connection, nullptr);  // now: who is overloaded can still say so
    } else if (request.state != HttpParse::Incomplete) {
      take_memory(*connection);
      const std::lock_guard lock(mutex_);
      ready_.push_back(connection);
      wake_.notify_one();
    } else if (end == ReadEnd::Closed) {
      close(connection);
    } else {
      rearm(connection);
    }
  }

  /// Held from here, while the request waits for a worker, until it is answered.
  void take_memory(Connection& connection) const {
    connection.memory =
        RequestMemory(static_cast<std::size_t>(options_.application.memory_per_request_kib * 1024));
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
    RequestWork request_work(options_.application, memory_, seed);
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
      }
      memory_.touch();
      answer(connection, &request_work);
    }
  }

  std::string metrics() {
    const std::lock_guard lock(mutex_);
    return metrics_page(latency_, over_slo_, options_.application.name);
  }

  /// `request_work`: of the calling worker; the thread that reads the sockets has none and does no work.
  void answer(Connection* connection, RequestWork* request_work) {
    const HttpRequest request = parse_http_request(connection->input);
    const bool usable = request.state == HttpParse::Complete;
    const bool keep_alive = usable && request.keep_alive;
    const bool is_work = request_work && usable && request.method == "GET" && request.path == "/work";
    std::string response;
    if (!usable) {
      response = format_http_response(400, "this is not a request of HTTP/1.1 without a body\n", false);
    } else if (request.method != "GET") {
      response = format_http_response(405, "only GET\n", keep_alive);
    } else if (is_work) {
      const auto checksum = request_work->run(stop_);
      response = format_http_response(200, std::to_string(checksum) + "\n", keep_alive);
    } else if (request.path == "/healthz") {
      response = format_http_response(200, "ok\n", keep_alive);
    } else if (request.path == "/metrics") {
      response = format_http_response(200, metrics(), keep_alive);
    } else {
      response = format_http_response(404, "GET /work, /healthz or /metrics\n", keep_alive);
    }
    // A response of some hundred bytes fits the socket's buffer unless the client reads nothing at all.
    const auto sent =
        ::send(connection->fd.get(), response.data(), response.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (is_work) {
      const auto latency = steady_clock::now() - connection->arrived;
      statsd_.record(latency);
      const std::lock_guard lock(mutex_);
      latency_.record(latency);
      const double slo_ms = options_.application.slo_p99_ms;
      over_slo_ += slo_ms > 0 && to_ms(latency) > slo_ms;
    }
    connection->memory = RequestMemory();
    if (!keep_alive || sent != static_cast<ssize_t>(response.size())) {
      close(connection);
      return;
    }
    connection->input.erase(0, request.size);
    if (parse_http_request(connection->input).state != HttpParse::Incomplete) {
      take_memory(*connection);
      const std::lock_guard lock(mutex_);
      ready_.push_back(connection);
      wake_.notify_one();
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
  std::uint64_t over_slo_ = 0;

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

ServeOptions::ServeOptions() : listen(std::get<Endpoint>(parse_endpoint("127.0.0.1:8080"))) {
  const Segment& first = segments().front();
  application.name = "flash-workload";
  application.segments = {{&first, static_cast<double>(first.payload_default), 100}};
  application.memory_mib = 0;
  application.hot_share = 1;
  application.service_cv = 0;
  application.slo_p99_ms = 0;
}

std::vector<OptionRow> option_rows(ServeOptions& o) {
  const auto one_segment = [&o](const Segment* segment, int count) {
    o.application.segments = {{segment, static_cast<double>(segment->payload_default), count}};
  };
  return {
      {"--listen", "ADDRESS:PORT", "where to serve (127.0.0.1:8080); port 0 takes a free one",
       parsed_into(o.listen, parse_endpoint)},
      {"--application", "FILE[#NAME]", "what to be, as generate writes it; later options change it",
       parsed_into(o.application, read_application)},
      {"--segment", "NAME", "only this kind of work (floating-point); calibrate lists them",
       [&o, one_segment](std::string_view text) -> Applied {
         const Segment* segment = nullptr;
         if (auto error = parsed_into(segment, find_segment)(text)) {
           return error;
         }
         one_segment(segment, o.application.segments.front().count);
         return std::nullopt;
       }},
      {"--work", "N", "units of that work per request (100); calibrate says what 10 ms are",
       [&o, one_segment](std::string_view text) -> Applied {
         int count = 0;
         if (auto error = integer_into(count, 1, 10'000'000)(text)) {
           return error;
         }
         one_segment(o.application.segments.front().segment, count);
         return std::nullopt;
       }},
      {"--threads", "N", "requests worked on at a time (2)", integer_into(o.application.workers, 1, 256)},
      {"--statsd", "PATH|ADDRESS:PORT", "listener for latencies and counts (none)", text_into(o.statsd)},
      {"--app", "NAME", "application named in the metrics (flash-workload)",
       parsed_into(o.application.name, parse_app_name)},
      {"--memory-mib", "N", "working set kept and written in turn (0)",
       [&o](std::string_view text) -> Applied {
         o.application.hot_share = 1;
         return real_into(o.application.memory_mib, 0, 1 << 20)(text);
       }},
      {"--service-cv", "X", "coefficient of variation of a request's work (0)",
       real_into(o.application.service_cv, 0, 5)},
      {"--json", "FILE", "write a report with the latency histogram there at the end; - for standard output",
       text_into(o.json)},
  };
}

int run(const ServeOptions& options, std::ostream& out, std::ostream& err) {
  auto statsd = StatsdEmitter::open(options.statsd, options.application.name);
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
  const RequestCost cost = request_cost(options.application);
  // With the report on standard output, lines for people would spoil it.
  std::ostream& lines = options.json == "-" ? err : out;
  char about[160];
  std::snprintf(about, sizeof about, ", %d workers; a request takes about %.2f ms of CPU and waits %.2f ms",
                options.application.workers, 1e3 * (cost.cycles / kReferenceHz + cost.stall_s),
                1e3 * cost.off_cpu_s);
  lines << "listening on " << address << about << std::endl;
  service.run_until_stopped();
  ServiceReport report = service.report();
  const auto totals = emitter.totals();
  report.packets_sent = totals.packets_sent;
  report.packets_dropped = totals.packets_dropped;
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  report.cpu_s = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9;
  lines << summary_text(report) << std::flush;
  if (!options.json.empty()) {
    if (auto error = write_text(options.json, report_json(report), out)) {
      err << "flash-workload serve: " << error->message << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace flash
