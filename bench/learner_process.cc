#include "bench/learner_process.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "bench/learner_bench.h"
#include "bench/program.h"
#include "bench/temp_folder.h"
#include "core/json.h"
#include "core/random.h"
#include "core/tensor_file.h"
#include "link/messages.h"
#include "link/seqpacket.h"
#include "policy/task.h"

namespace flash::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 300;   // steps per agent before the measurement: three episodes
constexpr int kPatience = 120;  // seconds for a start, or for the backlog to be learned

/// flashd's end of the socket.
class FakeDaemon {
 public:
  FakeDaemon(link::Listener listener, Program& learner, int agents)
      : listener_(std::move(listener)), learner_(&learner), random_(1) {
    for (int i = 0; i < agents; ++i) {
      link::Announce a;
      a.layout = space_layout(task_spec(i % 2 == 0 ? Task::ResourceLimits : Task::CpuFrequency), {});
      a.agent = (i % 2 == 0 ? "limits_" : "frequency_") + std::to_string(i);
      a.key = std::string(to_string(a.layout.task)) + ":/bench/" + std::to_string(i);
      a.application = a.rule = "bench";
      agents_.push_back(std::move(a));
    }
  }

  Result<void> greet() {
    const auto until = Clock::now() + std::chrono::seconds(kPatience);
    while (!connection_.open()) {
      FLASH_TRY(auto connection, listener_.accept());
      if (connection) connection_ = std::move(*connection);
      FLASH_CHECK(wait(listener_.fd(), POLLIN, until));
    }
    link::HelloDown hello;
    hello.software = "flash-bench";
    hello.epoch = 1;
    FLASH_CHECK(send(hello));
    for (const link::Announce& a : agents_) FLASH_CHECK(send(a));
    return {};
  }

  /// One tick of all agents.
  Result<void> tick() {
    ++seq_;
    link::Steps steps;
    for (const link::Announce& a : agents_) {
      if (steps.steps.size() == link::kMaxStepsPerMessage) {
        FLASH_CHECK(send(steps));
        steps.steps.clear();
      }
      link::Step s;
      s.agent = a.agent;
      s.seq = seq_;
      s.time_us = begun_us_ + static_cast<std::int64_t>(seq_) * 1'000'000;
      s.episode = (seq_ - 1) / 100;
      s.step = static_cast<std::uint32_t>((seq_ - 1) % 100);
      s.end_of_episode = s.step == 99;
      s.stage = Stage::Online;
      s.controller = seq_ < kBacklog / 2 ? Controller::Fallback : Controller::Learned;
      s.state = numbers(a.layout.state_dim());
      s.state_trusted = true;
      s.action = action(a);
      s.fallback = action(a);
      s.reward_given = s.reward_trusted = seq_ > 1;
      s.reward = s.reward_given ? static_cast<float>(random_.uniform()) : 0;
      steps.steps.push_back(std::move(s));
    }
    return send(steps);
  }

  Result<void> learn_backlog() {
    const auto until = Clock::now() + std::chrono::seconds(kPatience);
    for (int i = 0; i < kBacklog; ++i) FLASH_CHECK(tick());
    while (stored_.size() < agents_.size() || behind()) FLASH_CHECK(wait(connection_.fd(), POLLIN, until));
    // What is stored is not yet learned from: that is done when the process falls quiet.
    for (double before = usage_of(learner_->pid()).cpu_ns;;) {
      FLASH_CHECK(listen(std::chrono::seconds(1), until));
      const double now = usage_of(learner_->pid()).cpu_ns;
      if (now - before < 0.1e9) return {};
      before = now;
    }
  }

  /// Reads what comes for this long.
  Result<void> listen(Clock::duration time, Clock::time_point until) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
      FLASH_CHECK(read());
      pollfd p{connection_.fd(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left > 0) (void)::poll(&p, 1, static_cast<int>(left));
      if (Clock::now() > until)
        return Error(std::errc::timed_out, "flash-learner does not finish its backlog");
    }
    return {};
  }

  std::uint64_t offers() const { return offers_; }
  std::uint64_t updates() const { return updates_; }
  const std::string& blas() const { return blas_; }

 private:
  std::vector<float> numbers(int n) {
    std::vector<float> v;
    for (int i = 0; i < n; ++i) v.push_back(static_cast<float>(random_.uniform(-1, 1)));
    return v;
  }
  std::vector<float> action(const link::Announce& a) {
    if (action_form(a.layout.task) == ActionForm::Continuous) return numbers(a.layout.action_dim());
    return {static_cast<float>(random_.below(static_cast<std::uint64_t>(a.layout.action_dim())))};
  }
  bool behind() const {
    for (const auto& [agent, seq] : stored_)
      if (seq < seq_) return true;
    return false;
  }

  Result<void> wait(int fd, short events, Clock::time_point until) {
    if (connection_.open()) FLASH_CHECK(read());
    pollfd p{fd, events, 0};
    (void)::poll(&p, 1, 20);
    if (!learner_->running()) return Error(std::errc::no_such_process, "flash-learner ended");
    if (Clock::now() > until) return Error(std::errc::timed_out, "flash-learner does not answer");
    return {};
  }

  Result<void> send(const link::Down& message) {
    const std::string bytes = link::encode(message);
    const auto until = Clock::now() + std::chrono::seconds(kPatience);
    for (;;) {
      FLASH_TRY(const link::SendStatus status, connection_.send(bytes));
      if (status == link::SendStatus::Sent) return {};
      FLASH_CHECK(wait(connection_.fd(), POLLOUT, until));
    }
  }

  Result<void> read() {
    std::vector<link::Down> answers;
    for (;;) {
      FLASH_TRY(auto bytes, connection_.receive());
      if (!bytes) break;
      FLASH_TRY(const link::Up message, link::decode_up(*bytes));
      if (const auto* hello = std::get_if<link::HelloUp>(&message)) blas_ = hello->blas;
      if (const auto* stored = std::get_if<link::Stored>(&message)) stored_[stored->agent] = stored->seq;
      if (const auto* all = std::get_if<link::Acknowledge>(&message))
        for (const link::Stored& s : all->stored) stored_[s.agent] = s.seq;
      if (const auto* status = std::get_if<link::Status>(&message); status && status->agent.empty())
        updates_ = status->updates;
      if (const auto* offer = std::get_if<link::Offer>(&message)) {
        ++offers_;
        FLASH_TRY(const TensorFile file, decode_tensor_file(offer->policy));
        FLASH_TRY(const PolicySnapshot policy, to_policy(file));
        for (const std::string& agent : offer->agents)
          answers.emplace_back(link::Verdict{agent, policy.version, true, {}});
      }
    }
    // An answer that does not fit now is not needed: the next offer gets one.
    for (const link::Down& answer : answers) {
      FLASH_TRY([[maybe_unused]] const link::SendStatus sent, connection_.send(link::encode(answer)));
    }
    return {};
  }

  link::Listener listener_;
  link::Connection connection_;
  Program* learner_;
  Random random_;
  std::vector<link::Announce> agents_;
  std::map<std::string, std::uint64_t> stored_;
  std::uint64_t seq_ = 0, offers_ = 0, updates_ = 0;
  std::string blas_;
  /// One step per second, the last of the backlog now: what is older than its limit the learner forgets.
  std::int64_t begun_us_ = std::chrono::duration_cast<std::chrono::microseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count() -
                           kBacklog * 1'000'000LL;
};

}  // namespace

Result<json> measure_learner_process(const LearnerProcessOptions& options) {
  FLASH_TRY(const TempFolder folder, TempFolder::make("learner"));
  const std::string socket = folder.path() + "/socket", log = folder.path() + "/log";
  FLASH_TRY(auto listener, link::Listener::listen(socket, std::nullopt));
  FLASH_TRY(Program learner,
            Program::start(
                {options.program, "--socket", socket, "--state-directory", folder.path() + "/state"}, log));
  FakeDaemon daemon(std::move(listener), learner, options.agents);
  const auto said = [&](Error error) {
    return std::move(error).context(options.program + " (" + last_words(log) + ")");
  };
  if (auto r = daemon.greet(); !r) return said(std::move(r).error());
  if (auto r = daemon.learn_backlog(); !r) return said(std::move(r).error());

  const Usage before = usage_of(learner.pid());
  const auto begun = Clock::now();
  const std::uint64_t offers = daemon.offers();
  for (int i = 0; i < options.seconds; ++i) {
    if (auto r = daemon.tick(); !r) return said(std::move(r).error());
    const auto next = begun + std::chrono::seconds(i + 1);
    if (auto r = daemon.listen(next - Clock::now(), next + std::chrono::seconds(kPatience)); !r)
      return said(std::move(r).error());
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begun).count();
  const Usage after = usage_of(learner.pid());
  if (!learner.running())
    return Error(std::errc::no_such_process, options.program + " ended: " + last_words(log));
  return json{{"agents", options.agents},
              {"seconds", elapsed},
              {"rss_mib", after.rss_kib / 1024},
              {"rss_peak_mib", after.rss_peak_kib / 1024},
              {"cpu_share", (after.cpu_ns - before.cpu_ns) / 1e9 / elapsed},
              {"threads", after.threads},
              {"wakeups_per_s", (after.wakeups - before.wakeups) / elapsed},
              {"offers_per_s", static_cast<double>(daemon.offers() - offers) / elapsed},
              {"updates", daemon.updates()},
              {"blas", daemon.blas()}};
}

}  // namespace flash::bench
