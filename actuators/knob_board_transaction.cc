// KnobBoard's transaction: checks, the order of writes, the ledger first, and undoing what half went wrong.
#include <algorithm>
#include <cmath>
#include <utility>

#include "actuators/knob_board_impl.h"
#include "actuators/limit_files.h"
#include "actuators/setting_text.h"
#include "host/file_io.h"

namespace flash {
namespace {

constexpr Duration kFirstRetry = std::chrono::seconds(1);
constexpr Duration kLongestRetry = std::chrono::seconds(16);
/// A write that was not answered may take effect so much later. Another one meanwhile would replace what the
/// ledger knows of it, and its late effect would look like somebody else's.
constexpr Duration kUnanswered = std::chrono::seconds(10);

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

}  // namespace

std::vector<KnobOutcome> KnobBoard::apply(Now now, std::span<const KnobChange> changes) {
  std::vector<KnobOutcome> outcomes(changes.size());
  std::vector<Step> steps;
  steps.reserve(changes.size());
  for (std::size_t c = 0; c < changes.size(); ++c)
    if (auto step = prepare(now, changes[c], steps, outcomes[c])) {
      step->outcome = c;
      steps.push_back(std::move(*step));
    }
  refuse_unbounded(steps, outcomes);
  if (steps.empty()) return outcomes;
  put_in_order(steps);

  const auto announced = announce(now, steps);
  note_ledger(announced);
  if (!announced) {
    for (const Step& s : steps) {
      outcomes[s.outcome].status = WriteStatus::Failed;
      outcomes[s.outcome].message =
          "not written, because the ledger cannot record it: " + announced.error().message();
    }
    return outcomes;
  }

  confirmed_.clear();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    if (step.cancelled) continue;
    step.knob->last_write = now.mono;
    if (auto done = execute(step, outcomes[step.outcome]); !done) {
      outcomes[step.outcome].status = WriteStatus::Failed;
      outcomes[step.outcome].message = done.error().message();
      const bool unanswered = done.error().is(std::errc::timed_out);
      step.knob->write_failed(now.mono, done.error().message(), unanswered);
      if (done.error().is(std::errc::permission_denied)) {
        step.managed->denied = true;
        next_rediscover_ = {};
      }
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

/// The step that a change takes, with what is in force read again: it may have changed since observe().
/// nullopt: none, and the outcome says why.
std::optional<KnobBoard::Step> KnobBoard::prepare(Now now, const KnobChange& change,
                                                  std::span<const Step> earlier, KnobOutcome& out) {
  out.knob = change.kind;
  out.asked = change.value;
  out.executed = kNoSetting;
  const auto refuse = [&](std::string why) {
    out.status = WriteStatus::Refused;
    out.message = std::move(why);
    return std::nullopt;
  };
  Step step = step_for(change);
  if (!step.knob) return refuse("the target has no " + knob_name(change.kind));
  Knob& knob = *step.knob;
  KnobView& view = *step.view;
  if (view.current.usable()) out.executed = view.current.value;
  if (!view.writable) return refuse(view.blocked_by);
  if (std::isnan(change.value) || change.value < view.lower || change.value > view.upper)
    return refuse(setting_text(change.kind, change.value) + " is not between " +
                  setting_text(change.kind, view.lower) + " and " + setting_text(change.kind, view.upper));
  if (knob.last_write && now.mono - *knob.last_write < from_seconds(knob.min_interval_s))
    return refuse(std::string(knob.driver->name()) + " takes one change per second at most");
  if (knob.failures > 0 && now.mono < knob.retry_at)
    return refuse("the last write failed: " + knob.failure + "; tried again in " +
                  seconds_text(knob.retry_at - now.mono));
  if (std::any_of(earlier.begin(), earlier.end(), [&](const Step& s) { return s.knob == &knob; }))
    return refuse("asked twice in one transaction");

  auto before = knob.driver->read(knob.ref);
  if (!before) {
    out.status = WriteStatus::Failed;
    out.message = before.error().message();
    out.executed = kNoSetting;
    if (vanished(before.error())) {
      view.lease_reason = "gone";
      show_lease(view, LeaseState::Gone, knob.blocked, false);
    }
    return std::nullopt;
  }
  out.executed = before->value;
  step.before = std::move(*before);
  const bool ours = view.lease == LeaseState::Ours;
  const double expected = ours && !knob.reassert_pending ? knob.ours : view.current.value;
  if (!same_setting(change.kind, step.before.value, expected))
    return refuse("someone set " + setting_text(change.kind, step.before.value) + " just now");
  if (same_setting(change.kind, step.before.value, change.value) &&
      (!ours || step.before.mode == knob.ours_mode)) {
    out.status = WriteStatus::Unchanged;
    return std::nullopt;
  }
  step.value = change.value;
  step.grows = change.value > step.before.value;
  step.first = knob.ledger_id == 0;
  return step;
}

/// Of a knob that would be above the one that bounds it, as both stand in the end: the step of the two that
/// moves towards the other, and says why it is refused. nullptr: there is none.
const KnobBoard::Step* KnobBoard::unbounded(std::span<const Step> steps, std::string& why) {
  for (const Step& s : steps)
    for (const KnobCoupling& c : knob_couplings) {
      const KnobId& moved = s.knob->ref.kind;
      if (moved.kind != c.lower && moved.kind != c.upper) continue;
      const KnobId lower(c.lower, moved.instance), upper(c.upper, moved.instance);
      const Step *below = nullptr, *above = nullptr;
      for (const Step& other : steps) {
        if (other.managed != s.managed) continue;
        if (other.knob->ref.kind == lower) below = &other;
        if (other.knob->ref.kind == upper) above = &other;
      }
      double low = below ? below->value : kNoSetting, high = above ? above->value : kNoSetting;
      for (const KnobView& v : s.managed->views) {
        if (!below && v.kind == lower) low = v.current.value_or(kNoSetting);
        if (!above && v.kind == upper) high = v.current.value_or(kNoSetting);
      }
      if (!(low > high) || same_setting(lower, low, high)) continue;
      const Step* const towards = below && below->grows ? below : above && !above->grows ? above : nullptr;
      if (!towards) continue;
      why = knob_name(lower) + " of " + setting_text(lower, low) + " would be above " + knob_name(upper) +
            " of " + setting_text(upper, high);
      return towards;
    }
  return nullptr;
}

/// What is refused can leave a third knob without its room, so all are looked at again then.
void KnobBoard::refuse_unbounded(std::vector<Step>& steps, std::vector<KnobOutcome>& outcomes) {
  std::string why;
  while (const Step* const s = unbounded(steps, why)) {
    outcomes[s->outcome].status = WriteStatus::Refused;
    outcomes[s->outcome].message = why;
    steps.erase(steps.begin() + (s - steps.data()));
  }
}

/// Without a knob where the target has none of this kind. Of several, the one that can be written.
KnobBoard::Step KnobBoard::step_for(const KnobChange& change) {
  Step step;
  const auto found = managed_.find(change.target);
  if (found == managed_.end()) return step;
  step.managed = found->second.get();
  for (std::size_t i = 0; i < step.managed->knobs.size(); ++i) {
    if (step.managed->knobs[i].ref.kind != change.kind) continue;
    step.knob = &step.managed->knobs[i];
    step.view = &step.managed->views[i];
    if (step.view->writable) break;
  }
  return step;
}

/// What shrinks comes first, innermost cgroups first; then what grows, outermost first: a child never has
/// more than its parent. Within a target the knob that another one bounds shrinks before that and grows after
/// it; undo() goes backwards, so that the same holds there.
void KnobBoard::put_in_order(std::span<Step> steps) {
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    if (a.grows != b.grows) return b.grows;
    const int da = depth_of(a.managed->target), db = depth_of(b.managed->target);
    if (da != db) return a.grows ? da < db : da > db;
    const int ra = coupling_rank(a.knob->ref.kind.kind), rb = coupling_rank(b.knob->ref.kind.kind);
    return a.grows ? ra > rb : ra < rb;
  });
}

/// Once more at once, then less and less often: what the kernel refuses every time (a v1 limit above the
/// parent's) must not undo the target's other knobs, and fill the journal, in every tick.
void KnobBoard::Knob::write_failed(Duration now, const std::string& why, bool unanswered) {
  failure = why;
  retry_at = now + (unanswered ? kUnanswered : std::min(kLongestRetry, failures * failures * kFirstRetry));
  failures = std::min(failures + 1, 100);
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
    if (!traits(knob.ref.kind).capped && same_setting(knob.ref.kind, after->value, step.before.value))
      return Error(std::errc::io_error, outcome.message);
  }
  outcome.status = WriteStatus::Written;
  knob.ours = after->value;
  knob.ours_mode = std::move(after->mode);
  knob.ours_raw = std::move(after->raw);
  knob.reassert_pending = false;
  view.current = Sample::good(after->value);
  if (step.first) view.lease_reason.clear();
  show_lease(view, LeaseState::Ours, knob.blocked, true);
  ++view.writes;
  confirmed_.push_back({knob.ledger_id, after->value});
  return {};
}

/// Undoes what this call did to the failed step's target and to targets below it, and cancels what it has not
/// done yet to them. `pending`: the failed write was not answered and may still be carried out.
void KnobBoard::undo(std::span<Step> steps, std::size_t failed, bool pending,
                     std::vector<KnobOutcome>& outcomes) {
  const Target& target = steps[failed].managed->target;
  const std::string because =
      " because " + knob_name(steps[failed].knob->ref.kind) + " of " + target.name + " could not be written";
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
      if (s.first) knob.ours = kNoSetting;
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
      show_lease(*s.view, LeaseState::Gone, knob.blocked, false);
    } else if (after && after->raw == s.before.raw && !(pending && i == failed)) {
      if (i != failed) {
        out.status = WriteStatus::Undone;
        out.message = "undone" + because;
      }
      knob.ours = s.first ? kNoSetting : after->value;
      knob.ours_mode = after->mode;
      knob.ours_raw = after->raw;
      if (s.first) {
        show_lease(*s.view, LeaseState::Unclaimed, knob.blocked, true);
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
      show_lease(*s.view, LeaseState::Ours, knob.blocked, static_cast<bool>(after));
    }
  }
}

}  // namespace flash
