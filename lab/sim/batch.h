// Purpose: thousands of worlds stepped together by worker threads, with contiguous float arrays in between.
// Ownership: the batch owns worlds, arrays and threads; the pairs must outlive it.
// Thread rule: called from one thread; the same results whatever the number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "lab/sim/world.h"

namespace flash {

/// Threads that wait for work: run(n, f) calls f(i) for i in [0, n), in blocks, and returns when all are
/// done.
class WorkerThreads {
 public:
  explicit WorkerThreads(int threads);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
  /// f(first, last): the worker's share of [0, n). Each index is given once.
  void run(std::size_t n, const std::function<void(std::size_t, std::size_t)>& f);
  int size() const { return static_cast<int>(threads_.size()) + 1; }

 private:
  void work(std::size_t index);
  void share(std::size_t index);
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  std::uint64_t round_ = 0;
  std::size_t n_ = 0, running_ = 0;
  const std::function<void(std::size_t, std::size_t)>* f_ = nullptr;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

struct BatchOptions {
  Task task = Task::ResourceLimits;
  std::size_t worlds = 1;
  int threads = 1;
  bool with_fallback = false;  // costs several times the step itself (resource-limits)
};

class Batch {
 public:
  explicit Batch(const BatchOptions& options);

  void reset(std::size_t i, const Pair& pair, double offset_s, std::uint64_t seed);
  /// actions [N, action_size()]: limits {cpu, memory} in [-1,1]; frequency {level}. Afterwards states() is
  /// what next_states means in a transition: keep a copy of the states before.
  void step(std::span<const float> actions);
  /// Every world executes its fallback's proposal. REQUIRES: with_fallback.
  void step_fallback();

  std::size_t size() const { return worlds_.size(); }
  int state_size() const { return state_size_; }
  int action_size() const { return action_size_; }
  std::span<const float> states() const { return states_; }           // [N, state_size()]
  std::span<const float> rewards() const { return rewards_; }         // [N]
  std::span<const float> executed() const { return executed_; }       // [N, action_size()], in force
  std::span<const float> fallbacks() const { return fallbacks_; }     // [N, action_size()]; empty without
  std::span<const std::uint8_t> trusted() const { return trusted_; }  // [N] of reward and state both
  const World& world(std::size_t i) const { return worlds_[i]; }
  /// For work of the caller's own on each world (the oracle's labels).
  WorkerThreads& workers() { return workers_; }

 private:
  void take(std::size_t i);
  BatchOptions options_;
  WorkerThreads workers_;
  int state_size_ = 0, action_size_ = 0;
  std::vector<World> worlds_;
  std::vector<float> states_, rewards_, executed_, fallbacks_;
  std::vector<std::uint8_t> trusted_;
};

}  // namespace flash
