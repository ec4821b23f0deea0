#include "lab/workloads/load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <ostream>

#include "lab/workloads/application.h"
#include "lab/workloads/http.h"
#include "lab/workloads/report.h"
#include "lab/workloads/text_file.h"

namespace flash {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto kReconnectPause = std::chrono::milliseconds(100);
constexpr auto kLongestWait = std::chrono::milliseconds(100);
/// How long after the last arrival answers are waited for.
constexpr auto kDrain = std::chrono::seconds(2);

enum class ChannelState { Closed, Connecting, Idle, Busy };

struct Due {
  SteadyTime intended;
  bool again = false;  // the connection on which it was sent before was closed at that moment
};

struct Channel {
  UniqueFd fd;
  ChannelState state = ChannelState::Closed;
  Due request;           // under way
  SteadyTime reopen_at;  // when closed
  HttpResponseReader answer;
};

std::string words_of_error(int error) {
  return error == 0 ? "a connection closed without an answer" : std::strerror(error);
}

class Generator {
 public:
  Generator(const LoadOptions& options, const Endpoint& server, UniqueFd stop_signals, RunRecorder& recorder)
      : options_(options),
        server_(server),
        stop_signals_(std::move(stop_signals)),
        recorder_(recorder),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        schedule_(options.trace, options.seconds, options.arrivals, options.seed, options.burst),
        channels_(options.connections),
        request_(format_http_request(options.target.host_field, options.target.path)),
        start_(steady_clock::now()) {}

  /// Returns the seconds that the arrivals took.
  double run() {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = nullptr;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_signals_.get(), &event);
    const auto duration =
        std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(options_.seconds));
    const auto end = start_ + duration;
    next_arrival();
    bool stopped = false;
    while (!stopped) {
      const auto now = steady_clock::now();
      take_due_arrivals(now);
      drop_expired(now);
      send_waiting(now);
      if (now >= end && (now >= end + kDrain || (waiting_.empty() && busy_ == 0))) {
        break;
      }
      stopped = wait_for_events(now, end);
    }
    const auto now = steady_clock::now();
    // What is unanswered at the end was offered and is accounted for.
    for (std::size_t i = 0; i < waiting_.size() + busy_; ++i) {
      recorder_.dropped(since_start(now));
    }
    recorder_.advance(since_start(now));
    return std::min(since_start(now), options_.seconds);
  }

  double since_start(SteadyTime now) const { return std::chrono::duration<double>(now - start_).count(); }

 private:
  void next_arrival() {
    const auto t_s = schedule_.next();
    has_arrival_ = t_s.has_value();
    if (has_arrival_) {
      arrival_ = start_ + std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(*t_s));
    }
  }

  void take_due_arrivals(SteadyTime now) {
    while (has_arrival_ && arrival_ <= now) {
      recorder_.offered(since_start(now));
      waiting_.push_back({arrival_});
      next_arrival();
    }
  }

  void drop_expired(SteadyTime now) {
    const auto limit = std::chrono::duration<double, std::milli>(options_.drop_after_ms);
    while (!waiting_.empty() && now - waiting_.front().intended > limit) {
      recorder_.dropped(since_start(now));
      waiting_.pop_front();
    }
  }

  void send_waiting(SteadyTime now) {
    for (auto& channel : channels_) {
      if (channel.state == ChannelState::Closed && channel.reopen_at <= now) {
        open(channel, now);
      }
    }
    for (auto& channel : channels_) {
      if (waiting_.empty()) {
        return;
      }
      if (channel.state == ChannelState::Idle) {
        send_request(channel, now);
      }
    }
  }

  void open(Channel& channel, SteadyTime now) {
    channel.fd = UniqueFd(::socket(server_.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(channel.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    channel.state = ChannelState::Connecting;
    const int rc =
        ::connect(channel.fd.get(), reinterpret_cast<const sockaddr*>(&server_.address), server_.size);
    if (rc != 0 && errno != EINPROGRESS) {
      fail(channel, now, words_of_error(errno));
      return;
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = &channel;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel.fd.get(), &event);
  }

  void close(Channel& channel, SteadyTime reopen_at) {
    channel.fd.reset();
    channel.answer = {};
    channel.state = ChannelState::Closed;
    channel.reopen_at = reopen_at;
  }

  /// Something went wrong on the connection, and so for the request that is under way on it.
  void fail(Channel& channel, SteadyTime now, std::string_view why) {
    if (channel.state == ChannelState::Busy) {
      --busy_;
      recorder_.failed(since_start(now), why);
    } else if (channel.state == ChannelState::Connecting && !waiting_.empty()) {
      // Refused: the request that would have used this connection has failed, else a dead service would
      // show as drops only, seconds later.
      waiting_.pop_front();
      recorder_.failed(since_start(now), why);
    }
    close(channel, now + kReconnectPause);
  }

  /// A server may close a connection that is kept while a request is on its way to it: that says nothing of
  /// the request, which goes on another one, once (RFC 9112, 9.3.1). Its time counts from where it did.
  void send_again(Channel& channel, SteadyTime now) {
    --busy_;
    waiting_.push_front({channel.request.intended, true});
    close(channel, now);
  }

  void send_request(Channel& channel, SteadyTime now) {
    channel.request = waiting_.front();
    waiting_.pop_front();
    channel.state = ChannelState::Busy;
    ++busy_;
    const auto sent = ::send(channel.fd.get(), request_.data(), request_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(request_.size())) {
      ended(channel, now, sent < 0 ? errno : EMSGSIZE);
    }
  }

  bool wait_for_events(SteadyTime now, SteadyTime end) {
    SteadyTime until = std::min(now + kLongestWait, now < end ? end : end + kDrain);
    if (has_arrival_) {
      until = std::min(until, arrival_);
    }
    const auto wait = std::max(nanoseconds(until - now), nanoseconds(0));
    const timespec timeout{0, static_cast<long>(wait.count())};  // kLongestWait is below a second
    epoll_event events[64];
    const int count = epoll_pwait2(epoll_.get(), events, std::size(events), &timeout, nullptr);
    const auto woken = steady_clock::now();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) {
        return true;
      }
      on_event(*static_cast<Channel*>(events[i].data.ptr), events[i].events, woken);
    }
    return false;
  }

  void on_event(Channel& channel, std::uint32_t events, SteadyTime now) {
    if (channel.state == ChannelState::Connecting && (events & (EPOLLERR | EPOLLHUP)) == 0 &&
        (events & EPOLLOUT)) {
      channel.state = ChannelState::Idle;
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
      receive(channel, now);
    }
  }

  void receive(Channel& channel, SteadyTime now) {
    char buffer[16'384];
    while (channel.state != ChannelState::Closed) {
      const auto size = ::recv(channel.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (size > 0) {
        take(channel, std::string_view(buffer, static_cast<std::size_t>(size)), now);
      } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended(channel, now, size == 0 ? 0 : errno);
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  void take(Channel& channel, std::string_view bytes, SteadyTime now) {
    if (channel.state != ChannelState::Busy) {
      close(channel, now + kReconnectPause);  // what nobody asked for
      return;
    }
    const auto taken = channel.answer.read(bytes);
    if (channel.answer.state() == HttpParse::Malformed) {
      fail(channel, now, channel.answer.trouble());
    } else if (channel.answer.state() == HttpParse::Complete) {
      answered(channel, now, taken == bytes.size());
    }
  }

  /// The connection came to its end: in order, or with an error.
  void ended(Channel& channel, SteadyTime now, int error) {
    if (channel.state != ChannelState::Busy) {
      fail(channel, now, words_of_error(error));
      return;
    }
    if (!channel.answer.begun() && !channel.request.again) {
      send_again(channel, now);
      return;
    }
    if (error == 0) {
      channel.answer.end_of_stream();
      if (channel.answer.state() == HttpParse::Complete) {
        answered(channel, now, false);
      } else {
        fail(channel, now, channel.answer.trouble());
      }
      return;
    }
    fail(channel, now, words_of_error(error));
  }

  void answered(Channel& channel, SteadyTime now, bool in_step) {
    --busy_;
    channel.state = ChannelState::Idle;
    const int status = channel.answer.status();
    if (status / 100 == 2) {
      recorder_.completed(since_start(now), now - channel.request.intended);
    } else {
      recorder_.failed(since_start(now), "status " + std::to_string(status));
    }
    if (in_step && channel.answer.keep_alive()) {
      channel.answer = {};
    } else {
      close(channel, now);
    }
  }

  const LoadOptions& options_;
  const Endpoint& server_;
  UniqueFd stop_signals_;
  RunRecorder& recorder_;
  UniqueFd epoll_;
  ArrivalSchedule schedule_;
  std::vector<Channel> channels_;
  std::string request_;
  SteadyTime start_;
  bool has_arrival_ = false;
  SteadyTime arrival_;
  std::deque<Due> waiting_;  // due, not yet sent
  std::size_t busy_ = 0;
};

Applied take_application(std::string_view text, LoadOptions& o) {
  Application application;
  if (auto error = parsed_into(application, read_application)(text)) {
    return error;
  }
  if (auto error = parsed_into(o.trace, Trace::parse)(application.trace)) {
    return UsageError{"trace of " + application.name + ": " + error->message};
  }
  o.burst = application.burst;
  o.slo_ms = application.slo_p99_ms;
  o.arrivals = Arrivals::Poisson;
  return std::nullopt;
}

}  // namespace

LoadOptions::LoadOptions() : target(std::get<LoadTarget>(parse_load_target("127.0.0.1:8080"))) {}

std::vector<OptionRow> option_rows(LoadOptions& o) {
  static const std::string trace_help = "load over time: " + describe_traces();
  return {
      {"--target", "URL",
       "http://HOST[:PORT]/PATH to ask for, or HOST:PORT of a flash-workload serve (127.0.0.1:8080)",
       parsed_into(o.target, parse_load_target)},
      {"--application", "FILE[#NAME]",
       "its trace, bursts and objective, with poisson arrivals; later options change them",
       [&o](std::string_view text) { return take_application(text, o); }},
      {"--trace", "TRACE", trace_help, parsed_into(o.trace, Trace::parse)},
      {"--rate", "R", "constant rate per second; short for --trace flat:R (10)",
       parsed_into(o.trace, parse_flat_rate)},
      {"--seconds", "N", "duration (10)", real_into(o.seconds, 0.1, 1e7)},
      {"--connections", "N", "requests under way at a time (64)", integer_into(o.connections, 1, 10'000)},
      {"--arrivals", "even|poisson", "spacing around the rate (even)",
       parsed_into(o.arrivals, parse_arrivals)},
      {"--burst", "X", "mean number of requests that arrive together (1)", real_into(o.burst, 1, 1000)},
      {"--seed", "N", "of the poisson arrivals and bursts (1)", integer_into(o.seed, 0, UINT64_MAX)},
      {"--drop-after-ms", "X", "give up requests unsent for so long (5000)",
       real_into(o.drop_after_ms, 1, 1e7)},
      {"--slo-ms", "X", "count what is slower (none)", real_into(o.slo_ms, 0, 1e7)},
      {"--json", "FILE", "write the report there; - for standard output", text_into(o.json)},
      {"--every-second", "", "print a line per second", flag_into(o.every_second)},
      {"--histograms", "",
       "the report's per_second has latency histograms, to be added up over any part of the run",
       flag_into(o.histograms)},
  };
}

namespace {

/// A connection that this process may not open would count against the service.
bool may_open(std::uint64_t connections, std::ostream& err) {
  constexpr rlim_t kOthers = 32;  // standard streams, epoll, signals, report, what was inherited
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return true;
  const rlim_t wanted = connections + kOthers;
  if (files.rlim_cur >= wanted) return true;
  if (files.rlim_max >= wanted) {
    files.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &files) == 0) return true;
  }
  err << "flash-workload load: " << connections << " connections need a limit of " << wanted
      << " open files, it is " << files.rlim_max << " (ulimit -n)\n";
  return false;
}

/// The first address that takes a connection, where there are several: a name often has one of IPv6 as well.
const Endpoint& reachable(const std::vector<Endpoint>& endpoints) {
  if (endpoints.size() > 1) {
    for (const auto& endpoint : endpoints) {
      const UniqueFd fd(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const timeval patience{1, 0};
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.size) == 0) {
        return endpoint;
      }
    }
  }
  return endpoints.front();
}

}  // namespace

int run(const LoadOptions& options, std::ostream& out, std::ostream& err) {
  if (!may_open(options.connections, err)) return 1;
  const auto found = resolve(options.target);
  if (const auto* error = std::get_if<UsageError>(&found)) {
    err << "flash-workload load: " << error->message << "\n";
    return 1;
  }
  const Endpoint& server = reachable(std::get<std::vector<Endpoint>>(found));
  UniqueFd stop_signals = open_stop_signals();
  // With the report on standard output, lines for people would spoil it.
  std::ostream& lines = options.json == "-" ? err : out;
  RunRecorder recorder(options.slo_ms, options.every_second ? &lines : nullptr, options.histograms);
  Generator generator(options, server, std::move(stop_signals), recorder);
  const double seconds = generator.run();
  RunReport report = recorder.finish(seconds);
  report.command = "load";
  report.target = options.target.text;
  report.trace = options.trace.text();
  lines << summary_text(report) << std::flush;
  if (!options.json.empty()) {
    if (auto error = write_text(options.json, report_json(report), out)) {
      err << "flash-workload load: " << error->message << "\n";
      return 1;
    }
  }
  return report.counts.completed > 0 || report.counts.offered == 0 ? 0 : 1;
}

}  // namespace flash
