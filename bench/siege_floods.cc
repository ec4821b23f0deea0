#include "bench/siege_floods.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace flash::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Attempts = std::atomic<std::uint64_t>;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof to.sun_path - 1);
  return to;
}

// -- StatsD

[[noreturn]] void flood_statsd(const Doors& doors, Attempts& attempts) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un to = address_of(doors.statsd);
  const std::string line = "requests:1|c|#app:siege-stranger\n";
  std::string large;
  while (large.size() + line.size() <= 8192) large += line;
  const auto say = [&](const std::string& text, int flags) {
    ++attempts;
    (void)sendto(fd, text.data(), text.size(), flags, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  };
  for (;;) {
    const auto begun = Clock::now();
    while (Clock::now() - begun < std::chrono::seconds(1)) say(line, 0);
    for (int i = 0; i < 220; ++i) {
      say(large, MSG_DONTWAIT);
      std::this_thread::sleep_until(begun + std::chrono::seconds(1) + i * std::chrono::microseconds(4545));
    }
  }
}

// -- the bus

constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";

/// Null where the bus takes no more.
sd_bus* dial(const std::string& address) {
  sd_bus* bus = nullptr;
  const char* name = nullptr;
  if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address.c_str()) < 0 ||
      sd_bus_set_bus_client(bus, 1) < 0 || sd_bus_start(bus) < 0 || sd_bus_get_unique_name(bus, &name) < 0) {
    sd_bus_unref(bus);
    return nullptr;
  }
  return bus;
}

sd_bus_message* call_of(sd_bus* bus, const char* interface, const char* member) {
  sd_bus_message* m = nullptr;
  return sd_bus_message_new_method_call(bus, &m, kName, kRoot, interface, member) < 0 ? nullptr : m;
}

[[noreturn]] void flood_bus(const Doors& doors, Attempts& attempts) {
  struct Caller {
    sd_bus* bus = nullptr;
    int waiting = 0;
  };
  std::vector<Caller> callers;
  std::vector<sd_bus*> deaf;
  const auto connect = [&] {
    while (callers.size() < 50) {
      sd_bus* bus = dial(doors.bus);
      if (!bus) break;
      callers.push_back({bus, 0});
    }
    while (deaf.size() < 50) {
      sd_bus* bus = dial(doors.bus);
      if (!bus) break;
      deaf.push_back(bus);
    }
  };
  connect();
  const auto answered = [](sd_bus_message*, void* caller, sd_bus_error*) {
    --static_cast<Caller*>(caller)->waiting;
    return 0;
  };
  const std::string mode(1000, 'x');
  for (unsigned round = 0;; ++round) {
    for (Caller& c : callers) {
      while (c.waiting < 120) {
        sd_bus_message* m = call_of(c.bus, kManager, "SetMode");
        (void)sd_bus_message_append(m, "ss", mode.c_str(), "observe");
        const bool sent = sd_bus_call_async(c.bus, nullptr, m, answered, &c, UINT64_MAX) >= 0;
        sd_bus_message_unref(m);
        if (!sent) break;
        ++c.waiting;
        ++attempts;
      }
      while (sd_bus_process(c.bus, nullptr) > 0) {
      }
    }
    // Written as far as the socket takes it; what sd-bus keeps for later is bounded by these many.
    if (round < 400)
      for (sd_bus* bus : deaf) {
        sd_bus_message* m = round % 2 == 0
                                ? call_of(bus, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
                                : call_of(bus, "org.freedesktop.DBus.Introspectable", "Introspect");
        if (sd_bus_send(bus, m, nullptr) >= 0) ++attempts;
        sd_bus_message_unref(m);
      }
    if (callers.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// -- cgroups

[[noreturn]] void flood_churn(const Doors& doors, Attempts& attempts) {
  constexpr int kFolders = 10, kPerFolder = 2000;
  const auto path = [](const std::string& home, int folder, int i) {
    return home + "/f" + std::to_string(folder) + "/docker-" + std::to_string(i) + ".scope";
  };
  if (doors.delegated.empty()) _exit(3);
  for (std::size_t round = 0;; ++round) {
    const std::string& home = doors.delegated[round % doors.delegated.size()];
    for (int f = 0; f < kFolders; ++f) {
      (void)mkdir((home + "/f" + std::to_string(f)).c_str(), 0755);
      for (int i = 0; i < kPerFolder; ++i) {
        (void)mkdir(path(home, f, i).c_str(), 0755);
        ++attempts;
      }
    }
    for (int f = kFolders; f-- > 0;) {
      for (int i = kPerFolder; i-- > 0;) (void)rmdir(path(home, f, i).c_str());
      (void)rmdir((home + "/f" + std::to_string(f)).c_str());
    }
  }
}

// -- sockets of programs

[[noreturn]] void flood_sockets(const Doors& doors, Attempts& attempts) {
  constexpr std::size_t kHeld = 200;
  // The beginning of a map: as their messages begin, without the rest.
  const std::string half = "\xa3\x61v\x01\x61t";
  std::vector<std::vector<int>> held(doors.sockets.size(), std::vector<int>(kHeld, -1));
  for (;;) {
    for (std::size_t s = 0; s < held.size(); ++s) {
      const sockaddr_un to = address_of(doors.sockets[s]);
      for (std::size_t i = 0; i < kHeld; ++i) {
        int& fd = held[s][i];
        char byte = 0;
        if (fd >= 0 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0) {
          close(fd);
          fd = -1;
        }
        if (fd >= 0) continue;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        ++attempts;
        if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
          close(fd);
          fd = -1;
        } else if (i % 2 == 1) {
          (void)send(fd, half.data(), half.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

[[noreturn]] void flood_with(Flood flood, const Doors& doors, Attempts& attempts) {
  switch (flood) {
    case Flood::Statsd:
      flood_statsd(doors, attempts);
    case Flood::Bus:
      flood_bus(doors, attempts);
    case Flood::Churn:
      flood_churn(doors, attempts);
    case Flood::Sockets:
      break;
  }
  flood_sockets(doors, attempts);
}

}  // namespace

std::string_view to_string(Flood f) {
  switch (f) {
    case Flood::Statsd:
      return "statsd";
    case Flood::Bus:
      return "bus";
    case Flood::Churn:
      return "churn";
    case Flood::Sockets:
      break;
  }
  return "sockets";
}

Result<FloodProcess> FloodProcess::start(Flood flood, const Doors& doors) {
  void* shared = mmap(nullptr, sizeof(Attempts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return Error::from_errno(errno, "mmap");
  FloodProcess process;
  process.attempts_ = new (shared) Attempts(0);
  process.pid_ = fork();
  if (process.pid_ < 0) return Error::from_errno(errno, "fork");
  if (process.pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (setgroups(0, nullptr) != 0 || setresgid(kStranger, kStranger, kStranger) != 0 ||
        setresuid(kStranger, kStranger, kStranger) != 0)
      _exit(2);
    // The kernel forgets it with a change of user.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    flood_with(flood, doors, *process.attempts_);
  }
  return process;
}

FloodProcess::FloodProcess(FloodProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), attempts_(std::exchange(other.attempts_, nullptr)) {}

FloodProcess::~FloodProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (attempts_) munmap(attempts_, sizeof(Attempts));
}

bool FloodProcess::running() const {
  siginfo_t info{};
  return pid_ > 0 && waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

std::uint64_t FloodProcess::attempts() const {
  return attempts_ ? attempts_->load() : 0;
}

}  // namespace flash::bench
