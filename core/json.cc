#define FLASH_JSON_HERE
#include "core/json.h"

template class nlohmann::basic_json<>;
FLASH_JSON(, nlohmann::json)
