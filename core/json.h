// Purpose: nlohmann/json.hpp, compiled once. Its classes are instantiated in core/json*.cc and nowhere else,
// which halves what a file that uses JSON takes to compile. A header that only names the type includes
// <nlohmann/json_fwd.hpp>.
// Ownership: none.
// Thread rule: that of nlohmann::json, a value.
#pragma once

#include <nlohmann/json.hpp>  // IWYU pragma: export
#include <string>

// FLASH_JSON(extern) for the type `json`: what parse() and dump() of texts and streams use.
#define FLASH_JSON_PARSER(EXTERN, json, adapter)                                  \
  EXTERN template class nlohmann::detail::lexer<json, nlohmann::detail::adapter>; \
  EXTERN template class nlohmann::detail::parser<json, nlohmann::detail::adapter>;
#define FLASH_JSON(EXTERN, json)                                                       \
  EXTERN template class nlohmann::detail::serializer<json>;                            \
  FLASH_JSON_PARSER(EXTERN, json, iterator_input_adapter<std::string::const_iterator>) \
  FLASH_JSON_PARSER(EXTERN, json, iterator_input_adapter<const char*>)                 \
  FLASH_JSON_PARSER(EXTERN, json, input_stream_adapter)

#ifndef FLASH_JSON_HERE
extern template class nlohmann::basic_json<>;
FLASH_JSON(extern, nlohmann::json)
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
FLASH_JSON(extern, nlohmann::ordered_json)
#endif
