#include "collectors/rapl_collector.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <memory>

#include "host/parse.h"

namespace flash {
namespace {

/// "intel-rapl:0" but not its subzones "intel-rapl:0:1", nor intel-rapl-mmio, which shows the same packages.
bool is_top_zone(std::string_view name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.find(':', kPrefix.size()) == std::string_view::npos;
}

}  // namespace

Sample energy_used_uj(std::uint64_t before, std::uint64_t now, std::uint64_t range_uj) {
  if (before > range_uj || now > range_uj) return Sample::invalid();
  return Sample::good(static_cast<double>(now >= before ? now - before : range_uj - before + now));
}

RaplCollector::RaplCollector(const HostRoot& root) {
  const std::string base = root.sys("class/powercap");
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(base.c_str()), ::closedir);
  while (const dirent* entry =
             directory ? ::readdir(directory.get()) : nullptr) {  // NOLINT(concurrency-mt-unsafe)
    if (!is_top_zone(entry->d_name)) continue;
    const std::string zone = base + "/" + entry->d_name + "/";
    const auto name = read_file(zone + "name");
    if (!name || !name->starts_with("package-")) continue;
    const auto range_text = read_file(zone + "max_energy_range_uj");
    const auto range = range_text ? parse_u64(*range_text) : Result<std::uint64_t>(range_text.error());
    auto energy = KeptFile::open(zone + "energy_uj");
    // Readable for root alone since the PLATYPUS attack (CVE-2020-8694).
    if (!energy && energy.error().is(std::errc::permission_denied)) denied_ = true;
    if (!range || *range == 0 || !energy) continue;
    packages_.push_back({*std::move(energy), *range, std::nullopt});
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

Sample RaplCollector::joules() {
  double sum = 0;
  bool first = false, invalid = false;
  for (Package& package : packages_) {
    std::array<char, 64> buffer;
    const auto text = package.energy.read(buffer);
    const auto now = text ? parse_u64(*text) : Result<std::uint64_t>(text.error());
    if (!now) {
      package.before_uj.reset();
      invalid = true;
      continue;
    }
    const auto before = std::exchange(package.before_uj, *now);
    if (!before) {
      first = true;
      continue;
    }
    const Sample used = energy_used_uj(*before, *now, package.range_uj);
    invalid |= !used.usable();
    sum += used.value * 1e-6;
  }
  if (invalid) return Sample::invalid();
  return first ? Sample::missing() : Sample::good(sum);
}

void RaplCollector::collect(Now now, ObservationTable& table) {
  if (packages_.empty() || targets_.empty()) {
    last_.reset();
    return;
  }
  Sample power = joules();
  const auto before = std::exchange(last_, now.mono);
  const double dt = before ? seconds(now.mono - *before) : 0;
  if (power.usable()) power = dt > 0 ? Sample::good(power.value / dt) : Sample::missing();
  for (const TargetId id : targets_)
    if (const auto row = table.find(id); row != table.end()) row->second[Signal::Power] = power;
}

std::vector<Degraded> RaplCollector::degraded() const {
  if (!denied_) return {};
  return {{"rapl", "energy counters may not be read: power is not measured"}};
}

}  // namespace flash
