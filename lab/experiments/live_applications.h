// Purpose: the applications of `flash-bench live` and their load: chosen so that three fit one machine.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/workloads/application.h"

namespace flash::lab {

/// Candidates of the generator, best first come first served: whose requests take 1 to 10 ms of CPU (a second
/// holds many), with two or more workers, at most 256 MiB, bursts of at most 6 requests on the mean.
std::vector<Application> live_candidates(std::uint64_t seed, std::size_t count);

/// The trace with its highest demanded rate made `peak` (requests per second). Recorded traces too.
std::string trace_with_peak(const std::string& trace, double peak);

/// One per round: load patterns of the generator's other applications, which change within `within_s`.
std::vector<std::string> live_traces(std::uint64_t seed, std::size_t count, double within_s);

}  // namespace flash::lab
