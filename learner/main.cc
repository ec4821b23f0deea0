// flash-learner: learns policies from the steps that flashd sends and offers them to it. flash-learner(8).
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agents/agent.h"
#include "core/printable.h"
#include "core/process.h"
#include "learner/checkpoints.h"
#include "learner/command_line.h"
#include "learner/log.h"
#include "learner/model_inbox.h"
#include "learner/session.h"
#include "learner/trainer.h"
#include "learner/trajectory_store.h"
#include "learner/version.h"

namespace flash::learner {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitState = 3;  // the state is of a newer version, or in use: starting again does not help

constexpr std::uint64_t kTickUs = 250'000;
constexpr int kTicksPerLook = 8;                                  // at the models of the fleet
constexpr Duration kSaveAtEnd = std::chrono::milliseconds(1500);  // of the 2 s that a stop may take
constexpr Duration kSaveSlice = std::chrono::milliseconds(50);

/// Of this process: resident memory, and CPU time over the time between two calls.
class Usage {
 public:
  ProcessUsage operator()() {
    ProcessUsage usage;
    usage.rss_mib = resident_bytes() / (1 << 20);
    const Duration cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID), mono = clock_now(CLOCK_MONOTONIC);
    if (mono > mono_) usage.cpu_share = seconds(cpu - cpu_) / seconds(mono - mono_);
    cpu_ = cpu;
    mono_ = mono;
    return usage;
  }

 private:
  Duration cpu_ = clock_now(CLOCK_PROCESS_CPUTIME_ID), mono_ = clock_now(CLOCK_MONOTONIC);
};

Result<uid_t> uid_of(const std::string& user) {
  uid_t uid = 0;
  const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), uid);
  if (error == std::errc() && end == user.data() + user.size()) return uid;
  errno = 0;
  const passwd* entry = getpwnam(user.c_str());
  if (!entry) return Error(std::errc::invalid_argument, "no user '" + user + "'");
  return entry->pw_uid;
}

/// One learner per state directory. The lock goes with the process.
Result<int> lock(const std::string& directory) {
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (fd < 0) return Error::from_errno(errno, "open " + path);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int why = errno;
  close(fd);
  if (why == EWOULDBLOCK)
    return Error(std::errc::device_or_resource_busy, "another flash-learner uses " + directory);
  return Error::from_errno(why, "flock " + path);
}

/// The event loop around session (socket, timer) and trainer (whenever nothing else is to do).
class Loop {
 public:
  Loop(Session& session, Trainer& trainer, TrajectoryStore& store, ModelInbox& inbox, LogSink say)
      : session_(session), trainer_(trainer), store_(store), inbox_(inbox), say_(std::move(say)) {}
  ~Loop() {
    sd_event_source_unref(socket_);
    sd_event_source_unref(timer_);
    sd_event_source_unref(work_);
    sd_event_unref(event_);
  }

  int run() {
    int r = sd_event_new(&event_);
    if (r >= 0) r = sd_event_add_signal(event_, nullptr, SIGTERM, nullptr, nullptr);  // ends the loop
    if (r >= 0) r = sd_event_add_signal(event_, nullptr, SIGINT, nullptr, nullptr);
    if (r >= 0)
      r = sd_event_add_time_relative(event_, &timer_, CLOCK_MONOTONIC, 0, kTickUs / 10, on_timer, this);
    if (r >= 0) r = sd_event_add_defer(event_, &work_, on_work, this);
    if (r >= 0) r = sd_event_source_set_priority(work_, SD_EVENT_PRIORITY_IDLE);
    if (r >= 0) r = sd_event_source_set_enabled(work_, SD_EVENT_OFF);
    if (r >= 0) r = sd_event_set_watchdog(event_, 1);
    if (r < 0) {
      say_({LOG_ERR, {}, std::string("event loop: ") + std::strerror(-r), {}});
      return kExitFailure;
    }
    sd_notify(0, "READY=1");
    r = sd_event_loop(event_);
    sd_notify(0, "STOPPING=1");
    end();
    if (r < 0) say_({LOG_ERR, {}, std::string("event loop: ") + std::strerror(-r), {}});
    return r < 0 ? kExitFailure : 0;
  }

 private:
  void after(Now now) {
    if (session_.fd() != watched_) {
      sd_event_source_disable_unref(socket_);
      socket_ = nullptr;
      watched_ = session_.fd();
      if (watched_ >= 0 && sd_event_add_io(event_, &socket_, watched_, EPOLLIN, on_socket, this) < 0)
        say_({LOG_ERR, {}, "the socket cannot be watched", {}});
    }
    if (trainer_.has_work(now)) sd_event_source_set_enabled(work_, SD_EVENT_ONESHOT);
    if (const std::string state = session_.state(); state != state_) {
      state_ = state;
      sd_notify(0, ("STATUS=" + state).c_str());
    }
  }

  /// Not before flashd has said which agents there are: a model is tried on theirs.
  void look_for_models() {
    if (!session_.connected() || ++ticks_ % kTicksPerLook != 0) return;
    for (const auto& found : inbox_.look()) {
      trainer_.hand_out(found.task, found.models);
      inbox_.accepted(found.task, trainer_.handed_out().at(found.task).version);
    }
  }

  static int on_timer(sd_event_source* source, std::uint64_t, void* self) noexcept {
    auto& loop = *static_cast<Loop*>(self);
    const Now now = read_clocks();
    loop.session_.tick(now);
    loop.trainer_.save(now, false, kSaveSlice);
    loop.look_for_models();
    sd_event_source_set_time_relative(source, kTickUs);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    loop.after(now);
    return 0;
  }
  static int on_socket(sd_event_source*, int, std::uint32_t, void* self) noexcept {
    auto& loop = *static_cast<Loop*>(self);
    const Now now = read_clocks();
    loop.session_.on_readable(now);
    loop.after(now);
    return 0;
  }
  static int on_work(sd_event_source* source, void* self) noexcept {
    auto& loop = *static_cast<Loop*>(self);
    const Now now = read_clocks();
    if (loop.trainer_.work(now)) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    loop.session_.send_offers(now);
    return 0;
  }

  void end() {
    const Now now = read_clocks();
    session_.finish(now);
    const std::size_t left = trainer_.save(now, true, kSaveAtEnd);
    if (left)
      say_(
          {LOG_WARNING,
           kMessageCheckpoint,
           std::to_string(left) + " agents could not be saved in time; they go on from their last checkpoint",
           {}});
    (void)store_.checkpoint();
  }

  Session& session_;
  Trainer& trainer_;
  TrajectoryStore& store_;
  ModelInbox& inbox_;
  LogSink say_;
  int ticks_ = 0;
  sd_event* event_ = nullptr;
  sd_event_source *socket_ = nullptr, *timer_ = nullptr, *work_ = nullptr;
  int watched_ = -1;
  std::string state_;
};

/// BLAS and OpenMP read how many threads to start while they are loaded, before main(). Their threads would
/// take the signals that the loop waits for, and small matrices are slower with them (50 times with OpenBLAS
/// and OpenMP). The unit sets these; started by hand, the process starts itself again.
void want_one_thread(char** argv) {
  bool again = false;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    if (value && std::strcmp(value, "1") == 0) continue;
    again = true;
    setenv(name, "1", 1);
  }
  if (!again) return;
  char path[4096] = {};  // by name, so that the process keeps its own
  if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) execv(path, argv);
  // Where that fails, it goes on with more threads.
}

/// The dynamic linker and the static initialisers of libtorch's 287 libraries have touched some 100 MiB of
/// code and tables most of which is never needed again. Unmaps those pages that are the files' own (no
/// private copy in them); what is needed comes back from the page cache.
void forget_startup_pages() {
  FILE* file = std::fopen("/proc/self/smaps", "re");
  if (!file) return;
  char line[8192];
  std::uintptr_t begin = 0, end = 0;
  bool candidate = false;
  while (std::fgets(line, sizeof line, file)) {
    std::uintptr_t from = 0, to = 0;
    char permissions[5] = {}, path[2] = {};
    unsigned long kib = 0;
    if (std::sscanf(line, "%lx-%lx %4s %*s %*s %*s %1s", &from, &to, permissions, path) >= 3) {
      begin = from;
      end = to;
      candidate = permissions[1] == '-' && permissions[3] == 'p' && path[0] == '/';
    } else if (candidate && std::sscanf(line, "Anonymous: %lu kB", &kib) == 1) {
      candidate = false;
      if (kib == 0) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }
  std::fclose(file);
}

int run(const CommandLine& line) {
  const LogSink say = make_log(line.log_level);
  const auto fail = [&](const Error& error, int code) {
    say({LOG_ERR, {}, error.message(), {}});
    sd_notify(0, ("STATUS=" + error.message()).c_str());
    return code;
  };
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  umask(0027);

  SessionOptions options;
  options.socket = line.socket;
  options.software = std::string("flash-learner ") + kVersion;
  options.usage = Usage();
  if (!line.flashd_user.empty()) {
    auto uid = uid_of(line.flashd_user);
    if (!uid) return fail(uid.error(), kExitUsage);
    options.flashd_uid = *uid;
  }
  std::string warning;
  options.blas = prepare_libtorch(warning);
  say({LOG_INFO,
       kMessageLearning,
       std::string("flash-learner ") + kVersion + " computes with " + options.blas,
       {}});
  if (!warning.empty()) say({LOG_WARNING, kMessageLearning, warning, {}});

  if (mkdir(line.state_directory.c_str(), 0750) != 0 && errno != EEXIST)
    return fail(Error::from_errno(errno, "mkdir " + line.state_directory), kExitFailure);
  auto locked = lock(line.state_directory);
  if (!locked)
    return fail(locked.error(),
                locked.error().is(std::errc::device_or_resource_busy) ? kExitState : kExitFailure);
  std::string note;
  auto store = TrajectoryStore::open(line.state_directory + "/trajectories.sqlite", &note);
  if (!store)
    return fail(store.error(),
                store.error().is(std::errc::protocol_not_supported) ? kExitState : kExitFailure);
  if (!note.empty()) say({LOG_ERR, kMessageStore, note, {}});
  auto checkpoints = Checkpoints::open(line.state_directory);
  if (!checkpoints) return fail(checkpoints.error(), kExitFailure);

  TrainerOptions trainer_options;
  trainer_options.clock = [] { return clock_now(CLOCK_MONOTONIC); };
  trainer_options.models = PretrainedModels::load(line.models, say);
  Trainer trainer(std::move(trainer_options), std::move(*checkpoints), *store, say);
  Session session(std::move(options), *store, trainer, say, Random(random_seed()));
  ModelInbox inbox({line.model_inbox, line.model_keys, kVersion, line.state_directory + "/accepted-models"},
                   say);
  Loop loop(session, trainer, *store, inbox, say);
  forget_startup_pages();
  const int code = loop.run();
  close(*locked);
  return code;
}

}  // namespace
}  // namespace flash::learner

int main(int argc, char** argv) {
  using flash::learner::CommandLine;
  auto line = flash::learner::parse_command_line(flash::words_of(argc, argv));
  if (!line) {
    flash::print_line(stderr, "flash-learner: " + line.error().message());
    flash::print_text(stderr, "Try 'flash-learner --help'.\n");
    return flash::learner::kExitUsage;
  }
  switch (line->command) {
    case CommandLine::Command::Help:
      std::fputs(flash::learner::help_text().c_str(), stdout);
      return 0;
    case CommandLine::Command::Version:
      std::printf("flash-learner %s\n", flash::kVersion);
      return 0;
    case CommandLine::Command::Run:
      break;
  }
  flash::learner::want_one_thread(argv);
  return flash::learner::run(*line);
}
