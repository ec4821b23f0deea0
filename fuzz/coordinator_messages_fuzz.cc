// What comes over the network between flash-sync and flash-coordinator; the first byte says which end reads
// it: an error of one printable line, or a message that says the same when it is written and read again.
#include <cstdint>
#include <string_view>

#include "coordinator/messages.h"
#include "coordinator/messages_fleet.h"
#include "coordinator/messages_pages.h"
#include "fuzz/coordinator_messages.h"

namespace flash::coordinator {
namespace {

void check_subject(std::string_view subject) {
  const auto origin = origin_of(subject);
  FUZZ_REQUIRE(!origin || record_subject(*origin) == subject);
  const auto beating = heartbeat_origin(subject);
  FUZZ_REQUIRE(!beating || heartbeat_subject(*beating) == subject);
  const auto coordinator = coordinator_of(subject);
  FUZZ_REQUIRE(!coordinator || coordinator_subject(*coordinator) == subject);
  const auto asking = asking_node(subject);
  FUZZ_REQUIRE(!asking || question_subject(*asking) == subject);
  const auto fleet = fleet_asking_node(subject);
  FUZZ_REQUIRE(!fleet || fleet_question_subject(*fleet) == subject);
}

/// What is a record has a place, and that place is its own.
void check_record(std::string_view bytes) {
  const auto record = decode_record(bytes);
  const auto place = decode_record_place(bytes);
  FUZZ_REQUIRE(!record || (place && place->run == record->run && place->seq == record->seq &&
                           place->prev == record->prev));
  FUZZ_REQUIRE(!place || place->prev < place->seq);
  check_one(bytes, decode_record);
}

}  // namespace
}  // namespace flash::coordinator

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::coordinator;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == '0')
    check_record(bytes);
  else if (data[0] == '1')
    check_one(bytes, decode_watermark);
  else if (data[0] == 'q')
    check_one(bytes, decode_nearest_question);
  else if (data[0] == 'a')
    check_one(bytes, decode_nearest_answer);
  else if (data[0] == 'h')
    check_one(bytes, decode_heartbeat);
  else if (data[0] == 'c')
    check_one(bytes, decode_coordinator_beat);
  else if (data[0] == 'f')
    check_one(bytes, decode_fleet_question);
  else if (data[0] == 'p')
    check_one(bytes, decode_fleet_page);
  else
    check_subject(bytes);
  return 0;
}
