#include "actuators/knob_board.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "actuators/knob_board_impl.h"
#include "actuators/restore.h"
#include "actuators/setting_text.h"
#include "host/file_io.h"

namespace flash {
namespace {

bool share_a_part(const std::string& a, const std::string& b) {
  for (std::size_t at = 0; at <= a.size();) {
    const auto end = std::min(a.find(',', at), a.size());
    const std::string part = "," + a.substr(at, end - at) + ",";
    if (("," + b + ",").find(part) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

KnobBoard::KnobBoard(std::vector<KnobDriver*> drivers, Ledger& ledger, KnobBoardOptions options)
    : drivers_(std::move(drivers)), ledger_(ledger), options_(options) {}
KnobBoard::~KnobBoard() = default;
void show_lease(KnobView& view, LeaseState lease, const std::string& blocked, bool readable) {
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

std::string seconds_text(Duration d) {
  return std::to_string(std::llround(seconds(d))) + " s";
}

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
    if (knob.blocked.empty() && knob.taken) knob.blocked = kTakenByOther;
    knob.min_interval_s = info.min_interval_s;
    view.kind = info.ref.kind;
    view.driver = std::string(by[i]->name());
    view.lower = info.lower;
    view.upper = info.upper;
    view.steps = std::move(info.steps);
    if (!known) {
      knob.taken = taken_by_other(info.ref);
      if (knob.taken) knob.blocked = kTakenByOther;
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
    show_lease(view, view.lease, knob.blocked, view.current.usable());
    knobs.push_back(std::move(knob));
    views.push_back(std::move(view));
  }
  // Knobs that the rule no longer manages go back to their originals.
  for (const Knob& k : slot->knobs)
    if (const auto* e = ledger_.find(k.ledger_id)) leaving.push_back(*e);
  const std::vector<Knob> left = std::exchange(slot->knobs, std::move(knobs));
  slot->views = std::move(views);
  if (!leaving.empty() && !put_back(leaving).complete()) orphans_ = true;
  close(left);
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
  knob.ours = kNoSetting;
  knob.reassert_pending = false;
}

// --- putting back ---------------------------------------------------------------------------------------

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
  reserve_.release();
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
    if (!knob) {
      if (KnobDriver* driver = driver_named(drivers_, entries[i].ref.driver)) driver->close(entries[i].ref);
    } else {
      knob->ledger_id = 0;
      knob->ours = kNoSetting;
      knob->reassert_pending = false;
      if (const auto now = knob->driver->read(knob->ref)) view->current = Sample::good(now->value);
      if (view->lease == LeaseState::Ours) {
        view->lease_reason = report.items[i].message;
        show_lease(*view, LeaseState::Released, knob->blocked, true);
      }
    }
  }
  if (auto dropped = ledger_.drop(done); !dropped) note_ledger(dropped);
  reserve_.set_aside();
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
  close(found->second->knobs);
  managed_.erase(found);
  return report;
}

void KnobBoard::forget(TargetId target) {
  const auto found = managed_.find(target);
  if (found == managed_.end()) return;
  std::vector<LedgerEntry> alive;
  for (Knob& knob : found->second->knobs) {
    const auto reading = knob.driver->read(knob.ref);
    const bool gone = !reading && vanished(reading.error());
    const auto* e = ledger_.find(knob.ledger_id);
    if (e && !gone)
      alive.push_back(*e);
    else
      drop(knob);
  }
  if (!alive.empty() && !put_back(alive).complete()) orphans_ = true;
  close(found->second->knobs);
  managed_.erase(found);
}

void KnobBoard::close(std::span<const Knob> knobs) {
  for (const Knob& knob : knobs) knob.driver->close(knob.ref);
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
      const std::string what = managed->target.name + ": " + knob_name(knob.ref.kind);
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
  if (const std::string& why = ledger_.trouble().empty() ? ledger_trouble_ : ledger_.trouble(); !why.empty())
    list.push_back({"ledger", "no knob is written while the ledger cannot be: " + why});
  if (ledger_rewritten_)
    list.push_back(
        {"ledger", ledger_.path() + " had been removed while knobs were under control; it was written anew"});
  if (orphans_)
    list.push_back(
        {"restore", "knobs of targets that are no longer managed could not be put back; tried again"});
  for (const auto& problem : ledger_.problems())
    list.push_back({"ledger", ledger_.path() + ".damaged, " + problem});
  // By name: the order of the map is one of inodes.
  const auto first = static_cast<std::ptrdiff_t>(list.size());
  for (const auto& [id, managed] : managed_)
    for (const Knob& knob : managed->knobs)
      if (!knob.blocked.empty())
        list.push_back({knob.ref.driver, managed->target.name + ": " + knob.blocked});
  std::stable_sort(list.begin() + first, list.end(), [](const Degraded& a, const Degraded& b) {
    return std::tie(a.part, a.reason) < std::tie(b.part, b.reason);
  });
  return list;
}

}  // namespace flash
