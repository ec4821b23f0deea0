// Purpose: the supervised agent of FLASH's task resource configuration search: Sizeless (Eismann et al. 2021;
// FLASH A.2, Tables 5 and 6), a fully connected network that predicts the execution time in a target
// configuration from runs in base configurations. Private to this room and meta/: includes torch.
// Ownership: a Sizeless owns its network.
// Thread rule: one thread.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "agents/net.h"
#include "lab/experiments/performance.h"

namespace flash {

struct SizelessOptions {
  int known = 1;                                // X of X-shot: runs in base configurations
  int embedding = 0;                            // appended to the features; 0: none
  std::vector<int> hidden{256, 256, 256, 256};  // Table 6
  double rate = 1e-3;                           // Adam (Table 6), its usual rate
  double l2 = 1e-4;                             // Table 6: 0.01, which belongs to raw targets
  /// Target and features are raw times (Table 5), in units of their mean in training. Otherwise the target is
  /// the ratio to the time in the first base configuration, and times are features as logarithms.
  bool raw = false;
};

struct Sizeless {
  SizelessOptions options;
  Network network;
  Adam adam;
  InputScale scale;  // of the features
  double unit = 1;   // raw: what times are divided by
};

/// For one instance: features of the base runs, its context and one target configuration. Unscaled.
std::vector<float> sizeless_features(const Sizeless& s, const PerformanceInstance& instance,
                                     std::span<const std::size_t> known, std::size_t target);
/// What the network is to answer for this target: a ratio, or a time in units.
double sizeless_label(const Sizeless& s, const PerformanceInstance& instance,
                      std::span<const std::size_t> known, std::size_t target);
/// And back: a time.
double sizeless_time(const Sizeless& s, const PerformanceInstance& instance,
                     std::span<const std::size_t> known, double answer);

/// A fresh network; features are scaled to those of random choices among `instances`.
Sizeless make_sizeless(const PerformanceSet& set, std::span<const std::size_t> instances,
                       const SizelessOptions& options, Random& random);

/// y [B,1] of features x [B,F] (scaled), embedding e [B,E] (undefined where there is none).
at::Tensor sizeless_answer(const Sizeless& s, const at::Tensor& x, const at::Tensor& e);
/// Mean of |y - label| / label (MAPE, Table 6), and l2 times the squared parameters. label [B,1] > 0.
at::Tensor sizeless_loss(const Sizeless& s, const at::Tensor& y, const at::Tensor& label);

}  // namespace flash
