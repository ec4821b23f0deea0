// Purpose: FLASH 5.1, Table 2 on public measurements: the supervised agent with and without embedding, and
// ours, on applications that it never saw.
// Ownership: values.
// Thread rule: measure_rcs() starts threads of its own.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"

namespace flash::lab {

struct RcsOptions {
  std::string dataset;
  std::string test;  // empty: half of the dataset's applications, drawn afresh in each repetition
  int repeats = 10;
  std::uint64_t seed = 1;
  int draws = 6;  // sets of known runs per test instance
  int threads = 2;
  int epochs = 200;          // of the networks (FLASH Table 6)
  bool curves_only = false;  // what does not train a network: seconds instead of minutes
};

/// {"mape": {METHOD: {"1", "2", "3": {"mean", "lo", "hi"}}}, "mape_chosen": ..., ...}: mean absolute
/// percentage error as a fraction, mean over test instances, then over repetitions, with the 95 % t interval
/// of the latter. "mape": from drawn runs of each test instance; "mape_chosen": all methods from those that
/// CurveModel::worth_knowing() says (as Sizeless has its base sizes, which are a choice, too).
Result<nlohmann::json> measure_rcs(const RcsOptions& options);

}  // namespace flash::lab
