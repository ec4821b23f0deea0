// Purpose: how like two embeddings are (FLASH 5.5): the learner, the benchmarks and the coordinator agree on
// it.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <span>

namespace flash {

/// S(e_i, e_j) = (1 - ED + CS) / 2, FLASH 5.5. ED: Euclidean distance normalised by the sum of both lengths,
/// in [0,1]; CS: cosine similarity, 0 where an embedding is all zeros. S is 1 for equal embeddings, -1/2 for
/// opposite ones. REQUIRES: one size.
double similarity(std::span<const float> e_i, std::span<const float> e_j);

/// S at and below which a pair says nothing of another: the learner takes nothing of such a neighbour, the
/// coordinator prefers none for what it has been through.
inline constexpr double kUnlike = 0.5;

/// The Euclidean distance. REQUIRES: one size.
double euclidean(std::span<const float> e_i, std::span<const float> e_j);

}  // namespace flash
