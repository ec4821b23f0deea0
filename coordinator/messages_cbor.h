// Purpose: how the messages' own files write and read CBOR; no one else's header.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/messages.h"
#include "core/result.h"
#include "link/cbor.h"

namespace flash::coordinator {

using link::cbor::begin;
using link::cbor::Check;
using link::cbor::Fields;
using link::cbor::fields_of;
using link::cbor::json;
using link::cbor::Writer;

inline constexpr double kMaxNumber = 9e15;  // exact as a number of SQLite and of JSON

/// The message as a map, where it is of this type.
inline Result<json> parse(std::string_view bytes, std::string_view expected) {
  FLASH_TRY(json j, link::cbor::parse(bytes));
  FLASH_TRY(const std::string type, link::cbor::type_of(j, kVersion));
  if (type != expected) return link::cbor::unknown_type(type);
  return j;
}

}  // namespace flash::coordinator
