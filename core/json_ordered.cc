#define FLASH_JSON_HERE
#include "core/json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
FLASH_JSON(, nlohmann::ordered_json)
