// Purpose: Q-learning with a table for cpu-frequency, as SmartOverclock (Wang et al. 2022) had it, over cells
// of FLASH Table 9's state. docs/agents/q_learning.md has the cells. No torch here.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agents/learner.h"
#include "agents/replay.h"
#include "agents/scaling.h"
#include "core/random.h"

namespace flash {

/// Each entry of the state is cut at its thresholds, ascending; a cell is one interval of each.
struct Cells {
  std::vector<std::vector<float>> thresholds;

  std::size_t size() const;
  /// An entry that equals a threshold lies above it.
  std::size_t of(std::span<const float> state) const;
};

/// Entries as policy/observation_space.h orders them: IPS, IPS known, CPU use, place of the frequency, SLO
/// preservation of latency and throughput, gain of IPS, recent CPU use. 450 cells.
Cells frequency_cells();
inline constexpr int kFrequencyCellEntries = 14;

struct TabularQOptions {
  int batch = 32;            // replayed transitions per update
  double least_rate = 0.01;  // the learning rate falls as visits^-0.7 of the entry to this
  double discount = 0.99;
};

struct TabularQ {
  TabularQOptions options;
  Cells cells;
  std::size_t levels = 0;
  std::vector<float> q;       // [cells][levels], centred and scaled as Scaling says
  std::vector<float> visits;  // the same shape; 0: never tried
};

TabularQ make_tabular_q(Cells cells, int levels, const TabularQOptions& options);

/// Q(s_t, a_t) += rate (r_t+1 + gamma max_a Q(s_t+1, a) - Q(s_t, a_t)) (Watkins, Dayan 1992), with r_t+1
/// centred and scaled. The maximum is over what was tried: what never was is not believed (Fujimoto et al.
/// 2019, tabular BCQ), and a cell never visited counts as usual, 0. Returns the error before, squared.
double update(TabularQ& table, std::span<const float> s_t, std::size_t level_t, double r_tp1,
              std::span<const float> s_tp1);
/// `options.batch` transitions of the replay. Returns the mean squared error. REQUIRES: there is one.
double update(TabularQ& table, const Replay& replay, const Scaling& scaling, Random& random,
              bool by_fallback_only = false);

/// The scaling changes; what the entries mean stays.
void rescale(TabularQ& table, const Scaling& from, const Scaling& to);

/// The table as a network of raw states: steps at the thresholds (steep tanh), one unit per cell, values.
/// Exact but for states within 0.003 of a threshold, where neighbours mix. Levels never tried are
/// below the lowest that was in their cell; a cell never visited has the values of the nearest that was.
std::vector<DenseLayer> to_layers(const TabularQ& table);

class TabularLearner : public Learner {
 public:
  explicit TabularLearner(TabularQ t) : table(std::move(t)) {}
  void update(int n, const Experience& from, UpdateSum& sum) override;
  void policy(PolicySnapshot& policy, bool online) const override;
  void rescale(const Scaling& from, const Scaling& to) override { flash::rescale(table, from, to); }
  void checkpoint(TensorFile& file) const override;
  Result<void> resume(const TensorFile& file) override;
  OfflinePhase offline_phase() const override { return OfflinePhase::Itself; }

  TabularQ table;
};
/// The row "tabular-q". EINVAL: states that it has no cells for.
Result<std::unique_ptr<Learner>> tabular_q_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                                   Random& random);

}  // namespace flash
