#include "collectors/cgroup_ancestors.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flash {
namespace {

/// "/a/b" is below "/a", "/a" below "/", nothing is above "/": empty.
std::string_view parent_of(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const auto slash = path.rfind('/');
  if (path.size() <= 1 || slash == std::string_view::npos) return {};
  return path.substr(0, std::max<std::size_t>(slash, 1));
}

}  // namespace

Ceiling lower(const Ceiling& a, const Ceiling& b) {
  if (!a.value.usable() || !b.value.usable()) return a.value.usable() ? a : b;
  Ceiling c = a.value.value <= b.value.value ? a : b;
  c.value.validity = std::min(a.value.validity, b.value.validity);
  return c;
}

Sample worse(const Sample& a, const Sample& b) {
  if (!a.usable() || !b.usable()) return a.usable() ? a : b;
  return {std::max(a.value, b.value), std::min(a.validity, b.validity)};
}

Sample sum(const Sample& a, const Sample& b) {
  if (!a.usable() || !b.usable()) return a.usable() ? a : b;
  return {a.value + b.value, std::min(a.validity, b.validity)};
}

CgroupAncestors::Level* CgroupAncestors::use(std::string_view path) {
  if (path.empty()) return nullptr;
  const auto found = levels_.find(path);
  if (found != levels_.end()) {
    ++found->second.users;
    return &found->second;
  }
  const auto made = levels_.emplace(path, Level{}).first;
  Level& level = made->second;
  level.users = 1;
  level.above = use(parent_of(path));
  open(made->first, level);
  return &level;
}

const CgroupAncestors::Allowed* CgroupAncestors::track(std::string_view cgroup) {
  const Level* level = use(parent_of(cgroup));
  return level ? &level->allowed : nullptr;
}

void CgroupAncestors::untrack(std::string_view cgroup) {
  for (auto path = parent_of(cgroup); !path.empty(); path = parent_of(path)) {
    const auto found = levels_.find(path);
    if (found == levels_.end() || --found->second.users > 0) return;
    levels_.erase(found);
  }
}

void CgroupAncestors::open(const std::string& path, Level& level) {
  auto cgroup = Cgroup::open(layout_, path, CgroupFiles::Limits);
  if (cgroup)
    level.cgroup = std::move(*cgroup);
  else
    out_of_files_ |= out_of_descriptors(cgroup.error());
}

void CgroupAncestors::collect(Now now) {
  out_of_files_ = false;
  for (auto& [path, level] : levels_) {
    // A hierarchy of v1 in which the path comes later. (A controller that is enabled later: KeptFile.)
    if (!level.cgroup && level.again.due()) open(path, level);
    const Allowed none;
    const Allowed& above = level.above ? level.above->allowed : none;
    level.allowed = Allowed{};
    if (level.cgroup) read(now, level);
    const auto of_this = [&path = path](const Sample& limit) {
      return std::isinf(limit.value) ? Ceiling{} : Ceiling{limit, path};
    };
    level.allowed.cores = lower(of_this(level.cores), above.cores);
    level.allowed.memory = lower(of_this(level.memory), above.memory);
    level.allowed.guarded = lower({level.allowed.guarded, {}}, {above.guarded, {}}).value;
    level.allowed.throttled = worse(level.allowed.throttled, above.throttled);
    level.allowed.throttled_time = worse(level.allowed.throttled_time, above.throttled_time);
    level.allowed.memory_hits = sum(level.allowed.memory_hits, above.memory_hits);
  }
}

/// A limit that cannot be read now is still the last one: opening the range for a tick would be a decision.
void CgroupAncestors::limit(const Result<double>& read, Level& level, Sample& kept) {
  if (read) {
    kept = Sample::good(*read);
    return;
  }
  out_of_files_ |= out_of_descriptors(read.error());
  if (kept.usable()) kept.validity = Validity::Stale;
  if (level.trouble.empty()) level.trouble = read.error().message();
}

void CgroupAncestors::read(Now now, Level& level) {
  const Cgroup& cgroup = *level.cgroup;
  const auto cores = cgroup.cpu_ceiling();
  const auto memory = cgroup.memory_ceiling();
  const auto gone = [](const Result<double>& r) { return !r && r.error().is(std::errc::no_such_device); };
  if (gone(cores) || gone(memory)) {
    // A controller was switched off, or the cgroup removed, perhaps created again: no limit until it is open.
    level.cgroup.reset();
    level.cores = level.memory = Sample::missing();
    for (Counter* c : {&level.periods, &level.throttled, &level.throttled_time, &level.hits}) c->reset();
    level.again.reset();
    return;
  }
  level.trouble.clear();
  limit(cores, level, level.cores);
  limit(memory, level, level.memory);

  // Without a limit nothing is counted.
  Allowed& out = level.allowed;
  if (const auto guarded = cgroup.memory_protection()) out.guarded = Sample::good(*guarded);
  if (level.cores.usable() && std::isfinite(level.cores.value)) {
    if (const auto stat = cgroup.bandwidth(); stat && stat->has_bandwidth) {
      const Sample periods = level.periods.growth(stat->periods);
      out.throttled = level.throttled.growth(stat->throttled_periods);
      if (out.throttled.usable() && !periods.usable()) out.throttled = periods;
      if (out.throttled.usable())
        out.throttled.value = periods.value > 0 ? out.throttled.value / periods.value : 0;
      out.throttled_time = level.throttled_time.rate(stat->throttled_us, now.mono, 1e-6);
    }
  } else {
    level.periods.reset();
    level.throttled.reset();
    level.throttled_time.reset();
  }
  if (level.memory.usable() && std::isfinite(level.memory.value)) {
    if (const auto hits = cgroup.memory_ceiling_hits()) out.memory_hits = level.hits.rate(*hits, now.mono);
  } else {
    level.hits.reset();
  }
}

std::vector<Degraded> CgroupAncestors::degraded() const {
  std::vector<Degraded> list;
  for (const auto& [path, level] : levels_)
    if (!level.trouble.empty())
      list.push_back({"cgroup", "the limits of " + path + " cannot be read: " + level.trouble});
  return list;
}

}  // namespace flash
