#include "daemon/dbus_service.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <list>
#include <optional>
#include <utility>

#include "policy/decision_json.h"

namespace flash {

extern const std::string_view kOrgFlashdXml;  // daemon/dbus/introspection.cc.in

namespace {

constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kAgents = "/org/flashd/agent";
constexpr const char* kManager = "org.flashd.Manager1";
constexpr const char* kAgent = "org.flashd.Agent1";

constexpr const char* kFailed = "org.flashd.Error.Failed";
constexpr const char* kNoSuchTarget = "org.flashd.Error.NoSuchTarget";
constexpr const char* kAmbiguousTarget = "org.flashd.Error.AmbiguousTarget";
constexpr const char* kInvalidConfiguration = "org.flashd.Error.InvalidConfiguration";

constexpr std::size_t kReasonBytes = 256;
constexpr std::size_t kTargetBytes = 4096;  // a cgroup path is at most PATH_MAX
constexpr std::uint32_t kAnswers = 1000;
constexpr std::uint64_t kHoldSeconds = 30ull * 24 * 3600;
// Nobody can fill our memory with questions, nor keep root from the kill switch by leaving polkit's
// unanswered.
constexpr std::size_t kPendingCalls = 1024;
constexpr std::size_t kPendingPerUser = 8;
constexpr std::uint64_t kBusTimeoutUs = 5'000'000;
constexpr std::uint64_t kPolkitTimeoutUs = 10'000'000;
constexpr std::uint64_t kInteractiveTimeoutUs = 120'000'000;  // somebody types a password

/// A D-Bus error to answer with.
struct Failure {
  std::string name;
  std::string text;
};
using Outcome = std::optional<Failure>;

Failure invalid(std::string text) {
  return {SD_BUS_ERROR_INVALID_ARGS, std::move(text)};
}

struct SlotDeleter {
  void operator()(sd_bus_slot* s) const { sd_bus_slot_unref(s); }
};
struct MessageDeleter {
  void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
};
struct CredsDeleter {
  void operator()(sd_bus_creds* c) const { sd_bus_creds_unref(c); }
};
using Slot = std::unique_ptr<sd_bus_slot, SlotDeleter>;
using Message = std::unique_ptr<sd_bus_message, MessageDeleter>;
using Creds = std::unique_ptr<sd_bus_creds, CredsDeleter>;

// Bytes of the UTF-8 sequence that starts at text[i], 0 if it is none (RFC 3629: no overlong forms, no
// surrogates, at most U+10FFFF).
std::size_t utf8_sequence(std::string_view text, std::size_t i) {
  auto byte = [&](std::size_t k) {
    return static_cast<unsigned char>(i + k < text.size() ? text[i + k] : 0);
  };
  const unsigned char b = byte(0);
  if (b < 0x80) return 1;
  std::size_t length = b >= 0xc2 && b <= 0xdf   ? 2
                       : b >= 0xe0 && b <= 0xef ? 3
                       : b >= 0xf0 && b <= 0xf4 ? 4
                                                : 0;
  for (std::size_t k = 1; k < length; ++k)
    if ((byte(k) & 0xc0) != 0x80) return 0;
  if ((b == 0xe0 && byte(1) < 0xa0) || (b == 0xed && byte(1) > 0x9f) || (b == 0xf0 && byte(1) < 0x90) ||
      (b == 0xf4 && byte(1) > 0x8f))
    return 0;
  return length;
}

/// Names come from cgroup paths, which are bytes; one that is not UTF-8 would make sd-bus refuse the whole
/// answer. Each stray byte (and NUL) becomes U+FFFD.
std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = text[i] == '\0' ? 0 : utf8_sequence(text, i);
    if (n == 0) {
      out += "\xef\xbf\xbd";
      ++i;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out;
}

/// Printable: valid UTF-8 without C0, DEL and C1 control characters.
bool printable(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = utf8_sequence(text, i);
    const auto b = static_cast<unsigned char>(text[i]);
    if (n == 0 || b < 0x20 || b == 0x7f) return false;
    if (n == 2 && b == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
    i += n;
  }
  return true;
}

std::string agent_path(TargetId id) {
  return std::string(kAgents) + "/" + agent_name(id);
}

/// The inverse of agent_name().
std::optional<TargetId> id_from_name(std::string_view name) {
  for (TargetKind kind : {TargetKind::Cgroup, TargetKind::CpuSet}) {
    const std::string prefix = kind == TargetKind::Cgroup ? "limits_" : "frequency_";
    if (name.substr(0, prefix.size()) != prefix) continue;
    const std::string_view digits = name.substr(prefix.size());
    TargetId id{kind, 0};
    const char* end = digits.data() + digits.size();
    auto [p, ec] = std::from_chars(digits.data(), end, id.value);
    if (ec == std::errc{} && p == end && agent_name(id) == name) return id;
  }
  return std::nullopt;
}

std::optional<TargetId> id_from_path(std::string_view path) {
  const std::string prefix = std::string(kAgents) + "/";
  if (path.substr(0, prefix.size()) != prefix) return std::nullopt;
  return id_from_name(path.substr(prefix.size()));
}

std::uint64_t microseconds(WallTime t) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
  return us > 0 ? static_cast<std::uint64_t>(us) : 0;
}
std::uint64_t microseconds(Duration d) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(d).count();
  return us > 0 ? static_cast<std::uint64_t>(us) : 0;
}

std::string_view without_slash(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

/// What a person may call a target, in tiers: the first tier with a match wins.
bool matches(int tier, std::string_view wanted, const Target& t) {
  switch (tier) {
    case 0:
      return wanted == agent_name(t.id) || wanted == agent_path(t.id);
    case 1:
      return wanted == t.name || (!t.cgroup.empty() && without_slash(wanted) == without_slash(t.cgroup)) ||
             (!t.unit.empty() && (wanted == t.unit || std::string(wanted) + ".service" == t.unit)) ||
             (!t.container.runtime.empty() &&
              (wanted == t.container.name || wanted == t.container.id ||
               // Short ids as container tools print them.
               (wanted.size() >= 12 && std::string_view(t.container.id).substr(0, wanted.size()) == wanted)));
    default:
      return wanted == t.application;
  }
}
constexpr int kTiers = 3;

// sd_bus_message_append with the type named once, at the property.
int put(sd_bus_message* m, std::string_view text) {
  return sd_bus_message_append_basic(m, 's', to_utf8(text).c_str());
}
int put(sd_bus_message* m, double v) {
  return sd_bus_message_append_basic(m, 'd', &v);
}
int put(sd_bus_message* m, std::uint64_t v) {
  return sd_bus_message_append_basic(m, 't', &v);
}
int put(sd_bus_message* m, std::uint32_t v) {
  return sd_bus_message_append_basic(m, 'u', &v);
}
int put(sd_bus_message* m, bool v) {
  const int flag = v;
  return sd_bus_message_append_basic(m, 'b', &flag);
}
int put(sd_bus_message* m, const std::vector<double>& v) {
  return sd_bus_message_append_array(m, 'd', v.data(), v.size() * sizeof(double));
}

std::string collapse_spaces(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// <doc>text</doc> as the annotation GLib's tools know.
std::string docs_as_annotations(std::string_view xml) {
  constexpr std::string_view kOpen = "<doc>", kClose = "</doc>";
  std::string out;
  while (true) {
    const auto open = xml.find(kOpen);
    const auto close = xml.find(kClose);
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) break;
    out += xml.substr(0, open);
    out += "<annotation name=\"org.gtk.GDBus.DocString\" value=\"";
    for (char c : collapse_spaces(xml.substr(open + kOpen.size(), close - open - kOpen.size())))
      c == '"' ? out += "&quot;" : out += c;
    out += "\"/>";
    xml.remove_prefix(close + kClose.size());
  }
  return out += xml;
}

/// What every object of sd-bus answers besides our interfaces.
constexpr std::string_view kStandardInterfaces = R"(  <interface name="org.freedesktop.DBus.Peer">
    <method name="Ping"/>
    <method name="GetMachineId"><arg type="s" name="machine_uuid" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect"><arg name="xml_data" type="s" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Properties">
    <method name="Get">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="property_name" type="s" direction="in"/>
      <arg name="value" type="v" direction="out"/>
    </method>
    <method name="GetAll">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="props" type="a{sv}" direction="out"/>
    </method>
    <method name="Set">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="property_name" type="s" direction="in"/>
      <arg name="value" type="v" direction="in"/>
    </method>
    <signal name="PropertiesChanged">
      <arg type="s" name="interface_name"/>
      <arg type="a{sv}" name="changed_properties"/>
      <arg type="as" name="invalidated_properties"/>
    </signal>
  </interface>
)";
constexpr std::string_view kObjectManagerInterface =
    R"(  <interface name="org.freedesktop.DBus.ObjectManager">
    <method name="GetManagedObjects">
      <arg type="a{oa{sa{sv}}}" name="objects" direction="out"/>
    </method>
    <signal name="InterfacesAdded">
      <arg type="o" name="object"/>
      <arg type="a{sa{sv}}" name="interfaces_and_properties"/>
    </signal>
    <signal name="InterfacesRemoved">
      <arg type="o" name="object"/>
      <arg type="as" name="interfaces"/>
    </signal>
  </interface>
)";

}  // namespace

std::string dbus_introspection(std::string_view interface, bool object_manager,
                               const std::vector<std::string>& children) {
  std::string out =
      "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n"
      "\"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n";
  out += kStandardInterfaces;
  if (object_manager) out += kObjectManagerInterface;
  if (!interface.empty()) {
    const auto begin = kOrgFlashdXml.find("<interface name=\"" + std::string(interface) + "\"");
    if (begin != std::string_view::npos) {
      constexpr std::string_view kEnd = "</interface>";
      const auto end = kOrgFlashdXml.find(kEnd, begin);
      out += "  " + docs_as_annotations(kOrgFlashdXml.substr(begin, end + kEnd.size() - begin)) + "\n";
    }
  }
  for (const auto& child : children) out += "  <node name=\"" + child + "\"/>\n";
  return out += "</node>\n";
}

struct DbusService::Impl {
  /// Carries out an authorised call: fills the reply or says why not.
  using Run = std::function<Outcome(sd_bus_message* reply)>;

  /// Reads and checks a changing call's arguments; `run` will carry it out.
  struct ChangeMethod {
    const char* member;
    const char* action;  // polkit
    Outcome (*parse)(Impl& self, sd_bus_message* call, std::string& arguments, Run& run);
  };

  /// A changing call that waits for the bus' or polkit's answer.
  struct Pending {
    Impl* self = nullptr;
    const ChangeMethod* method = nullptr;
    Message call;
    Slot slot;
    Run run;
    ChangeRecord record;
    bool asks_polkit = false;
  };

  Impl(sd_bus* b, ControlLoop& l, DbusCallbacks c) : bus(sd_bus_ref(b)), loop(l), callbacks(std::move(c)) {}
  ~Impl() {
    pending.clear();
    slots.clear();
    sd_bus_unref(bus);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> attach();

  // -- looking up ---------------------------------------------------------------------------------------
  std::optional<TargetId> find(std::string_view wanted, Failure& failure) const;
  Outcome some_or_all(const std::string& wanted, std::vector<TargetId>& ids) const;

  // -- changing calls -------------------------------------------------------------------------------------
  static const ChangeMethod* change_method(const char* member);
  int begin_change(sd_bus_message* call, sd_bus_error* error);
  void have_caller(Pending& p);
  void ask_polkit(Pending& p);
  void deny(Pending& p, const std::string& why);
  void carry_out(Pending& p);
  void finish(Pending& p, const Outcome& outcome, std::string_view verdict, sd_bus_message* reply);
  static int on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;
  static int on_polkit(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept;

  void manager_emit(std::initializer_list<const char*> names) noexcept;

  sd_bus* bus;
  ControlLoop& loop;
  DbusCallbacks callbacks;
  std::vector<Slot> slots;
  std::list<Pending> pending;
  // The agent of the property call being answered: sd-bus looks the object up before it reads properties.
  AgentView found;
};

struct DbusTables {
  using Service = DbusService::Impl;
  static Service& self(void* userdata) { return *static_cast<Service*>(userdata); }

  // -- Agent1 properties: one line each
  // -----------------------------------------------------------------------
  template <int (*Append)(sd_bus_message*, const AgentView&)>
  static int agent(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                   sd_bus_error*) noexcept {
    return Append(reply, self(userdata).found);
  }
  static int name(sd_bus_message* m, const AgentView& v) { return put(m, agent_name(v.target->id)); }
  static int task(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.target->task())); }
  static int application(sd_bus_message* m, const AgentView& v) { return put(m, v.target->application); }
  static int target(sd_bus_message* m, const AgentView& v) { return put(m, v.target->name); }
  static int cgroup(sd_bus_message* m, const AgentView& v) { return put(m, v.target->cgroup); }
  static int unit(sd_bus_message* m, const AgentView& v) { return put(m, v.target->unit); }
  static int container(sd_bus_message* m, const AgentView& v) {
    const Container& c = v.target->container;
    return sd_bus_message_append(m, "(ssss)", to_utf8(c.runtime).c_str(), to_utf8(c.id).c_str(),
                                 to_utf8(c.name).c_str(), to_utf8(c.pod_uid).c_str());
  }
  static int cpus(sd_bus_message* m, const AgentView& v) {
    return sd_bus_message_append_array(m, 'i', v.target->cpus.data(), v.target->cpus.size() * sizeof(int));
  }
  static int owner(sd_bus_message* m, const AgentView& v) {
    return put(m, v.target->id.kind == TargetKind::Cgroup ? to_string(v.target->owner) : "");
  }
  static int rule(sd_bus_message* m, const AgentView& v) {
    return put(m, v.rule ? v.rule->name : v.target->rule);
  }
  static int mode(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.mode)); }
  static int stage(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.stage)); }
  static int stage_since(sd_bus_message* m, const AgentView& v) {
    return put(m, microseconds(v.stage_since));
  }
  static int reward(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.last); }
  static int reward_mean(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.mean); }
  static int reward_stddev(sd_bus_message* m, const AgentView& v) { return put(m, v.rewards.stddev); }
  static int episode(sd_bus_message* m, const AgentView& v) { return put(m, v.episode); }
  static int step(sd_bus_message* m, const AgentView& v) { return put(m, v.step); }
  static int controller(sd_bus_message* m, const AgentView& v) { return put(m, to_string(v.controller)); }
  static int controller_reason(sd_bus_message* m, const AgentView& v) { return put(m, v.controller_reason); }
  static int held(sd_bus_message* m, const AgentView& v) { return put(m, v.held); }
  static int held_until(sd_bus_message* m, const AgentView& v) {
    return put(m, v.held_until ? microseconds(*v.held_until) : 0);
  }
  static int hold_reason(sd_bus_message* m, const AgentView& v) { return put(m, v.hold_reason); }
  static int model_version(sd_bus_message* m, const AgentView& v) {
    return put(m, v.snapshot ? v.snapshot->version : 0);
  }
  static int embedding(sd_bus_message* m, const AgentView& v) {
    std::vector<double> values;
    if (v.snapshot) values.assign(v.snapshot->embedding.begin(), v.snapshot->embedding.end());
    return put(m, values);
  }
  static int knobs(sd_bus_message* m, const AgentView& v) {
    int r = sd_bus_message_open_container(m, 'a', "(sddbsst)");
    for (const KnobView& k : v.knobs) {
      if (r < 0) return r;
      const double current = k.current.usable() ? k.current.value : std::numeric_limits<double>::quiet_NaN();
      const std::string reason = to_utf8(k.blocked_by.empty() ? k.lease_reason : k.blocked_by);
      r = sd_bus_message_append(m, "(sddbsst)", std::string(traits(k.kind).name).c_str(), current, k.original,
                                static_cast<int>(k.writable), std::string(to_string(k.lease)).c_str(),
                                reason.c_str(), k.writes);
    }
    return r < 0 ? r : sd_bus_message_close_container(m);
  }

  // -- Manager1 properties
  // ---------------------------------------------------------------------------------------
  template <int (*Append)(sd_bus_message*, const Service&)>
  static int manager(sd_bus*, const char*, const char*, const char*, sd_bus_message* reply, void* userdata,
                     sd_bus_error*) noexcept {
    return Append(reply, self(userdata));
  }
  static int version(sd_bus_message* m, const Service& s) { return put(m, s.callbacks.version); }
  static int global_mode(sd_bus_message* m, const Service& s) {
    return put(m, to_string(s.loop.options().mode));
  }
  static int disabled(sd_bus_message* m, const Service& s) { return put(m, s.loop.disabled()); }
  static int disabled_reason(sd_bus_message* m, const Service& s) { return put(m, s.loop.disabled_reason()); }
  static int degraded(sd_bus_message* m, const Service& s) {
    int r = sd_bus_message_open_container(m, 'a', "(ss)");
    if (s.callbacks.degraded)
      for (const Degraded& d : s.callbacks.degraded())
        if (r >= 0) r = sd_bus_message_append(m, "(ss)", to_utf8(d.part).c_str(), to_utf8(d.reason).c_str());
    return r < 0 ? r : sd_bus_message_close_container(m);
  }
  static int learner(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.learner ? s.callbacks.learner() : "absent");
  }
  static int period(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.period ? microseconds(s.callbacks.period()) : 0);
  }
  static int ticks(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.ticks ? s.callbacks.ticks() : 0);
  }
  static int tick_duration(sd_bus_message* m, const Service& s) {
    return put(m, s.callbacks.tick_duration ? microseconds(s.callbacks.tick_duration()) : 0);
  }

  // -- reading methods
  // -------------------------------------------------------------------------------------------
  static int fail(sd_bus_error* error, const Failure& f) {
    return sd_bus_error_set(error, f.name.c_str(), to_utf8(f.text).c_str());
  }

  static int list_agents(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept {
    Service& s = self(userdata);
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = sd_bus_message_open_container(raw, 'a', "(ossssds)");
    for (TargetId id : s.loop.agents()) {
      const auto v = s.loop.view(id);
      if (r < 0) return r;
      if (!v) continue;
      r = sd_bus_message_append(raw, "(ossssds)", agent_path(id).c_str(), agent_name(id).c_str(),
                                std::string(to_string(v->target->task())).c_str(),
                                to_utf8(v->target->name).c_str(), std::string(to_string(v->stage)).c_str(),
                                v->rewards.last, std::string(to_string(v->controller)).c_str());
    }
    if (r >= 0) r = sd_bus_message_close_container(raw);
    return r < 0 ? r : sd_bus_send(s.bus, raw, nullptr);
  }

  static int get_agent(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    const char* wanted = nullptr;
    if (int r = sd_bus_message_read(call, "s", &wanted); r < 0) return r;
    Failure failure;
    const auto id = self(userdata).find(wanted, failure);
    if (!id) return fail(error, failure);
    return sd_bus_reply_method_return(call, "o", agent_path(*id).c_str());
  }

  static int get_agent_by_cgroup(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    const char* wanted = nullptr;
    if (int r = sd_bus_message_read(call, "s", &wanted); r < 0) return r;
    for (TargetId id : s.loop.agents()) {
      const auto v = s.loop.view(id);
      if (v && id.kind == TargetKind::Cgroup && without_slash(v->target->cgroup) == without_slash(wanted))
        return sd_bus_reply_method_return(call, "o", agent_path(id).c_str());
    }
    return fail(error, {kNoSuchTarget, "no agent manages the cgroup '" + std::string(wanted) + "'"});
  }

  static int verify(sd_bus_message* call, void* userdata, sd_bus_error*) noexcept {
    Service& s = self(userdata);
    const std::vector<std::string> lines =
        s.callbacks.verify ? s.callbacks.verify() : std::vector<std::string>{};
    return reply_strings(call, s.bus, lines);
  }

  static int reply_strings(sd_bus_message* call, sd_bus* bus, const std::vector<std::string>& lines) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = sd_bus_message_open_container(raw, 'a', "s");
    for (const auto& line : lines)
      if (r >= 0) r = put(raw, line);
    if (r >= 0) r = sd_bus_message_close_container(raw);
    return r < 0 ? r : sd_bus_send(bus, raw, nullptr);
  }

  static int read_count(sd_bus_message* call, sd_bus_error* error, std::uint32_t& n) {
    const int r = sd_bus_message_read(call, "u", &n);
    if (r < 0) return r;
    if (n > kAnswers) return fail(error, invalid("n is " + std::to_string(n) + ", at most 1000 are kept"));
    return 1;
  }

  static int get_rewards(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    std::uint32_t n = 0;
    if (int r = read_count(call, error, n); r < 0) return r;
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_return(call, &raw);
    if (r < 0) return r;
    Message reply(raw);
    r = put(raw, s.loop.rewards(s.found.target->id, n));
    return r < 0 ? r : sd_bus_send(s.bus, raw, nullptr);
  }

  static int why(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    std::uint32_t n = 0;
    if (int r = read_count(call, error, n); r < 0) return r;
    std::vector<std::string> lines;
    const auto* history = s.loop.history(s.found.target->id);
    if (history)
      for (std::size_t i = history->size() - std::min<std::size_t>(n, history->size()); i < history->size();
           ++i)
        lines.push_back(to_json_text((*history)[i], *s.found.target));
    return reply_strings(call, s.bus, lines);
  }

  static int change(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    return self(userdata).begin_change(call, error);
  }

  // -- object tree
  // -------------------------------------------------------------------------------------------------
  static int find_agent(sd_bus*, const char* path, const char*, void* userdata, void** found,
                        sd_bus_error*) noexcept {
    Service& s = self(userdata);
    const auto id = id_from_path(path);
    if (!id) return 0;
    auto view = s.loop.view(*id);
    if (!view) return 0;
    s.found = std::move(*view);
    *found = userdata;
    return 1;
  }

  static int enumerate_agents(sd_bus*, const char*, void* userdata, char*** nodes, sd_bus_error*) noexcept {
    const auto ids = self(userdata).loop.agents();
    auto** list = static_cast<char**>(std::calloc(ids.size() + 1, sizeof(char*)));
    if (!list) return -ENOMEM;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      list[i] = strdup(agent_path(ids[i]).c_str());
      if (!list[i]) {
        for (std::size_t k = 0; k < i; ++k) std::free(list[k]);
        std::free(list);
        return -ENOMEM;
      }
    }
    *nodes = list;
    return 0;
  }

  static int introspect(sd_bus_message* call, void* userdata, sd_bus_error* error) noexcept {
    Service& s = self(userdata);
    const std::string_view path = sd_bus_message_get_path(call);
    const bool root = path == kRoot, agents = path == kAgents;
    if (!root && !agents) {
      // With this callback in place sd-bus takes every path below the root for an object.
      const auto id = id_from_path(path);
      if (!id || !s.loop.view(*id))
        return fail(error, {SD_BUS_ERROR_UNKNOWN_OBJECT, "no object " + std::string(path)});
    }
    if (!sd_bus_message_is_method_call(call, "org.freedesktop.DBus.Introspectable", "Introspect")) return 0;
    std::vector<std::string> children;
    if (root) children.emplace_back("agent");
    if (agents)
      for (TargetId id : s.loop.agents()) children.push_back(agent_name(id));
    const std::string answer = dbus_introspection(root ? kManager : agents ? "" : kAgent, root, children);
    return sd_bus_reply_method_return(call, "s", answer.c_str());
  }
};

namespace {

// Everybody may call; who may change something is decided by begin_change().
constexpr std::uint64_t kOpen = SD_BUS_VTABLE_UNPRIVILEGED;
constexpr std::uint64_t kEmits = SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE;
constexpr std::uint64_t kConst = SD_BUS_VTABLE_PROPERTY_CONST;

using T = DbusTables;

const sd_bus_vtable kManagerVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD_WITH_ARGS("ListAgents", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ossssds)", agents), T::list_agents,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("GetAgentByCgroup", SD_BUS_ARGS("s", cgroup), SD_BUS_RESULT("o", agent),
                            T::get_agent_by_cgroup, kOpen),
    SD_BUS_METHOD_WITH_ARGS("GetAgent", SD_BUS_ARGS("s", target), SD_BUS_RESULT("o", agent), T::get_agent,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("SetMode", SD_BUS_ARGS("s", target, "s", mode), SD_BUS_NO_RESULT, T::change,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("Hold", SD_BUS_ARGS("s", target, "t", seconds, "s", reason), SD_BUS_NO_RESULT,
                            T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Release", SD_BUS_ARGS("s", target), SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Disable", SD_BUS_ARGS("s", reason),
                            SD_BUS_RESULT("b", complete, "a(ssbs)", items), T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Enable", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Reload", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, T::change, kOpen),
    SD_BUS_METHOD_WITH_ARGS("Verify", SD_BUS_NO_ARGS, SD_BUS_RESULT("as", differences), T::verify, kOpen),
    SD_BUS_PROPERTY("Version", "s", T::manager<T::version>, 0, kConst),
    SD_BUS_PROPERTY("Mode", "s", T::manager<T::global_mode>, 0, kEmits),
    SD_BUS_PROPERTY("Disabled", "b", T::manager<T::disabled>, 0, kEmits),
    SD_BUS_PROPERTY("DisabledReason", "s", T::manager<T::disabled_reason>, 0, kEmits),
    SD_BUS_PROPERTY("Degraded", "a(ss)", T::manager<T::degraded>, 0, 0),
    SD_BUS_PROPERTY("Learner", "s", T::manager<T::learner>, 0, 0),
    SD_BUS_PROPERTY("PeriodUSec", "t", T::manager<T::period>, 0, 0),
    SD_BUS_PROPERTY("Ticks", "t", T::manager<T::ticks>, 0, 0),
    SD_BUS_PROPERTY("TickUSec", "t", T::manager<T::tick_duration>, 0, 0),
    SD_BUS_VTABLE_END,
};

const sd_bus_vtable kAgentVtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD_WITH_ARGS("GetRewards", SD_BUS_ARGS("u", n), SD_BUS_RESULT("ad", rewards), T::get_rewards,
                            kOpen),
    SD_BUS_METHOD_WITH_ARGS("Why", SD_BUS_ARGS("u", n), SD_BUS_RESULT("as", decisions), T::why, kOpen),
    SD_BUS_PROPERTY("Name", "s", T::agent<T::name>, 0, kConst),
    SD_BUS_PROPERTY("Task", "s", T::agent<T::task>, 0, kConst),
    SD_BUS_PROPERTY("Application", "s", T::agent<T::application>, 0, 0),
    SD_BUS_PROPERTY("Target", "s", T::agent<T::target>, 0, 0),
    SD_BUS_PROPERTY("Cgroup", "s", T::agent<T::cgroup>, 0, kConst),
    SD_BUS_PROPERTY("Unit", "s", T::agent<T::unit>, 0, 0),
    SD_BUS_PROPERTY("Container", "(ssss)", T::agent<T::container>, 0, 0),
    SD_BUS_PROPERTY("Cpus", "ai", T::agent<T::cpus>, 0, 0),
    SD_BUS_PROPERTY("Owner", "s", T::agent<T::owner>, 0, 0),
    SD_BUS_PROPERTY("Rule", "s", T::agent<T::rule>, 0, 0),
    SD_BUS_PROPERTY("Mode", "s", T::agent<T::mode>, 0, kEmits),
    SD_BUS_PROPERTY("Stage", "s", T::agent<T::stage>, 0, kEmits),
    SD_BUS_PROPERTY("StageSince", "t", T::agent<T::stage_since>, 0, kEmits),
    SD_BUS_PROPERTY("Reward", "d", T::agent<T::reward>, 0, 0),
    SD_BUS_PROPERTY("RewardMean", "d", T::agent<T::reward_mean>, 0, 0),
    SD_BUS_PROPERTY("RewardStdDev", "d", T::agent<T::reward_stddev>, 0, 0),
    SD_BUS_PROPERTY("Episode", "t", T::agent<T::episode>, 0, kEmits),
    SD_BUS_PROPERTY("Step", "u", T::agent<T::step>, 0, 0),
    SD_BUS_PROPERTY("Controller", "s", T::agent<T::controller>, 0, kEmits),
    SD_BUS_PROPERTY("ControllerReason", "s", T::agent<T::controller_reason>, 0, kEmits),
    SD_BUS_PROPERTY("Held", "b", T::agent<T::held>, 0, 0),
    SD_BUS_PROPERTY("HeldUntil", "t", T::agent<T::held_until>, 0, 0),
    SD_BUS_PROPERTY("HoldReason", "s", T::agent<T::hold_reason>, 0, 0),
    SD_BUS_PROPERTY("Knobs", "a(sddbsst)", T::agent<T::knobs>, 0, 0),
    SD_BUS_PROPERTY("Embedding", "ad", T::agent<T::embedding>, 0, 0),
    SD_BUS_PROPERTY("ModelVersion", "t", T::agent<T::model_version>, 0, 0),
    SD_BUS_VTABLE_END,
};

// -- changing methods: check the arguments, say what will be done
// --------------------------------------------

Outcome check_reason(const std::string& reason) {
  if (reason.empty()) return invalid("a reason is needed: it is shown to everybody");
  if (reason.size() > kReasonBytes)
    return invalid("the reason has " + std::to_string(reason.size()) + " bytes, at most 256 are allowed");
  if (!printable(reason)) return invalid("the reason must be printable text");
  return std::nullopt;
}

Outcome read_failure(int r) {
  return invalid(std::string("unreadable arguments: ") + std::strerror(-r));
}

Failure failure_of(const Error& e, const char* name = kFailed) {
  if (e.is(std::errc::invalid_argument)) name = SD_BUS_ERROR_INVALID_ARGS;
  return {name, e.message()};
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

using S = DbusTables::Service;

Outcome parse_set_mode(S& s, sd_bus_message* call, std::string& arguments, S::Run& run) {
  const char *target = nullptr, *name = nullptr;
  if (int r = sd_bus_message_read(call, "ss", &target, &name); r < 0) return read_failure(r);
  const std::string wanted = target, mode_name = name;
  arguments = quoted(wanted) + " " + quoted(mode_name);
  const auto mode = mode_from_name(mode_name);
  const bool back_to_rule = mode_name == "default" && !wanted.empty();
  if (!mode && !back_to_rule)
    return invalid("unknown mode " + quoted(mode_name) +
                   ": allowed are observe, recommend, control, and for one agent default");
  run = [&s, wanted, mode](sd_bus_message*) -> Outcome {
    if (wanted.empty()) {
      s.loop.set_mode(s.callbacks.now(), *mode);
      s.manager_emit({"Mode"});
      return std::nullopt;
    }
    Failure failure;
    const auto id = s.find(wanted, failure);
    if (!id) return failure;
    if (auto done = s.loop.set_mode(s.callbacks.now(), *id, mode); !done) return failure_of(done.error());
    return std::nullopt;
  };
  return std::nullopt;
}

Outcome parse_hold(S& s, sd_bus_message* call, std::string& arguments, S::Run& run) {
  const char *target = nullptr, *text = nullptr;
  std::uint64_t duration = 0;
  if (int r = sd_bus_message_read(call, "sts", &target, &duration, &text); r < 0) return read_failure(r);
  const std::string wanted = target, reason = text;
  arguments = quoted(wanted) + " " + std::to_string(duration) + " " + quoted(reason);
  if (duration > kHoldSeconds)
    return invalid("a hold of " + std::to_string(duration) +
                   " s is too long: at most 2592000 (30 days), or 0 "
                   "for until Release");
  if (auto bad = check_reason(reason)) return bad;
  run = [&s, wanted, reason, duration](sd_bus_message*) -> Outcome {
    std::vector<TargetId> ids;
    if (auto bad = s.some_or_all(wanted, ids)) return bad;
    std::optional<Duration> how_long;
    if (duration > 0) how_long = std::chrono::seconds(duration);
    for (TargetId id : ids)
      if (auto done = s.loop.hold(s.callbacks.now(), id, how_long, reason); !done)
        return failure_of(done.error());
    return std::nullopt;
  };
  return std::nullopt;
}

Outcome parse_release(S& s, sd_bus_message* call, std::string& arguments, S::Run& run) {
  const char* target = nullptr;
  if (int r = sd_bus_message_read(call, "s", &target); r < 0) return read_failure(r);
  const std::string wanted = target;
  arguments = quoted(wanted);
  run = [&s, wanted](sd_bus_message*) -> Outcome {
    std::vector<TargetId> ids;
    if (auto bad = s.some_or_all(wanted, ids)) return bad;
    for (TargetId id : ids) {
      const auto view = s.loop.view(id);
      if (wanted.empty() && view && !view->held) continue;  // "all" means all that are held
      if (auto done = s.loop.unhold(s.callbacks.now(), id); !done) return failure_of(done.error());
    }
    return std::nullopt;
  };
  return std::nullopt;
}

Outcome parse_disable(S& s, sd_bus_message* call, std::string& arguments, S::Run& run) {
  const char* text = nullptr;
  if (int r = sd_bus_message_read(call, "s", &text); r < 0) return read_failure(r);
  const std::string reason = text;
  arguments = quoted(reason);
  if (auto bad = check_reason(reason)) return bad;
  run = [&s, reason](sd_bus_message* reply) -> Outcome {
    const RestoreReport report = s.loop.disable(s.callbacks.now(), reason);
    s.manager_emit({"Disabled", "DisabledReason"});
    int r = put(reply, report.complete());
    if (r >= 0) r = sd_bus_message_open_container(reply, 'a', "(ssbs)");
    for (const auto& item : report.items) {
      if (r < 0) break;
      const auto view = s.loop.view(item.ref.target);
      const std::string target = to_utf8(view ? view->target->name : agent_name(item.ref.target));
      r = sd_bus_message_append(reply, "(ssbs)", std::string(traits(item.ref.kind).name).c_str(),
                                target.c_str(), static_cast<int>(item.restored),
                                to_utf8(item.message).c_str());
    }
    if (r >= 0) r = sd_bus_message_close_container(reply);
    if (r < 0) return Failure{kFailed, std::string("disabled, but the report failed: ") + std::strerror(-r)};
    return std::nullopt;
  };
  return std::nullopt;
}

Outcome parse_enable(S& s, sd_bus_message*, std::string&, S::Run& run) {
  run = [&s](sd_bus_message*) -> Outcome {
    s.loop.enable(s.callbacks.now());
    s.manager_emit({"Disabled", "DisabledReason"});
    return std::nullopt;
  };
  return std::nullopt;
}

Outcome parse_reload(S& s, sd_bus_message*, std::string&, S::Run& run) {
  run = [&s](sd_bus_message*) -> Outcome {
    if (!s.callbacks.reload) return Failure{SD_BUS_ERROR_NOT_SUPPORTED, "this flashd cannot reload"};
    const Mode before = s.loop.options().mode;
    if (auto done = s.callbacks.reload(); !done)
      return Failure{kInvalidConfiguration, done.error().message() + " (the old configuration stays)"};
    if (s.loop.options().mode != before) s.manager_emit({"Mode"});
    return std::nullopt;
  };
  return std::nullopt;
}

constexpr S::ChangeMethod kChanges[] = {
    {"SetMode", "org.flashd.set-mode", parse_set_mode}, {"Hold", "org.flashd.hold", parse_hold},
    {"Release", "org.flashd.hold", parse_release},      {"Disable", "org.flashd.disable", parse_disable},
    {"Enable", "org.flashd.disable", parse_enable},     {"Reload", "org.flashd.reload", parse_reload},
};

}  // namespace

const sd_bus_vtable* dbus_manager_vtable() {
  return kManagerVtable;
}
const sd_bus_vtable* dbus_agent_vtable() {
  return kAgentVtable;
}

Result<void> DbusService::Impl::attach() {
  // `slot` by reference: the call that fills it is an argument beside it, and arguments have no order.
  auto keep = [&](int r, sd_bus_slot*& slot, const char* what) -> Result<void> {
    if (r < 0) return Error::from_errno(-r, std::string("D-Bus: ") + what);
    slots.emplace_back(slot);
    return {};
  };
  sd_bus_slot* slot = nullptr;
  FLASH_CHECK(
      keep(sd_bus_add_fallback(bus, &slot, kRoot, DbusTables::introspect, this), slot, "introspection"));
  FLASH_CHECK(
      keep(sd_bus_add_object_vtable(bus, &slot, kRoot, kManager, kManagerVtable, this), slot, kManager));
  FLASH_CHECK(keep(
      sd_bus_add_fallback_vtable(bus, &slot, kAgents, kAgent, kAgentVtable, DbusTables::find_agent, this),
      slot, kAgent));
  FLASH_CHECK(keep(sd_bus_add_node_enumerator(bus, &slot, kAgents, DbusTables::enumerate_agents, this), slot,
                   "node enumerator"));
  FLASH_CHECK(keep(sd_bus_add_object_manager(bus, &slot, kRoot), slot, "object manager"));
  return {};
}

std::optional<TargetId> DbusService::Impl::find(std::string_view wanted, Failure& failure) const {
  if (wanted.empty() || wanted.size() > kTargetBytes) {
    failure =
        invalid("a target is needed: an agent, a target, a cgroup, a unit, a container or an application");
    return std::nullopt;
  }
  const auto ids = loop.agents();
  for (int tier = 0; tier < kTiers; ++tier) {
    std::vector<TargetId> hits;
    for (TargetId id : ids)
      if (const auto v = loop.view(id); v && matches(tier, wanted, *v->target)) hits.push_back(id);
    if (hits.size() == 1) return hits.front();
    if (hits.empty()) continue;
    std::string list;
    constexpr std::size_t kShown = 10;
    for (std::size_t i = 0; i < hits.size() && i < kShown; ++i)
      list += (i ? ", " : "") + agent_name(hits[i]) + " (" + loop.view(hits[i])->target->name + ")";
    if (hits.size() > kShown) list += " and " + std::to_string(hits.size() - kShown) + " more";
    failure = {kAmbiguousTarget, quoted(wanted) + " is ambiguous: " + list};
    return std::nullopt;
  }
  failure = {kNoSuchTarget, "no agent manages " + quoted(wanted)};
  return std::nullopt;
}

Outcome DbusService::Impl::some_or_all(const std::string& wanted, std::vector<TargetId>& ids) const {
  if (wanted.empty()) {
    ids = loop.agents();
    return std::nullopt;
  }
  Failure failure;
  const auto id = find(wanted, failure);
  if (!id) return failure;
  ids = {*id};
  return std::nullopt;
}

const DbusService::Impl::ChangeMethod* DbusService::Impl::change_method(const char* member) {
  for (const auto& row : kChanges)
    if (std::strcmp(row.member, member) == 0) return &row;
  return nullptr;
}

int DbusService::Impl::begin_change(sd_bus_message* call, sd_bus_error* error) {
  const ChangeMethod* method = change_method(sd_bus_message_get_member(call));
  if (!method) return -ENOSYS;  // a row of the vtable without a row in kChanges: the table test finds it
  if (pending.size() >= kPendingCalls)
    return sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls wait for authorisation");

  Pending& p = pending.emplace_back();
  p.self = this;
  p.method = method;
  p.call.reset(sd_bus_message_ref(call));
  p.record.method = method->member;
  if (const char* sender = sd_bus_message_get_sender(call)) p.record.sender = sender;
  if (sd_bus_is_bus_client(bus) > 0) {
    sd_bus_slot* slot = nullptr;
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(bus, &raw, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                           "org.freedesktop.DBus", "GetConnectionCredentials");
    Message question(raw);
    if (r >= 0) r = sd_bus_message_append(raw, "s", p.record.sender.c_str());
    if (r >= 0) r = sd_bus_call_async(bus, &slot, raw, on_credentials, &p, kBusTimeoutUs);
    if (r < 0) {
      deny(p, std::string("the bus cannot say who is calling: ") + std::strerror(-r));
      return 1;
    }
    p.slot.reset(slot);
    return 1;
  }

  // A direct connection: the socket knows its peer.
  sd_bus_creds* raw = nullptr;
  const int r = sd_bus_get_owner_creds(bus, SD_BUS_CREDS_EUID | SD_BUS_CREDS_PID, &raw);
  Creds creds(raw);
  if (r < 0 || sd_bus_creds_get_euid(raw, &p.record.uid) < 0) {
    deny(p, "the caller cannot be identified");
    return 1;
  }
  (void)sd_bus_creds_get_pid(raw, &p.record.pid);
  have_caller(p);
  return 1;
}

int DbusService::Impl::on_credentials(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept {
  Pending& p = *static_cast<Pending*>(userdata);
  bool known = false;
  if (!sd_bus_message_is_method_error(m, nullptr) && sd_bus_message_enter_container(m, 'a', "{sv}") > 0) {
    while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
      const char* key = nullptr;
      std::uint32_t value = 0;
      if (sd_bus_message_read_basic(m, 's', &key) < 0) break;
      if (std::strcmp(key, "UnixUserID") == 0 || std::strcmp(key, "ProcessID") == 0) {
        const bool uid = key[0] == 'U';
        if (sd_bus_message_read(m, "v", "u", &value) < 0) break;
        uid ? static_cast<void>(p.record.uid = value)
            : static_cast<void>(p.record.pid = static_cast<pid_t>(value));
        known = known || uid;
      } else if (sd_bus_message_skip(m, "v") < 0) {
        break;
      }
      if (sd_bus_message_exit_container(m) < 0) break;
    }
  }
  if (known)
    p.self->have_caller(p);
  else
    p.self->deny(p, "the bus does not know the caller");
  return 0;
}

void DbusService::Impl::have_caller(Pending& p) {
  // Before anybody is asked for a password.
  if (auto bad = p.method->parse(*this, p.call.get(), p.record.arguments, p.run))
    return finish(p, bad, "failed", nullptr);
  // As sd_bus_query_sender_privilege(): root, and whoever flashd itself runs as (a private bus in a test).
  if (p.record.uid == 0 || p.record.uid == geteuid())
    carry_out(p);
  else if (sd_bus_is_bus_client(bus) > 0)
    ask_polkit(p);
  else
    deny(p, "only root may do this on a direct connection");
}

void DbusService::Impl::ask_polkit(Pending& p) {
  const auto waiting = std::count_if(pending.begin(), pending.end(), [&p](const Pending& each) {
    return &each != &p && each.asks_polkit && each.record.uid == p.record.uid;
  });
  if (static_cast<std::size_t>(waiting) >= kPendingPerUser)
    return finish(p, Failure{SD_BUS_ERROR_LIMITS_EXCEEDED, "too many of your calls wait for authorisation"},
                  "denied", nullptr);
  p.asks_polkit = true;
  const bool interactive = sd_bus_message_get_allow_interactive_authorization(p.call.get()) > 0;
  sd_bus_message* raw = nullptr;
  int r = sd_bus_message_new_method_call(bus, &raw, "org.freedesktop.PolicyKit1",
                                         "/org/freedesktop/PolicyKit1/Authority",
                                         "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
  Message question(raw);
  // Subject, action, no details, AllowUserInteraction = 1, no cancellation id.
  if (r >= 0)
    r = sd_bus_message_append(raw, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                              p.record.sender.c_str(), p.method->action, 0,
                              static_cast<std::uint32_t>(interactive), "");
  sd_bus_slot* slot = nullptr;
  if (r >= 0)
    r = sd_bus_call_async(bus, &slot, raw, on_polkit, &p,
                          interactive ? kInteractiveTimeoutUs : kPolkitTimeoutUs);
  if (r < 0) return deny(p, std::string("polkit cannot be asked: ") + std::strerror(-r));
  p.slot.reset(slot);
}

int DbusService::Impl::on_polkit(sd_bus_message* m, void* userdata, sd_bus_error*) noexcept {
  Pending& p = *static_cast<Pending*>(userdata);
  const std::string action = std::string("polkit action ") + p.method->action;
  if (const sd_bus_error* e = sd_bus_message_get_error(m)) {
    const bool absent = sd_bus_error_has_name(e, SD_BUS_ERROR_SERVICE_UNKNOWN) ||
                        sd_bus_error_has_name(e, SD_BUS_ERROR_NAME_HAS_NO_OWNER);
    p.self->deny(p, absent
                        ? "only root may do this: polkit is not running"
                        : "polkit did not answer (" + action + "): " + (e->message ? e->message : e->name));
    return 0;
  }
  int authorized = 0, challenge = 0;
  if (sd_bus_message_enter_container(m, 'r', "bba{ss}") <= 0 ||
      sd_bus_message_read(m, "bb", &authorized, &challenge) < 0)
    p.self->deny(p, "polkit's answer was not understood");
  else if (authorized)
    p.self->carry_out(p);
  else
    p.self->deny(p,
                 challenge ? "authentication is needed (" + action + ")" : "not authorised (" + action + ")");
  return 0;
}

void DbusService::Impl::deny(Pending& p, const std::string& why) {
  finish(p, Failure{SD_BUS_ERROR_ACCESS_DENIED, p.record.method + ": " + why}, "denied", nullptr);
}

void DbusService::Impl::carry_out(Pending& p) {
  sd_bus_message* raw = nullptr;
  if (int r = sd_bus_message_new_method_return(p.call.get(), &raw); r < 0)
    return finish(p, Failure{kFailed, std::strerror(-r)}, "failed", nullptr);
  Message reply(raw);
  const Outcome outcome = p.run(raw);
  finish(p, outcome, outcome ? "failed" : "done", raw);
}

/// Answers, logs and forgets the call: `p` is gone afterwards.
void DbusService::Impl::finish(Pending& p, const Outcome& outcome, std::string_view verdict,
                               sd_bus_message* reply) {
  if (outcome)
    sd_bus_reply_method_errorf(p.call.get(), outcome->name.c_str(), "%s", to_utf8(outcome->text).c_str());
  else
    sd_bus_send(bus, reply, nullptr);
  p.record.verdict = verdict;
  if (outcome) p.record.message = outcome->text;
  if (callbacks.log) callbacks.log(p.record);
  pending.remove_if([&p](const Pending& each) { return &each == &p; });
}

void DbusService::Impl::manager_emit(std::initializer_list<const char*> names) noexcept {
  std::vector<char*> list;
  for (const char* n : names) list.push_back(const_cast<char*>(n));  // sd-bus does not change them
  list.push_back(nullptr);
  (void)sd_bus_emit_properties_changed_strv(bus, kRoot, kManager, list.data());
}

DbusService::DbusService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DbusService::~DbusService() = default;

Result<std::unique_ptr<DbusService>> DbusService::open(sd_bus* bus, ControlLoop& loop,
                                                       DbusCallbacks callbacks) {
  auto impl = std::make_unique<Impl>(bus, loop, std::move(callbacks));
  FLASH_CHECK(impl->attach());
  return std::unique_ptr<DbusService>(new DbusService(std::move(impl)));
}

Result<void> DbusService::acquire_name() {
  const int r = sd_bus_request_name(impl_->bus, kName, 0);
  if (r == -EEXIST || r == -EALREADY)
    return Error(std::errc::file_exists, "another flashd is running: the bus name org.flashd is taken");
  if (r < 0) return Error::from_errno(-r, "taking the bus name org.flashd");
  return {};
}

void DbusService::agent_changed(TargetId id, AgentChange change) noexcept {
  const std::string path = agent_path(id);
  // Not sd_bus_emit_object_removed(): it asks for the object's interfaces, and the object is gone by now.
  if (change.removed) {
    (void)sd_bus_emit_interfaces_removed(impl_->bus, path.c_str(), kAgent, nullptr);
    return;
  }
  if (change.added) {
    (void)sd_bus_emit_interfaces_added(impl_->bus, path.c_str(), kAgent, nullptr);
    return;
  }
  std::vector<const char*> names;
  if (change.stage) names.insert(names.end(), {"Stage", "StageSince"});
  if (change.mode) names.push_back("Mode");
  if (change.controller) names.insert(names.end(), {"Controller", "ControllerReason"});
  if (change.episode) names.push_back("Episode");
  if (names.empty()) return;
  names.push_back(nullptr);
  (void)sd_bus_emit_properties_changed_strv(impl_->bus, path.c_str(), kAgent,
                                            const_cast<char**>(names.data()));
}

void DbusService::manager_changed() noexcept {
  impl_->manager_emit({"Mode", "Disabled", "DisabledReason"});
}

}  // namespace flash
