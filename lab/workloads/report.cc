#include "lab/workloads/report.h"

#include <cstdio>
#include <ostream>

#include "core/json.h"

namespace flash {

namespace {

struct PercentileRow {
  const char* key;
  double percent;
};
constexpr PercentileRow kPercentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}};

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

nlohmann::ordered_json percentiles_json(const LatencyHistogram& latency) {
  nlohmann::ordered_json json;
  json["mean"] = latency.mean_ms();
  for (const auto& row : kPercentiles) {
    json[row.key] = to_ms(latency.percentile(row.percent));
  }
  json["max"] = to_ms(latency.max());
  return json;
}

nlohmann::ordered_json histogram_json(const std::vector<LatencyHistogram::Bucket>& buckets) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& bucket : buckets) {
    rows.push_back({{"ms", to_ms(bucket.middle)}, {"count", bucket.count}});
  }
  return rows;
}

}  // namespace

void RunRecorder::offered(double t_s) {
  advance(t_s);
  ++row_.counts.offered;
}

void RunRecorder::completed(double t_s, std::chrono::nanoseconds latency) {
  advance(t_s);
  ++row_.counts.completed;
  second_latency_.record(latency);
  report_.over_slo += slo_ms_ > 0 && to_ms(latency) > slo_ms_;
}

void RunRecorder::failed(double t_s, std::string_view why) {
  advance(t_s);
  ++row_.counts.errors;
  const auto known = report_.errors_by.find(why);
  ++(known != report_.errors_by.end() ? known : report_.errors_by.emplace(why, 0).first)->second;
  report_.over_slo += slo_ms_ > 0;
}

void RunRecorder::dropped(double t_s) {
  advance(t_s);
  ++row_.counts.dropped;
  report_.over_slo += slo_ms_ > 0;
}

void RunRecorder::advance(double t_s) {
  while (t_s >= static_cast<double>(row_.second + 1)) {
    close_second();
  }
}

void RunRecorder::close_second() {
  row_.p50_ms = to_ms(second_latency_.percentile(50));
  row_.p99_ms = to_ms(second_latency_.percentile(99));
  row_.max_ms = to_ms(second_latency_.max());
  if (histograms_) {
    row_.histogram = second_latency_.buckets();
  }
  if (every_second_ != nullptr) {
    *every_second_
        << formatted(
               "%5lu s  offered %6lu  completed %6lu  errors %4lu  dropped %4lu  p50 %8.2f ms  p99 %8.2f ms",
               row_.second, row_.counts.offered, row_.counts.completed, row_.counts.errors,
               row_.counts.dropped, row_.p50_ms, row_.p99_ms)
        << std::endl;
  }
  report_.counts.offered += row_.counts.offered;
  report_.counts.completed += row_.counts.completed;
  report_.counts.errors += row_.counts.errors;
  report_.counts.dropped += row_.counts.dropped;
  report_.latency.merge(second_latency_);
  report_.per_second.push_back(std::move(row_));
  row_ = SecondRow{.second = report_.per_second.back().second + 1};
  second_latency_.clear();
}

RunReport RunRecorder::finish(double t_s) {
  advance(t_s);
  const auto& left = row_.counts;
  if (left.offered + left.completed + left.errors + left.dropped > 0) {
    close_second();
  }
  report_.seconds = t_s;
  report_.slo_ms = slo_ms_;
  return std::move(report_);
}

std::string summary_text(const RunReport& report) {
  const auto& counts = report.counts;
  const auto& latency = report.latency;
  std::string text =
      formatted("%.1f s: offered %lu, completed %lu (%.2f/s), errors %lu, dropped %lu\n", report.seconds,
                counts.offered, counts.completed,
                report.seconds > 0 ? static_cast<double>(counts.completed) / report.seconds : 0.0,
                counts.errors, counts.dropped) +
      formatted("latency from the intended start: mean %.2f", latency.mean_ms());
  for (const auto& row : kPercentiles) {
    text += formatted(", %s %.2f", row.key, to_ms(latency.percentile(row.percent)));
  }
  text += formatted(", max %.2f ms\n", to_ms(latency.max()));
  if (report.slo_ms > 0) {
    text += formatted("above the objective of %.1f ms: %lu of %lu\n", report.slo_ms, report.over_slo,
                      counts.completed + counts.errors + counts.dropped);
  }
  for (const auto& [why, count] : report.errors_by) {
    text += "errors: " + std::to_string(count) + " of " + why + "\n";
  }
  return text;
}

std::string report_json(const RunReport& report) {
  nlohmann::ordered_json json;
  json["tool"] = "flash-workload";
  json["version"] = FLASH_VERSION;
  json["command"] = report.command;
  json["target"] = report.target;
  json["trace"] = report.trace;
  json["seconds"] = report.seconds;
  const auto put_counts = [](nlohmann::ordered_json& out, const RequestCounts& counts) {
    out["offered"] = counts.offered;
    out["completed"] = counts.completed;
    out["errors"] = counts.errors;
    out["dropped"] = counts.dropped;
  };
  put_counts(json, report.counts);
  const double seconds = report.seconds > 0 ? report.seconds : 1;
  json["errors_by"] = report.errors_by;
  json["rate_offered"] = static_cast<double>(report.counts.offered) / seconds;
  json["rate_achieved"] = static_cast<double>(report.counts.completed) / seconds;
  json["slo_ms"] = report.slo_ms;
  json["over_slo"] = report.over_slo;
  json["latency_ms"] = percentiles_json(report.latency);
  auto& rows = json["per_second"] = nlohmann::ordered_json::array();
  for (const auto& row : report.per_second) {
    nlohmann::ordered_json line;
    line["second"] = row.second;
    put_counts(line, row.counts);
    line["p50_ms"] = row.p50_ms;
    line["p99_ms"] = row.p99_ms;
    line["max_ms"] = row.max_ms;
    if (!row.histogram.empty()) {
      line["histogram"] = histogram_json(row.histogram);
    }
    rows.push_back(std::move(line));
  }
  return json.dump(2) + "\n";
}

std::string summary_text(const ServiceReport& report) {
  const auto& latency = report.latency;
  return formatted(
      "served %lu requests: p50 %.2f ms, p99 %.2f ms, max %.2f ms; metric packets sent %lu, dropped %lu\n",
      latency.count(), to_ms(latency.percentile(50)), to_ms(latency.percentile(99)), to_ms(latency.max()),
      report.packets_sent, report.packets_dropped);
}

std::string report_json(const ServiceReport& report) {
  nlohmann::ordered_json json;
  json["tool"] = "flash-workload";
  json["version"] = FLASH_VERSION;
  json["command"] = "serve";
  json["application"] = report.application;
  json["served"] = report.latency.count();
  json["slo_ms"] = report.slo_ms;
  json["over_slo"] = report.over_slo;
  json["cpu_s"] = report.cpu_s;
  json["latency_ms"] = percentiles_json(report.latency);
  json["histogram"] = histogram_json(report.latency.buckets());
  json["packets_sent"] = report.packets_sent;
  json["packets_dropped"] = report.packets_dropped;
  return json.dump(2) + "\n";
}

}  // namespace flash
