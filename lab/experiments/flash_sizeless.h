// Purpose: FLASH-Sizeless (FLASH 4, 5.1): the supervised agent trained end to end with the meta learner,
// whose embedding is of the runs in base configurations; and the same agent without. Torch stays behind it.
// Ownership: a FlashSizeless owns its networks.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "lab/experiments/performance.h"
#include "lab/pretrain/flash.h"

namespace flash {

struct FlashSizelessOptions {
  int known = 1;           // X of X-shot
  bool embedding = true;   // false: Sizeless alone
  bool raw = false;        // Table 6 to the letter: raw times, L2 of 0.01
  EncoderOptions encoder;  // Table 4
  int epochs = 200;        // Table 6; in each, every training instance is met once
  int instances = 8;       // in a batch, each with
  int targets = 16;        // configurations at most
  std::uint64_t seed = 1;
};

class FlashSizeless {
 public:
  /// EINVAL: an instance of fewer than known + 1 runs, or none at all.
  static Result<FlashSizeless> fit(const PerformanceSet& set, std::span<const std::size_t> instances,
                                   const FlashSizelessOptions& options);
  ~FlashSizeless();
  FlashSizeless(FlashSizeless&&) noexcept;

  /// Times in the runs `targets`. REQUIRES: known.size() is that of the options.
  std::vector<double> predict(const PerformanceInstance& instance, std::span<const std::size_t> known,
                              std::span<const std::size_t> targets) const;

 private:
  struct Impl;
  explicit FlashSizeless(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash
