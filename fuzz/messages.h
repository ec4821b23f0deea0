// Purpose: what must hold of bytes that come over a socket or the network, for the fuzzers of all of them.
// Ownership: none.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "fuzz/require.h"

namespace flash::link {

/// One printable line of a log.
inline void check_error(const Error& error) {
  for (unsigned char c : error.message()) FUZZ_REQUIRE(c >= 0x20 && c != 0x7f);
  FUZZ_REQUIRE(error.message().size() < 1024);
}

/// An error of one printable line, or a message within the bounds that says the same when it is written and
/// read again.
template <class Decode>
void check_message(std::string_view bytes, Decode decode) {
  const auto message = decode(bytes);
  if (!message) return check_error(message.error());
  FUZZ_REQUIRE(validate(*message));
  const auto written = encode(*message);
  const auto again = decode(written);
  FUZZ_REQUIRE(again && again->index() == message->index());
  FUZZ_REQUIRE(encode(*again) == written);
}

/// The first byte says which end sent the others.
template <class DecodeUp, class DecodeDown>
void check_either(const std::uint8_t* data, std::size_t size, DecodeUp up, DecodeDown down) {
  if (size == 0) return;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 1)
    check_message(bytes, up);
  else
    check_message(bytes, down);
}

}  // namespace flash::link
