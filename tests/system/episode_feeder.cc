// Says made-up episodes to flash-sync, through flashd's own end of the socket: many of them, without a
// machine to manage.
//   episode-feeder SOCKET REPORT AGENTS PER_SECOND
// REPORT always has one line: how many were told, stored (says flash-sync) and dropped. SIGTERM: no more are
// told; it ends when all are stored.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/process.h"
#include "core/random.h"
#include "daemon/sync_link.h"

namespace flash {
namespace {

std::atomic<bool> enough = false;

link::Episode episode_of(std::uint64_t n, std::uint64_t agents, Now now) {
  link::Episode e;
  e.target = "service" + std::to_string(n % agents);
  e.agent = "resource-limits:/" + e.target;
  e.application = e.rule = "shop";
  e.episode = n / agents;
  e.stage = Stage::Serving;
  e.steps = e.rewards = 100;
  e.reward_mean = 0.5;
  e.model_version = 1;
  e.embedding.assign(64, 0.25F);
  e.time_us = std::chrono::duration_cast<std::chrono::microseconds>(now.wall.time_since_epoch()).count();
  return e;
}

/// In one piece, so that a reader never sees half of it.
void report(const std::string& path, std::uint64_t told, const SyncCounters& c) {
  const std::string next = path + ".next";
  std::ofstream(next) << told << ' ' << c.episodes << ' ' << c.episodes_dropped << '\n';
  (void)rename(next.c_str(), path.c_str());
}

int run(const std::string& socket, const std::string& path, std::uint64_t agents, double per_s) {
  SyncCallbacks callbacks;
  callbacks.reading = [](Now, const auto&) { return false; };
  callbacks.metrics = [] { return std::vector<link::sync::Family>(); };
  callbacks.changed = [](bool, const std::string&) {};
  callbacks.log = [](bool, const std::string& text) { std::fprintf(stderr, "feeder: %s\n", text.c_str()); };
  const SyncBounds bounds;
  SyncLink link({.enabled = true, .socket = socket, .user = "root"}, "episode-feeder", random_seed(),
                callbacks, bounds);
  Now last = read_clocks();
  double due = 0;
  std::uint64_t told = 0, ticks = 0;
  while (true) {
    pollfd p{link.fd(), POLLIN, 0};
    (void)poll(&p, 1, 10);
    const Now now = read_clocks();
    if (told > 0 || link.state().starts_with("connected")) due += per_s * seconds(now.mono - last.mono);
    last = now;
    const auto waiting = [&] { return told - link.counters().episodes - link.counters().episodes_dropped; };
    for (; !enough && due >= 1 && waiting() < bounds.episodes; due -= 1)
      link.episode_ended(episode_of(told++, agents, now));
    due = std::min(due, 1.0 + per_s);
    if (p.revents != 0) link.process(now);
    link.tick(now);
    if (++ticks % 16 == 0) report(path, told, link.counters());
    if (enough && waiting() == 0) break;
  }
  report(path, told, link.counters());
  return 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  signal(SIGTERM, [](int) { flash::enough = true; });
  return flash::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), std::atof(argv[4]));
}
