#include "agents/tabular_q.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace flash {

std::size_t Cells::size() const {
  std::size_t n = 1;
  for (const auto& t : thresholds) n *= t.size() + 1;
  return n;
}

std::size_t Cells::of(std::span<const float> state) const {
  assert(state.size() == thresholds.size());
  std::size_t cell = 0;
  for (std::size_t d = 0; d < thresholds.size(); ++d) {
    const auto& t = thresholds[d];
    cell = cell * (t.size() + 1) +
           static_cast<std::size_t>(std::upper_bound(t.begin(), t.end(), state[d]) - t.begin());
  }
  return cell;
}

Cells frequency_cells() {
  return {{{0.05F, 0.1F, 0.2F, 0.4F},   // IPS: 0.5, 1, 2, 4 G instructions per second and CPU
           {},                          // whether they are counted does not change
           {0.25F, 0.5F, 0.75F, 0.9F},  // CPU use
           {0.15F, 0.35F, 0.55F, 0.75F,
            0.95F},        // place of the frequency: two levels of eleven each, the top alone
           {0.8F, 0.99F},  // SLO preservation: clearly missed, just missed, kept
           {0.99F},
           {},  // the gain of IPS: told by the cells of CPU use and SLO preservation
           {},  // CPU use of the last 3, 8, 64 steps and its peak: the cells of the last step's
           {},
           {},
           {},
           {},  // latency over its objective, now and recently: the cells of SLO preservation
           {},
           {}}};
}

TabularQ make_tabular_q(Cells cells, int levels, const TabularQOptions& options) {
  TabularQ t;
  t.options = options;
  t.levels = static_cast<std::size_t>(levels);
  t.q.assign(cells.size() * t.levels, 0.0F);
  t.visits = t.q;
  t.cells = std::move(cells);
  return t;
}

namespace {

/// Of the levels that were tried; 0 where none was.
double best_tried(const TabularQ& t, std::size_t cell) {
  double best = 0;
  bool tried = false;
  for (std::size_t i = cell * t.levels; i < (cell + 1) * t.levels; ++i)
    if (t.visits[i] > 0 && (!tried || t.q[i] > best)) {
      best = t.q[i];
      tried = true;
    }
  return best;
}

}  // namespace

double update(TabularQ& t, std::span<const float> s_t, std::size_t level_t, double r_tp1,
              std::span<const float> s_tp1) {
  assert(level_t < t.levels);
  const std::size_t at = t.cells.of(s_t) * t.levels + level_t;
  const double y_t = r_tp1 + t.options.discount * best_tried(t, t.cells.of(s_tp1));
  const double error = y_t - t.q[at];
  t.visits[at] = std::min(t.visits[at] + 1, 1e6F);
  const double rate = std::max(t.options.least_rate, std::pow(double{t.visits[at]}, -0.7));
  t.q[at] = static_cast<float>(t.q[at] + rate * error);
  return error * error;
}

double update(TabularQ& t, const Replay& replay, const Scaling& scaling, Random& random,
              bool by_fallback_only) {
  std::vector<std::size_t> indices(static_cast<std::size_t>(t.options.batch));
  replay.sample(random, indices, by_fallback_only);
  double loss = 0;
  for (std::size_t index : indices) {
    const StoredTransition s = replay.at(index);
    loss += update(t, s.state, static_cast<std::size_t>(s.action[0]), scaling.reward(s.reward), s.next_state);
  }
  return loss / t.options.batch;
}

void rescale(TabularQ& t, const Scaling& from, const Scaling& to) {
  for (std::size_t i = 0; i < t.q.size(); ++i)
    if (t.visits[i] > 0)
      t.q[i] = static_cast<float>((from.value_offset() - to.value_offset() + from.value_scale() * t.q[i]) /
                                  to.value_scale());
}

namespace {

/// tanh(kSteep * 0.0022) is 1 in float.
constexpr float kSteep = 4096;

std::vector<std::size_t> intervals(const Cells& cells, std::size_t cell) {
  std::vector<std::size_t> at(cells.thresholds.size());
  for (std::size_t d = at.size(); d-- > 0;) {
    const std::size_t n = cells.thresholds[d].size() + 1;
    at[d] = cell % n;
    cell /= n;
  }
  return at;
}

/// What was never tried is worth so much less than the worst that was, in deviations of the reward: in a cell
/// where one level was tried, that one is chosen.
constexpr float kUntried = 1;

/// Values of every cell as exported.
std::vector<float> filled(const TabularQ& t) {
  std::vector<float> q = t.q;
  const std::size_t cells = t.cells.size(), levels = t.levels;
  std::vector<std::size_t> visited;
  for (std::size_t c = 0; c < cells; ++c) {
    float lowest = std::numeric_limits<float>::infinity();
    for (std::size_t i = c * levels; i < (c + 1) * levels; ++i)
      if (t.visits[i] > 0) lowest = std::min(lowest, t.q[i]);
    if (lowest == std::numeric_limits<float>::infinity()) continue;
    visited.push_back(c);
    for (std::size_t i = c * levels; i < (c + 1) * levels; ++i)
      if (t.visits[i] == 0) q[i] = lowest - kUntried;
  }
  for (std::size_t c = 0; c < cells && !visited.empty(); ++c) {
    if (std::binary_search(visited.begin(), visited.end(), c)) continue;
    const auto at = intervals(t.cells, c);
    std::size_t nearest = visited.front(), least = std::numeric_limits<std::size_t>::max();
    for (std::size_t v : visited) {
      const auto other = intervals(t.cells, v);
      std::size_t distance = 0;
      for (std::size_t d = 0; d < at.size(); ++d)
        distance += at[d] > other[d] ? at[d] - other[d] : other[d] - at[d];
      if (distance < least) {
        least = distance;
        nearest = v;
      }
    }
    std::copy_n(q.begin() + static_cast<std::ptrdiff_t>(nearest * levels), levels,
                q.begin() + static_cast<std::ptrdiff_t>(c * levels));
  }
  return q;
}

}  // namespace

std::vector<DenseLayer> to_layers(const TabularQ& t) {
  const std::size_t entries = t.cells.thresholds.size(), cells = t.cells.size(), levels = t.levels;
  std::vector<std::size_t> first(entries);  // unit of each entry's first threshold
  std::size_t units = 0;
  for (std::size_t d = 0; d < entries; ++d) {
    first[d] = units;
    units += t.cells.thresholds[d].size();
  }
  const auto make = [](std::size_t inputs, std::size_t outputs, Activation f) {
    return DenseLayer{static_cast<int>(inputs),
                      static_cast<int>(outputs),
                      std::vector<float>(inputs * outputs),
                      std::vector<float>(outputs),
                      f,
                      false};
  };
  // +1 above the threshold, -1 below.
  DenseLayer steps = make(entries, units, Activation::Tanh);
  for (std::size_t d = 0; d < entries; ++d)
    for (std::size_t k = 0; k < t.cells.thresholds[d].size(); ++k) {
      steps.weights[(first[d] + k) * entries + d] = kSteep;
      steps.bias[first[d] + k] = -kSteep * t.cells.thresholds[d][k];
    }
  // (lower step - upper step) / 2 is 1 within an interval, else 0; all entries' must be 1.
  DenseLayer one_of = make(units, cells, Activation::Relu);
  for (std::size_t c = 0; c < cells; ++c) {
    const auto at = intervals(t.cells, c);
    float bias = 1 - static_cast<float>(entries);
    for (std::size_t d = 0; d < entries; ++d) {
      const std::size_t n = t.cells.thresholds[d].size();
      if (at[d] > 0)
        one_of.weights[c * units + first[d] + at[d] - 1] = 0.5F;
      else
        bias += 0.5F;
      if (at[d] < n)
        one_of.weights[c * units + first[d] + at[d]] = -0.5F;
      else
        bias += 0.5F;
    }
    one_of.bias[c] = bias;
  }
  DenseLayer values = make(cells, levels, Activation::Linear);
  const std::vector<float> q = filled(t);
  for (std::size_t c = 0; c < cells; ++c)
    for (std::size_t l = 0; l < levels; ++l) values.weights[l * cells + c] = q[c * levels + l];
  return {std::move(steps), std::move(one_of), std::move(values)};
}

void TabularLearner::update(int n, const Experience& from, UpdateSum& sum) {
  sum.repeat(n, [&] {
    return Losses{flash::update(table, from.replay, from.scaling, from.random, from.by_fallback_only), 0};
  });
}

void TabularLearner::policy(PolicySnapshot& p, bool /*online*/) const {
  p.actor = to_layers(table);
  p.mean.assign(p.mean.size(), 0.0F);  // its cells are cut in the raw state
  p.scale.assign(p.scale.size(), 1.0F);
}

void TabularLearner::checkpoint(TensorFile& file) const {
  put_numbers(file, "table", table.q);
  put_numbers(file, "visits", table.visits);
}

Result<void> TabularLearner::resume(const TensorFile& file) {
  FLASH_CHECK(get_numbers(file, "table", -1e6F, table.q));
  return get_numbers(file, "visits", 0, table.visits);
}

Result<std::unique_ptr<Learner>> tabular_q_learner(const AgentSpaces& spaces, const AgentOptions& options,
                                                   Random& /*random*/) {
  if (spaces.state_dim != kFrequencyCellEntries)
    return Error(std::errc::invalid_argument,
                 "tabular-q has cells for " + std::to_string(kFrequencyCellEntries) +
                     " state entries, not for " + std::to_string(spaces.state_dim));
  TabularQOptions o;
  o.discount = options.discount;
  return std::unique_ptr<Learner>(
      std::make_unique<TabularLearner>(make_tabular_q(frequency_cells(), spaces.action_dim, o)));
}

}  // namespace flash
