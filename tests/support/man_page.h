// Purpose: which options a man page documents.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "core/command_line.h"

namespace flash {

/// "--config": the first of each item in the section OPTIONS of docs/man/PAGE.
inline std::set<std::string> documented_options(const std::string& page) {
  std::ifstream file(std::string(FLASH_SOURCE_DIR) + "/docs/man/" + page);
  EXPECT_TRUE(file) << page;
  std::stringstream stream;
  stream << file.rdbuf();
  std::string text = stream.str();
  for (std::size_t i; (i = text.find("\\-")) != std::string::npos;) text.replace(i, 2, "-");
  const std::size_t begin = text.find(".SH OPTIONS"), end = text.find("\n.SH", begin + 1);
  EXPECT_NE(begin, std::string::npos) << page;
  const std::string options = text.substr(begin, end - begin);
  std::set<std::string> names;
  for (std::size_t i = options.find("\n.TP\n"); i != std::string::npos; i = options.find("\n.TP\n", i + 1)) {
    const std::size_t name = options.find("--", i);
    names.insert(options.substr(name, options.find_first_of(" \n\"", name) - name));
  }
  return names;
}

inline std::set<std::string> names_of(const std::vector<OptionRow>& rows) {
  std::set<std::string> names;
  for (const OptionRow& row : rows) names.insert(std::string(row.name));
  return names;
}

}  // namespace flash
