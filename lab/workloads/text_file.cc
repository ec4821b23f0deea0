#include "lab/workloads/text_file.h"

#include <fstream>
#include <ostream>

#include "core/printable.h"

namespace flash {

Parsed<std::string> read_text(const std::string& path, std::size_t bytes_max) {
  std::ifstream in(path, std::ios::binary);
  std::string text;
  char piece[1 << 16];
  while (in.read(piece, sizeof piece), in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > bytes_max) {
      return UsageError{path + ": is longer than " + std::to_string(bytes_max) + " bytes"};
    }
  }
  if (!in.eof()) {
    return UsageError{"cannot read " + path};
  }
  return text;
}

Applied write_text(const std::string& path, const std::string& text, std::ostream& standard_output) {
  if (path == "-") {
    standard_output << printable_json(text) << std::flush;
    return std::nullopt;
  }
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return UsageError{"cannot write " + path};
  }
  return std::nullopt;
}

}  // namespace flash
