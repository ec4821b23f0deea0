// Purpose: every collector that needs nothing but the host, by name, in the order in which a tick runs them.
// Only this table knows their types. (What says latency and rate has sockets and options: the composition
// root makes it.)
// Ownership: build_collectors() hands its collectors to the caller.
// Thread rule: none needed.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collectors/signal_source.h"
#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

/// What a collector may be built from. Borrowed during create() only.
struct CollectorContext {
  const HostRoot* root = nullptr;
  const CgroupLayout* layout = nullptr;  // null: the host has no cgroups
};

struct CollectorEntry {
  std::string_view name;
  std::unique_ptr<Collector> (*create)(const CollectorContext& context);
};

std::span<const CollectorEntry> collector_registry();

/// Where the collector's signals come from; empty if they have but one source.
std::vector<SignalSource> sources_of(const Collector& collector);

/// One of each, in the registry's order. What cannot work here says so in degraded().
std::vector<std::unique_ptr<Collector>> build_collectors(const CollectorContext& context);

}  // namespace flash
