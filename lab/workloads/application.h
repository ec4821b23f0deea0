// Purpose: app.json, one description of an application with three uses: `flash-workload serve` runs it,
// `flash-workload load` drives it, lab/sim/ models it. AWARE 2.3 and 5.1 compose applications of segments.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/segment.h"

namespace flash {

/// A part of each request: `count` units of a segment, each with a payload in the segment's own unit (bytes,
/// rows, operations, dimension; segment.h).
struct SegmentUse {
  const Segment* segment = nullptr;
  double payload = 0;
  int count = 1;
};

/// An A_i of FLASH. Together with an E_j (lab/sim/environment.h, or the machine at hand) it is a pair.
struct Application {
  std::string name;
  std::vector<SegmentUse> segments;   // in this order, by one worker
  int workers = 2;                    // requests served at the same time
  double memory_mib = 64;             // kept by the process
  double hot_share = 0.5;             // of it, touched all the time; less memory than that thrashes
  double memory_per_request_kib = 0;  // held while a request is served or waits
  double service_cv = 0.2;            // coefficient of variation of a request's work (lognormal), the tail
  double burst = 1;                   // mean number of requests that arrive together (1: Poisson)
  double slo_p99_ms = 100;
  std::string trace = "flat:20";  // demanded requests per second over time; trace.h
};

inline constexpr std::size_t kSegmentsMax = 64;
inline constexpr std::size_t kApplicationsMax = 100'000;

/// {"name", "segments": [{"segment", "payload", "count"}], ...}: unknown and repeated keys, wrong types and
/// ranges are errors that name file and key. Name and segments are required, the rest has the defaults above.
Parsed<Application> parse_application(std::string_view json, std::string_view file);
/// A pool: {"version": 1, "applications": [...]}, at least one, with different names.
Parsed<std::vector<Application>> parse_applications(std::string_view json, std::string_view file);
std::string to_json_text(const std::vector<Application>& applications);

/// FILE or FILE#NAME: the file is an application or a pool; without a name it holds just one.
Parsed<Application> read_application(std::string_view file_and_name);
Parsed<std::vector<Application>> read_applications(const std::string& file);

/// FLASH A.3's generator: segments drawn with replacement, payloads from AWARE 2.3's scenarios, all else from
/// ranges that docs/APPLICATIONS.md lists. The n-th application of a seed does not depend on count.
std::vector<Application> generate_applications(std::size_t count, std::uint64_t seed);
/// Another trace as the generator could have drawn it for this application, by seed.
std::string generate_trace(const Application& application, std::uint64_t seed);

/// The same segments in another application as the generator could have drawn it: memory, workers, spread of
/// the work, objective and trace are others, by seed.
Application redrawn(const Application& application, std::uint64_t seed);

inline constexpr int kUpdateScenarios = 7;

/// AWARE 2.3's seven updates of an application (file size, table size, operations, image dimension, text
/// size, matrix dimension, load), by number 0-6; one that does not concern it returns it unchanged.
Application updated(const Application& application, int scenario);

/// The payloads that a scenario changes from, or those that it changes to; empty: none concerns the segment.
std::span<const double> payload_choices(const Segment& segment, bool updated);

/// What one request costs on the reference core (docs/APPLICATIONS.md), for sim/: from the segments' profiles
/// (segment.h), which `flash-workload calibrate` measures.
struct RequestCost {
  double cycles = 0;     // scale with the frequency
  double stall_s = 0;    // do not (memory, I/O)
  double off_cpu_s = 0;  // waited without holding a CPU (disk, network)
};
/// With what a request costs beside its segments: HTTP, its own memory, its share of the hot pages.
RequestCost request_cost(const Application& application);

}  // namespace flash
