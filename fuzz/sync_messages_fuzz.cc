// What comes over flash-sync's socket.
#include "fuzz/messages.h"
#include "link/sync_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flash::link::check_either(data, size, flash::link::sync::decode_up, flash::link::sync::decode_down);
  return 0;
}
