// Purpose: what must hold of each message to and from the coordinator, for its fuzzers.
// Ownership: none.
// Thread rule: none needed.
#pragma once

#include <concepts>
#include <string_view>

#include "fuzz/messages.h"

namespace flash::coordinator {

/// An error of one printable line, or a message that says the same when it is written and read again.
/// REQUIRES: encode() of the message is declared before this header, or found by its argument.
template <class Decode>
void check_one(std::string_view bytes, Decode decode) {
  const auto message = decode(bytes);
  if (!message) return link::check_error(message.error());
  const auto written = encode(*message);
  const auto again = decode(written);
  FUZZ_REQUIRE(again);
  FUZZ_REQUIRE(encode(*again) == written);
  if constexpr (std::equality_comparable<decltype(*again)>) FUZZ_REQUIRE(*again == *message);
}

}  // namespace flash::coordinator
