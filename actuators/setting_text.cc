#include "actuators/setting_text.h"

#include <cmath>
#include <cstdio>

namespace flash {

std::string setting_text(const KnobId& knob, double value) {
  if (std::isnan(value)) return "nothing";
  if (std::isinf(value)) return "no limit";
  char text[64];
  switch (knob.kind) {
    case KnobKind::CpuLimit:
      std::snprintf(text, sizeof text, "%.6g cores", value);
      break;
    case KnobKind::MemoryLimit:
      std::snprintf(text, sizeof text, "%.6g MiB", value / (1024 * 1024));
      break;
    case KnobKind::CpuFrequency:
      std::snprintf(text, sizeof text, "%.6g MHz", value / 1000);
      break;
  }
  return text;
}

}  // namespace flash
