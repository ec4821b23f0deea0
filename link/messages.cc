#include "link/messages.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace flash::link {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "arrays of f32 go over the wire as they lie");

constexpr std::size_t kMaxDepth = 4;  // message, steps, step, value
constexpr double kMaxNumber = 1e12;   // of what is measured: a loss, a time

Error invalid(const std::string& what) {
  return Error(std::errc::invalid_argument, what);
}

std::string at(std::string_view list, std::size_t i) {
  return std::string(list) + "[" + std::to_string(i) + "].";
}

// --- bounds: one place for both directions and both ends ------------------------------------------------

/// Collects the first thing that is wrong.
class Check {
 public:
  explicit Check(std::string path = "") : path_(std::move(path)) {}

  void name(std::string_view field, const std::string& text, bool may_be_empty = false) {
    if (text.empty() && !may_be_empty) fail(field, "empty");
    if (text.size() > kMaxName)
      fail(field, std::to_string(text.size()) + " bytes, at most " + std::to_string(kMaxName));
    for (unsigned char c : text)
      if (c < 0x20 || c == 0x7f) fail(field, "a control character");
  }
  void range(std::string_view field, double value, double low, double high) {
    if (!(value >= low && value <= high))
      fail(field, json(value).dump() + ", from " + json(low).dump() + " to " + json(high).dump());
  }
  void count(std::string_view field, std::size_t n, std::size_t low, std::size_t high,
             std::string_view unit) {
    if (n < low)
      fail(field, std::to_string(n) + " " + std::string(unit) + ", at least " + std::to_string(low));
    if (n > high)
      fail(field, std::to_string(n) + " " + std::string(unit) + ", at most " + std::to_string(high));
  }
  void numbers(std::string_view field, const std::vector<float>& values) {
    count(field, values.size(), 0, kMaxDim, "numbers");
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i])) fail(field, "number " + std::to_string(i) + " is not finite");
  }
  void one_of(std::string_view field, std::string_view value, std::initializer_list<std::string_view> known) {
    std::string all;
    for (std::string_view k : known) {
      if (k == value) return;
      all += (all.empty() ? "" : ", ") + std::string(k);
    }
    fail(field, "not one of " + all);
  }
  void fail(std::string_view field, const std::string& what) {
    if (!error_) error_ = invalid(path_ + std::string(field) + ": " + what);
  }
  Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  std::string path_;
  std::optional<Error> error_;
};

Result<void> check(const LearningSettings& s, const std::string& path) {
  Check c(path);
  c.one_of("limits_offline", s.limits_offline, {"td3+bc", "bcq"});
  c.one_of("frequency_offline", s.frequency_offline, {"td3+bc", "iql", "bcq"});
  c.one_of("frequency_algorithm", s.frequency_algorithm, {"q-learning", "tabular-q"});
  c.range("discount", s.discount, 0, 0.9999);
  c.range("learning_starts", s.learning_starts, 1, 1e6);
  c.range("updates_per_step", s.updates_per_step, 0, 1000);
  c.range("offline_updates", s.offline_updates, 0, 1e6);
  c.range("publish_interval_s", s.publish_interval_s, 0.1, 86400);
  c.range("snapshot_lifetime_s", s.snapshot_lifetime_s, 1, 864000);
  c.range("replay_steps", s.replay_steps, 100, 1e6);
  c.range("store_max_mib", s.store_max_mib, 1, 1e6);
  c.range("store_max_days", s.store_max_days, 0.01, 3650);
  return c.result();
}

Result<void> check(const HelloDown& m) {
  Check c;
  c.name("software", m.software);
  c.range("period_s", m.period_s, 0.01, 3600);
  c.range("episode_steps", m.episode_steps, 1, 1e6);
  FLASH_CHECK(c.result());
  return check(m.settings, "settings.");
}

Result<void> check(const Announce& m) {
  Check c;
  c.name("agent", m.agent);
  c.name("key", m.key);
  c.name("application", m.application, true);
  c.name("rule", m.rule, true);
  c.range("state_dim", m.state_dim, 1, kMaxDim);
  c.range("action_dim", m.action_dim, 1, kMaxDim);
  if (m.state_names.size() != m.state_dim)
    c.fail("state_names",
           std::to_string(m.state_names.size()) + " names for a state of " + std::to_string(m.state_dim));
  for (const std::string& name : m.state_names) c.name("state_names", name);
  c.name("reward", m.reward, true);
  return c.result();
}

Result<void> check(const Gone& m) {
  Check c;
  c.name("agent", m.agent);
  return c.result();
}

Result<void> check(const Step& m, const std::string& path) {
  Check c(path);
  c.name("agent", m.agent);
  if (m.seq == 0) c.fail("seq", "0, counts from 1");
  c.numbers("state", m.state);
  c.numbers("action", m.action);
  c.numbers("fallback", m.fallback);
  if (!std::isfinite(m.reward)) c.fail("reward", "not finite");
  return c.result();
}

Result<void> check(const Steps& m) {
  Check c;
  c.count("steps", m.steps.size(), 1, kMaxStepsPerMessage, "steps");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.steps.size(); ++i) FLASH_CHECK(check(m.steps[i], at("steps", i)));
  return {};
}

Result<void> check(const Verdict& m) {
  Check c;
  c.name("agent", m.agent);
  c.name("reason", m.reason, true);
  if (m.accepted != m.reason.empty()) c.fail("reason", "given exactly where a policy is refused");
  return c.result();
}

Result<void> check(const HelloUp& m) {
  Check c;
  c.name("software", m.software);
  c.name("blas", m.blas, true);
  return c.result();
}

Result<void> check(const Stored& m, const std::string& path = "") {
  Check c(path);
  c.name("agent", m.agent);
  return c.result();
}

Result<void> check(const Acknowledge& m) {
  Check c;
  c.count("stored", m.stored.size(), 0, kMaxAgents, "agents");
  FLASH_CHECK(c.result());
  for (std::size_t i = 0; i < m.stored.size(); ++i) FLASH_CHECK(check(m.stored[i], at("stored", i)));
  return {};
}

Result<void> check(const Offer& m) {
  Check c;
  c.name("agent", m.agent);
  c.count("policy", m.policy.size(), 1, kMaxMessage, "bytes");
  return c.result();
}

Result<void> check(const Status& m) {
  Check c;
  c.name("agent", m.agent, true);
  c.name("doing", m.doing);
  c.range("loss", m.loss, -kMaxNumber, kMaxNumber);
  c.range("update_us", m.update_us, 0, kMaxNumber);
  c.range("rss_mib", m.rss_mib, 0, kMaxNumber);
  c.range("cpu_share", m.cpu_share, 0, kMaxNumber);
  return c.result();
}

// --- writing: RFC 8949, definite lengths, the shortest head ---------------------------------------------

class Writer {
 public:
  enum Major : unsigned { kUnsigned = 0, kNegative = 1, kBytes = 2, kText = 3, kArray = 4, kMap = 5 };

  void head(Major major, std::uint64_t n) {
    const unsigned m = static_cast<unsigned>(major) << 5;
    if (n < 24) {
      byte(m | static_cast<unsigned>(n));
      return;
    }
    const int bytes = n <= 0xff ? 1 : n <= 0xffff ? 2 : n <= 0xffffffff ? 4 : 8;
    byte(m | (bytes == 1 ? 24u : bytes == 2 ? 25u : bytes == 4 ? 26u : 27u));
    big_endian(n, bytes);
  }
  void text(std::string_view s) {
    head(kText, s.size());
    out_.append(s);
  }
  void bytes(std::string_view s) {
    head(kBytes, s.size());
    out_.append(s);
  }
  void number(double v) {
    byte(0xfb);
    big_endian(std::bit_cast<std::uint64_t>(v), 8);
  }
  void number(float v) {
    byte(0xfa);
    big_endian(std::bit_cast<std::uint32_t>(v), 4);
  }
  void boolean(bool v) { byte(v ? 0xf5u : 0xf4u); }
  void raw(std::string_view s) { out_.append(s); }
  void reserve(std::size_t n) { out_.reserve(n); }

  void field(std::string_view key, std::string_view v) { text(key), text(v); }
  void field(std::string_view key, const std::string& v) { text(key), text(v); }
  void field(std::string_view key, const char* v) = delete;
  void field(std::string_view key, double v) { text(key), number(v); }
  void field(std::string_view key, float v) { text(key), number(v); }
  void field(std::string_view key, bool v) { text(key), boolean(v); }
  void field(std::string_view key, std::uint64_t v) { text(key), head(kUnsigned, v); }
  void field(std::string_view key, std::uint32_t v) { text(key), head(kUnsigned, v); }
  void field(std::string_view key, std::int64_t v) {
    text(key);
    if (v >= 0)
      head(kUnsigned, static_cast<std::uint64_t>(v));
    else
      head(kNegative, static_cast<std::uint64_t>(-(v + 1)));
  }
  void field(std::string_view key, const std::vector<float>& v) {
    text(key);
    bytes({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)});
  }

  std::string take() { return std::move(out_); }

 private:
  void byte(unsigned b) { out_.push_back(static_cast<char>(b)); }
  void big_endian(std::uint64_t n, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) byte(static_cast<unsigned>(n >> (8 * i)) & 0xff);
  }

  std::string out_;
};

/// A message of so many fields besides version and type.
void begin(Writer& w, std::string_view type, std::size_t fields) {
  w.head(Writer::kMap, fields + 2);
  w.field("v", std::uint32_t{kVersion});
  w.field("t", type);
}

enum Flag : std::uint32_t {
  kExplored = 1,
  kEndOfEpisode = 2,
  kStateTrusted = 4,
  kRewardGiven = 8,
  kRewardTrusted = 16,
  kAllFlags = 31,
};

void write(Writer& w, const Step& s) {
  w.head(Writer::kMap, 12);
  w.field("agent", s.agent);
  w.field("seq", s.seq);
  w.field("time_us", s.time_us);
  w.field("episode", s.episode);
  w.field("step", s.step);
  w.field("stage", to_string(s.stage));
  w.field("by", to_string(s.controller));
  w.field("flags", (s.explored ? kExplored : 0u) | (s.end_of_episode ? kEndOfEpisode : 0u) |
                       (s.state_trusted ? kStateTrusted : 0u) | (s.reward_given ? kRewardGiven : 0u) |
                       (s.reward_trusted ? kRewardTrusted : 0u));
  w.field("state", s.state);
  w.field("action", s.action);
  w.field("fallback", s.fallback);
  w.field("reward", s.reward);
}

void write(Writer& w, const LearningSettings& s) {
  w.head(Writer::kMap, 14);
  w.field("limits_offline", s.limits_offline);
  w.field("frequency_offline", s.frequency_offline);
  w.field("frequency_algorithm", s.frequency_algorithm);
  w.field("double_q", s.double_q);
  w.field("discount", s.discount);
  w.field("seed", s.seed);
  w.field("learning_starts", s.learning_starts);
  w.field("updates_per_step", s.updates_per_step);
  w.field("offline_updates", s.offline_updates);
  w.field("publish_interval_s", s.publish_interval_s);
  w.field("snapshot_lifetime_s", s.snapshot_lifetime_s);
  w.field("replay_steps", s.replay_steps);
  w.field("store_max_mib", s.store_max_mib);
  w.field("store_max_days", s.store_max_days);
}

void write(Writer& w, const HelloDown& m) {
  begin(w, "hello", 5);
  w.field("software", m.software);
  w.field("epoch", m.epoch);
  w.field("period_s", m.period_s);
  w.field("episode_steps", m.episode_steps);
  w.text("settings");
  write(w, m.settings);
}

void write(Writer& w, const Announce& m) {
  begin(w, "announce", 10);
  w.field("agent", m.agent);
  w.field("key", m.key);
  w.field("task", to_string(m.task));
  w.field("application", m.application);
  w.field("rule", m.rule);
  w.field("state_dim", m.state_dim);
  w.field("action_dim", m.action_dim);
  w.text("state_names");
  w.head(Writer::kArray, m.state_names.size());
  for (const std::string& name : m.state_names) w.text(name);
  w.field("reward", m.reward);
  w.field("model_version", m.model_version);
}

void write(Writer& w, const Gone& m) {
  begin(w, "gone", 1);
  w.field("agent", m.agent);
}

void write(Writer& w, const Steps& m) {
  begin(w, "steps", 1);
  w.text("steps");
  w.head(Writer::kArray, m.steps.size());
  for (const Step& s : m.steps) write(w, s);
}

void write(Writer& w, const Verdict& m) {
  begin(w, "verdict", 4);
  w.field("agent", m.agent);
  w.field("version", m.version);
  w.field("accepted", m.accepted);
  w.field("reason", m.reason);
}

void write(Writer& w, const HelloUp& m) {
  begin(w, "hello", 3);
  w.field("software", m.software);
  w.field("blas", m.blas);
  w.field("pid", m.pid);
}

void write(Writer& w, const Stored& m) {
  begin(w, "stored", 2);
  w.field("agent", m.agent);
  w.field("seq", m.seq);
}

void write(Writer& w, const Acknowledge& m) {
  begin(w, "acknowledge", 1);
  w.text("stored");
  w.head(Writer::kArray, m.stored.size());
  for (const Stored& s : m.stored) {
    w.head(Writer::kMap, 2);
    w.field("agent", s.agent);
    w.field("seq", s.seq);
  }
}

void write(Writer& w, const Offer& m) {
  begin(w, "offer", 2);
  w.field("agent", m.agent);
  w.text("policy");
  w.bytes(m.policy);
}

void write(Writer& w, const Status& m) {
  begin(w, "status", 9);
  w.field("agent", m.agent);
  w.field("doing", m.doing);
  w.field("transitions", m.transitions);
  w.field("updates", m.updates);
  w.field("episodes", m.episodes);
  w.field("loss", m.loss);
  w.field("update_us", m.update_us);
  w.field("rss_mib", m.rss_mib);
  w.field("cpu_share", m.cpu_share);
}

template <class Message>
std::string encode_any(const Message& message) {
  assert(validate(message));
  Writer w;
  std::visit([&w](const auto& m) { write(w, m); }, message);
  return w.take();
}

// --- reading --------------------------------------------------------------------------------------------

/// Bytes of the UTF-8 sequence at the front of a non-empty text, 0: it is none (RFC 3629: no overlong forms,
/// no surrogates).
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned first = byte(0);
  const std::size_t n = first < 0x80                     ? 1
                        : first >= 0xc2 && first <= 0xdf ? 2
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (n == 0 || n > text.size()) return 0;
  for (std::size_t k = 1; k < n; ++k)
    if ((byte(k) & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return n;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_sequence(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

/// One pass over the bytes before anything is built from them, because nlohmann's reader recurses as deep as
/// the sender likes: well formed, shallow, definite lengths that the message holds, and only the kinds of
/// values that messages are made of. Returns how many map entries there are.
Result<std::size_t> scan(std::string_view bytes) {
  std::array<std::uint64_t, kMaxDepth + 1> open = {1};  // items still to come, per level
  std::size_t depth = 0, i = 0, entries = 0;
  const auto wrong = [&](std::string_view what) {
    return invalid("byte " + std::to_string(i) + ": " + std::string(what));
  };
  while (true) {
    while (depth > 0 && open[depth] == 0) --depth;
    if (open[depth] == 0) break;  // depth 0: the message is whole
    --open[depth];
    if (i >= bytes.size()) return wrong("the message ends early");
    const unsigned first = static_cast<unsigned char>(bytes[i]);
    const unsigned major = first >> 5, info = first & 31;
    if (info >= 28) return wrong("indefinite length");
    const std::size_t extra = info < 24 ? 0 : std::size_t{1} << (info - 24);
    if (bytes.size() - i - 1 < extra) return wrong("the message ends early");
    std::uint64_t n = info;
    if (extra > 0) {
      n = 0;
      for (std::size_t k = 1; k <= extra; ++k) n = n << 8 | static_cast<unsigned char>(bytes[i + k]);
    }
    const std::size_t left = bytes.size() - i - 1 - extra;
    switch (major) {
      case 0:
        break;
      case 1:
        if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          return wrong("a number below -2^63");
        break;
      case 2:
      case 3:
        if (n > left) return wrong("a length beyond the message");
        if (major == 3 && !is_utf8(bytes.substr(i + 1 + extra, n))) return wrong("text that is not UTF-8");
        i += n;
        break;
      case 4:
      case 5:
        if (n > left / (major - 3)) return wrong("a length beyond the message");
        if (depth == kMaxDepth) return wrong("nested too deep");
        open[++depth] = n * (major - 3);
        if (major == 5) entries += n;
        break;
      case 7:
        if (info == 20 || info == 21 || (info >= 25 && info <= 27)) break;  // false, true, floats
        [[fallthrough]];
      default:
        return wrong("a kind of value that no message has");
    }
    i += 1 + extra;
  }
  if (i != bytes.size()) return wrong("more follows the message");
  return entries;
}

std::size_t count_entries(const json& j) {
  std::size_t n = j.is_object() ? j.size() : 0;
  if (j.is_structured())
    for (const json& part : j) n += count_entries(part);
  return n;
}

Result<json> parse(std::string_view bytes) {
  if (bytes.size() > kMaxMessage)
    return Error(std::errc::message_size,
                 std::to_string(bytes.size()) + " bytes, at most " + std::to_string(kMaxMessage));
  FLASH_TRY(const std::size_t entries, scan(bytes));
  json j = json::from_cbor(bytes.begin(), bytes.end(), true, false);
  if (!j.is_object()) return invalid("not a map with text keys");
  if (count_entries(j) != entries) return invalid("a key is there twice");
  return j;
}

template <class E, std::size_t N>
bool from_name(std::string_view name, const std::array<E, N>& all, E& value) {
  for (E e : all)
    if (to_string(e) == name) {
      value = e;
      return true;
    }
  return false;
}

/// The fields of one map; the first error stays.
class Fields {
 public:
  explicit Fields(const json& map, std::string path = "") : map_(map), path_(std::move(path)) {}

  template <class T>
  void get(std::string_view key, T& value) {
    const json* j = find(key);
    if (j) read(key, *j, value);
  }
  const json* find(std::string_view key) {
    ++asked_;
    const auto it = map_.find(key);
    if (it != map_.end()) return &*it;
    fail(key, "missing");
    return nullptr;
  }
  const json* list(std::string_view key, std::size_t max, std::string_view unit) {
    const json* j = find(key);
    if (j && !j->is_array()) return fail(key, "not a list"), nullptr;
    if (j && j->size() > max)
      return fail(key,
                  std::to_string(j->size()) + " " + std::string(unit) + ", at most " + std::to_string(max)),
             nullptr;
    return j;
  }
  void fail(std::string_view key, std::string_view what) {
    if (!error_) error_ = invalid(path_ + std::string(key) + ": " + std::string(what));
  }
  /// REQUIRES: `known` are all keys that were asked for.
  Result<void> done(std::initializer_list<std::string_view> known) {
    assert(known.size() == asked_);
    if (!error_ && map_.size() != asked_)
      for (const auto& item : map_.items()) {
        bool is_known = false;
        for (std::string_view k : known) is_known = is_known || k == item.key();
        if (!is_known) fail(item.key().substr(0, 32), "unknown key");
      }
    return error_ ? Result<void>(*error_) : Result<void>();
  }

 private:
  void read(std::string_view key, const json& j, std::string& value) {
    if (!j.is_string()) return fail(key, "not a text");
    value = j.get_ref<const std::string&>();
  }
  void read(std::string_view key, const json& j, bool& value) {
    if (!j.is_boolean()) return fail(key, "not true or false");
    value = j.get<bool>();
  }
  void read(std::string_view key, const json& j, std::uint64_t& value) {
    if (!j.is_number_unsigned()) return fail(key, "not a count");
    value = j.get<std::uint64_t>();
  }
  void read(std::string_view key, const json& j, std::uint32_t& value) {
    std::uint64_t wide = 0;
    if (!j.is_number_unsigned() || (wide = j.get<std::uint64_t>()) > 0xffffffff)
      return fail(key, "not a count below 2^32");
    value = static_cast<std::uint32_t>(wide);
  }
  void read(std::string_view key, const json& j, std::int64_t& value) {
    if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<std::uint64_t>() > kMaxInt64))
      return fail(key, "not a whole number");
    value = j.get<std::int64_t>();
  }
  void read(std::string_view key, const json& j, double& value) {
    if (!j.is_number_float()) return fail(key, "not a number");
    value = j.get<double>();
  }
  void read(std::string_view key, const json& j, float& value) {
    if (!j.is_number_float()) return fail(key, "not a number");
    value = static_cast<float>(j.get<double>());
  }
  void read(std::string_view key, const json& j, std::vector<float>& value) {
    if (!j.is_binary()) return fail(key, "not an array of f32");
    const auto& bytes = j.get_binary();
    if (bytes.size() % sizeof(float) != 0) return fail(key, "not whole numbers of four bytes");
    value.resize(bytes.size() / sizeof(float));
    if (!value.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
  }
  void read(std::string_view key, const json& j, Task& value) {
    constexpr std::array kAll = {Task::ResourceLimits, Task::CpuFrequency};
    if (!j.is_string() || !from_name(j.get_ref<const std::string&>(), kAll, value)) fail(key, "not a task");
  }
  void read(std::string_view key, const json& j, Stage& value) {
    constexpr std::array kAll = {Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving};
    if (!j.is_string() || !from_name(j.get_ref<const std::string&>(), kAll, value)) fail(key, "not a stage");
  }
  void read(std::string_view key, const json& j, Controller& value) {
    constexpr std::array kAll = {Controller::None, Controller::Fallback, Controller::Learned};
    if (!j.is_string() || !from_name(j.get_ref<const std::string&>(), kAll, value))
      fail(key, "not a controller");
  }

  static constexpr std::uint64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  const json& map_;
  std::string path_;
  std::size_t asked_ = 0;
  std::optional<Error> error_;
};

Result<void> read(const json& j, LearningSettings& s) {
  if (!j.is_object()) return invalid("settings: not a map");
  Fields f(j, "settings.");
  f.get("limits_offline", s.limits_offline);
  f.get("frequency_offline", s.frequency_offline);
  f.get("frequency_algorithm", s.frequency_algorithm);
  f.get("double_q", s.double_q);
  f.get("discount", s.discount);
  f.get("seed", s.seed);
  f.get("learning_starts", s.learning_starts);
  f.get("updates_per_step", s.updates_per_step);
  f.get("offline_updates", s.offline_updates);
  f.get("publish_interval_s", s.publish_interval_s);
  f.get("snapshot_lifetime_s", s.snapshot_lifetime_s);
  f.get("replay_steps", s.replay_steps);
  f.get("store_max_mib", s.store_max_mib);
  f.get("store_max_days", s.store_max_days);
  return f.done({"limits_offline", "frequency_offline", "frequency_algorithm", "double_q", "discount", "seed",
                 "learning_starts", "updates_per_step", "offline_updates", "publish_interval_s",
                 "snapshot_lifetime_s", "replay_steps", "store_max_mib", "store_max_days"});
}

/// Version and type are asked for by every message.
Fields fields_of(const json& j) {
  Fields f(j);
  (void)f.find("v");
  (void)f.find("t");
  return f;
}

Result<void> read(const json& j, HelloDown& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("epoch", m.epoch);
  f.get("period_s", m.period_s);
  f.get("episode_steps", m.episode_steps);
  const json* settings = f.find("settings");
  FLASH_CHECK(f.done({"v", "t", "software", "epoch", "period_s", "episode_steps", "settings"}));
  return read(*settings, m.settings);
}

Result<void> read(const json& j, Announce& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("key", m.key);
  f.get("task", m.task);
  f.get("application", m.application);
  f.get("rule", m.rule);
  f.get("state_dim", m.state_dim);
  f.get("action_dim", m.action_dim);
  const json* names = f.list("state_names", kMaxDim, "names");
  f.get("reward", m.reward);
  f.get("model_version", m.model_version);
  FLASH_CHECK(f.done({"v", "t", "agent", "key", "task", "application", "rule", "state_dim", "action_dim",
                      "state_names", "reward", "model_version"}));
  for (const json& name : *names) {
    if (!name.is_string()) return invalid("state_names: not a text");
    m.state_names.push_back(name.get_ref<const std::string&>());
  }
  return {};
}

Result<void> read(const json& j, Gone& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  return f.done({"v", "t", "agent"});
}

Result<void> read(const json& j, Step& m, const std::string& path) {
  if (!j.is_object()) return invalid(path.substr(0, path.size() - 1) + ": not a map");
  Fields f(j, path);
  std::uint32_t flags = 0;
  f.get("agent", m.agent);
  f.get("seq", m.seq);
  f.get("time_us", m.time_us);
  f.get("episode", m.episode);
  f.get("step", m.step);
  f.get("stage", m.stage);
  f.get("by", m.controller);
  f.get("flags", flags);
  f.get("state", m.state);
  f.get("action", m.action);
  f.get("fallback", m.fallback);
  f.get("reward", m.reward);
  if (flags & ~kAllFlags) f.fail("flags", "unknown bits");
  m.explored = flags & kExplored;
  m.end_of_episode = flags & kEndOfEpisode;
  m.state_trusted = flags & kStateTrusted;
  m.reward_given = flags & kRewardGiven;
  m.reward_trusted = flags & kRewardTrusted;
  return f.done({"agent", "seq", "time_us", "episode", "step", "stage", "by", "flags", "state", "action",
                 "fallback", "reward"});
}

Result<void> read(const json& j, Steps& m) {
  Fields f = fields_of(j);
  const json* list = f.list("steps", kMaxStepsPerMessage, "steps");
  FLASH_CHECK(f.done({"v", "t", "steps"}));
  m.steps.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) FLASH_CHECK(read((*list)[i], m.steps[i], at("steps", i)));
  return {};
}

Result<void> read(const json& j, Verdict& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("version", m.version);
  f.get("accepted", m.accepted);
  f.get("reason", m.reason);
  return f.done({"v", "t", "agent", "version", "accepted", "reason"});
}

Result<void> read(const json& j, HelloUp& m) {
  Fields f = fields_of(j);
  f.get("software", m.software);
  f.get("blas", m.blas);
  f.get("pid", m.pid);
  return f.done({"v", "t", "software", "blas", "pid"});
}

Result<void> read(const json& j, Stored& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("seq", m.seq);
  return f.done({"v", "t", "agent", "seq"});
}

Result<void> read(const json& j, Acknowledge& m) {
  Fields f = fields_of(j);
  const json* list = f.list("stored", kMaxAgents, "agents");
  FLASH_CHECK(f.done({"v", "t", "stored"}));
  m.stored.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) return invalid("stored[" + std::to_string(i) + "]: not a map");
    Fields one((*list)[i], at("stored", i));
    one.get("agent", m.stored[i].agent);
    one.get("seq", m.stored[i].seq);
    FLASH_CHECK(one.done({"agent", "seq"}));
  }
  return {};
}

Result<void> read(const json& j, Offer& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  const json* policy = f.find("policy");
  if (policy && !policy->is_binary()) f.fail("policy", "not bytes");
  FLASH_CHECK(f.done({"v", "t", "agent", "policy"}));
  const auto& bytes = policy->get_binary();
  m.policy.assign(bytes.begin(), bytes.end());
  return {};
}

Result<void> read(const json& j, Status& m) {
  Fields f = fields_of(j);
  f.get("agent", m.agent);
  f.get("doing", m.doing);
  f.get("transitions", m.transitions);
  f.get("updates", m.updates);
  f.get("episodes", m.episodes);
  f.get("loss", m.loss);
  f.get("update_us", m.update_us);
  f.get("rss_mib", m.rss_mib);
  f.get("cpu_share", m.cpu_share);
  return f.done({"v", "t", "agent", "doing", "transitions", "updates", "episodes", "loss", "update_us",
                 "rss_mib", "cpu_share"});
}

template <class T, class Message>
Result<Message> read_as(const json& j) {
  T m;
  FLASH_CHECK(read(j, m));
  FLASH_CHECK(check(m));
  return Message(std::move(m));
}

Result<std::string> type_of(const json& j) {
  const auto version = j.find("v");
  if (version == j.end() || !version->is_number_unsigned()) return invalid("v: not a version");
  if (*version != kVersion)
    return Error(std::errc::protocol_not_supported,
                 "version " + version->dump() + ", this end speaks " + std::to_string(kVersion));
  const auto type = j.find("t");
  if (type == j.end() || !type->is_string()) return invalid("t: not a type");
  return type->get<std::string>();
}

Error unknown_type(const std::string& type) {
  std::string shown = type.substr(0, 32);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return invalid("t: unknown type '" + shown + "'");
}

}  // namespace

Result<void> validate(const LearningSettings& settings) {
  return check(settings, "");
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

std::string encode_step(const Step& step) {
  assert(check(step, ""));
  Writer w;
  w.reserve(step.agent.size() + 4 * (step.state.size() + step.action.size() + step.fallback.size()) + 160);
  write(w, step);
  return w.take();
}

std::string join_steps(std::span<const std::string_view> steps) {
  assert(!steps.empty() && steps.size() <= kMaxStepsPerMessage);
  std::size_t size = kStepsOverhead;
  for (std::string_view s : steps) size += s.size();
  Writer w;
  w.reserve(size);
  begin(w, "steps", 1);
  w.text("steps");
  w.head(Writer::kArray, steps.size());
  for (std::string_view s : steps) w.raw(s);
  return w.take();
}

Result<Down> decode_down(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j));
  if (type == "hello") return read_as<HelloDown, Down>(j);
  if (type == "announce") return read_as<Announce, Down>(j);
  if (type == "gone") return read_as<Gone, Down>(j);
  if (type == "steps") return read_as<Steps, Down>(j);
  if (type == "verdict") return read_as<Verdict, Down>(j);
  return unknown_type(type);
}

Result<Up> decode_up(std::string_view bytes) {
  FLASH_TRY(const json j, parse(bytes));
  FLASH_TRY(const std::string type, type_of(j));
  if (type == "hello") return read_as<HelloUp, Up>(j);
  if (type == "stored") return read_as<Stored, Up>(j);
  if (type == "acknowledge") return read_as<Acknowledge, Up>(j);
  if (type == "offer") return read_as<Offer, Up>(j);
  if (type == "status") return read_as<Status, Up>(j);
  return unknown_type(type);
}

}  // namespace flash::link
