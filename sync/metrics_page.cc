#include "sync/metrics_page.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

namespace flash::sync {

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

Result<void> write_textfile(const std::string& path, std::string_view text) {
  // node_exporter reads *.prom alone.
  const std::string beside = path + ".new";
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return Error::from_errno(errno, "open " + beside);
  const auto fail = [&](const std::string& what) {
    const Error error = Error::from_errno(errno, what);
    close(fd);
    unlink(beside.c_str());
    return error;
  };
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("write " + beside);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return fail("rename " + beside);
  close(fd);
  return {};
}

std::vector<Family> own_families(const OwnState& s, std::string_view version) {
  std::vector<Family> all;
  const auto one = [&](std::string name, FamilyType type, std::string unit, std::string help, double value) {
    all.push_back({std::move(name), type, std::move(unit), std::move(help), {}, {}, {value}});
  };
  all.push_back({"flash_sync_build",
                 FamilyType::Info,
                 "",
                 "Version of flash-sync.",
                 {"version"},
                 {std::string(version)},
                 {1}});
  one("flash_sync_connected", FamilyType::Gauge, "", "1 while flashd is connected.", s.connected ? 1 : 0);
  one("flash_sync_metrics_age_seconds", FamilyType::Gauge, "seconds",
      "Age of the flashd metrics on this page; NaN without any.",
      s.metrics_age_s < 0 ? std::nan("") : s.metrics_age_s);
  one("flash_sync_scrapes", FamilyType::Gauge, "", "Metrics pages that are scraped for flashd.", s.scrapes);
  Family results{"flash_sync_scrape_results",
                 FamilyType::Counter,
                 "",
                 "Scrapes by result.",
                 {"result"},
                 {"page", "unreachable", "invalid"},
                 {s.pages, s.unreachable, s.invalid}};
  all.push_back(std::move(results));
  one("flash_sync_scraped_bytes", FamilyType::Counter, "bytes", "Bytes of scraped pages.", s.bytes);
  one("flash_sync_nats_connected", FamilyType::Gauge, "", "1 while connected to a NATS server.",
      s.nats_connected ? 1 : 0);
  one("flash_sync_outbox_records", FamilyType::Gauge, "", "Records that wait for the coordinator.",
      s.outbox_records);
  Family events{"flash_sync_outbox_events",
                FamilyType::Counter,
                "",
                "What became of records for the coordinator.",
                {"event"},
                {"taken", "published", "confirmed", "thinned"},
                {s.taken, s.published, s.confirmed, s.thinned}};
  all.push_back(std::move(events));
  one("flash_sync_cpu_seconds", FamilyType::Counter, "seconds", "CPU time of flash-sync.", s.cpu_seconds);
  one("flash_sync_resident_memory_bytes", FamilyType::Gauge, "bytes", "Resident memory of flash-sync.",
      s.rss_bytes);
  return all;
}

}  // namespace flash::sync
