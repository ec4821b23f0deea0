// Purpose: how a limit of a cgroup is kept in files, and what systemd calls it: a row per limit. The drivers
// for cgroups (cgroup_driver, systemd_driver) go through the rows and know no limit by name. Beside it which
// limits of one target bound each other, which the knob board's transaction honours.
// Ownership: rows are constants.
// Thread rule: core/registry.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/knob.h"
#include "core/registry.h"
#include "core/result.h"
#include "host/cgroup_layout.h"

namespace flash {

/// What the files of a limit say.
struct LimitText {
  CgroupVersion version = CgroupVersion::V2;
  std::string_view instance;  // of the knob; empty: there is one per cgroup
  std::string_view value;     // the file's text; of a file with a line per instance its line
  std::string_view period;    // where the version has such a file
};

struct LimitFile {
  KnobKind knob;
  CgroupController controller;
  const char* controller_name;  // libcgroup's
  struct Names {
    const char* value = nullptr;   // nullptr: this version has no such limit
    const char* period = nullptr;  // kept as it is found, and put back with the value; nullptr: none
  };
  Names v1, v2;
  Result<double> (*parse)(const LimitText& text);
  /// The text for the value's file; `before` is what is there now.
  Result<std::string> (*print)(double value, const LimitText& before);
  /// The least value that the kernel takes; nullptr: a page. It is asked before anything is written.
  double (*least)(const LimitText& now) = nullptr;

  // Of a limit per device, domain or interface; nullptr: there is one, and it is the file's whole text.
  std::vector<std::string> (*instances)(const std::string& directory) = nullptr;
  std::string (*line)(std::string_view text, std::string_view instance) = nullptr;  // may be written as it is

  /// In a unit file and, where `property` is not given, on D-Bus: a property of type t.
  struct Systemd {
    const char* v1 = nullptr;        // nullptr: systemd has no word for it
    const char* v2 = nullptr;        // the same
    const char* property = nullptr;  // SetUnitProperties' name, where it is another
    double scale = 1;                // the property is the value times this
    double least = 0;                // that it takes; 0: a page
    bool percents = false;           // a unit file has whole percents, "50.00%"
    const char* absent = "";         // v2: the text that stands for a file that is not there, no limit
  } systemd;

  const Names& names(CgroupVersion version) const { return version == CgroupVersion::V1 ? v1 : v2; }
};
extern Registry<LimitFile> limit_files;
/// nullptr: the knob is no limit of a cgroup.
const LimitFile* limit_file(KnobKind knob);

/// `lower` is never above `upper`, in the same target and of the same instance, in natural units: what the
/// kernel refuses, or takes and then breaks (memory.high above memory.max, a burst above its quota, v1's
/// limit above that with swap).
struct KnobCoupling {
  KnobKind lower;
  KnobKind upper;
};
extern Registry<KnobCoupling> knob_couplings;
/// How many knobs are below this one: in a chain low <= high <= max 0, 1, 2. What shrinks is written from the
/// lowest up, what grows from the highest down.
int coupling_rank(KnobKind knob);

/// The text before the first space, and behind it.
std::pair<std::string_view, std::string_view> two_words(std::string_view text);

}  // namespace flash
