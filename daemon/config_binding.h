// Purpose: how a value of the configuration becomes a field and back, for the rows of daemon/config_table.cc.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "daemon/config_keys.h"

namespace flash::config {

using nlohmann::json;

template <class E>
struct Names;
template <>
struct Names<Mode> {
  static constexpr std::array<Mode, 3> kAll = {Mode::Observe, Mode::Recommend, Mode::Control};
};
template <>
struct Names<Task> {
  static inline const std::span<const Task> kAll = known_tasks();
};
template <>
struct Names<ForeignWrite> {
  static constexpr std::array<ForeignWrite, 3> kAll = {ForeignWrite::Yield, ForeignWrite::Reassert,
                                                       ForeignWrite::Leave};
};
template <>
struct Names<OnExit> {
  static constexpr std::array<OnExit, 2> kAll = {OnExit::Restore, OnExit::Keep};
};
template <>
struct Names<SloSource> {
  static constexpr std::array<SloSource, 4> kAll = {SloSource::Statsd, SloSource::Prometheus,
                                                    SloSource::Kernel, SloSource::Auto};
};
template <>
struct Names<TimeUnit> {
  static constexpr std::array<TimeUnit, 5> kAll = {TimeUnit::Auto, TimeUnit::Seconds, TimeUnit::Milliseconds,
                                                   TimeUnit::Microseconds, TimeUnit::Nanoseconds};
};
template <>
struct Names<RewardKind> {
  static constexpr std::array<RewardKind, 2> kAll = {RewardKind::Default, RewardKind::Paper};
};

inline std::string_view choice_name(RewardKind k) {
  return k == RewardKind::Default ? "default" : "paper";
}
template <class E>
std::string_view choice_name(E e) {
  return to_string(e);
}

template <class E>
std::vector<std::string_view> choice_names() {
  std::vector<std::string_view> names;
  for (E e : Names<E>::kAll) names.push_back(choice_name(e));
  return names;
}

template <class E>
requires requires {
  Names<E>::kAll;
}
void assign(E& field, const json& value, double) {
  const auto& name = value.get_ref<const std::string&>();
  for (E e : Names<E>::kAll)
    if (choice_name(e) == name) field = e;
}
template <class E>
requires requires {
  Names<E>::kAll;
}
json show(const E& field, double) {
  return std::string(choice_name(field));
}

/// 64.0 is shown as 64: people wrote it so.
inline json plain_number(double v) {
  if (std::abs(v) < 1e15 && v == std::floor(v)) return static_cast<std::int64_t>(v);
  return v;
}

inline void assign(double& field, const json& v, double scale) {
  field = v.is_null() ? kUnlimited : v.get<double>() * scale;
}
inline json show(const double& field, double scale) {
  return std::isinf(field) ? json(nullptr) : plain_number(field / scale);
}
inline void assign(std::optional<double>& field, const json& v, double scale) {
  field = v.is_null() ? std::nullopt : std::optional<double>(v.get<double>() * scale);
}
inline json show(const std::optional<double>& field, double scale) {
  return field ? plain_number(*field / scale) : json(nullptr);
}
inline void assign(Duration& field, const json& v, double) {
  // Rounded, not cut: 0.3 s read, shown and read again is the same.
  field = Duration(std::llround(v.get<double>() * 1e9));
}
inline json show(const Duration& field, double) {
  return plain_number(seconds(field));
}
inline void assign(int& field, const json& v, double) {
  field = static_cast<int>(v.get<double>());
}
inline json show(const int& field, double) {
  return field;
}
inline void assign(std::uint32_t& field, const json& v, double) {
  field = static_cast<std::uint32_t>(v.get<double>());
}
inline json show(const std::uint32_t& field, double) {
  return field;
}
inline void assign(std::uint64_t& field, const json& v, double) {
  field = static_cast<std::uint64_t>(v.get<double>());
}
inline json show(const std::uint64_t& field, double) {
  return field;
}
inline void assign(bool& field, const json& v, double) {
  field = v.get<bool>();
}
inline json show(const bool& field, double) {
  return field;
}
inline void assign(std::string& field, const json& v, double) {
  field = v.get<std::string>();
}
inline json show(const std::string& field, double) {
  return field;
}
inline void assign(std::vector<std::string>& field, const json& v, double) {
  field = v.get<std::vector<std::string>>();
}
inline json show(const std::vector<std::string>& field, double) {
  return field;
}
inline void assign(std::vector<int>& field, const json& v, double) {
  field = cpus_from_text(v.get_ref<const std::string&>()).value_or(std::vector<int>{});
}
inline json show(const std::vector<int>& field, double) {
  return cpus_to_text(field);
}

/// Binds a row to the field that `Field` (a captureless lambda) names. Scale: the file says MiB, the field
/// holds bytes.
template <int Scale = 1, class Field>
ConfigKey bound(Field, ConfigKey key) {
  key.set = [](ConfigDraft& d, const json& v) { assign(Field{}(d), v, Scale); };
  key.get = [](const ConfigDraft& d) { return show(Field{}(d), Scale); };
  return key;
}

constexpr int kMiBScale = 1024 * 1024;

template <class E, class Field>
ConfigKey choice(Field field, ConfigKey key) {
  key.type = KeyType::Choice;
  key.choices = choice_names<E>();
  return bound(field, std::move(key));
}

}  // namespace flash::config
