// KnobBoard's leases: what is in force, who wrote it, and what follows.
#include <algorithm>
#include <utility>

#include "actuators/knob_board_impl.h"
#include "actuators/limit_files.h"
#include "actuators/setting_text.h"
#include "host/file_io.h"

namespace flash {
namespace {

/// The driver's raw text of a CPU set: one line per policy, which begins with its name.
std::vector<std::pair<std::string_view, std::string_view>> lines_of(std::string_view raw) {
  std::vector<std::pair<std::string_view, std::string_view>> lines;
  while (!raw.empty()) {
    const auto line = raw.substr(0, raw.find('\n'));
    lines.emplace_back(line.substr(0, line.find(' ')), line);
    raw.remove_prefix(std::min(line.size() + 1, raw.size()));
  }
  return lines;
}

std::string_view find_line(std::string_view raw, std::string_view policy) {
  for (const auto& [name, line] : lines_of(raw))
    if (name == policy) return line;
  return {};
}

}  // namespace

void KnobBoard::observe(Now now) {
  look_after_ledger(now);
  refresh_blocked(now);
  look_for_missing();
  for (auto& [id, managed] : managed_)
    for (std::size_t i = 0; i < managed->knobs.size(); ++i) settle(managed->knobs[i], managed->views[i], now);
}

/// Opened late (the disk was full): what an earlier process left has no owner by now.
void KnobBoard::look_after_ledger(Now now) {
  const auto state = ledger_.ensure(now);
  if (!state || *state == LedgerState::Same) return;
  ledger_trouble_.clear();
  if (*state == LedgerState::Opened)
    restore_orphans();
  else
    ledger_rewritten_ = true;
}

void KnobBoard::settle(Knob& knob, KnobView& view, Now now) {
  if (knob.taken && !taken_by_other(knob.ref)) {
    knob.taken = false;
    if (knob.blocked == kTakenByOther) knob.blocked.clear();
  }
  const auto reading = knob.driver->read(knob.ref);
  if (!reading) {
    view.current = Sample::missing();
    if (vanished(reading.error())) {
      view.lease_reason = "gone";
      show_lease(view, LeaseState::Gone, knob.blocked, false);
    } else {
      show_lease(view, view.lease, knob.blocked, false);
      if (knob.blocked.empty()) view.blocked_by = reading.error().message();
    }
    return;
  }
  view.current = Sample::good(reading->value);
  LeaseState lease = view.lease;
  if (lease == LeaseState::Gone) {
    // It came back: a CPU was offline. What the kernel made of our value meanwhile is no foreign value.
    lease = knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed;
    knob.ours = reading->value;
    knob.ours_mode = reading->mode;
    knob.ours_raw = reading->raw;
    view.lease_reason.clear();
    const LedgerValue found{knob.ledger_id, reading->value};
    if (knob.ledger_id) note_ledger(ledger_.confirm(std::span(&found, 1)));
  }
  show_lease(view, lease, knob.blocked, true);
  switch (lease) {
    case LeaseState::Unclaimed:
    case LeaseState::Released:
    case LeaseState::Gone:
      view.original = reading->value;
      show_lease(view, LeaseState::Unclaimed, knob.blocked, true);
      break;
    case LeaseState::Ours:
      if (const auto* e = ledger_.find(knob.ledger_id);
          e && e->open_intent && !knob.same(*reading) &&
          same_setting(knob.ref.kind, reading->value, e->intended)) {
        // A write that was not answered in time took effect after all.
        knob.ours = reading->value;
        knob.ours_mode = reading->mode;
        knob.ours_raw = reading->raw;
        const LedgerValue found{knob.ledger_id, reading->value};
        note_ledger(ledger_.confirm(std::span(&found, 1)));
      } else if (!knob.same(*reading)) {
        if (!only_policies_moved(knob, view, *reading, now)) foreign(knob, view, *reading, now);
      } else {
        knob.reassert_pending = false;
        if (now.mono - knob.ours_since >= knob.last_hold) knob.holds = 0;
        if (now.mono - knob.ours_since >= from_seconds(knob.lease.hold_s)) knob.reasserts = 0;
      }
      break;
    case LeaseState::Yielded:
    case LeaseState::Contended:
      view.original = reading->value;
      if (!same_setting(knob.ref.kind, reading->value, knob.seen)) {
        knob.seen = reading->value;
        if (knob.until) knob.until = now.mono + knob.last_hold;
      } else if (knob.until && now.mono >= *knob.until) {
        view.lease_reason.clear();
        show_lease(view, LeaseState::Unclaimed, knob.blocked, true);
      }
      break;
    case LeaseState::Held:
      if (knob.ledger_id == 0 || !knob.same(*reading)) {
        drop(knob);
        view.original = reading->value;
      }
      if (knob.until && now.mono >= *knob.until) {
        view.lease_reason.clear();
        show_lease(view, knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed, knob.blocked, true);
      }
      break;
  }
}

/// CPUs went offline or came online, and the policies that we wrote and still see are as we left them: no
/// foreign write. One that came gets what the others have. One that the ledger has no original of ends our
/// turn: the next write takes all again.
bool KnobBoard::only_policies_moved(Knob& knob, KnobView& view, const KnobReading& reading, Now now) {
  const LedgerEntry* e = ledger_.find(knob.ledger_id);
  if (!e || !traits(knob.ref.kind).parts) return false;
  bool unknown = false, came = false, went = false;
  for (const auto& [policy, line] : lines_of(reading.raw)) {
    const auto ours = find_line(knob.ours_raw, policy);
    if (!ours.empty() && ours != line) return false;
    came |= ours.empty();
    unknown |= find_line(e->raw, policy).empty();
  }
  for (const auto& [policy, line] : lines_of(knob.ours_raw)) went |= find_line(reading.raw, policy).empty();
  if (!came && !went) return false;
  if (unknown) {
    put_back({*e});
    return true;
  }
  // Whatever value a policy came back with is no foreign value; until we write again anything may be ours.
  LedgerIntent intent{knob.ledger_id, &knob.ref, e->original, e->raw, knob.ours};
  const auto announced = ledger_.begin(now, std::span(&intent, 1));
  note_ledger(announced);
  KnobReading in_force = reading;
  if (came && announced && knob.driver->write(knob.ref, knob.ours)) {
    ++view.writes;
    if (auto after = knob.driver->read(knob.ref)) in_force = *std::move(after);
  }
  knob.ours = in_force.value;
  knob.ours_mode = in_force.mode;
  knob.ours_raw = in_force.raw;
  view.current = Sample::good(in_force.value);
  return true;
}

/// Somebody took one policy of a CPU set; those that are still as we wrote them go back.
void KnobBoard::put_back_untouched(Knob& knob) {
  const LedgerEntry* e = ledger_.find(knob.ledger_id);
  if (!e || !traits(knob.ref.kind).parts) return;
  const auto reading = knob.driver->read(knob.ref);
  if (!reading) return;
  std::string untouched;
  for (const auto& [policy, line] : lines_of(reading->raw)) {
    if (find_line(knob.ours_raw, policy) != line) continue;
    const auto original = find_line(e->raw, policy);
    if (!original.empty()) untouched.append(untouched.empty() ? "" : "\n").append(original);
  }
  if (!untouched.empty()) static_cast<void>(knob.driver->restore(knob.ref, untouched));
}

void KnobBoard::foreign(Knob& knob, KnobView& view, const KnobReading& reading, Now now) {
  const std::string what = "someone set " + setting_text(knob.ref.kind, reading.value) +
                           " where we had written " + setting_text(knob.ref.kind, knob.ours);
  if (knob.lease.on_foreign_write == ForeignWrite::Reassert) {
    if (knob.reassert_pending) return;  // seen already, and no apply() since
    if (knob.reasserts < knob.lease.reassert_limit) {
      knob.reassert_pending = true;
      ++knob.reasserts;
      view.lease_reason = what + "; writing again (" + std::to_string(knob.reasserts) + " of " +
                          std::to_string(knob.lease.reassert_limit) + ")";
      return;
    }
  }
  const double hold_s = knob.lease.hold_s;
  const double cap_s = std::max(options_.hold_cap_s, hold_s);
  knob.last_hold = from_seconds(std::min(cap_s, std::ldexp(hold_s, std::min(knob.holds, 30))));
  const auto until = now.mono + knob.last_hold;
  ++knob.holds;
  knob.seen = reading.value;
  view.original = reading.value;
  switch (knob.lease.on_foreign_write) {
    case ForeignWrite::Yield:
      return hands_off(knob, view, LeaseState::Yielded, until,
                       what + "; hands off for " + seconds_text(knob.last_hold));
    case ForeignWrite::Reassert:
      knob.reasserts = 0;
      return hands_off(knob, view, LeaseState::Contended, until,
                       what + " again and again; hands off for " + seconds_text(knob.last_hold));
    case ForeignWrite::Leave:
      return hands_off(knob, view, LeaseState::Contended, std::nullopt, what + "; left to them");
  }
}

void KnobBoard::hands_off(Knob& knob, KnobView& view, LeaseState state, std::optional<Duration> until,
                          std::string why) {
  put_back_untouched(knob);
  if (const auto after = knob.driver->read(knob.ref)) {
    knob.seen = view.original = after->value;
    view.current = Sample::good(after->value);
  }
  drop(knob);
  knob.until = until;
  view.lease_reason = std::move(why);
  show_lease(view, state, knob.blocked, true);
}

/// A cgroup's knobs can come after the cgroup itself: v1 has one directory per hierarchy, made one after the
/// other, and v2's files come with the parent's cgroup.subtree_control. Soon as a rule, seldom later.
void KnobBoard::look_for_missing() {
  for (auto& [id, managed] : managed_) {
    Managed& m = *managed;
    if (id.kind != TargetKind::Cgroup) continue;
    const auto missing = [&m](const LimitFile& row) {
      return traits(row.knob).task == m.target.task() && m.rule.limits[row.knob].manage &&
             std::none_of(m.knobs.begin(), m.knobs.end(),
                          [&row](const Knob& k) { return k.ref.kind.kind == row.knob; });
    };
    if (std::none_of(limit_files.begin(), limit_files.end(), missing)) continue;
    ++m.looks;
    if (!std::has_single_bit(m.looks) && m.looks % 64 != 0) continue;
    // A driver that fails now is asked again; what is there stays as it is.
    static_cast<void>(adopt(Target(m.target), Rule(m.rule)));
  }
}

/// Devices, domains and interfaces come and go while their cgroup stays.
bool KnobBoard::instances_changed(const Managed& m) const {
  const auto several = [&m](KnobKind kind) {
    const LimitFile* const row = limit_file(kind);
    return row && row->instances && m.rule.limits[kind].manage;
  };
  if (std::none_of(limit_files.begin(), limit_files.end(),
                   [&](const LimitFile& row) { return several(row.knob); }))
    return false;
  std::vector<KnobId> have, offered;
  for (const Knob& k : m.knobs)
    if (several(k.ref.kind.kind)) have.push_back(k.ref.kind);
  for (KnobDriver* driver : drivers_) {
    const auto found = driver->discover(m.target, m.rule);
    if (!found) return false;
    for (const KnobInfo& info : *found)
      if (several(info.ref.kind.kind)) offered.push_back(info.ref.kind);
  }
  std::sort(have.begin(), have.end());
  std::sort(offered.begin(), offered.end());
  return have != offered;
}

/// CPUs came that the knob does not have, and it can be adopted again with them: nobody's hold would be lost,
/// and all that it wrote can be put back first.
bool KnobBoard::has_grown(const Knob& knob, const KnobView& view, const KnobInfo& offered) const {
  const auto in = [](const std::string& list, std::string_view part) {
    return ("," + list + ",").find("," + std::string(part) + ",") != std::string::npos;
  };
  bool grown = false;
  for (std::string_view left = offered.ref.locator; !left.empty();) {
    const auto part = left.substr(0, left.find(','));
    grown |= !in(knob.ref.locator, part);
    left.remove_prefix(std::min(part.size() + 1, left.size()));
  }
  if (!grown || view.lease == LeaseState::Held || view.lease == LeaseState::Yielded ||
      view.lease == LeaseState::Contended)
    return false;
  const LedgerEntry* e = ledger_.find(knob.ledger_id);
  if (!e) return true;
  for (const auto& [policy, line] : lines_of(e->raw))
    if (!in(offered.ref.locator, policy)) return false;
  return true;
}

/// Whether another tuning daemon owns CPU frequency changes while we run (ours is put back when one comes),
/// and so does what CPUs can do: boost is switched, limits are set, CPUs go and come.
void KnobBoard::refresh_blocked(Now now) {
  if (now.mono < next_rediscover_) return;
  next_rediscover_ = now.mono + from_seconds(options_.rediscover_s);
  if (orphans_) restore_orphans();
  for (auto& [id, managed] : managed_) {
    // A driver that fails now is asked again; what is there stays as it is.
    if (id.kind == TargetKind::Cgroup && instances_changed(*managed))
      static_cast<void>(adopt(Target(managed->target), Rule(managed->rule)));
    const bool blocked = std::any_of(managed->knobs.begin(), managed->knobs.end(), [](const Knob& k) {
      return !k.blocked.empty() && k.blocked != kTakenByOther;
    });
    // Others than CPU sets: only the end of it (the system bus has come), and what was given to another user.
    if (id.kind != TargetKind::CpuSet && !blocked && !std::exchange(managed->denied, false)) continue;
    // The cpufreq driver can be loaded later.
    bool anew = id.kind == TargetKind::CpuSet && managed->knobs.empty();
    for (std::size_t i = 0; i < managed->knobs.size(); ++i) {
      Knob& knob = managed->knobs[i];
      KnobView& view = managed->views[i];
      auto offered = knob.driver->discover(managed->target, managed->rule);
      if (!offered) continue;
      for (KnobInfo& info : *offered) {
        if (info.ref.kind != knob.ref.kind) continue;
        if (id.kind == TargetKind::CpuSet) {
          anew |= has_grown(knob, view, info);
          view.lower = info.lower;
          view.upper = info.upper;
          view.steps = std::move(info.steps);
        } else if (info.ref.locator != knob.ref.locator) {
          continue;
        }
        const bool blocks = knob.blocked.empty() && !info.blocked_by.empty();
        if (info.blocked_by != knob.blocked) knob.blocked = info.blocked_by;
        if (blocks && knob.ledger_id)
          if (const auto* e = ledger_.find(knob.ledger_id)) put_back({*e});
        if (knob.blocked.empty() && knob.taken) knob.blocked = kTakenByOther;
        // An earlier daemon's value that could not be put back while the way was blocked.
        KnobView* owner = nullptr;
        if (const auto* e = knob.blocked.empty() && !knob.ledger_id ? ledger_.find(knob.ref) : nullptr;
            e && !knob_of(e->id, &owner))
          put_back({*e});
      }
    }
    if (anew) static_cast<void>(adopt(Target(managed->target), Rule(managed->rule)));
  }
}

void KnobBoard::hold(TargetId target, Now, std::optional<Duration> until, std::string reason) {
  const auto found = managed_.find(target);
  if (found == managed_.end()) return;
  for (std::size_t i = 0; i < found->second->knobs.size(); ++i) {
    Knob& knob = found->second->knobs[i];
    KnobView& view = found->second->views[i];
    if (view.lease == LeaseState::Gone) continue;
    knob.until = until;
    view.lease_reason = "held: " + reason;
    show_lease(view, LeaseState::Held, knob.blocked, view.current.usable());
  }
}

void KnobBoard::unhold(TargetId target) {
  const auto found = managed_.find(target);
  if (found == managed_.end()) return;
  for (std::size_t i = 0; i < found->second->knobs.size(); ++i) {
    Knob& knob = found->second->knobs[i];
    KnobView& view = found->second->views[i];
    if (view.lease != LeaseState::Held) continue;
    view.lease_reason.clear();
    show_lease(view, knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed, knob.blocked,
               view.current.usable());
  }
}

}  // namespace flash
