#include "sync/metrics_page.h"

#include <cmath>
#include <utility>

#include "core/durable_file.h"

namespace flash::sync {

using link::sync::Family;
using link::sync::FamilyType;

Result<void> write_textfile(const std::string& path, std::string_view text) {
  // node_exporter reads *.prom alone, and the next page comes soon: no need to wait for the disk.
  return write_durable_file(path, text, {.mode = 0644, .synced = false});
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
  one("flash_sync_scrapes_without_turn", FamilyType::Counter, "",
      "Scrapes of large pages that were ended or put off, as other pages waited for the memory.",
      s.without_turn);
  one("flash_sync_nats_connected", FamilyType::Gauge, "", "1 while connected to a NATS server.",
      s.nats_connected ? 1 : 0);
  one("flash_sync_nats_refused", FamilyType::Counter, "",
      "Subjects that the NATS server does not let this node speak or hear.", s.violations);
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
  Family nearest{"flash_sync_nearest_events",
                 FamilyType::Counter,
                 "",
                 "Nearest known pairs of new agents.",
                 {"event"},
                 {"asked", "answered", "refused"},
                 {s.nearest_asked, s.nearest_answered, s.refused}};
  all.push_back(std::move(nearest));
  Family held{"flash_sync_model_version",
              FamilyType::Gauge,
              "",
              "Version of the pretrained model that is held; 0 for none.",
              {"model"},
              {},
              {}};
  for (const auto& h : s.models.held) {
    held.label_values.push_back(h.name);
    held.values.push_back(static_cast<double>(h.version));
  }
  all.push_back(std::move(held));
  Family refused{"flash_sync_models_refused",
                 FamilyType::Counter,
                 "",
                 "Pretrained models that were not taken, by reason.",
                 {"reason"},
                 {},
                 {}};
  for (std::size_t i = 0; i < kModelRefusals; ++i) {
    refused.label_values.emplace_back(to_string(static_cast<ModelRefusal>(i)));
    refused.values.push_back(static_cast<double>(s.models.refused[i]));
  }
  all.push_back(std::move(refused));
  all.push_back({"flash_sync_model_events",
                 FamilyType::Counter,
                 "",
                 "What became of pretrained models.",
                 {"event"},
                 {"taken", "went_back"},
                 {static_cast<double>(s.models.taken), static_cast<double>(s.models.went_back)}});
  one("flash_sync_cpu_seconds", FamilyType::Counter, "seconds", "CPU time of flash-sync.", s.cpu_seconds);
  one("flash_sync_resident_memory_bytes", FamilyType::Gauge, "bytes", "Resident memory of flash-sync.",
      s.rss_bytes);
  return all;
}

}  // namespace flash::sync
