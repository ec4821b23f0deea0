#include "workloads/load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <ostream>

#include "workloads/application.h"
#include "workloads/http.h"
#include "workloads/report.h"
#include "workloads/text_file.h"

namespace flash {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto kReconnectPause = std::chrono::milliseconds(100);
constexpr auto kLongestWait = std::chrono::milliseconds(100);
/// How long after the last arrival answers are waited for.
constexpr auto kDrain = std::chrono::seconds(2);

enum class ChannelState { Closed, Connecting, Idle, Busy };

struct Channel {
  UniqueFd fd;
  ChannelState state = ChannelState::Closed;
  SteadyTime intended;   // of the request under way
  SteadyTime reopen_at;  // when closed
  std::string input;
};

class Generator {
 public:
  Generator(const LoadOptions& options, UniqueFd stop_signals, RunRecorder& recorder)
      : options_(options),
        stop_signals_(std::move(stop_signals)),
        recorder_(recorder),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        schedule_(options.trace, options.seconds, options.arrivals, options.seed, options.burst),
        channels_(options.connections),
        request_("GET /work HTTP/1.1\r\nHost: " + options.target.text + "\r\n\r\n"),
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
      waiting_.push_back(arrival_);
      next_arrival();
    }
  }

  void drop_expired(SteadyTime now) {
    const auto limit = std::chrono::duration<double, std::milli>(options_.drop_after_ms);
    while (!waiting_.empty() && now - waiting_.front() > limit) {
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
    channel.fd =
        UniqueFd(::socket(options_.target.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(channel.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    channel.state = ChannelState::Connecting;
    const int rc = ::connect(channel.fd.get(), reinterpret_cast<const sockaddr*>(&options_.target.address),
                             options_.target.size);
    if (rc != 0 && errno != EINPROGRESS) {
      close(channel, now);
      return;
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = &channel;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel.fd.get(), &event);
  }

  void close(Channel& channel, SteadyTime now) {
    if (channel.state == ChannelState::Busy) {
      --busy_;
      recorder_.failed(since_start(now));
    } else if (channel.state == ChannelState::Connecting && !waiting_.empty()) {
      // Refused: the request that would have used this connection has failed, else a dead service would
      // show as drops only, seconds later.
      waiting_.pop_front();
      recorder_.failed(since_start(now));
    }
    channel.fd.reset();
    channel.input.clear();
    channel.state = ChannelState::Closed;
    channel.reopen_at = now + kReconnectPause;
  }

  void send_request(Channel& channel, SteadyTime now) {
    channel.intended = waiting_.front();
    waiting_.pop_front();
    channel.state = ChannelState::Busy;
    ++busy_;
    const auto sent = ::send(channel.fd.get(), request_.data(), request_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(request_.size())) {
      close(channel, now);
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
    char buffer[4096];
    for (;;) {
      const auto size = ::recv(channel.fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (size > 0) {
        channel.input.append(buffer, static_cast<std::size_t>(size));
        continue;
      }
      const bool ended = size == 0 || (errno != EAGAIN && errno != EINTR);
      if (channel.state == ChannelState::Busy) {
        take_response(channel, now);
      }
      if (ended) {
        close(channel, now);
      }
      return;
    }
  }

  void take_response(Channel& channel, SteadyTime now) {
    const HttpResponse response = parse_http_response(channel.input);
    if (response.state == HttpParse::Incomplete) {
      return;
    }
    if (response.state == HttpParse::Malformed || channel.input.size() > response.size) {
      close(channel, now);
      return;
    }
    --busy_;
    channel.state = ChannelState::Idle;
    channel.input.clear();
    if (response.status == 200) {
      recorder_.completed(since_start(now), now - channel.intended);
    } else {
      recorder_.failed(since_start(now));
    }
    if (!response.keep_alive) {
      close(channel, now);
    }
  }

  const LoadOptions& options_;
  UniqueFd stop_signals_;
  RunRecorder& recorder_;
  UniqueFd epoll_;
  ArrivalSchedule schedule_;
  std::vector<Channel> channels_;
  std::string request_;
  SteadyTime start_;
  bool has_arrival_ = false;
  SteadyTime arrival_;
  std::deque<SteadyTime> waiting_;  // due, not yet sent
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

LoadOptions::LoadOptions() : target(std::get<Endpoint>(parse_endpoint("127.0.0.1:8080"))) {}

std::vector<OptionRow> option_rows(LoadOptions& o) {
  static const std::string trace_help = "load over time: " + describe_traces();
  return {
      {"--target", "ADDRESS:PORT", "service to load (127.0.0.1:8080)", parsed_into(o.target, parse_endpoint)},
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

}  // namespace

int run(const LoadOptions& options, std::ostream& out, std::ostream& err) {
  if (!may_open(options.connections, err)) return 1;
  UniqueFd stop_signals = open_stop_signals();
  // With the report on standard output, lines for people would spoil it.
  std::ostream& lines = options.json == "-" ? err : out;
  RunRecorder recorder(options.slo_ms, options.every_second ? &lines : nullptr);
  Generator generator(options, std::move(stop_signals), recorder);
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
