// Purpose: which encoder makes an embedding of a pair's trajectories, and its sizes (FLASH 3.2, Table 4).
// Ownership: values.
// Thread rule: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace flash {

enum class EncoderKind : std::uint8_t { Gru, Set };
std::string_view to_string(EncoderKind kind);  // "gru", "set"

/// FLASH Table 4 where nothing else is said.
struct EncoderOptions {
  EncoderKind kind = EncoderKind::Gru;
  int embedding = 32;           // 32 and 64 are studied; at most 256
  int hidden = 256;             // per direction; Set: of the MLP over steps
  int layers = 2;               // Set: hidden layers of the MLP over steps
  int fc = 256;                 // neurons of the FC layer
  double learning_rate = 3e-4;  // Adam
};

}  // namespace flash
