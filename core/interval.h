// Purpose: the mean of some values with its 95 % interval.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <span>

namespace flash {

struct Interval {
  double mean = 0, lo = 0, hi = 0;
};

/// Student's t interval of the mean; of one value the value itself, of none zeros.
Interval interval_of(std::span<const double> values);

/// {"mean", "lo", "hi"}, for nlohmann::basic_json.
template <class Json>
void to_json(Json& json, const Interval& i) {
  json = Json{{"mean", i.mean}, {"lo", i.lo}, {"hi", i.hi}};
}

}  // namespace flash
