// Purpose: what is known of how applications run in configurations: the data of the task resource
// configuration search (FLASH Table 1, A.2).
// Ownership: values.
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

namespace flash {

/// One application with one input in one environment, in one configuration.
struct PerformanceRun {
  std::vector<double> configuration;  // PerformanceSet::configuration names its entries
  double time = 0;                    // > 0; any unit, but one for all runs of a set
  std::vector<double> metrics;        // monitored in that run
};

/// All runs that a prediction may start from and go to.
struct PerformanceInstance {
  std::string application;           // splits are by this
  std::string name;                  // application and what tells its instances apart
  std::vector<double> context;       // known before any run, as the input's size
  std::vector<PerformanceRun> runs;  // of different configurations
};

struct PerformanceSet {
  std::string kind;                        // "chunkfunc", "cloudbandit", "sizeless"
  std::vector<std::string> configuration;  // names
  std::vector<bool> everywhere;            // entries that mean the same in every environment
  std::vector<std::string> metrics, context;
  std::vector<PerformanceInstance> instances;
  std::size_t rows = 0, skipped = 0;  // read; of these failed runs
};

}  // namespace flash
