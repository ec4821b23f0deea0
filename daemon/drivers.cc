#include "daemon/drivers.h"

#include "actuators/cgroup_driver.h"
#include "actuators/cpufreq_driver.h"
#include "actuators/systemd_driver.h"
#include "actuators/tuning_daemons.h"

namespace flash {

Drivers::Drivers(const HostRoot& root, const CgroupLayout& layout, sd_bus* bus)
    : tuning_daemons_(std::make_unique<TuningDaemons>(bus)) {
  auto systemd = std::make_unique<SystemdDriver>(root, layout, bus);
  systemd_ = systemd.get();
  owned_.push_back(std::make_unique<CgroupDriver>(root, layout));
  owned_.push_back(std::move(systemd));
  owned_.push_back(std::make_unique<CpufreqDriver>(
      root, [tuning = tuning_daemons_.get()] { return tuning->in_charge(); }));
  for (const auto& driver : owned_) all_.push_back(driver.get());
}

Drivers::~Drivers() = default;

void Drivers::set_bus(sd_bus* bus) {
  tuning_daemons_->set_bus(bus);
  systemd_->set_bus(bus);
}

}  // namespace flash
