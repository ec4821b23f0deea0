// What comes over flash-sync's socket, the first byte says from which end: an error of one printable line, or
// a message within the bounds that says the same when it is written and read again.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "link/sync_messages.h"

namespace flash::link::sync {
namespace {

template <class Decode>
void check(std::string_view bytes, Decode decode) {
  const auto message = decode(bytes);
  if (!message) {
    for (unsigned char c : message.error().message()) FUZZ_REQUIRE(c >= 0x20 && c != 0x7f);
    FUZZ_REQUIRE(message.error().message().size() < 1024);
    return;
  }
  FUZZ_REQUIRE(validate(*message));
  const auto written = encode(*message);
  const auto again = decode(written);
  FUZZ_REQUIRE(again && again->index() == message->index());
  FUZZ_REQUIRE(encode(*again) == written);
}

}  // namespace
}  // namespace flash::link::sync

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::link::sync;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 1)
    check(bytes, decode_up);
  else
    check(bytes, decode_down);
  return 0;
}
