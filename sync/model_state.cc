#include "sync/model_state.h"

namespace flash::sync {

std::string_view to_string(ModelRefusal r) {
  constexpr std::array<std::string_view, kModelRefusals> kWords = {
      "malformed", "unsigned", "old", "damaged", "too-large", "incomplete", "software"};
  return kWords[static_cast<std::size_t>(r)];
}

}  // namespace flash::sync
