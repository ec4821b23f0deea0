#include "core/space.h"

namespace flash {

std::string_view to_string(ActionForm f) {
  return f == ActionForm::Discrete ? "discrete" : "continuous";
}

ActionForm action_form(Task t) {
  return t == Task::CpuFrequency ? ActionForm::Discrete : ActionForm::Continuous;
}

}  // namespace flash
