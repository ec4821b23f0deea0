#include "collectors/rapl_collector.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "host/parse.h"
#include "host/topology.h"

namespace flash {
namespace {

// No package draws more; none of few CPUs as much as one of many.
constexpr double kMostWatts = 4000, kWattsPerPackage = 100, kWattsPerCpu = 40;
// Long term, short term, peak.
constexpr int kConstraints = 3;
// A wrap is believed where it makes no more than so many times the highest reading: one that is not costs a
// tick, and a counter that was reset near its range looks like one.
constexpr double kWrapRise = 2;
// A counter that was reset is back by then.
constexpr int kDeadTicks = 5;
// The kernel's counters move every millisecond.
constexpr Duration kStandsStill = std::chrono::milliseconds(100);

/// "intel-rapl:0" but not its subzones "intel-rapl:0:1", nor intel-rapl-mmio, which shows the same packages.
bool is_top_zone(std::string_view name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.find(':', kPrefix.size()) == std::string_view::npos;
}

/// The greatest of the zone's constraint_M_`what`, in W; 0: there is none.
double constraint(const std::string& zone, std::string_view what) {
  double greatest = 0;
  for (int i = 0; i < kConstraints; ++i) {
    const auto text = read_file(zone + "constraint_" + std::to_string(i) + "_" + std::string(what));
    const auto uw = text ? parse_u64(*text) : Result<std::uint64_t>(text.error());
    if (uw) greatest = std::max(greatest, static_cast<double>(*uw) * 1e-6);
  }
  return greatest;
}

/// All that there are, online or not; 0: not known.
double present_cpus(const HostRoot& root) {
  const auto text = read_file(root.sys("devices/system/cpu/present"));
  if (!text) return 0;
  const auto cpus = parse_cpu_list(*text);
  return cpus ? static_cast<double>(cpus->size()) : 0;
}

}  // namespace

double most_watts(double made_for_w, double limit_w, double cpus) {
  double most = kMostWatts;
  if (cpus > 0) most = std::min(most, kWattsPerPackage + kWattsPerCpu * cpus);
  const double known = std::max(4 * made_for_w, 2 * limit_w);
  return known > 0 ? std::min(most, known) : most;
}

RaplCollector::RaplCollector(const HostRoot& root) : root_(root) {
  scan();
}

void RaplCollector::scan() {
  const std::string base = root_.sys("class/powercap");
  const double cpus = present_cpus(root_);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(base.c_str()), ::closedir);
  denied_ = false;
  while (const dirent* entry =
             directory ? ::readdir(directory.get()) : nullptr) {  // NOLINT(concurrency-mt-unsafe)
    if (!is_top_zone(entry->d_name)) continue;
    const auto same = [&](const Package& package) { return package.zone == entry->d_name; };
    if (std::any_of(packages_.begin(), packages_.end(), same)) continue;
    const std::string zone = base + "/" + entry->d_name + "/";
    const auto name = read_file(zone + "name");
    if (!name || !name->starts_with("package-")) continue;
    const auto range_text = read_file(zone + "max_energy_range_uj");
    const auto range = range_text ? parse_u64(*range_text) : Result<std::uint64_t>(range_text.error());
    auto energy = KeptFile::open(zone + "energy_uj");
    // Readable for root alone since the PLATYPUS attack (CVE-2020-8694).
    if (!energy && energy.error().is(std::errc::permission_denied)) denied_ = true;
    if (!range || *range == 0 || !energy) continue;
    Package package{.zone = entry->d_name, .energy = *std::move(energy), .range_uj = *range};
    package.most_w = most_watts(constraint(zone, "max_power_uw"), constraint(zone, "power_limit_uw"), cpus);
    packages_.push_back(std::move(package));
  }
  if (!packages_.empty())
    state_ = std::to_string(packages_.size()) + (packages_.size() == 1 ? " package" : " packages");
  else
    state_ = denied_ ? "not permitted" : "no RAPL";
}

void RaplCollector::track(const Target& target) {
  if (target.id.kind == TargetKind::CpuSet) targets_.insert(target.id);
}

void RaplCollector::untrack(TargetId id) {
  targets_.erase(id);
}

Sample RaplCollector::Package::watts(std::uint64_t now_uj, Duration at) {
  if (now_uj > range_uj) {
    counter.reset();
    return Sample::invalid();
  }
  const Duration since = counter.known() ? at - counter.read_at() : Duration{};
  const double dt = flash::seconds(since);
  Sample watts;
  if (counter.known() && now_uj < counter.value() && dt > 0) {
    const double wrapped = static_cast<double>(range_uj - counter.value() + now_uj) * 1e-6 / dt;
    if (wrapped <= (highest_w > 0 ? std::min(most_w, kWrapRise * highest_w) : most_w)) {
      counter.go_on(now_uj, at);
      watts = Sample::good(wrapped);
    } else {
      watts = counter.rate(now_uj, at);
    }
  } else {
    watts = counter.rate(now_uj, at, 1e-6, most_w);
  }
  if (!watts.usable()) return watts;
  if (watts.value <= 0 && since >= kStandsStill) return Sample::invalid();
  // So long that it can have wrapped unseen.
  if (highest_w * dt * 1e6 > static_cast<double>(range_uj)) return Sample::invalid();
  highest_w = std::max(highest_w, std::min(before_w, watts.value));
  before_w = watts.value;
  return watts;
}

Sample RaplCollector::watts(Duration at) {
  double sum = 0;
  bool first = false, invalid = false;
  silent_ = 0;
  for (Package& package : packages_) {
    std::array<char, 64> buffer;
    const auto text = package.energy.read(buffer);
    const auto now = text ? parse_u64(*text) : Result<std::uint64_t>(text.error());
    if (!now) {
      package.counter.reset();
      invalid = true;
      ++silent_;
      continue;
    }
    const Sample one = package.watts(*now, at);
    invalid |= one.validity == Validity::Invalid;
    first |= one.validity == Validity::Missing;
    sum += one.value;
  }
  if (invalid) return Sample::invalid();
  return first ? Sample::missing() : Sample::good(sum);
}

void RaplCollector::collect(Now now, ObservationTable& table) {
  if (!targets_.empty()) {
    if (!packages_.empty() && silent_ == 0)
      scan_again_.reset();
    else if (scan_again_.due())
      scan();
  }
  if (packages_.empty() || targets_.empty()) {
    for (Package& package : packages_) package.counter.reset();
    return;
  }
  const Sample power = watts(now.mono);
  invalid_ticks_ = power.validity == Validity::Invalid ? std::min(invalid_ticks_ + 1, kDeadTicks) : 0;
  for (const TargetId id : targets_)
    if (const auto row = table.find(id); row != table.end()) row->second[Signal::Power] = power;
}

std::vector<Degraded> RaplCollector::degraded() const {
  if (denied_) return {{"rapl", "energy counters may not be read: power is not measured"}};
  if (silent_ > 0)
    return {{"rapl", std::to_string(silent_) + " of " + std::to_string(packages_.size()) +
                         " packages cannot be read (was the module unloaded?): power is not measured"}};
  if (invalid_ticks_ < kDeadTicks) return {};
  return {{"rapl", "energy counters stand still or cannot be believed: power is not measured"}};
}

}  // namespace flash
