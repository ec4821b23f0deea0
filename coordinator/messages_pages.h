// Purpose: what a node may ask about the fleet, a page at a time, and what the coordinator answers; as
// messages.h.
// Ownership: values.
// Thread rule: pure functions.
//
//   flash-sync  -> flash.v1.rq.NODE.fleet   FleetQuestion
//   coordinator -> flash.v1.dn.NODE.fleet   FleetPage
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/decision.h"
#include "core/result.h"
#include "core/target.h"

namespace flash::coordinator {

inline constexpr std::size_t kFleetRows = 50;  // of a page: the longest ones fit a message
inline constexpr std::uint64_t kMaxFleetOffset = 10'000'000;

struct FleetQuestion {
  std::uint64_t id = 0;  // the answer has it
  bool agents = false;   // false: nodes
  std::string text;      // a part of the names; empty: all
  std::uint64_t offset = 0;
};

/// An agent, or a node: then without target, application, task and stage, and its rewards are means.
struct FleetRow {
  std::string node, pool;
  std::string target, application;
  Task task = Task::ResourceLimits;
  Stage stage = Stage::Initialized;
  std::uint64_t agents = 1, serving = 0;
  std::optional<double> reward, fallback;
  std::int64_t time_us = 0;  // of the latest episode
  bool operator==(const FleetRow&) const = default;
};

struct FleetPage {
  std::uint64_t id = 0;
  std::uint64_t total = 0;  // that match
  std::vector<FleetRow> rows;
};

Result<void> validate(const FleetQuestion& question);
/// REQUIRES: within the bounds (asserted).
std::string encode(const FleetQuestion& question);
std::string encode(const FleetPage& page);
Result<FleetQuestion> decode_fleet_question(std::string_view bytes);
Result<FleetPage> decode_fleet_page(std::string_view bytes);

inline constexpr const char* kAllFleetQuestions = "flash.v1.rq.*.fleet";
std::string fleet_question_subject(std::string_view node);
std::string fleet_page_subject(std::string_view node);
/// nullopt: not a subject that these questions come under.
std::optional<std::string> fleet_asking_node(std::string_view subject);

}  // namespace flash::coordinator
