#include "lab/sim/batch.h"

#include <algorithm>

namespace flash {
namespace {

/// Thousands of worlds do not fit the second cache: the next one is fetched while this one steps.
void fetch(const World& world) {
  constexpr std::size_t kLine = 64;
  const auto* at = reinterpret_cast<const char*>(&world);
  for (std::size_t i = 0; i < sizeof world; i += kLine) __builtin_prefetch(at + i, 1);
}

}  // namespace

WorkerThreads::WorkerThreads(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
}

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (auto& t : threads_) t.join();
}

void WorkerThreads::share(std::size_t index) {
  const std::size_t workers = threads_.size() + 1;
  const std::size_t first = n_ * index / workers, last = n_ * (index + 1) / workers;
  if (first < last) (*f_)(first, last);
}

void WorkerThreads::work(std::size_t index) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    lock.unlock();
    share(index);
    lock.lock();
    if (--running_ == 0) end_.notify_one();
  }
}

void WorkerThreads::run(std::size_t n, const std::function<void(std::size_t, std::size_t)>& f) {
  {
    const std::lock_guard lock(mutex_);
    n_ = n;
    f_ = &f;
    running_ = threads_.size();
    ++round_;
  }
  begin_.notify_all();
  share(0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [this] { return running_ == 0; });
}

Batch::Batch(const BatchOptions& options)
    : options_(options),
      workers_(std::max(1, options.threads)),
      state_size_(state_dim(options.task)),
      action_size_(flash::action_size(options.task)),
      worlds_(options.worlds) {
  states_.resize(options.worlds * static_cast<std::size_t>(state_size_));
  rewards_.resize(options.worlds);
  trusted_.resize(options.worlds);
  executed_.resize(options.worlds * static_cast<std::size_t>(action_size_));
  if (options.with_fallback) fallbacks_.resize(executed_.size());
}

void Batch::take(std::size_t i) {
  const World& w = worlds_[i];
  const auto s = static_cast<std::size_t>(state_size_), a = static_cast<std::size_t>(action_size_);
  std::copy_n(w.state().begin(), s, states_.begin() + static_cast<std::ptrdiff_t>(i * s));
  std::copy_n(w.executed().begin(), a, executed_.begin() + static_cast<std::ptrdiff_t>(i * a));
  if (options_.with_fallback)
    std::copy_n(w.fallback().begin(), a, fallbacks_.begin() + static_cast<std::ptrdiff_t>(i * a));
  rewards_[i] = w.reward();
  trusted_[i] = w.reward_trusted() && w.state_trusted();
}

void Batch::reset(std::size_t i, const Pair& pair, double offset_s, std::uint64_t seed) {
  worlds_[i].reset(pair, offset_s, seed, options_.with_fallback);
  take(i);
}

void Batch::step(std::span<const float> actions) {
  const auto a = static_cast<std::size_t>(action_size_);
  workers_.run(worlds_.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      if (i + 1 < last) fetch(worlds_[i + 1]);
      worlds_[i].step(actions.subspan(i * a, a));
      take(i);
    }
  });
}

void Batch::step_fallback() {
  workers_.run(worlds_.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      if (i + 1 < last) fetch(worlds_[i + 1]);
      worlds_[i].step_fallback();
      take(i);
    }
  });
}

}  // namespace flash
