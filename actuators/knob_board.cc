#include "actuators/knob_board.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "actuators/restore.h"
#include "actuators/setting_text.h"
#include "host/file_io.h"

namespace flash {
namespace {

constexpr const char* kTaken = "another target controls it";
constexpr Duration kFirstRetry = std::chrono::seconds(1);
constexpr Duration kLongestRetry = std::chrono::seconds(16);
/// A write that was not answered may take effect so much later. Another one meanwhile would replace what the
/// ledger knows of it, and its late effect would look like somebody else's.
constexpr Duration kUnanswered = std::chrono::seconds(10);
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

int depth_of(const Target& target) {
  return static_cast<int>(std::count(target.cgroup.begin(), target.cgroup.end(), '/'));
}

/// Is `inner` the same cgroup as `outer` or below it? (CPU sets are only the same as themselves.)
bool within(const Target& inner, const Target& outer) {
  if (inner.id == outer.id) return true;
  if (inner.id.kind != TargetKind::Cgroup || outer.id.kind != TargetKind::Cgroup) return false;
  const auto& path = inner.cgroup;
  const auto& top = outer.cgroup;
  return path.size() > top.size() && path.compare(0, top.size(), top) == 0 &&
         (path[top.size()] == '/' || top == "/");
}

bool share_a_part(const std::string& a, const std::string& b) {
  for (std::size_t at = 0; at <= a.size();) {
    const auto end = std::min(a.find(',', at), a.size());
    const std::string part = "," + a.substr(at, end - at) + ",";
    if (("," + b + ",").find(part) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

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

std::string seconds_text(Duration d) {
  return std::to_string(std::llround(seconds(d))) + " s";
}

}  // namespace

struct KnobBoard::Knob {
  KnobDriver* driver = nullptr;
  KnobRef ref;
  std::string blocked;  // by the driver or by another target
  LeaseOptions lease;
  std::uint64_t ledger_id = 0;  // 0: nothing of ours is in force
  double ours = kNone;          // read back after our last write
  std::string ours_mode;
  std::string ours_raw;           // of a CPU set: one line per policy
  double seen = kNone;            // the foreign value that our hands are off for
  std::optional<Duration> until;  // end of the hold (monotonic); none: until told otherwise
  std::string hold_reason;
  bool reassert_pending = false;  // a foreign value is in force that we have not overwritten yet
  int reasserts = 0;
  int holds = 0;  // in a row
  Duration last_hold{};
  Duration ours_since{};
  bool taken = false;  // by another target
  double min_interval_s = 0;
  std::optional<Duration> last_write;
  int failures = 0;  // writes that failed in a row
  Duration retry_at{};
  std::string failure;

  bool same(const KnobReading& r) const {
    return same_setting(ref.kind, r.value, ours) && r.mode == ours_mode;
  }
};

struct KnobBoard::Managed {
  Target target;
  Rule rule;
  std::uint32_t looks = 0;  // ticks in which a knob of the rule was not there
  std::vector<Knob> knobs;
  std::vector<KnobView> views;  // of the same index
};

struct KnobBoard::Step {
  std::size_t outcome = 0;
  Managed* managed = nullptr;
  Knob* knob = nullptr;
  KnobView* view = nullptr;
  KnobReading before;
  double value = 0;
  bool grows = false;
  bool first = false;  // the knob had no ledger entry before this call
  bool attempted = false;
  bool cancelled = false;
};

KnobBoard::KnobBoard(std::vector<KnobDriver*> drivers, Ledger& ledger, KnobBoardOptions options)
    : drivers_(std::move(drivers)), ledger_(ledger), options_(options) {}
KnobBoard::~KnobBoard() = default;

namespace {

void update(KnobView& view, LeaseState lease, const std::string& blocked, bool readable) {
  view.lease = lease;
  const bool free = lease == LeaseState::Unclaimed || lease == LeaseState::Ours;
  view.writable = free && blocked.empty() && readable;
  if (view.writable)
    view.blocked_by.clear();
  else if (!blocked.empty())
    view.blocked_by = blocked;
  else if (!free)
    view.blocked_by = view.lease_reason;
}

}  // namespace

Result<void> KnobBoard::adopt(const Target& target, const Rule& rule) {
  auto& slot = managed_[target.id];
  const bool fresh = !slot;
  if (fresh) slot = std::make_unique<Managed>();
  slot->target = target;
  slot->rule = rule;
  std::vector<KnobInfo> found;
  std::vector<KnobDriver*> by;
  for (KnobDriver* driver : drivers_) {
    auto offered = driver->discover(target, rule);
    if (!offered) {
      if (fresh) managed_.erase(target.id);
      return std::move(offered).error().context(std::string(driver->name()) + " knobs of " + target.name);
    }
    for (auto& info : *offered) {
      by.push_back(driver);
      found.push_back(std::move(info));
    }
  }
  std::vector<Knob> knobs;
  std::vector<KnobView> views;
  std::vector<LedgerEntry> leaving;
  for (std::size_t i = 0; i < found.size(); ++i) {
    KnobInfo& info = found[i];
    Knob knob;
    KnobView view;
    const auto old = std::find_if(slot->knobs.begin(), slot->knobs.end(), [&](const Knob& k) {
      return k.ref.kind == info.ref.kind && k.ref.driver == info.ref.driver &&
             k.ref.locator == info.ref.locator;
    });
    const bool known = old != slot->knobs.end();
    if (known) {
      knob = std::move(*old);
      view = std::move(slot->views[static_cast<std::size_t>(old - slot->knobs.begin())]);
      slot->views.erase(slot->views.begin() + (old - slot->knobs.begin()));
      slot->knobs.erase(old);
    }
    knob.driver = by[i];
    knob.ref = info.ref;
    knob.lease = rule.lease;
    knob.blocked = info.blocked_by;
    // The new rule no longer claims what somebody else owns: ours does not stay in force there.
    if (!knob.blocked.empty())
      if (const auto* e = ledger_.find(knob.ledger_id)) leaving.push_back(*e);
    if (knob.blocked.empty() && knob.taken) knob.blocked = kTaken;
    knob.min_interval_s = info.min_interval_s;
    view.kind = info.ref.kind;
    view.driver = std::string(by[i]->name());
    view.lower = info.lower;
    view.upper = info.upper;
    view.steps = std::move(info.steps);
    if (!known) {
      knob.taken = taken_by_other(info.ref);
      if (knob.taken) knob.blocked = kTaken;
      const auto reading = knob.driver->read(knob.ref);
      if (reading) {
        view.current = Sample::good(reading->value);
        view.original = reading->value;
        if (knob.blocked.empty()) resume(knob, *reading);
        if (const auto* e = ledger_.find(knob.ledger_id)) {
          view.original = e->original;
          view.lease = LeaseState::Ours;
          view.lease_reason = "resumed from the ledger";
        }
      } else {
        view.blocked_by = reading.error().message();
      }
    }
    update(view, view.lease, knob.blocked, view.current.usable());
    knobs.push_back(std::move(knob));
    views.push_back(std::move(view));
  }
  // Knobs that the rule no longer manages go back to their originals.
  for (const Knob& k : slot->knobs)
    if (const auto* e = ledger_.find(k.ledger_id)) leaving.push_back(*e);
  slot->knobs = std::move(knobs);
  slot->views = std::move(views);
  if (!leaving.empty() && !put_back(leaving).complete()) orphans_ = true;
  return {};
}

/// The knob's entry in the ledger of an earlier process, if any, decides whose value is in force.
void KnobBoard::resume(Knob& knob, const KnobReading& reading) {
  const LedgerEntry* e = ledger_.find(knob.ref);
  if (!e) return;
  knob.ledger_id = e->id;
  if (reading.raw == e->raw) return drop(knob);
  knob.ours_mode = reading.mode;
  knob.ours_raw = reading.raw;
  // Not ours: it stays Ours with our value, and the next observe() settles it as a foreign write.
  knob.ours = e->open_intent || same_setting(knob.ref.kind, reading.value, e->confirmed) ? reading.value
                                                                                         : e->confirmed;
}

bool KnobBoard::taken_by_other(const KnobRef& ref) const {
  for (const auto& [id, managed] : managed_) {
    if (id == ref.target) continue;
    for (const Knob& k : managed->knobs)
      if (k.ref.kind == ref.kind && k.ref.driver == ref.driver && k.blocked.empty() &&
          share_a_part(k.ref.locator, ref.locator))
        return true;
  }
  return false;
}

std::span<const KnobView> KnobBoard::knobs(TargetId target) const {
  const auto found = managed_.find(target);
  return found == managed_.end() ? std::span<const KnobView>() : found->second->views;
}

void KnobBoard::note_ledger(const Result<void>& done) {
  ledger_trouble_ = done ? std::string() : done.error().message();
}

void KnobBoard::drop(Knob& knob) {
  if (knob.ledger_id) note_ledger(ledger_.drop(std::span(&knob.ledger_id, 1)));
  knob.ledger_id = 0;
  knob.ours = kNone;
  knob.reassert_pending = false;
}

// --- leases
// --------------------------------------------------------------------------------------------------

void KnobBoard::observe(Now now) {
  refresh_blocked(now);
  look_for_missing();
  for (auto& [id, managed] : managed_)
    for (std::size_t i = 0; i < managed->knobs.size(); ++i) settle(managed->knobs[i], managed->views[i], now);
}

void KnobBoard::settle(Knob& knob, KnobView& view, Now now) {
  if (knob.taken && !taken_by_other(knob.ref)) {
    knob.taken = false;
    if (knob.blocked == kTaken) knob.blocked.clear();
  }
  const auto reading = knob.driver->read(knob.ref);
  if (!reading) {
    view.current = Sample::missing();
    if (vanished(reading.error())) {
      view.lease_reason = "gone";
      update(view, LeaseState::Gone, knob.blocked, false);
    } else {
      update(view, view.lease, knob.blocked, false);
      if (knob.blocked.empty()) view.blocked_by = reading.error().message();
    }
    return;
  }
  view.current = Sample::good(reading->value);
  LeaseState lease = view.lease;
  if (lease == LeaseState::Gone) {
    // It came back: a CPU was offline. What the kernel made of our value meanwhile is nobody's opinion.
    lease = knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed;
    knob.ours = reading->value;
    knob.ours_mode = reading->mode;
    knob.ours_raw = reading->raw;
    view.lease_reason.clear();
    const LedgerValue found{knob.ledger_id, reading->value};
    if (knob.ledger_id) note_ledger(ledger_.confirm(std::span(&found, 1)));
  }
  update(view, lease, knob.blocked, true);
  switch (lease) {
    case LeaseState::Unclaimed:
    case LeaseState::Released:
    case LeaseState::Gone:
      view.original = reading->value;
      update(view, LeaseState::Unclaimed, knob.blocked, true);
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
        update(view, LeaseState::Unclaimed, knob.blocked, true);
      }
      break;
    case LeaseState::Held:
      if (knob.ledger_id == 0 || !knob.same(*reading)) {
        drop(knob);
        view.original = reading->value;
      }
      if (knob.until && now.mono >= *knob.until) {
        view.lease_reason.clear();
        update(view, knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed, knob.blocked, true);
      }
      break;
  }
}

/// CPUs went offline or came online, and the policies that we wrote and still see are as we left them: no
/// foreign write. One that came gets what the others have. One that the ledger has no original of ends our
/// turn: the next write takes all anew.
bool KnobBoard::only_policies_moved(Knob& knob, KnobView& view, const KnobReading& reading, Now now) {
  const LedgerEntry* e = ledger_.find(knob.ledger_id);
  if (!e || knob.ref.kind != KnobKind::CpuFrequency) return false;
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
  // Whatever a policy came back with is nobody's opinion; until we write again anything may be ours.
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
  if (!e || knob.ref.kind != KnobKind::CpuFrequency) return;
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
  update(view, state, knob.blocked, true);
}

/// A cgroup's knobs can come after the cgroup itself: v1 has one directory per hierarchy, made one after the
/// other, and v2's files come with the parent's cgroup.subtree_control. Soon as a rule, seldom later.
void KnobBoard::look_for_missing() {
  for (auto& [id, managed] : managed_) {
    Managed& m = *managed;
    if (id.kind != TargetKind::Cgroup) continue;
    const auto has = [&m](KnobKind kind) {
      return std::any_of(m.knobs.begin(), m.knobs.end(),
                         [kind](const Knob& k) { return k.ref.kind == kind; });
    };
    if ((!m.rule.cpu.manage || has(KnobKind::CpuLimit)) &&
        (!m.rule.memory.manage || has(KnobKind::MemoryLimit)))
      continue;
    ++m.looks;
    if (!std::has_single_bit(m.looks) && m.looks % 64 != 0) continue;
    // A driver that fails now is asked again; what is there stays as it is.
    static_cast<void>(adopt(Target(m.target), Rule(m.rule)));
  }
}

/// Whether another tuning daemon owns CPU frequency changes while we run. Ours is put back when one comes.
void KnobBoard::refresh_blocked(Now now) {
  if (now.mono < next_rediscover_) return;
  next_rediscover_ = now.mono + from_seconds(options_.rediscover_s);
  if (orphans_) restore_orphans();
  for (auto& [id, managed] : managed_) {
    const bool blocked = std::any_of(managed->knobs.begin(), managed->knobs.end(),
                                     [](const Knob& k) { return !k.blocked.empty() && k.blocked != kTaken; });
    // Others than CPU sets: only the end of it (the system bus has come).
    if (id.kind != TargetKind::CpuSet && !blocked) continue;
    for (std::size_t i = 0; i < managed->knobs.size(); ++i) {
      Knob& knob = managed->knobs[i];
      const auto offered = knob.driver->discover(managed->target, managed->rule);
      if (!offered) continue;
      for (const KnobInfo& info : *offered) {
        if (info.ref.kind != knob.ref.kind || info.ref.locator != knob.ref.locator) continue;
        const bool blocks = knob.blocked.empty() && !info.blocked_by.empty();
        if (info.blocked_by != knob.blocked) knob.blocked = info.blocked_by;
        if (blocks && knob.ledger_id)
          if (const auto* e = ledger_.find(knob.ledger_id)) put_back({*e});
        if (knob.blocked.empty() && knob.taken) knob.blocked = kTaken;
        // An earlier daemon's value that could not be put back while the way was blocked.
        KnobView* owner = nullptr;
        if (const auto* e = knob.blocked.empty() && !knob.ledger_id ? ledger_.find(knob.ref) : nullptr;
            e && !knob_of(e->id, &owner))
          put_back({*e});
      }
    }
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
    update(view, LeaseState::Held, knob.blocked, view.current.usable());
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
    update(view, knob.ledger_id ? LeaseState::Ours : LeaseState::Unclaimed, knob.blocked,
           view.current.usable());
  }
}

// --- the transaction
// -------------------------------------------------------------------------------------------

std::vector<KnobOutcome> KnobBoard::apply(Now now, std::span<const KnobChange> changes) {
  std::vector<KnobOutcome> outcomes(changes.size());
  std::vector<Step> steps;
  steps.reserve(changes.size());
  for (std::size_t c = 0; c < changes.size(); ++c) {
    const KnobChange& change = changes[c];
    KnobOutcome& out = outcomes[c];
    out.knob = change.kind;
    out.asked = change.value;
    out.executed = kNone;
    const auto refuse = [&](std::string why) {
      out.status = WriteStatus::Refused;
      out.message = std::move(why);
    };
    const auto found = managed_.find(change.target);
    Step step;
    if (found != managed_.end()) {
      step.managed = found->second.get();
      for (std::size_t i = 0; i < step.managed->knobs.size(); ++i) {
        if (step.managed->knobs[i].ref.kind != change.kind) continue;
        step.knob = &step.managed->knobs[i];
        step.view = &step.managed->views[i];
        if (step.view->writable) break;
      }
    }
    if (!step.knob) {
      refuse("the target has no " + std::string(traits(change.kind).name));
      continue;
    }
    if (step.view->current.usable()) out.executed = step.view->current.value;
    if (!step.view->writable) {
      refuse(step.view->blocked_by);
      continue;
    }
    if (std::isnan(change.value) || change.value < step.view->lower || change.value > step.view->upper) {
      refuse(setting_text(change.kind, change.value) + " is not between " +
             setting_text(change.kind, step.view->lower) + " and " +
             setting_text(change.kind, step.view->upper));
      continue;
    }
    if (step.knob->last_write &&
        now.mono - *step.knob->last_write < from_seconds(step.knob->min_interval_s)) {
      refuse(std::string(step.knob->driver->name()) + " takes one change per second at most");
      continue;
    }
    if (step.knob->failures > 0 && now.mono < step.knob->retry_at) {
      refuse("the last write failed: " + step.knob->failure + "; tried again in " +
             seconds_text(step.knob->retry_at - now.mono));
      continue;
    }
    if (std::any_of(steps.begin(), steps.end(), [&](const Step& s) { return s.knob == step.knob; })) {
      refuse("asked twice in one transaction");
      continue;
    }
    // What is in force is read again here: it may have changed since observe().
    auto before = step.knob->driver->read(step.knob->ref);
    if (!before) {
      out.status = WriteStatus::Failed;
      out.message = before.error().message();
      out.executed = kNone;
      if (vanished(before.error())) {
        step.view->lease_reason = "gone";
        update(*step.view, LeaseState::Gone, step.knob->blocked, false);
      }
      continue;
    }
    out.executed = before->value;
    step.before = std::move(*before);
    const bool ours = step.view->lease == LeaseState::Ours;
    const double expected = ours && !step.knob->reassert_pending ? step.knob->ours : step.view->current.value;
    if (!same_setting(change.kind, step.before.value, expected)) {
      refuse("someone set " + setting_text(change.kind, step.before.value) + " just now");
      continue;
    }
    if (same_setting(change.kind, step.before.value, change.value) &&
        (!ours || step.before.mode == step.knob->ours_mode)) {
      out.status = WriteStatus::Unchanged;
      continue;
    }
    step.outcome = c;
    step.value = change.value;
    step.grows = change.value > step.before.value;
    step.first = step.knob->ledger_id == 0;
    steps.push_back(std::move(step));
  }
  if (steps.empty()) return outcomes;

  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    if (a.grows != b.grows) return b.grows;
    const int da = depth_of(a.managed->target), db = depth_of(b.managed->target);
    return a.grows ? da < db : da > db;
  });

  if (auto announced = announce(now, steps); !announced) {
    for (const Step& s : steps) {
      outcomes[s.outcome].status = WriteStatus::Failed;
      outcomes[s.outcome].message =
          "not written, because the ledger cannot record it: " + announced.error().message();
    }
    note_ledger(announced);
    return outcomes;
  }
  note_ledger({});

  confirmed_.clear();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    if (step.cancelled) continue;
    step.knob->last_write = now.mono;
    if (auto done = execute(step, outcomes[step.outcome]); !done) {
      outcomes[step.outcome].status = WriteStatus::Failed;
      outcomes[step.outcome].message = done.error().message();
      // Once more at once, then ever more seldom: what the kernel refuses every time (a v1 limit above the
      // parent's) must not undo the target's other knobs, and fill the journal, in every tick.
      Knob& failed = *step.knob;
      failed.failure = done.error().message();
      const bool unanswered = done.error().is(std::errc::timed_out);
      failed.retry_at =
          now.mono + (unanswered ? kUnanswered
                                 : std::min(kLongestRetry, failed.failures * failed.failures * kFirstRetry));
      failed.failures = std::min(failed.failures + 1, 100);
      undo(steps, i, unanswered, outcomes);
    } else {
      step.knob->failures = 0;
      if (step.first) step.knob->ours_since = now.mono;
    }
  }
  if (auto done = ledger_.confirm(confirmed_); !done) note_ledger(done);
  for (Step& s : steps)
    if (s.first && s.knob->ledger_id && std::isnan(s.knob->ours)) drop(*s.knob);
  return outcomes;
}

Result<void> KnobBoard::announce(Now now, std::span<Step> steps) {
  std::vector<LedgerIntent> intents;
  intents.reserve(steps.size());
  for (const Step& s : steps)
    intents.push_back({s.knob->ledger_id, &s.knob->ref, s.before.value, s.before.raw, s.value});
  FLASH_CHECK(ledger_.begin(now, intents));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].knob->ledger_id = intents[i].id;
    if (!steps[i].first) continue;
    steps[i].view->original = steps[i].before.value;
  }
  return {};
}

Result<void> KnobBoard::execute(Step& step, KnobOutcome& outcome) {
  Knob& knob = *step.knob;
  KnobView& view = *step.view;
  step.attempted = true;
  FLASH_CHECK(knob.driver->write(knob.ref, step.value));
  auto after = knob.driver->read(knob.ref);
  if (!after) return std::move(after).error().context("written, but not read back");
  outcome.executed = after->value;
  if (!same_setting(knob.ref.kind, after->value, step.value)) {
    outcome.message = "asked for " + setting_text(knob.ref.kind, step.value) + ", reads back as " +
                      setting_text(knob.ref.kind, after->value);
    // Frequencies are rounded and capped as a matter of course; a limit that stays what it was is a failure.
    if (knob.ref.kind != KnobKind::CpuFrequency &&
        same_setting(knob.ref.kind, after->value, step.before.value))
      return Error(std::errc::io_error, outcome.message);
  }
  outcome.status = WriteStatus::Written;
  knob.ours = after->value;
  knob.ours_mode = std::move(after->mode);
  knob.ours_raw = std::move(after->raw);
  knob.reassert_pending = false;
  view.current = Sample::good(after->value);
  if (step.first) view.lease_reason.clear();
  update(view, LeaseState::Ours, knob.blocked, true);
  ++view.writes;
  confirmed_.push_back({knob.ledger_id, after->value});
  return {};
}

/// Undoes what this call did to the failed step's target and to targets below it, and cancels what it has not
/// done yet to them. `pending`: the failed write was not answered and may still be carried out.
void KnobBoard::undo(std::span<Step> steps, std::size_t failed, bool pending,
                     std::vector<KnobOutcome>& outcomes) {
  const Target& target = steps[failed].managed->target;
  const std::string because = " because " + std::string(traits(steps[failed].knob->ref.kind).name) + " of " +
                              target.name + " could not be written";
  for (std::size_t i = steps.size(); i-- > 0;) {
    Step& s = steps[i];
    if (s.cancelled || !within(s.managed->target, target)) continue;
    s.cancelled = true;
    KnobOutcome& out = outcomes[s.outcome];
    Knob& knob = *s.knob;
    if (!s.attempted) {
      out.status = WriteStatus::Undone;
      out.message = "not written" + because;
      confirmed_.push_back({knob.ledger_id, s.before.value});
      if (s.first) knob.ours = kNone;
      continue;
    }
    // The failed one too: a driver that writes several files may have got half-way.
    auto done = knob.driver->restore(knob.ref, s.before.raw);
    auto after = knob.driver->read(knob.ref);
    if (after) {
      out.executed = after->value;
      s.view->current = Sample::good(after->value);
    }
    if (!after && vanished(after.error())) {
      s.view->lease_reason = "gone";
      s.view->current = Sample::missing();
      update(*s.view, LeaseState::Gone, knob.blocked, false);
    } else if (after && after->raw == s.before.raw && !(pending && i == failed)) {
      if (i != failed) {
        out.status = WriteStatus::Undone;
        out.message = "undone" + because;
      }
      knob.ours = s.first ? kNone : after->value;
      knob.ours_mode = after->mode;
      knob.ours_raw = after->raw;
      if (s.first) {
        update(*s.view, LeaseState::Unclaimed, knob.blocked, true);
      } else {
        confirmed_.push_back({knob.ledger_id, after->value});
      }
    } else {
      const Error& why = !done ? done.error() : Error(std::errc::io_error, "it reads back as something else");
      out.status = WriteStatus::Failed;
      out.message += out.message.empty() ? "" : "; ";
      out.message += pending && i == failed ? "it may still take effect" : "undoing failed: " + why.message();
      // It may hold anything of ours, so it stays in the ledger.
      knob.ours = after ? after->value : s.value;
      if (after) knob.ours_mode = after->mode, knob.ours_raw = after->raw;
      update(*s.view, LeaseState::Ours, knob.blocked, static_cast<bool>(after));
    }
  }
}

// --- putting back
// ----------------------------------------------------------------------------------------------

KnobBoard::Knob* KnobBoard::knob_of(std::uint64_t ledger_id, KnobView** view) {
  for (auto& [id, managed] : managed_)
    for (std::size_t i = 0; i < managed->knobs.size(); ++i)
      if (managed->knobs[i].ledger_id == ledger_id) {
        *view = &managed->views[i];
        return &managed->knobs[i];
      }
  return nullptr;
}

RestoreReport KnobBoard::put_back(const std::vector<LedgerEntry>& entries) {
  RestoreReport report = restore_knobs(drivers_, entries);
  std::vector<std::uint64_t> done;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    KnobView* view = nullptr;
    Knob* knob = knob_of(entries[i].id, &view);
    if (!report.items[i].restored) {
      // Some of its parts can be back: what is in force now is still our doing, and nobody else's.
      if (const auto now = knob ? knob->driver->read(knob->ref) : KnobReading{}; knob && now) {
        knob->ours = now->value;
        knob->ours_mode = now->mode;
        knob->ours_raw = now->raw;
      }
      continue;
    }
    done.push_back(entries[i].id);
    if (knob) {
      knob->ledger_id = 0;
      knob->ours = kNone;
      knob->reassert_pending = false;
      if (const auto now = knob->driver->read(knob->ref)) view->current = Sample::good(now->value);
      if (view->lease == LeaseState::Ours) {
        view->lease_reason = report.items[i].message;
        update(*view, LeaseState::Released, knob->blocked, true);
      }
    }
  }
  if (auto dropped = ledger_.drop(done); !dropped) note_ledger(dropped);
  return report;
}

RestoreReport KnobBoard::release(TargetId target) {
  const auto found = managed_.find(target);
  if (found == managed_.end()) return {};
  std::vector<LedgerEntry> entries;
  for (const Knob& k : found->second->knobs)
    if (const auto* e = ledger_.find(k.ledger_id)) entries.push_back(*e);
  RestoreReport report = put_back(entries);
  if (!report.complete()) orphans_ = true;
  managed_.erase(found);
  return report;
}

void KnobBoard::forget(TargetId target) {
  const auto found = managed_.find(target);
  if (found == managed_.end()) return;
  std::vector<LedgerEntry> alive;
  for (Knob& knob : found->second->knobs) {
    // Reading also lets the driver see that the cgroup is gone and close its files.
    const auto reading = knob.driver->read(knob.ref);
    const bool gone = !reading && vanished(reading.error());
    const auto* e = ledger_.find(knob.ledger_id);
    if (e && !gone)
      alive.push_back(*e);
    else
      drop(knob);
  }
  if (!alive.empty() && !put_back(alive).complete()) orphans_ = true;
  managed_.erase(found);
}

RestoreReport KnobBoard::restore_all() {
  std::vector<LedgerEntry> entries;
  for (const auto& [id, e] : ledger_.entries()) entries.push_back(e);
  return put_back(entries);
}

RestoreReport KnobBoard::restore_orphans() {
  std::vector<LedgerEntry> entries;
  for (const auto& [id, e] : ledger_.entries()) {
    KnobView* view = nullptr;
    if (!knob_of(id, &view)) entries.push_back(e);
  }
  RestoreReport report = put_back(entries);
  orphans_ = !report.complete();
  return report;
}

std::vector<std::string> KnobBoard::verify() {
  std::vector<std::string> differences;
  for (auto& [id, managed] : managed_) {
    for (const Knob& knob : managed->knobs) {
      if (knob.ledger_id == 0 || std::isnan(knob.ours)) continue;
      const std::string what = managed->target.name + ": " + std::string(traits(knob.ref.kind).name);
      const auto now = knob.driver->read(knob.ref);
      if (!now)
        differences.push_back(what + " cannot be read: " + now.error().message());
      else if (!knob.same(*now))
        differences.push_back(what + " is " + setting_text(knob.ref.kind, now->value) +
                              (now->mode.empty() ? "" : " (" + now->mode + ")") + ", we wrote " +
                              setting_text(knob.ref.kind, knob.ours) +
                              (knob.ours_mode.empty() ? "" : " (" + knob.ours_mode + ")"));
    }
  }
  std::sort(differences.begin(), differences.end());
  return differences;
}

std::vector<Degraded> KnobBoard::degraded() const {
  std::vector<Degraded> list;
  if (!ledger_trouble_.empty())
    list.push_back({"ledger", "nothing is written while the ledger cannot be: " + ledger_trouble_});
  if (orphans_)
    list.push_back(
        {"restore", "knobs of targets that are no longer managed could not be put back; tried again"});
  for (const auto& problem : ledger_.problems())
    list.push_back({"ledger", ledger_.path() + ".damaged, " + problem});
  for (const auto& [id, managed] : managed_)
    for (const Knob& knob : managed->knobs)
      if (!knob.blocked.empty())
        list.push_back({knob.ref.driver, managed->target.name + ": " + knob.blocked});
  return list;
}

}  // namespace flash
