#include "actuators/setting_text.h"

namespace flash {

std::string setting_text(const KnobId& knob, double value) {
  return exact_text(knob, value, "nothing");
}

}  // namespace flash
