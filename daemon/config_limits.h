// Purpose: the configuration's keys of each limit, "/rules/*/OBJECT/KEY": a row per limit. The table of keys
// (daemon/config_keys.h) is made from them.
// Ownership: rows are constants.
// Thread rule: core/registry.h.
#pragma once

#include <array>
#include <string_view>

#include "core/registry.h"
#include "core/rule.h"

namespace flash {

struct LimitKey {
  std::string_view name;  // empty: no further key
  double LimitOptions::*field = nullptr;
  double min = 0, max = 0;  // of what the file may say
  std::string_view unit = {};
  int scale = 1;          // the field is the file's number times this
  bool nullable = false;  // null: no limit
  std::string_view default_words = {};
  std::string_view meaning = {};
};

struct LimitKeys {
  KnobKind knob;
  std::string_view object;  // "cpu"
  std::string_view meaning;
  std::string_view manage;  // what its key "manage" means
  std::array<LimitKey, 8> keys;
  /// The key of a field; nullptr: there is none.
  const LimitKey* key_of(double LimitOptions::*field) const {
    for (const LimitKey& key : keys)
      if (!key.name.empty() && key.field == field) return &key;
    return nullptr;
  }
};
/// In the order of the manual.
extern Registry<LimitKeys> limit_keys;

}  // namespace flash
