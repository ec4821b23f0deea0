// Purpose: what D-Bus introspection data say of an interface, and how a man page writes it.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace flash {

/// Members of an interface in introspection data, one line each: kind, name, arguments, EmitsChangedSignal.
inline std::set<std::string> members(const std::string& xml, const std::string& interface) {
  const auto begin = xml.find("<interface name=\"" + interface + "\"");
  if (begin == std::string::npos) return {};
  const std::string body = xml.substr(begin, xml.find("</interface>", begin) - begin);
  const auto attribute = [](const std::string& tag, const std::string& name) -> std::string {
    std::smatch m;
    return std::regex_search(tag, m, std::regex("\\b" + name + "=\"([^\"]*)\"")) ? m[1].str() : "";
  };
  std::set<std::string> out;
  std::string open, line, emits;
  const auto close = [&] {
    if (open == "property") line += " emits=" + emits;
    if (!open.empty()) out.insert(line);
    open.clear();
  };
  const std::regex tag("<(/?)([a-z]+)([^>]*?)(/?)>");
  for (std::sregex_iterator i(body.begin(), body.end(), tag), end; i != end; ++i) {
    const std::string name = (*i)[2], text = (*i)[0];
    const bool closing = !(*i)[1].str().empty(), empty = !(*i)[4].str().empty();
    if (name == "method" || name == "property" || name == "signal") {
      if (!closing) {
        open = name;
        line = name + " " + attribute(text, "name") + " " + attribute(text, "type");
        emits = "true";
      }
      if (closing || empty) close();
    } else if (name == "arg") {
      line +=
          " " + attribute(text, "direction") + ":" + attribute(text, "type") + ":" + attribute(text, "name");
    } else if (name == "annotation" && text.find("EmitsChangedSignal") != std::string::npos) {
      emits = attribute(text, "value");
    }
  }
  return out;
}

/// "(s what, t offset) \(-> t total" of a line that is no property's. A signal's arguments come in.
inline std::string arguments_in_roff(const std::string& line) {
  std::istringstream words(line);
  std::string kind, name, word, in, out;
  words >> kind >> name;
  while (words >> word) {
    const auto direction = word.find(':'), type = word.find(':', direction + 1);
    std::string& list = word.starts_with("out:") ? out : in;
    list += (list.empty() ? "" : ", ") + word.substr(direction + 1, type - direction - 1) + " " +
            word.substr(type + 1);
  }
  return "(" + in + ")" + (out.empty() ? "" : " \\(-> " + out);
}

}  // namespace flash
