#include "learner/log.h"

#include "core/service_log.h"

namespace flash {

LogSink make_log(int level) {
  return [log = ServiceLog("flash-learner", level)](const Event& event) {
    std::vector<LogField> fields = event.fields;
    if (!event.id.empty()) fields.push_back({"MESSAGE_ID", std::string(event.id)});
    log(event.priority, event.message, fields);
  };
}

}  // namespace flash
