// Purpose: the floods of `flash-bench siege`: what an unprivileged user does to flashd's doors, as fast as it
// can.
// Ownership: a FloodProcess owns its process, which ends with it.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash::bench {

enum class Flood : std::uint8_t {
  Statsd,  // datagrams of an application that nobody knows: in turn a second at full speed, a second 220 of 8
           // KiB
  Bus,     // 100 connections: half with 120 calls of SetMode on their way each, half that read no answer
  Churn,   // cgroups with the names of containers, made and removed by the thousand where they may be
  Sockets,  // connections to the other sockets, held, some with half a word
};
inline constexpr Flood kFloods[] = {Flood::Statsd, Flood::Bus, Flood::Churn, Flood::Sockets};
std::string_view to_string(Flood f);  // "statsd", "bus", "churn", "sockets"

/// Who floods: "nobody" where nothing else was made of that number.
inline constexpr uid_t kStranger = 65534;

struct Doors {
  std::string statsd;                  // path of the socket
  std::string bus;                     // address
  std::vector<std::string> sockets;    // paths of the others
  std::vector<std::string> delegated;  // directories of one cgroup, owned by kStranger
};

class FloodProcess {
 public:
  static Result<FloodProcess> start(Flood flood, const Doors& doors);
  FloodProcess(FloodProcess&& other) noexcept;
  FloodProcess& operator=(FloodProcess&&) = delete;
  ~FloodProcess();
  /// Still at it?
  bool running() const;
  std::uint64_t attempts() const;

 private:
  FloodProcess() = default;
  pid_t pid_ = 0;
  std::atomic<std::uint64_t>* attempts_ = nullptr;  // shared with the process
};

}  // namespace flash::bench
