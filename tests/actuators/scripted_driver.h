// Purpose: a KnobDriver whose kernel is a map: tests set what is in force, what fails and what rounds, and
// read the order of writes.
// Ownership: value.
// Thread rule: one thread.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/ports.h"

namespace flash {

class ScriptedDriver final : public KnobDriver {
 public:
  explicit ScriptedDriver(std::vector<KnobId> all = {KnobKind::CpuLimit, KnobKind::MemoryLimit})
      : kinds(std::move(all)) {}

  static std::string key(const KnobId& kind, const std::string& path) { return knob_name(kind) + " " + path; }

  std::string_view name() const override { return "scripted"; }
  Result<std::vector<KnobInfo>> discover(const Target& target, const Rule&) override {
    std::vector<KnobInfo> found;
    for (const KnobId& kind : kinds) {
      KnobInfo info;
      const std::string locator = target.cgroup.empty() ? target.name : target.cgroup;
      if (not_there_yet.count(key(kind, locator))) continue;
      info.ref = {kind, target.id, "scripted", locator};
      info.lower = 0.01;
      info.blocked_by = blocked_by;
      info.min_interval_s = min_interval_s;
      values.try_emplace(key(kind, locator), kUnlimited);
      found.push_back(info);
    }
    return found;
  }
  Result<KnobReading> read(const KnobRef& ref) override {
    open.insert(key(ref.kind, ref.locator));
    const auto found = values.find(key(ref.kind, ref.locator));
    if (found == values.end()) return Error(std::errc::no_such_file_or_directory, "no such cgroup");
    return KnobReading{found->second, std::to_string(found->second), mode};
  }
  Result<void> write(const KnobRef& ref, double value) override {
    const auto k = key(ref.kind, ref.locator);
    log.push_back(k);
    if (on_write) on_write(k);
    if (const auto f = fails.find(k); f != fails.end()) return Error::from_errno(f->second, "write " + k);
    if (!values.count(k)) return Error(std::errc::no_such_file_or_directory, "no such cgroup");
    values[k] = rounds ? rounds(value) : value;
    return {};
  }
  Result<void> restore(const KnobRef& ref, const std::string& raw) override {
    const auto k = key(ref.kind, ref.locator);
    log.push_back("restore " + k);
    if (const auto f = restore_fails.find(k); f != restore_fails.end())
      return Error::from_errno(f->second, "restore " + k);
    if (on_restore && !on_restore()) return Error::from_errno(EMFILE, "restore " + k);
    if (!values.count(k)) return Error(std::errc::no_such_file_or_directory, "no such cgroup");
    values[k] = std::stod(raw);
    return {};
  }

  void close(const KnobRef& ref) override { open.erase(key(ref.kind, ref.locator)); }

  std::set<std::string> open;  // was read and not closed since
  std::map<std::string, double> values;
  std::map<std::string, int> fails, restore_fails;
  std::set<std::string> not_there_yet;
  std::vector<std::string> log;
  std::function<double(double)> rounds;
  std::function<void(const std::string&)> on_write;
  std::function<bool()> on_restore;  // false: it fails as without a descriptor
  std::string blocked_by;
  std::string mode;
  std::vector<KnobId> kinds;  // that it offers
  double min_interval_s = 0;
};

}  // namespace flash
