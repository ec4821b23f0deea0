#include "daemon/log.h"

namespace flash {
namespace {

ServiceLog& the_log() {
  static ServiceLog log("flashd");
  return log;
}

}  // namespace

void set_log_level(int priority) {
  the_log().set_level(priority);
}

void log(int priority, std::string_view message, std::initializer_list<LogField> fields) {
  the_log()(priority, message, {fields.begin(), fields.size()});
}

}  // namespace flash
