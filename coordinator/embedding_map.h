// Purpose: many embeddings as points in a plane: their two principal components.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace flash::coordinator {

struct EmbeddingMap {
  std::vector<std::array<double, 2>> points;  // one per embedding, in their order
  std::array<double, 2> explained{};          // share of the variance that each axis shows; 0: there is none
};

/// Deterministic: the same embeddings give the same points, and each axis points to where its largest weight
/// is positive. REQUIRES: all are finite and of one size.
EmbeddingMap map_of(std::span<const std::vector<float>* const> embeddings);

}  // namespace flash::coordinator
