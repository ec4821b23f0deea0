#include <cmath>
#include <set>
#include <unordered_set>

#include "core/json.h"
#include "lab/workloads/application.h"
#include "lab/workloads/statsd.h"
#include "lab/workloads/text_file.h"
#include "lab/workloads/trace.h"

namespace flash {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kFileBytesMax = 128U << 20;
constexpr int kDepthMax = 5;  // pool, list, application, segments, segment

/// What is wrong, without the file's name; empty: nothing.
using Wrong = std::string;

struct NumberKey {
  const char* name;
  double low;
  double high;
  bool whole;
  double (*get)(const Application&);
  void (*set)(Application&, double);
};

template <auto Member>
constexpr NumberKey number_key(const char* name, double low, double high) {
  using Value = std::remove_reference_t<decltype(std::declval<Application&>().*Member)>;
  return {name,
          low,
          high,
          std::is_integral_v<Value>,
          [](const Application& a) { return static_cast<double>(a.*Member); },
          [](Application& a, double value) { a.*Member = static_cast<Value>(value); }};
}

constexpr NumberKey kNumberKeys[] = {
    number_key<&Application::workers>("workers", 1, 256),
    number_key<&Application::memory_mib>("memory_mib", 0, 1 << 20),
    number_key<&Application::hot_share>("hot_share", 0, 1),
    number_key<&Application::memory_per_request_kib>("memory_per_request_kib", 0, 1 << 20),
    number_key<&Application::service_cv>("service_cv", 0, 5),
    number_key<&Application::burst>("burst", 1, 1000),
    number_key<&Application::slo_p99_ms>("slo_p99_ms", 0.01, 1e6),
};
constexpr int kCountMax = 10'000'000;

Wrong read_number(const json& value, const std::string& key, double low, double high, bool whole,
                  double& out) {
  if (!value.is_number() || value.get<double>() < low || value.get<double>() > high ||
      (whole && value.get<double>() != std::floor(value.get<double>()))) {
    return key + ": is not " + (whole ? "a whole" : "a") + " number from " + number_text(low) + " to " +
           number_text(high);
  }
  out = value.get<double>();
  return {};
}

Wrong read_segment(const json& object, const std::string& at, SegmentUse& use) {
  if (!object.is_object()) {
    return at + ": is not an object";
  }
  if (!object.contains("segment") || !object["segment"].is_string()) {
    return at + ".segment: no name of a segment";
  }
  auto found = find_segment(object["segment"].get_ref<const std::string&>());
  if (auto* error = std::get_if<UsageError>(&found)) {
    return at + ".segment: " + error->message;
  }
  use.segment = std::get<const Segment*>(found);
  use.payload = static_cast<double>(use.segment->payload_default);
  for (const auto& [key, value] : object.items()) {
    Wrong wrong;
    double count = use.count;
    if (key == "payload") {
      wrong = read_number(value, at + ".payload", 1, static_cast<double>(use.segment->payload_max), true,
                          use.payload);
    } else if (key == "count") {
      wrong = read_number(value, at + ".count", 1, kCountMax, true, count);
      use.count = static_cast<int>(count);
    } else if (key != "segment") {
      wrong = at + "." + key + ": unknown key";
    }
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

Wrong read_text(const json& value, const std::string& key, std::string& out) {
  if (!value.is_string()) {
    return key + ": is not a text";
  }
  out = value.get<std::string>();
  return {};
}

Wrong read_segments(const json& value, const std::string& key, Application& application) {
  if (!value.is_array() || value.empty() || value.size() > kSegmentsMax) {
    return key + ": is not a list of 1 to " + std::to_string(kSegmentsMax) + " segments";
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    SegmentUse use;
    if (auto wrong = read_segment(value[i], key + "[" + std::to_string(i) + "]", use); !wrong.empty()) {
      return wrong;
    }
    application.segments.push_back(use);
  }
  return {};
}

Wrong read_key(const std::string& name, const json& value, const std::string& at, Application& application) {
  const std::string key = at + name;
  if (name == "name") {
    if (auto wrong = read_text(value, key, application.name); !wrong.empty()) {
      return wrong;
    }
    const auto parsed = parse_app_name(application.name);
    const auto* error = std::get_if<UsageError>(&parsed);
    return error != nullptr ? key + ": " + error->message : Wrong();
  }
  if (name == "trace") {
    if (auto wrong = read_text(value, key, application.trace); !wrong.empty()) {
      return wrong;
    }
    const auto error = check_trace(application.trace);
    return error ? key + ": " + error->message : Wrong();
  }
  if (name == "segments") {
    return read_segments(value, key, application);
  }
  for (const auto& row : kNumberKeys) {
    if (name == row.name) {
      double number = 0;
      auto wrong = read_number(value, key, row.low, row.high, row.whole, number);
      row.set(application, number);
      return wrong;
    }
  }
  return key + ": unknown key";
}

/// `at`: "" or "applications[3]."
Wrong read_object(const json& object, const std::string& at, Application& application) {
  if (!object.is_object()) {
    return (at.empty() ? "" : at.substr(0, at.size() - 1) + ": ") + "is not an object";
  }
  for (const auto& [name, value] : object.items()) {
    if (auto wrong = read_key(name, value, at, application); !wrong.empty()) {
      return wrong;
    }
  }
  for (const char* required : {"name", "segments"}) {
    if (!object.contains(required)) {
      return at + required + ": is missing";
    }
  }
  return {};
}

/// Depth and repeated keys, which a document tree would hide, are found while it is built.
Wrong read_document(std::string_view text, json& document) {
  if (text.size() > kFileBytesMax) {
    return "is longer than " + std::to_string(kFileBytesMax) + " bytes";
  }
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDepthMax) {
        return "is nested deeper than an application";
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  std::vector<std::set<std::string>> keys;
  Wrong wrong;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second &&
               wrong.empty()) {
      wrong = value.get<std::string>() + ": is given twice";
    }
    return true;
  };
  try {
    document = json::parse(text, watch);
  } catch (const json::exception& error) {
    return std::string("is not JSON: ") + error.what();
  }
  return wrong;
}

UsageError in_file(std::string_view file, const Wrong& wrong) {
  return {std::string(file) + ": " + wrong};
}

Parsed<std::vector<Application>> read_pool(const json& document, std::string_view file) {
  std::vector<Application> pool;
  if (!document.is_object()) {
    return in_file(file, "is not an object");
  }
  for (const auto& [key, value] : document.items()) {
    if (key != "version" && key != "applications") {
      return in_file(file, key + ": unknown key");
    }
  }
  if (!document.contains("version") || document["version"] != 1) {
    return in_file(file, "version: is not 1");
  }
  if (!document.contains("applications") || !document["applications"].is_array() ||
      document["applications"].empty() || document["applications"].size() > kApplicationsMax) {
    return in_file(file, "applications: is not a list of 1 to " + std::to_string(kApplicationsMax));
  }
  std::unordered_set<std::string> names;
  for (const auto& object : document["applications"]) {
    const std::string at = "applications[" + std::to_string(pool.size()) + "].";
    Application application;
    auto wrong = read_object(object, at, application);
    if (wrong.empty() && !names.insert(application.name).second) {
      wrong = at + "name: '" + application.name + "' is given twice";
    }
    if (!wrong.empty()) {
      return in_file(file, wrong);
    }
    pool.push_back(std::move(application));
  }
  return pool;
}

}  // namespace

Parsed<Application> parse_application(std::string_view text, std::string_view file) {
  json document;
  Application application;
  auto wrong = read_document(text, document);
  if (wrong.empty()) {
    wrong = read_object(document, "", application);
  }
  if (!wrong.empty()) {
    return in_file(file, wrong);
  }
  return application;
}

Parsed<std::vector<Application>> parse_applications(std::string_view text, std::string_view file) {
  json document;
  if (auto wrong = read_document(text, document); !wrong.empty()) {
    return in_file(file, wrong);
  }
  return read_pool(document, file);
}

Parsed<std::vector<Application>> read_applications(const std::string& file) {
  auto text = read_text(file, kFileBytesMax);
  if (auto* error = std::get_if<UsageError>(&text)) {
    return std::move(*error);
  }
  json document;
  if (auto wrong = read_document(std::get<std::string>(text), document); !wrong.empty()) {
    return in_file(file, wrong);
  }
  if (document.is_object() && document.contains("applications")) {
    return read_pool(document, file);
  }
  Application application;
  if (auto wrong = read_object(document, "", application); !wrong.empty()) {
    return in_file(file, wrong);
  }
  return std::vector<Application>{std::move(application)};
}

Parsed<Application> read_application(std::string_view file_and_name) {
  const auto hash = file_and_name.rfind('#');
  const std::string file(file_and_name.substr(0, hash));
  auto read = read_applications(file);
  if (auto* error = std::get_if<UsageError>(&read)) {
    return std::move(*error);
  }
  auto& pool = std::get<std::vector<Application>>(read);
  if (hash == std::string_view::npos) {
    if (pool.size() != 1) {
      return in_file(file, "holds " + std::to_string(pool.size()) + " applications; say which, as in " +
                               file + "#" + pool.front().name);
    }
    return std::move(pool.front());
  }
  for (auto& application : pool) {
    if (application.name == file_and_name.substr(hash + 1)) {
      return std::move(application);
    }
  }
  return in_file(file, "no application '" + std::string(file_and_name.substr(hash + 1)) + "'");
}

std::string to_json_text(const std::vector<Application>& applications) {
  // An application per line, so that pools can be compared and searched.
  std::string text = "{\"version\": 1, \"applications\": [";
  for (const auto& application : applications) {
    json object;
    object["name"] = application.name;
    auto& segments = object["segments"] = json::array();
    const auto put = [](json& out, const char* key, double value, bool whole) {
      if (whole) {
        out[key] = static_cast<std::int64_t>(value);
      } else {
        out[key] = value;
      }
    };
    for (const auto& use : application.segments) {
      json segment;
      segment["segment"] = use.segment->name;
      put(segment, "payload", use.payload, true);
      put(segment, "count", use.count, true);
      segments.push_back(std::move(segment));
    }
    for (const auto& row : kNumberKeys) {
      put(object, row.name, row.get(application), row.whole);
    }
    object["trace"] = application.trace;
    text += (text.back() == '[' ? "\n  " : ",\n  ") + object.dump();
  }
  return text + "\n]}\n";
}

}  // namespace flash
