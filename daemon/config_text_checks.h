// Purpose: what may be in the texts of the configuration: each says what is wrong with a text, or nothing.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace flash::config {

std::optional<std::string> plain_text(std::string_view v, std::size_t max);
/// Letters, digits, '.', '_' and '-', at least one and at most 64: a rule's name, or a group's.
bool short_name(std::string_view v);
std::optional<std::string> check_name(std::string_view v);
std::optional<std::string> check_short_name_or_none(std::string_view v);
std::optional<std::string> check_glob(std::string_view v);
std::string single_backslashes(std::string text);
std::optional<std::string> check_cgroup_glob(std::string_view v);
std::optional<std::string> check_directory(std::string_view v);
std::optional<std::string> check_directory_or_none(std::string_view v);
std::optional<std::string> check_socket(std::string_view v);
std::optional<std::string> check_given_socket(std::string_view v);
std::optional<std::string> check_sync_socket(std::string_view v);
std::optional<std::string> check_url_or_none(std::string_view v);
std::optional<std::string> check_selector_or_none(std::string_view v);
std::optional<std::string> check_user(std::string_view v);
std::optional<std::string> check_udp(std::string_view v);
std::optional<std::string> check_cpus(std::string_view v);
std::optional<std::string> check_runtime(std::string_view v);

}  // namespace flash::config
