#include "daemon/drivers.h"

#include "actuators/cgroup_driver.h"

namespace flash {

Drivers::Drivers(const HostRoot& root, const CgroupLayout& layout, sd_bus* bus) {
  (void)bus;
  owned_.push_back(std::make_unique<CgroupDriver>(root, layout));
  for (const auto& driver : owned_) all_.push_back(driver.get());
}

Drivers::~Drivers() = default;

void Drivers::set_bus(sd_bus*) {}

}  // namespace flash
