#include "http/metrics_text.h"

#include <charconv>
#include <cmath>
#include <map>

namespace flash::http {

using link::sync::Family;
using link::sync::FamilyType;

namespace {

void append_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    char text[40];
    out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
  }
}

/// HELP texts do not escape quotes in the Prometheus format, but may in OpenMetrics: none of ours has one.
void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
}

std::string_view suffix_of(FamilyType type) {
  return type == FamilyType::Counter ? "_total" : type == FamilyType::Info ? "_info" : "";
}

void append_samples(std::string& out, const Family& f) {
  for (std::size_t i = 0; i < f.values.size(); ++i) {
    out.append(f.name).append(suffix_of(f.type));
    for (std::size_t k = 0; k < f.labels.size(); ++k) {
      out.append(k == 0 ? "{" : ",").append(f.labels[k]).append("=\"");
      append_escaped(out, f.label_values[i * f.labels.size() + k], true);
      out += '"';
    }
    if (!f.labels.empty()) out += '}';
    out += ' ';
    append_number(out, f.values[i]);
    out += '\n';
  }
}

void append_head(std::string& out, const Family& f, PageFormat format) {
  // The Prometheus format knows a counter by the name of its samples, and no info.
  const bool open = format == PageFormat::OpenMetrics;
  const std::string name = f.name + std::string(open ? "" : suffix_of(f.type));
  const std::string_view type = !open && f.type == FamilyType::Info ? "gauge" : to_string(f.type);
  out.append("# HELP ").append(name).append(" ");
  append_escaped(out, f.help, open);
  out.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
  if (open && !f.unit.empty()) out.append("# UNIT ").append(name).append(" ").append(f.unit).append("\n");
}

}  // namespace

std::string render(const std::vector<Family>& families, PageFormat format) {
  std::vector<std::vector<const Family*>> groups;
  std::map<std::string_view, std::size_t> known;
  for (const Family& f : families) {
    const auto [it, fresh] = known.emplace(f.name, groups.size());
    if (fresh) groups.emplace_back();
    groups[it->second].push_back(&f);
  }
  std::string out;
  for (const auto& group : groups) {
    append_head(out, *group.front(), format);
    for (const Family* f : group) append_samples(out, *f);
  }
  if (format == PageFormat::OpenMetrics) out += "# EOF\n";
  return out;
}

std::string_view content_type(PageFormat format) {
  return format == PageFormat::OpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                           : "text/plain; version=0.0.4; charset=utf-8";
}

PageFormat format_for(std::string_view accept) {
  return accept.find("application/openmetrics-text") != accept.npos ? PageFormat::OpenMetrics
                                                                    : PageFormat::Prometheus;
}

}  // namespace flash::http
