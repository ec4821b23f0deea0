#include "coordinator/api_query.h"

#include <array>
#include <charconv>
#include <functional>
#include <span>
#include <string_view>

namespace flash::coordinator {
namespace {

using Read = std::function<bool(std::string_view)>;

struct Parameter {
  std::string_view name;
  Read read;  // false: not a value of it
};

Result<void> read_all(const http::Target& target, std::initializer_list<Parameter> known) {
  for (const auto& [name, value] : target.query) {
    const Parameter* found = nullptr;
    for (const Parameter& p : known)
      if (p.name == name) found = &p;
    if (!found) return Error(std::errc::invalid_argument, "unknown parameter '" + name + "'");
    if (!found->read(value))
      return Error(std::errc::invalid_argument, "'" + value + "' is not a value of " + name);
  }
  return {};
}

template <class T>
Read number_into(T& out, T least, T most) {
  return [&out, least, most](std::string_view text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most) return false;
    out = static_cast<T>(value);
    return true;
  };
}

Read word_into(std::string& out) {
  return [&out](std::string_view text) {
    out = text;
    return text.size() <= kMaxWord;
  };
}

template <class Order>
struct OrderName {
  std::string_view name;
  Order order;
};

/// "reward", or "-reward" for the largest first.
template <class Order>
Read order_into(Order& out, bool& falling, std::span<const OrderName<Order>> names) {
  return [&out, &falling, names](std::string_view text) {
    falling = text.starts_with('-');
    if (falling) text.remove_prefix(1);
    for (const auto& n : names)
      if (n.name == text) {
        out = n.order;
        return true;
      }
    return false;
  };
}

constexpr std::array<OrderName<AgentOrder>, 10> kAgentOrders = {{
    {"node", AgentOrder::Node},
    {"agent", AgentOrder::Agent},
    {"application", AgentOrder::Application},
    {"task", AgentOrder::Task},
    {"stage", AgentOrder::Stage},
    {"reward", AgentOrder::Reward},
    {"fallback", AgentOrder::Fallback},
    {"gain", AgentOrder::Gain},
    {"time", AgentOrder::Time},
    {"records", AgentOrder::Records},
}};

constexpr std::array<OrderName<NodeOrder>, 7> kNodeOrders = {{
    {"node", NodeOrder::Node},
    {"pool", NodeOrder::Pool},
    {"state", NodeOrder::State},
    {"agents", NodeOrder::Agents},
    {"reward", NodeOrder::Reward},
    {"gain", NodeOrder::Gain},
    {"time", NodeOrder::Time},
}};

Read task_into(std::optional<Task>& out) {
  return [&out](std::string_view text) { return (out = task_from_name(text)).has_value(); };
}

Read task_into(Task& out) {
  return [&out](std::string_view text) {
    const auto task = task_from_name(text);
    if (task) out = *task;
    return task.has_value();
  };
}

Read offset_into(Paging& page) {
  return number_into<std::size_t>(page.offset, 0, kMaxOffset);
}

Read limit_into(Paging& page) {
  return number_into<std::size_t>(page.limit, 1, kMaxPage);
}

}  // namespace

std::optional<Stage> stage_from_name(std::string_view name) {
  for (const Stage s : {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving})
    if (to_string(s) == name) return s;
  return std::nullopt;
}

Result<AgentsQuery> agents_query(const http::Target& target) {
  AgentsQuery q;
  FLASH_CHECK(read_all(
      target,
      {{"q", word_into(q.text)},
       {"node", word_into(q.node)},
       {"pool", word_into(q.pool)},
       {"application", word_into(q.application)},
       {"task", task_into(q.task)},
       {"stage", [&q](std::string_view text) { return (q.stage = stage_from_name(text)).has_value(); }},
       {"sort", order_into<AgentOrder>(q.order, q.falling, kAgentOrders)},
       {"offset", offset_into(q.page)},
       {"limit", limit_into(q.page)}}));
  return q;
}

Result<NodesQuery> nodes_query(const http::Target& target) {
  NodesQuery q;
  FLASH_CHECK(read_all(target, {{"q", word_into(q.text)},
                                {"sort", order_into<NodeOrder>(q.order, q.falling, kNodeOrders)},
                                {"offset", offset_into(q.page)},
                                {"limit", limit_into(q.page)}}));
  return q;
}

Result<CurvesQuery> curves_query(const http::Target& target) {
  CurvesQuery q;
  FLASH_CHECK(read_all(target, {{"task", task_into(q.task)},
                                {"application", word_into(q.application)},
                                {"range", [&q](std::string_view text) {
                                   const auto range = range_from_name(text);
                                   if (range) q.range = *range;
                                   return range.has_value();
                                 }}}));
  return q;
}

Result<MapQuery> map_query(const http::Target& target) {
  MapQuery q;
  FLASH_CHECK(read_all(target, {{"task", task_into(q.task)}, {"model", word_into(q.model)}}));
  return q;
}

Result<void> no_query(const http::Target& target) {
  return read_all(target, {});
}

}  // namespace flash::coordinator
