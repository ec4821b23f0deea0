// Purpose: what a decoder says of a message with one field changed.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <string>

#include "core/json.h"

namespace flash::coordinator {

template <class Decode>
std::string error_of(const std::string& bytes, const std::string& key, nlohmann::json value, Decode decode) {
  nlohmann::json j = nlohmann::json::from_cbor(bytes);
  j[key] = std::move(value);
  const auto changed = nlohmann::json::to_cbor(j);
  const auto message = decode(std::string(changed.begin(), changed.end()));
  return message ? "accepted" : message.error().message();
}

}  // namespace flash::coordinator
