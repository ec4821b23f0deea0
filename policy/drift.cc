#include "policy/drift.h"

#include <algorithm>
#include <cmath>

#include "policy/explain.h"

namespace flash {

Drift judge_drift(const PolicySnapshot& s, const RecentSteps& recent, const Drift& before) {
  Drift d;
  const std::size_t dim = s.mean.size();
  if (!recent.enough() || s.scale.size() != dim) return d;
  d.known = true;
  for (std::size_t i = 0; i < dim; ++i) {
    double sum = 0;
    for (std::size_t n = 0; n < recent.size(); ++n) sum += recent[n].state.values[i];
    const double of_late = sum / static_cast<double>(recent.size());
    const double shift = std::abs(of_late - s.mean[i]) / std::max<double>(s.scale[i], kSmallestDeviation);
    if (d.entry >= 0 && shift <= d.shift) continue;
    d.shift = shift;
    d.of_late = of_late;
    d.in_training = s.mean[i];
    d.entry = static_cast<int>(i);
  }
  d.drifted = d.shift > (before.drifted ? kDriftOver : kDrifted);
  return d;
}

void append_drift(std::string& out, const Drift& d, const TaskSpec& spec) {
  const StateEntry* const entry = state_entry(spec, d.entry);
  if (!d.known || !entry) return;
  out.append(entry->name);
  appendf(out, " has been %.2f of late, %.2f in training (%.1f deviations)", d.of_late, d.in_training,
          d.shift);
}

}  // namespace flash
