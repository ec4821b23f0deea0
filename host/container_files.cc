#include "host/container_files.h"

#include <algorithm>
#include <vector>

#include "core/json.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxName = 253;
constexpr std::size_t kMaxPath = 4096;

/// Where in a document a value stands: keys from the outside in; "[]" is a member of a list.
using Place = std::vector<std::string>;

bool at(const Place& place, std::initializer_list<std::string_view> keys) {
  return std::equal(place.begin(), place.end(), keys.begin(), keys.end());
}

/// Calls `text` with each text of a document and `closed` at the end of each object, and keeps nothing
/// itself: these files may be large.
template <class Text, class Closed>
class Texts {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  Texts(Text text, Closed closed) : text_(std::move(text)), closed_(std::move(closed)) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(number_integer_t) { return true; }
  bool number_unsigned(number_unsigned_t) { return true; }
  bool number_float(number_float_t, const string_t&) { return true; }
  bool binary(binary_t&) { return true; }
  bool string(string_t& value) {
    text_(place_, value);
    return true;
  }
  bool start_object(std::size_t) { return enter(""); }
  bool start_array(std::size_t) { return enter("[]"); }
  bool key(string_t& name) {
    place_.back() = name;
    return true;
  }
  bool end_object() {
    place_.pop_back();
    closed_(place_);
    return true;
  }
  bool end_array() {
    place_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  bool enter(const char* key) {
    place_.emplace_back(key);
    return place_.size() <= kMaxDepth;
  }

  Text text_;
  Closed closed_;
  Place place_;
};

template <class Text, class Closed>
bool read_texts(std::string_view document, Text text, Closed closed) {
  Texts<Text, Closed> reader(std::move(text), std::move(closed));
  return json::sax_parse(document.begin(), document.end(), &reader);
}
template <class Text>
bool read_texts(std::string_view document, Text text) {
  return read_texts(document, std::move(text), [](const Place&) {});
}

void take_name(std::string& field, std::string_view value) {
  if (is_container_name(value)) field = value;
}

/// Of one annotation or label, whoever wrote it.
void take_label(ContainerRecord& record, const std::string& key, const std::string& value) {
  if (key == "io.kubernetes.pod.uid" || key == "io.kubernetes.cri.sandbox-uid") {
    record.in_pod = true;
    take_name(record.pod_uid, value);
  } else if (key.starts_with("io.kubernetes.cri.") || key == "io.kubernetes.pod.name") {
    record.in_pod = true;
  }
}

/// Without comments and blanks around; a '#' in a text is none.
std::string_view toml_line(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      line = line.substr(0, i);
      break;
    }
  }
  const auto begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

bool is_container_name(std::string_view text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= kMaxName && alphanumeric(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_plain_path(std::string_view text) {
  if (!text.starts_with('/') || text.size() > kMaxPath) return false;
  if (text.find('\0') != std::string_view::npos) return false;
  return text.find("/../") == std::string_view::npos && !text.ends_with("/..");
}

std::optional<ContainerRecord> docker_container(std::string_view document) {
  ContainerRecord record;
  const auto text = [&](const Place& place, const std::string& value) {
    if (at(place, {"Name"}) && value.starts_with('/'))
      take_name(record.name, std::string_view(value).substr(1));
    if (place.size() == 3 && place[0] == "Config" && place[1] == "Labels")
      take_label(record, place[2], value);
  };
  if (!read_texts(document, text)) return std::nullopt;
  return record;
}

std::optional<ContainerRecord> oci_container(std::string_view document) {
  ContainerRecord record;
  std::string sandbox;
  bool is_sandbox = false;
  const auto text = [&](const Place& place, const std::string& value) {
    if (at(place, {"linux", "cgroupsPath"}) && value.size() <= kMaxPath) record.cgroup = value;
    if (at(place, {"mounts", "[]", "source"}) && value.ends_with("/hostname") && is_plain_path(value)) {
      // docker mounts DATA_ROOT/containers/ID/hostname, beside config.v2.json.
      record.data_dir = value.substr(0, value.rfind('/'));
    }
    if (place.size() != 2 || place[0] != "annotations") return;
    const std::string& key = place[1];
    take_label(record, key, value);
    if (key == "io.kubernetes.cri.container-name" || key == "io.kubernetes.container.name" ||
        key == "nerdctl/name")
      take_name(record.name, value);
    if (key == "io.kubernetes.cri.sandbox-name") take_name(sandbox, value);
    if (key == "io.kubernetes.cri.container-type") is_sandbox = value == "sandbox";
    if (key == "io.container.manager") take_name(record.manager, value);
  };
  if (!read_texts(document, text)) return std::nullopt;
  if (record.name.empty() && is_sandbox) record.name = std::move(sandbox);
  return record;
}

std::optional<std::unordered_map<std::string, std::string>> storage_names(std::string_view document) {
  std::unordered_map<std::string, std::string> names;
  std::string id, name;
  const auto text = [&](const Place& place, const std::string& value) {
    if (at(place, {"[]", "id"}) && is_container_name(value)) id = value;
    if (at(place, {"[]", "names", "[]"}) && name.empty()) take_name(name, value);
  };
  const auto closed = [&](const Place& place) {
    if (!at(place, {"[]"})) return;
    if (!id.empty() && !name.empty()) names.emplace(std::move(id), std::move(name));
    id.clear();
    name.clear();
  };
  if (!read_texts(document, text, closed)) return std::nullopt;
  return names;
}

std::optional<std::string> docker_data_root(std::string_view document) {
  std::string root, graph;
  const auto text = [&](const Place& place, const std::string& value) {
    if (!is_plain_path(value)) return;
    if (at(place, {"data-root"})) root = value;
    if (at(place, {"graph"})) graph = value;
  };
  if (!read_texts(document, text)) return std::nullopt;
  return root.empty() ? graph : root;
}

std::optional<std::string> toml_path(std::string_view toml, std::string_view table, std::string_view key) {
  bool inside = table.empty();
  for (std::size_t begin = 0; begin < toml.size();) {
    const auto end = std::min(toml.find('\n', begin), toml.size());
    const auto line = toml_line(toml.substr(begin, end - begin));
    begin = end + 1;
    if (line.starts_with('[')) {
      inside =
          line.size() == table.size() + 2 && line.substr(1, table.size()) == table && line.ends_with(']');
      continue;
    }
    if (!inside || !line.starts_with(key)) continue;
    const auto value = toml_line(line.substr(key.size()));
    if (!value.starts_with('=')) continue;
    const auto quoted = toml_line(value.substr(1));
    if (quoted.size() < 2 || (quoted.front() != '"' && quoted.front() != '\'') ||
        quoted.back() != quoted.front())
      continue;
    const auto path = quoted.substr(1, quoted.size() - 2);
    if (is_plain_path(path) && path.find_first_of("\"'\\") == std::string_view::npos)
      return std::string(path);
  }
  return std::nullopt;
}

}  // namespace flash
