#include "link/sync_messages.h"

#include <array>
#include <cassert>

#include "core/json.h"
#include "link/cbor.h"
#include "link/episode_cbor.h"
#include "link/metric_selector.h"
#include "link/neighbour_cbor.h"

namespace flash::link::sync {

using namespace cbor;
using nlohmann::json;

namespace {

constexpr double kMaxCount = 1e15;   // requests between two answers
constexpr double kMaxLatency = 1e9;  // ms

constexpr std::array kStates = {ReadingState::First, ReadingState::Good, ReadingState::Unreachable,
                                ReadingState::Invalid};
constexpr std::array kTypes = {FamilyType::Gauge, FamilyType::Counter, FamilyType::Info};
constexpr std::array kUnits = {TimeUnit::Auto, TimeUnit::Seconds, TimeUnit::Milliseconds,
                               TimeUnit::Microseconds, TimeUnit::Nanoseconds};

// --- bounds ---------------------------------------------------------------------------------------------

void check_selector(Check& c, std::string_view field, const std::string& text) {
  if (text.empty()) return;
  if (auto wrong = wrong_with_selector(text)) c.fail(field, *wrong);
}

Result<void> check(const HelloDown& m) {
  Check c;
  c.name("software", m.software);
  return c.result();
}

Result<void> check(const Scrape& m, const std::string& path) {
  Check c(path);
  c.name("rule", m.rule);
  if (auto wrong = wrong_with_url(m.url)) c.fail("url", *wrong);
  c.range("interval_s", m.interval_s, 0.1, 3600);
  c.range("timeout_s", m.timeout_s, 0.05, 60);
  check_selector(c, "latency", m.latency);
  check_selector(c, "requests", m.requests);
  check_selector(c, "errors", m.errors);
  if (m.latency.empty() && m.requests.empty()) c.fail("latency", "nothing is asked for");
  return c.result();
}

Result<void> check(const Scrapes& m) {
  Check c;
  c.count("scrapes", m.scrapes.size(), 0, kMaxScrapes, "scrapes");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.scrapes.size(); ++i) FLASH_CHECK(check(m.scrapes[i], at("scrapes", i)));
  return {};
}

Result<void> check(const Family& m) {
  Check c;
  if (!is_metric_name(m.name)) c.fail("name", "not a metric's name");
  c.name("name", m.name);
  c.name("unit", m.unit, true);
  c.name("help", m.help);
  c.count("labels", m.labels.size(), 0, kMaxLabels, "labels");
  for (const std::string& label : m.labels)
    if (!is_label_name(label)) c.fail("labels", "not a label's name");
  c.count("values", m.values.size(), 0, kMaxSamples, "samples");
  if (m.label_values.size() != m.labels.size() * m.values.size())
    c.fail("label_values", "not one per label and sample");
  for (const std::string& value : m.label_values) c.name("label_values", value, true);
  return c.result();
}

Result<void> check(const MetricsEnd&) {
  return {};
}

Result<void> check(const EpisodeEnd& m) {
  Check c;
  if (m.number == 0) c.fail("number", "counts from 1");
  FLASH_CHECK(c.result());
  return cbor::check(m.episode, "episode.");
}

Result<void> check(const HelloUp& m) {
  Check c;
  c.name("software", m.software);
  return c.result();
}

Result<void> check(const Reading& m) {
  Check c;
  c.name("rule", m.rule);
  c.name("reason", m.reason, true);
  if ((m.state == ReadingState::Good) != m.reason.empty())
    c.fail("reason", "given exactly where it is not good");
  c.range("covers_s", m.covers_s, 0, 1e6);
  if (m.state == ReadingState::Good && m.covers_s <= 0) c.fail("covers_s", "no time");
  c.range("requests", m.requests, 0, kMaxCount);
  c.range("errors", m.errors, 0, kMaxCount);
  c.range("p50_ms", m.p50_ms, 0, kMaxLatency);
  c.range("p99_ms", m.p99_ms, 0, kMaxLatency);
  c.range("samples", m.samples, 0, kMaxCount);
  if (m.p50_ms > m.p99_ms) c.fail("p50_ms", "above p99_ms");
  if (m.at_least && !m.has_latency) c.fail("at_least", "of no latency");
  c.name("no_latency", m.no_latency, true);
  if (!m.no_latency.empty() && (m.has_latency || m.state != ReadingState::Good))
    c.fail("no_latency", "given only where a good page has none");
  return c.result();
}

Result<void> check(const WantMetrics&) {
  return {};
}

Result<void> check(const EpisodesStored&) {
  return {};
}

Result<void> check(const NearestPair& m) {
  Check c;
  c.name("agent", m.agent);
  FLASH_CHECK(c.result());
  return cbor::check(m.neighbour, "neighbour.");
}

// --- writing --------------------------------------------------------------------------------------------

void write_texts(Writer& w, std::string_view key, const std::vector<std::string>& texts) {
  w.text(key);
  w.head(Writer::kArray, texts.size());
  for (const std::string& t : texts) w.text(t);
}

void write(Writer& w, const HelloDown& m) {
  begin(w, kVersion, "hello", 2);
  w.field("software", m.software);
  w.field("epoch", m.epoch);
}

void write(Writer& w, const Scrapes& m) {
  begin(w, kVersion, "scrapes", 1);
  w.text("scrapes");
  w.head(Writer::kArray, m.scrapes.size());
  for (const Scrape& s : m.scrapes) {
    w.head(Writer::kMap, 8);
    w.field("rule", s.rule);
    w.field("url", s.url);
    w.field("interval_s", s.interval_s);
    w.field("timeout_s", s.timeout_s);
    w.field("latency", s.latency);
    w.field("requests", s.requests);
    w.field("errors", s.errors);
    w.field("unit", to_string(s.unit));
  }
}

void write(Writer& w, const Family& m) {
  begin(w, kVersion, "family", 7);
  w.field("name", m.name);
  w.field("type", to_string(m.type));
  w.field("unit", m.unit);
  w.field("help", m.help);
  write_texts(w, "labels", m.labels);
  write_texts(w, "label_values", m.label_values);
  w.field("values", m.values);
}

void write(Writer& w, const MetricsEnd&) {
  begin(w, kVersion, "metrics-end", 0);
}

void write(Writer& w, const EpisodeEnd& m) {
  begin(w, kVersion, "episode", 2);
  w.field("number", m.number);
  w.text("episode");
  cbor::write(w, m.episode);
}

void write(Writer& w, const HelloUp& m) {
  begin(w, kVersion, "hello", 3);
  w.field("software", m.software);
  w.field("pid", m.pid);
  w.field("wants_episodes", m.wants_episodes);
}

void write(Writer& w, const Reading& m) {
  begin(w, kVersion, "reading", 14);
  w.field("rule", m.rule);
  w.field("state", to_string(m.state));
  w.field("reason", m.reason);
  w.field("covers_s", m.covers_s);
  w.field("requests", m.requests);
  w.field("has_errors", m.has_errors);
  w.field("errors", m.errors);
  w.field("has_latency", m.has_latency);
  w.field("p50_ms", m.p50_ms);
  w.field("p99_ms", m.p99_ms);
  w.field("samples", m.samples);
  w.field("exact", m.exact);
  w.field("at_least", m.at_least);
  w.field("no_latency", m.no_latency);
}

void write(Writer& w, const WantMetrics&) {
  begin(w, kVersion, "want-metrics", 0);
}

void write(Writer& w, const EpisodesStored& m) {
  begin(w, kVersion, "episodes-stored", 1);
  w.field("number", m.number);
}

void write(Writer& w, const NearestPair& m) {
  begin(w, kVersion, "nearest-pair", 2);
  w.field("agent", m.agent);
  w.text("neighbour");
  cbor::write(w, m.neighbour);
}

template <class Message>
std::string encode_any(const Message& message) {
  assert(validate(message));
  Writer w;
  std::visit([&w](const auto& m) { write(w, m); }, message);
  return w.take();
}

// --- reading --------------------------------------------------------------------------------------------

Result<void> read_texts(const json& list, std::string_view key, std::vector<std::string>& texts) {
  for (const json& text : list) {
    if (!text.is_string()) return invalid(std::string(key) + ": not a text");
    texts.push_back(text.get_ref<const std::string&>());
  }
  return {};
}

Result<void> read(const json& j, HelloDown& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("epoch", m.epoch);
  return f.done({"v", "t", "software", "epoch"});
}

Result<void> read(const json& j, Scrapes& m) {
  Fields f = fields_of(j);
  const json* list = f.list("scrapes", kMaxScrapes, "scrapes");
  FLASH_CHECK(f.done({"v", "t", "scrapes"}));
  m.scrapes.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) return invalid("scrapes[" + std::to_string(i) + "]: not a map");
    Fields one((*list)[i], at("scrapes", i));
    Scrape& s = m.scrapes[i];
    one.get("rule", s.rule);
    one.get("url", s.url);
    one.get("interval_s", s.interval_s);
    one.get("timeout_s", s.timeout_s);
    one.get("latency", s.latency);
    one.get("requests", s.requests);
    one.get("errors", s.errors);
    one.get_enum("unit", s.unit, kUnits, "a unit of time");
    FLASH_CHECK(
        one.done({"rule", "url", "interval_s", "timeout_s", "latency", "requests", "errors", "unit"}));
  }
  return {};
}

Result<void> read(const json& j, Family& m) {
  Fields f = fields_of(j);
  f.get("name", m.name);
  f.get_enum("type", m.type, kTypes, "a type of metric");
  f.get("unit", m.unit);
  f.get("help", m.help);
  const json* labels = f.list("labels", kMaxLabels, "labels");
  const json* label_values = f.list("label_values", kMaxLabels * kMaxSamples, "values");
  f.get("values", m.values);
  FLASH_CHECK(f.done({"v", "t", "name", "type", "unit", "help", "labels", "label_values", "values"}));
  FLASH_CHECK(read_texts(*labels, "labels", m.labels));
  return read_texts(*label_values, "label_values", m.label_values);
}

Result<void> read(const json& j, MetricsEnd&) {
  return fields_of(j).done({"v", "t"});
}

Result<void> read(const json& j, EpisodeEnd& m) {
  Fields f = fields_of(j);
  f.get("number", m.number);
  const json* episode = f.find("episode");
  FLASH_CHECK(f.done({"v", "t", "number", "episode"}));
  return cbor::read(*episode, "episode.", m.episode);
}

Result<void> read(const json& j, HelloUp& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("pid", m.pid);
  f.get("wants_episodes", m.wants_episodes);
  return f.done({"v", "t", "software", "pid", "wants_episodes"});
}

Result<void> read(const json& j, Reading& m) {
  Fields f = fields_of(j);
  f.get("rule", m.rule);
  f.get_enum("state", m.state, kStates, "a state");
  f.get("reason", m.reason);
  f.get("covers_s", m.covers_s);
  f.get("requests", m.requests);
  f.get("has_errors", m.has_errors);
  f.get("errors", m.errors);
  f.get("has_latency", m.has_latency);
  f.get("p50_ms", m.p50_ms);
  f.get("p99_ms", m.p99_ms);
  f.get("samples", m.samples);
  f.get("exact", m.exact);
  f.get("at_least", m.at_least);
  f.get("no_latency", m.no_latency);
  return f.done({"v", "t", "rule", "state", "reason", "covers_s", "requests", "has_errors", "errors",
                 "has_latency", "p50_ms", "p99_ms", "samples", "exact", "at_least", "no_latency"});
}

Result<void> read(const json& j, WantMetrics&) {
  return fields_of(j).done({"v", "t"});
}

Result<void> read(const json& j, EpisodesStored& m) {
  Fields f = fields_of(j);
  f.get("number", m.number);
  return f.done({"v", "t", "number"});
}

Result<void> read(const json& j, NearestPair& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  const json* neighbour = f.find("neighbour");
  FLASH_CHECK(f.done({"v", "t", "agent", "neighbour"}));
  return cbor::read(*neighbour, "neighbour.", m.neighbour);
}

template <class T, class Message>
Result<Message> read_as(const json& j) {
  T m;
  FLASH_CHECK(read(j, m));
  FLASH_CHECK(check(m));
  return Message(std::move(m));
}

}  // namespace

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
  return std::visit([](const auto& m) { return check(m); }, message);
}

Result<void> validate(const Up& message) {
  return std::visit([](const auto& m) { return check(m); }, message);
}

std::string encode(const Down& message) {
  return encode_any(message);
}

std::string encode(const Up& message) {
  return encode_any(message);
}

Result<Down> decode_down(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j, kVersion));
  if (type == "hello") return read_as<HelloDown, Down>(j);
  if (type == "scrapes") return read_as<Scrapes, Down>(j);
  if (type == "family") return read_as<Family, Down>(j);
  if (type == "metrics-end") return read_as<MetricsEnd, Down>(j);
  if (type == "episode") return read_as<EpisodeEnd, Down>(j);
  return unknown_type(type);
}

Result<Up> decode_up(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j, kVersion));
  if (type == "hello") return read_as<HelloUp, Up>(j);
  if (type == "reading") return read_as<Reading, Up>(j);
  if (type == "want-metrics") return read_as<WantMetrics, Up>(j);
  if (type == "episodes-stored") return read_as<EpisodesStored, Up>(j);
  if (type == "nearest-pair") return read_as<NearestPair, Up>(j);
  return unknown_type(type);
}

}  // namespace flash::link::sync
