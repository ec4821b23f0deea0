// Purpose: an Episode inside a message, for the files that define messages alone (cbor.h).
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <string>

#include "link/cbor.h"
#include "link/episode.h"

namespace flash::link::cbor {

/// The name of what made an embedding.
void check_model(Check& c, const std::string& model, bool may_be_empty);
/// `path` begins the name of the field that is out of bounds: "episode.".
Result<void> check(const Episode& e, const std::string& path);
/// As one map. REQUIRES: check() passes.
void write(Writer& w, const Episode& e);
Result<void> read(const json& map, const std::string& path, Episode& e);

}  // namespace flash::link::cbor
