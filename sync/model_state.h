// Purpose: what flash-sync holds of pretrained models and what it refused, for its metrics and its bus
// interface.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flash::sync {

/// Why something was not taken.
enum class ModelRefusal : std::uint8_t {
  Malformed,   // no message of its kind, or out of bounds
  Unsigned,    // by no key that is pinned here
  Old,         // a version below one that was good here, or signed for another place
  Damaged,     // a chunk, or the whole, is not what was signed
  TooLarge,    // more bytes than its manifest says
  Incomplete,  // its manifest or a chunk is not there
  Software,    // it wants a newer flashd
};
inline constexpr std::size_t kModelRefusals = 7;
std::string_view to_string(ModelRefusal r);

struct ModelClientState {
  struct Held {
    std::string name;
    std::uint64_t version = 0;
  };
  std::vector<Held> held{{"resource-limits", 0}, {"cpu-frequency", 0}};
  std::uint64_t taken = 0, went_back = 0;
  std::array<std::uint64_t, kModelRefusals> refused{};  // by ModelRefusal
};

}  // namespace flash::sync
