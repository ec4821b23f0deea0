// Purpose: flashd --replay: what would another policy have decided? Every recorded decision's state goes
// through the policy, its outputs become knob values in the ranges of then (policy/learning_view.h, as in the
// loop), and both are compared. No hardware, no root, no bus.
// Ownership: values.
// Thread rule: none needed; reads the files it is given, writes none.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/result.h"
#include "daemon/journal_reader.h"

namespace flash {

struct ReplayOptions {
  std::string journal;       // a file or a journal's directory
  std::string model;         // tensor file of kind "policy"
  std::string target;        // only this one (target, agent, cgroup or application); empty: all
  std::size_t largest = 10;  // differences that are explained
};

/// Decisions, and how many of them the policy would have made otherwise (beyond the knob's tolerance).
struct ReplayCount {
  std::uint64_t decisions = 0, differ = 0;
};

struct ReplayKnob {
  ReplayCount count;
  double sum = 0, max = 0;  // of the absolute difference, in the knob's unit
  double mean() const { return count.decisions ? sum / static_cast<double>(count.decisions) : 0; }
};

/// One decision that differs.
struct ReplayDifference {
  JournalEntry entry;
  Action recorded, replayed;
  double distance = 0;  // of the knob that differs most, as share of its range (limits: of the geometric one)
  KnobId knob;          // that one
  double recorded_value = 0, replayed_value = 0;  // the critic's, of both actions; NaN without a critic
  std::vector<Attribution> attributions;          // of the output that moved `knob`, most important first
};

struct ReplayReport {
  std::uint64_t version = 0;
  std::string algorithm, model;
  Task task = Task::ResourceLimits;
  JournalRead read;
  ReplayCount all;
  std::array<ReplayCount, 3> by_controller;  // by Controller: who proposed then
  std::uint64_t explored = 0;                // of all: what was proposed had been varied on purpose
  std::uint64_t not_trusted = 0;             // of all: with a state that was not trusted
  KnobMap<ReplayKnob> knobs;
  std::uint64_t same_level = 0;                   // cpu-frequency: of all
  std::uint64_t valued = 0;                       // decisions that the critic could judge
  double recorded_value = 0, replayed_value = 0;  // means over those, discounted reward
  /// Not replayed: of the other task, of other targets, without a state, without a knob to compare.
  std::uint64_t other_task = 0, other_target = 0, other_state = 0, no_state = 0, no_knob = 0;
  std::vector<ReplayDifference> largest;
};

/// EINVAL: the model is none, of another shape, or of a task that the journal does not have; ENOENT: no such
/// file or target; a damaged line is named by file and line.
Result<ReplayReport> replay(const ReplayOptions& options);

/// Keys as flashd(8) lists them.
nlohmann::json to_json(const ReplayReport& report);
std::string to_text(const ReplayReport& report);

}  // namespace flash
