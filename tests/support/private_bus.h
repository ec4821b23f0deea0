// Purpose: a dbus-daemon of our own with the rules of a system bus: calls are denied unless a policy allows
// them, and the policy of org.flashd is the one that is shipped.
// Ownership: owns the daemon and its folder in /tmp; ends and removes them.
// Thread rule: one thread.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

extern char** environ;

namespace flash::fake {

struct BusDeleter {
  void operator()(sd_bus* b) const { sd_bus_flush_close_unref(b); }
};
using BusPtr = std::unique_ptr<sd_bus, BusDeleter>;

class PrivateBus {
 public:
  explicit PrivateBus(const std::string& source_dir) {
    char folder[] = "/tmp/flashd-test-bus-XXXXXX";
    if (!mkdtemp(folder)) throw std::runtime_error("mkdtemp");
    folder_ = folder;
    chmod(folder, 0755);  // other users connect too
    const std::string config = folder_ + "/bus.conf";
    std::ofstream(config)
        << R"(<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=)"
        << folder_ << R"(/socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
  </policy>
  <policy user="root">
    <allow own="org.freedesktop.PolicyKit1"/>
    <allow send_destination="org.freedesktop.PolicyKit1"/>
  </policy>
  <include>)"
        << source_dir << R"(/systemd/org.flashd.conf</include>
</busconfig>
)";
    const std::string argument = "--config-file=" + config;
    const char* argv[] = {"dbus-daemon", argument.c_str(), "--nofork", "--nopidfile", "--nosyslog", nullptr};
    if (posix_spawnp(&pid_, argv[0], nullptr, nullptr, const_cast<char**>(argv), environ) != 0)
      throw std::runtime_error("dbus-daemon cannot be started");
    for (int i = 0; i < 500 && !listens(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ~PrivateBus() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      waitpid(pid_, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  PrivateBus(const PrivateBus&) = delete;
  PrivateBus& operator=(const PrivateBus&) = delete;

  std::string address() const { return "unix:path=" + folder_ + "/socket"; }
  const std::string& folder() const { return folder_; }

  BusPtr connect() const {
    sd_bus* raw = nullptr;
    if (sd_bus_new(&raw) < 0) throw std::runtime_error("sd_bus_new");
    BusPtr bus(raw);
    if (sd_bus_set_address(raw, address().c_str()) < 0 || sd_bus_set_bus_client(raw, 1) < 0 ||
        sd_bus_start(raw) < 0)
      throw std::runtime_error("no connection to " + address());
    const char* name = nullptr;
    if (sd_bus_get_unique_name(raw, &name) < 0) throw std::runtime_error("no answer from " + address());
    return bus;
  }

 private:
  /// The socket's file is there a moment before somebody listens on it.
  bool listens() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    (folder_ + "/socket").copy(to.sun_path, sizeof to.sun_path - 1);
    const bool accepted = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    close(fd);
    return accepted;
  }

  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace flash::fake
