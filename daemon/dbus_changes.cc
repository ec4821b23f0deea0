// The changing methods: each checks its arguments and says what will be done once the caller is authorised.
#include <cstring>

#include "daemon/dbus_impl.h"

namespace flash {

using namespace dbus;

namespace {

constexpr std::size_t kReasonBytes = 256;
constexpr std::uint64_t kHoldSeconds = 30ull * 24 * 3600;

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

using S = DbusService::Impl;

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
      r = sd_bus_message_append(reply, "(ssbs)", knob_name(item.ref.kind).c_str(), target.c_str(),
                                static_cast<int>(item.restored), to_utf8(item.message).c_str());
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

std::span<const DbusService::Impl::ChangeMethod> DbusService::Impl::change_methods() {
  return kChanges;
}

}  // namespace flash
