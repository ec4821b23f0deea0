// What comes over the network, or lies in flash-sync's directory, about pretrained models; the first byte
// says what reads it: an error of one printable line, or a message that says the same when it is written and
// read again.
#include <cstdint>
#include <string_view>

#include "coordinator/messages_models.h"
#include "fuzz/coordinator_messages.h"

namespace flash::coordinator {
namespace {

void check_file(std::string_view bytes) {
  const auto file = link::decode_signed(bytes);
  if (!file) return link::check_error(file.error());
  FUZZ_REQUIRE(link::encode(*file) == bytes);
  // Nobody's key: what is in it must not matter.
  FUZZ_REQUIRE(!link::verify_signed(*file, {}, "0.1.0"));
}

void check_subject(std::string_view subject) {
  const auto asking = model_asking_node(subject);
  FUZZ_REQUIRE(!asking || model_question_subject(*asking) == subject);
  // Nothing that the server reads as many.
  FUZZ_REQUIRE(!is_model_subject(subject) || subject.find_first_of("*> \r\n") == subject.npos);
}

}  // namespace
}  // namespace flash::coordinator

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::coordinator;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == '0')
    check_one(bytes, decode_models);
  else if (data[0] == '1')
    check_one(bytes, decode_signed_manifest);
  else if (data[0] == 'q')
    check_one(bytes, decode_model_question);
  else if (data[0] == 'a')
    check_one(bytes, decode_model_answer);
  else if (data[0] == 's')
    check_subject(bytes);
  else if (data[0] == '2')
    check_one(bytes, flash::link::decode_manifest);
  else
    check_file(bytes);
  return 0;
}
