// Purpose: the pools of (application, environment) pairs that models are pretrained on and judged by: drawn
// by seed, or from files that somebody else wrote; the i-th application on the i-th environment.
// Ownership: a Pool owns its pairs; their addresses do not change.
// Thread rule: immutable once made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "core/result.h"
#include "lab/sim/pair.h"

namespace flash {

/// What is drawn.
enum class PoolKind : std::uint8_t {
  Drawn,   // the generators' applications and environments as they are
  Hidden,  // the same, but pairs look alike from second to second and differ in what only their past tells:
           // how the frequency speeds them up, how far the objective is, tails and bursts, memory per
           // request. docs/SIMULATOR.md has the ranges
};
std::string_view to_string(PoolKind kind);  // "drawn", "hidden"
Parsed<PoolKind> parse_pool_kind(std::string_view text);

struct PoolOptions {
  Task task = Task::ResourceLimits;
  std::size_t pairs = 200;
  std::uint64_t seed = 1;  // of applications and environments
  // Files of pools (lab/workloads/application.h, lab/sim/environment.h); empty: drawn by seed.
  std::string apps, envs;
  RewardKind reward = RewardKind::Default;
  PoolKind kind = PoolKind::Drawn;  // of what is drawn; files are taken as they are
  // Recorded loads (lab/workloads/trace_file.h): a file, or a folder of .csv files, whose rows replace the
  // applications' traces in turn. The shape is theirs, the mean rate stays the application's. Of a series the
  // column is "requests", else the second; a row lasts a second where the first column is so named, else a
  // minute.
  std::string traces;
};

struct Pool {
  std::vector<Pair> pairs;
  PoolKind kind = PoolKind::Drawn;
  std::size_t different = 0;  // the others repeat these: the files have no more
};
/// A warning where pairs are repeated, since an interval over copies is too narrow; else empty.
std::string words_of_copies(const Pool& pool);

/// FLASH 5.2: applications and environments drawn at random. Pools of two seeds share no application but by
/// chance. EINVAL: a file that cannot be read or says something impossible, named; an application without
/// work.
Result<Pool> make_pool(const PoolOptions& options);

/// What else the pool's pairs could have been, to learn more from them: its applications, half of them with
/// nothing but their segments as they were (workloads redrawn()), on its environments in another order, half
/// of these with other numbers of cores (2 to 96) and as much more or less memory, most of them under another
/// load than their own: one that the generator could have drawn as well, less of their own, a steady one, or
/// one that comes by the minute with much or nothing in between, as recorded loads do. Of PoolKind::Hidden
/// they stay as they are: there application, environment and load were made for each other.
Result<Pool> varied(const Pool& pool, std::uint64_t seed);

}  // namespace flash
