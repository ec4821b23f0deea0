// Purpose: what tests of the configuration share.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config.h"

namespace flash::config_fixture {

inline ConfigResult parse(std::string main, std::vector<ConfigText> drop_ins = {}) {
  std::vector<ConfigText> texts = {{"flashd.json", std::move(main)}};
  for (auto& d : drop_ins) texts.push_back(std::move(d));
  return parse_config(texts);
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string source(const std::string& path) {
  return std::string(FLASH_SOURCE_DIR) + "/" + path;
}

}  // namespace flash::config_fixture
