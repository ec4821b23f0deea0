// Purpose: what FLASH adds to a decision, and what its embedding and its training cost (FLASH 5.4, Table 3),
// with plain libtorch doing the same beside each.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/result.h"

namespace flash::lab {

/// {"decision_us", "embedding_ms", "update_ms"}: medians of CPU time of one thread, ours and plain
/// libtorch's. {"baseline": {"update_gflop", "libtorch_gflop_per_s"}}: the operations of an update of the
/// paper's encoder, and what libtorch's product of large matrices does per second here. {"kernel",
/// "gru_kernel"}: which of our kernels a decision and the paper's encoder ran on; {"blas"}: libtorch's.
/// `quick`: of three rounds instead of nine.
Result<nlohmann::json> measure_overhead(bool quick);

}  // namespace flash::lab
