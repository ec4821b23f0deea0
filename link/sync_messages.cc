#include "link/sync_messages.h"

#include "link/message_set.h"

namespace flash::link::sync {

using DownSet = MessageSet<kVersion, Down>;
using UpSet = MessageSet<kVersion, Up>;

void also(cbor::Check& c, const Scrape& m) {
  if (m.latency.empty() && m.requests.empty()) c.fail("latency", "nothing is asked for");
}

void also(cbor::Check& c, const Family& m) {
  if (!is_metric_name(m.name)) c.fail("name", "not a metric's name");
  for (const std::string& label : m.labels)
    if (!is_label_name(label)) c.fail("labels", "not a label's name");
  if (m.label_values.size() != m.labels.size() * m.values.size())
    c.fail("label_values", "not one per label and sample");
}

void also(cbor::Check& c, const Reading& m) {
  if ((m.state == ReadingState::Good) != m.reason.empty())
    c.fail("reason", "given exactly where it is not good");
  if (m.state == ReadingState::Good && m.covers_s <= 0) c.fail("covers_s", "no time");
  if (m.p50_ms > m.p99_ms) c.fail("p50_ms", "above p99_ms");
  if (m.at_least && !m.has_latency) c.fail("at_least", "of no latency");
  if (!m.no_latency.empty() && (m.has_latency || m.state != ReadingState::Good))
    c.fail("no_latency", "given only where a good page has none");
}

std::string_view to_string(FamilyType t) {
  switch (t) {
    case FamilyType::Gauge:
      return "gauge";
    case FamilyType::Counter:
      return "counter";
    case FamilyType::Info:
      return "info";
  }
  return "";
}

std::string_view to_string(ReadingState s) {
  switch (s) {
    case ReadingState::First:
      return "first";
    case ReadingState::Good:
      return "good";
    case ReadingState::Unreachable:
      return "unreachable";
    case ReadingState::Invalid:
      return "invalid";
  }
  return "";
}

Result<void> validate(const Down& message) {
  return DownSet::check(message);
}

Result<void> validate(const Up& message) {
  return UpSet::check(message);
}

std::string encode(const Down& message) {
  return DownSet::encode(message);
}

std::string encode(const Up& message) {
  return UpSet::encode(message);
}

Result<Down> decode_down(std::string_view bytes) {
  return DownSet::decode(bytes);
}

Result<Up> decode_up(std::string_view bytes) {
  return UpSet::decode(bytes);
}

}  // namespace flash::link::sync
