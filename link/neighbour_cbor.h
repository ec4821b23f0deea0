// Purpose: a Neighbour inside a message, for the files that define messages alone (cbor.h).
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <string>

#include "link/cbor.h"
#include "link/neighbour.h"

namespace flash::link::cbor {

/// `path` begins the name of the field that is out of bounds: "neighbour.".
Result<void> check(const Neighbour& n, const std::string& path);
/// As one map. REQUIRES: check() passes.
void write(Writer& w, const Neighbour& n);
Result<void> read(const json& map, const std::string& path, Neighbour& n);

}  // namespace flash::link::cbor
