#include "core/glob.h"

#include <fnmatch.h>

namespace flash {

bool glob_matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

bool glob_matches_any_case(const char* pattern, const char* text) {
  return ::fnmatch(pattern, text, FNM_NOESCAPE | FNM_CASEFOLD) == 0;
}

std::string_view literal_beginning(std::string_view pattern) {
  return pattern.substr(0, pattern.find_first_of("*?["));
}

}  // namespace flash
