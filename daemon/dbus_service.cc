#include "daemon/dbus_service.h"

#include <unistd.h>

#include <utility>

#include "daemon/dbus_impl.h"

namespace flash {

using namespace dbus;

namespace {

constexpr std::size_t kPathBytes = 4096;  // a cgroup path is at most PATH_MAX

}  // namespace

DbusService::Impl::Impl(sd_bus* b, ControlLoop& l, DbusCallbacks c)
    : bus(sd_bus_ref(b)), loop(l), callbacks(std::move(c)), quota(geteuid()) {}

std::optional<TargetId> DbusService::Impl::find(std::string_view wanted, Failure& failure) const {
  if (wanted.empty() || wanted.size() > kPathBytes) {
    failure =
        invalid("a target is needed: an agent, a target, a cgroup, a unit, a container or an application");
    return std::nullopt;
  }
  const auto ids = loop.agents();
  for (int tier = 0; tier < kTiers; ++tier) {
    std::vector<TargetId> hits;
    for (TargetId id : ids)
      if (const auto v = loop.view(id); v && matches(tier, wanted, *v->target)) hits.push_back(id);
    if (hits.size() == 1) return hits.front();
    if (hits.empty()) continue;
    failure = ambiguous(wanted, hits);
    return std::nullopt;
  }
  failure = {kNoSuchTarget, "no agent manages " + quoted(wanted)};
  return std::nullopt;
}

Failure DbusService::Impl::ambiguous(std::string_view wanted, const std::vector<TargetId>& hits) const {
  std::string list;
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < hits.size() && i < kShown; ++i)
    list += (i ? ", " : "") + agent_name(hits[i]) + " (" + loop.view(hits[i])->target->name + ")";
  if (hits.size() > kShown) list += " and " + std::to_string(hits.size() - kShown) + " more";
  return {kAmbiguousTarget, quoted(wanted) + " is ambiguous: " + list};
}

Outcome DbusService::Impl::some_or_all(const std::string& wanted, std::vector<TargetId>& ids) const {
  if (wanted.empty()) {
    ids = loop.agents();
    return std::nullopt;
  }
  Failure failure;
  const auto id = find(wanted, failure);
  if (!id) return failure;
  ids = {*id};
  return std::nullopt;
}

void DbusService::Impl::manager_emit(std::initializer_list<const char*> names) noexcept {
  std::vector<char*> list;
  for (const char* n : names) list.push_back(const_cast<char*>(n));  // sd-bus does not change them
  list.push_back(nullptr);
  (void)sd_bus_emit_properties_changed_strv(bus, kRoot, kManager, list.data());
}

DbusService::DbusService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DbusService::~DbusService() = default;

Result<std::unique_ptr<DbusService>> DbusService::open(sd_bus* bus, ControlLoop& loop,
                                                       DbusCallbacks callbacks) {
  auto impl = std::make_unique<Impl>(bus, loop, std::move(callbacks));
  FLASH_CHECK(impl->attach());
  return std::unique_ptr<DbusService>(new DbusService(std::move(impl)));
}

Result<void> DbusService::acquire_name() {
  const int r = sd_bus_request_name(impl_->bus, kName, 0);
  if (r == -EEXIST || r == -EALREADY)
    return Error(std::errc::file_exists, "another flashd is running: the bus name org.flashd is taken");
  if (r < 0) return Error::from_errno(-r, "taking the bus name org.flashd");
  return {};
}

void DbusService::agent_changed(TargetId id, AgentChange change) noexcept {
  const std::string path = agent_path(id);
  // Not sd_bus_emit_object_removed(): it asks for the object's interfaces, and the object is gone by now.
  if (change.removed) {
    (void)sd_bus_emit_interfaces_removed(impl_->bus, path.c_str(), kAgent, nullptr);
    return;
  }
  if (change.added) {
    (void)sd_bus_emit_interfaces_added(impl_->bus, path.c_str(), kAgent, nullptr);
    return;
  }
  std::vector<const char*> names;
  if (change.stage) names.insert(names.end(), {"Stage", "StageSince"});
  if (change.mode) names.push_back("Mode");
  if (change.controller) names.insert(names.end(), {"Controller", "ControllerReason"});
  if (change.episode) names.push_back("Episode");
  if (names.empty()) return;
  names.push_back(nullptr);
  (void)sd_bus_emit_properties_changed_strv(impl_->bus, path.c_str(), kAgent,
                                            const_cast<char**>(names.data()));
}

void DbusService::manager_changed() noexcept {
  impl_->manager_emit({"Mode", "Disabled", "DisabledReason"});
}

}  // namespace flash
