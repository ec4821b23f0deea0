// Purpose: what a client of the HTTP API asks for, out of the target that it sent: every parameter known,
// typed and bounded, or refused by name.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/history.h"
#include "core/result.h"
#include "http/target.h"

namespace flash::coordinator {

inline constexpr std::size_t kMaxPage = 500, kDefaultPage = 50;  // rows
inline constexpr std::size_t kMaxOffset = 10'000'000;
inline constexpr std::size_t kMaxWord = 256;  // bytes of a text

struct Paging {
  std::size_t offset = 0, limit = kDefaultPage;
};

enum class AgentOrder : std::uint8_t {
  Node,
  Agent,
  Application,
  Task,
  Stage,
  Reward,
  Fallback,
  Gain,
  Time,
  Records
};
enum class NodeOrder : std::uint8_t { Node, Pool, State, Agents, Reward, Gain, Time };

/// Empty: all of them.
struct AgentsQuery {
  std::string text;  // in the names of node, agent, target, application or rule; ASCII letters of either case
  std::string node, pool, application;
  std::optional<Task> task;
  std::optional<Stage> stage;
  AgentOrder order = AgentOrder::Node;
  bool falling = false;
  Paging page;
};

struct NodesQuery {
  std::string text;  // in the names of node or pool
  NodeOrder order = NodeOrder::Node;
  bool falling = false;
  Paging page;
};

struct CurvesQuery {
  Task task = Task::ResourceLimits;
  std::string application;
  Range range = Range::Hour;
};

struct MapQuery {
  Task task = Task::ResourceLimits;
  std::string model;  // whose embeddings; empty: the one that most agents have
};

/// EINVAL names the parameter: unknown, not of its type, out of bounds.
Result<AgentsQuery> agents_query(const http::Target& target);
Result<NodesQuery> nodes_query(const http::Target& target);
Result<CurvesQuery> curves_query(const http::Target& target);
Result<MapQuery> map_query(const http::Target& target);
Result<void> no_query(const http::Target& target);

std::optional<Stage> stage_from_name(std::string_view name);

}  // namespace flash::coordinator
