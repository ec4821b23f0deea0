#include "actuators/restore.h"

#include <algorithm>
#include <string>

#include "actuators/setting_text.h"
#include "host/file_io.h"

namespace flash {
namespace {

constexpr const char* kGone = "gone";

RestoreReport::Item restore_part(KnobDriver& driver, const LedgerEntry& entry);

}  // namespace

KnobDriver* driver_named(std::span<KnobDriver* const> drivers, std::string_view name) {
  for (KnobDriver* d : drivers)
    if (d->name() == name) return d;
  return nullptr;
}

RestoreReport::Item restore_knob(KnobDriver& driver, const LedgerEntry& entry) {
  const auto parts = parts_of(entry);
  if (parts.empty()) return restore_part(driver, entry);
  RestoreReport::Item item{entry.ref, true, {}};
  const auto whole = driver.read(entry.ref);
  std::size_t gone = 0;
  for (LedgerEntry part : parts) {
    // The confirmed value is the highest of all policies. While somebody is there or above, a lower one is
    // ours and was capped by its hardware.
    if (const auto now = driver.read(part.ref);
        whole && now && now->value < entry.confirmed &&
        (whole->value > entry.confirmed || same_setting(entry.ref.kind, whole->value, entry.confirmed)))
      part.open_intent = true;
    const auto one = restore_part(driver, part);
    gone += one.message == kGone ? 1 : 0;
    item.restored &= one.restored && one.message != kGone;
    item.message += (item.message.empty() ? "" : "; ") + part.ref.locator + " " + one.message;
  }
  // Some CPUs are offline: they come back as we left them, so the entry stays. All: the hardware is gone.
  if (gone == parts.size()) item.restored = true, item.message = kGone;
  return item;
}

std::vector<LedgerEntry> parts_of(const LedgerEntry& entry) {
  std::vector<LedgerEntry> parts;
  if (!traits(entry.ref.kind).parts || entry.ref.locator.find(',') == std::string::npos) return parts;
  for (std::size_t at = 0; at < entry.raw.size();) {
    const auto end = std::min(entry.raw.find('\n', at), entry.raw.size());
    LedgerEntry& part = parts.emplace_back(entry);
    part.raw = entry.raw.substr(at, end - at);
    part.ref.locator = part.raw.substr(0, part.raw.find(' '));
    at = end + 1;
  }
  return parts;
}

namespace {

RestoreReport::Item restore_part(KnobDriver& driver, const LedgerEntry& entry) {
  RestoreReport::Item item{entry.ref, false, {}};
  const KnobId& kind = entry.ref.kind;
  const auto now = driver.read(entry.ref);
  if (!now) {
    item.restored = vanished(now.error());
    item.message = item.restored ? kGone : now.error().message();
    return item;
  }
  if (now->raw == entry.raw) {
    item.restored = true;
    item.message = "was at its original, " + setting_text(kind, entry.original);
    return item;
  }
  // An open intent may have been rounded by the kernel, so any value can be what it left. In a damaged ledger
  // it may be an old one, and only what we wrote is ours.
  const bool ours =
      same_setting(kind, now->value, entry.confirmed) ||
      (entry.open_intent && (!entry.doubtful || same_setting(kind, now->value, entry.intended)));
  if (!ours && entry.doubtful) {
    item.message = "the ledger was damaged: now " + setting_text(kind, now->value) +
                   ", which may be ours or somebody else's; the original was " +
                   setting_text(kind, entry.original) + "; left";
    return item;
  }
  if (!ours) {
    item.restored = true;
    item.message = "changed by someone else since (now " + setting_text(kind, now->value) + ", ours was " +
                   setting_text(kind, entry.confirmed) + "); left";
    return item;
  }
  if (auto done = driver.restore(entry.ref, entry.raw); !done) {
    item.restored = vanished(done.error());
    item.message = item.restored ? kGone : done.error().message();
    return item;
  }
  const auto after = driver.read(entry.ref);
  if (!after) {
    item.restored = vanished(after.error());
    item.message = item.restored ? kGone : "written, but not read back: " + after.error().message();
  } else if (after->raw == entry.raw) {
    item.restored = true;
    item.message = "restored to " + setting_text(kind, entry.original);
  } else {
    item.message = "written, but reads back as '" + after->raw + "' instead of '" + entry.raw + "'";
  }
  return item;
}

}  // namespace

RestoreReport restore_knobs(std::span<KnobDriver* const> drivers, const std::vector<LedgerEntry>& entries) {
  RestoreReport report;
  for (const auto& e : entries) report.items.push_back({e.ref, false, {}});
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      auto& item = report.items[i];
      if (item.restored) continue;
      KnobDriver* driver = driver_named(drivers, entries[i].ref.driver);
      if (!driver) {
        item.message = "no driver '" + entries[i].ref.driver + "' here";
        continue;
      }
      item = restore_knob(*driver, entries[i]);
      progress |= item.restored;
    }
  }
  return report;
}

LedgerRestore restore_from_ledger(Ledger& ledger, std::span<KnobDriver* const> drivers,
                                  RestoreRequest request) {
  LedgerRestore result;
  result.previous_boot = ledger.previous_boot().size();
  result.problems = ledger.problems();
  if (request == RestoreRequest::Keep || (request == RestoreRequest::AsMarked && ledger.keep())) {
    result.kept = true;
    result.kept_because = ledger.keep_reason();
    return result;
  }
  std::vector<LedgerEntry> entries;
  for (const auto& [id, e] : ledger.entries()) entries.push_back(e);
  result.report = restore_knobs(drivers, entries);
  std::vector<std::uint64_t> done;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (result.report.items[i].restored) done.push_back(entries[i].id);
  // A failure leaves entries whose knobs are at their originals: the next run finds nothing to do.
  (void)ledger.drop(done);
  return result;
}

}  // namespace flash
