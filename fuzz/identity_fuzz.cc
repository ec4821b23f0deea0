// What says who somebody is, from outside: tokens, JWTs, keys, wishes and their answers, a server's first
// line. The first byte says which: an error of one printable line, or what says the same when it is written
// again.
#include <cstdint>
#include <string_view>

#include "coordinator/authority.h"
#include "coordinator/jwt.h"
#include "coordinator/messages_enrol.h"
#include "coordinator/nkey.h"
#include "coordinator/server_version.h"
#include "coordinator/text_codes.h"
#include "fuzz/messages.h"

namespace flash::coordinator {
namespace {

template <class Decode>
void check_message(std::string_view bytes, Decode decode) {
  const auto message = decode(bytes);
  if (!message) return link::check_error(message.error());
  const auto written = encode(*message);
  const auto again = decode(written);
  FUZZ_REQUIRE(again && encode(*again) == written);
}

template <class T>
bool is_good(const Result<T>& result) {
  if (!result) link::check_error(result.error());
  return result.has_value();
}

void check_key(std::string_view text) {
  const auto seed = NKey::from_seed(text);
  FUZZ_REQUIRE(!is_good(seed) || seed->seed() == text);
  (void)is_good(kind_of_public(text));
  const auto bytes = from_base32(text);
  FUZZ_REQUIRE(!is_good(bytes) || base32(*bytes) == text);
  const auto others = from_base64url(text);
  FUZZ_REQUIRE(!is_good(others) || base64url(*others) == text);
}

void check_jwt(std::string_view text) {
  (void)is_good(read_jwt(text));
  (void)is_good(read_creds(text));
  // Most changes end at the signature: the claims alone.
  (void)is_good(read_claims(text));
}

void check_subject(std::string_view subject) {
  const auto petitioner = petitioner_of(subject);
  FUZZ_REQUIRE(!petitioner || wish_subject(*petitioner) == subject);
}

void check_info(std::string_view line) {
  const auto version = version_in(line);
  if (is_good(version)) (void)why_too_old(*version);
}

void check_seal(std::string_view text) {
  const auto seal = decode_seal(text);
  FUZZ_REQUIRE(!is_good(seal) || encode(*seal) == text);
  (void)is_good(Authority::of(text));
}

void check_reply(std::string_view reply) {
  const bool own = is_inbox_of(reply, "n1");
  FUZZ_REQUIRE(!own || (reply.starts_with("_INBOX.n1.") && reply.find_first_of("*> \r\n$") == reply.npos));
}

}  // namespace
}  // namespace flash::coordinator

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash::coordinator;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 't':
      check_message(bytes, decode_token);
      break;
    case 'w':
      check_message(bytes, decode_wish);
      break;
    case 'c':
      check_message(bytes, decode_credentials);
      break;
    case 'k':
      check_key(bytes);
      break;
    case 'j':
      check_jwt(bytes);
      break;
    case 's':
      check_seal(bytes);
      break;
    case 'r':
      check_reply(bytes);
      break;
    case 'i':
      check_info(bytes);
      break;
    default:
      check_subject(bytes);
  }
  return 0;
}
