// Purpose: a measured value that knows how far it can be trusted. Nothing is learned from a sample that is
// not trusted: a counter can lie.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string_view>

namespace flash {

/// How far a value can be trusted.
enum class Validity : std::uint8_t {
  Missing,   // the source does not exist here, or has not answered yet (first tick of a rate)
  Invalid,   // the source answered, but the value is impossible (range, counter went backwards, parse error)
  Stale,     // the last good value; the source did not answer in this tick
  Degraded,  // measured with less than usual certainty (perf enabled/running ratio low, few requests)
  Proxy,     // not the thing itself but something that moves with it; never shown as the thing itself
  Good,
};

std::string_view to_string(Validity v);

struct Sample {
  double value = 0;
  Validity validity = Validity::Missing;

  static Sample good(double v) { return {v, Validity::Good}; }
  static Sample proxy(double v) { return {v, Validity::Proxy}; }
  static Sample missing() { return {}; }
  static Sample invalid() { return {0, Validity::Invalid}; }

  /// May a controller act on it? (Stale, Degraded, Proxy and Good.)
  bool usable() const { return validity >= Validity::Stale; }
  /// May a learner learn from it?
  bool trusted() const { return validity == Validity::Good; }
  double value_or(double fallback) const { return usable() ? value : fallback; }
};

}  // namespace flash
