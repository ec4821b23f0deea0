// What comes over the learner's socket.
#include "fuzz/messages.h"
#include "link/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  flash::link::check_either(data, size, flash::link::decode_up, flash::link::decode_down);
  return 0;
}
