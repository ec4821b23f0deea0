#include "coordinator/fleet_page.h"

namespace flash::coordinator {

Result<FleetPage> fleet_page(const Store& store, const FleetQuestion& question) {
  FleetPage page;
  page.id = question.id;
  FLASH_TRY(auto part, question.agents ? store.agent_rows(question.text, question.offset, kFleetRows)
                                       : store.node_rows(question.text, question.offset, kFleetRows));
  page.total = part.total;
  page.rows = std::move(part.rows);
  return page;
}

}  // namespace flash::coordinator
