#include "coordinator/lease.h"

namespace flash::coordinator {

bool Lease::counts(const LeaseEntry& entry) const {
  if (!entry.genuine) return false;
  return !seen_ || entry.revision == seen_->revision || entry.replaced >= seen_->revision;
}

/// The new revision; nullopt: another coordinator was faster. What came between and counts for nothing is
/// replaced with it, once.
Result<std::optional<std::uint64_t>> Lease::put_over(std::uint64_t revision, const LeaseStore& store) {
  auto put = store.put(self_, revision);
  if (!put && put.error().is(std::errc::resource_unavailable_try_again)) {
    FLASH_TRY(const auto entry, store.get());
    if (!entry || entry->revision == revision || counts(*entry)) return std::optional<std::uint64_t>();
    ++strange_;
    put = store.put(self_, entry->revision);
  }
  if (put) return std::optional(*put);
  if (put.error().is(std::errc::resource_unavailable_try_again)) return std::optional<std::uint64_t>();
  return std::move(put).error();
}

Result<void> Lease::replace(Duration now, const LeaseStore& store) {
  // Where it is ours, and the bucket cannot be reached, it runs out by itself.
  FLASH_TRY(const auto put, put_over(revision_ > 0 ? revision_ : there_, store));
  if (!put) {  // somebody was faster
    revision_ = term_ = 0;
    return {};
  }
  if (revision_ == 0) term_ = *put;
  revision_ = there_ = *put;
  renewed_at_ = seen_at_ = now;  // before it was sent
  seen_ = LeaseEntry{self_, *put};
  return {};
}

Result<void> Lease::look(Duration now, const LeaseStore& store) {
  FLASH_TRY(auto entry, store.get());
  const bool strange = entry && !counts(*entry);
  if (strange && entry->revision != there_) ++strange_;
  there_ = entry ? entry->revision : 0;
  if (!looked_) seen_at_ = now;
  looked_ = true;
  bool free = !entry;
  if (!strange) {
    if (!entry || !seen_ || seen_->revision != entry->revision) seen_at_ = now;
    seen_ = std::move(entry);
    free = !seen_ || seen_->holder.empty() || seen_->holder == self_;  // ours: it ran out in an outage
  }
  return free || now - seen_at_ >= options_.lasts ? replace(now, store) : Result<void>();
}

Result<void> Lease::step(Duration now, const LeaseStore& store) {
  if (!held(now)) revision_ = term_ = 0;
  const bool ours = revision_ > 0;
  if (now < retry_at_ || now < (ours ? renewed_at_ + options_.renew : look_at_)) return {};
  look_at_ = now + options_.renew / 3;
  auto done = ours ? replace(now, store) : look(now, store);
  if (!done) retry_at_ = now + options_.retry;
  return done;
}

void Lease::release(const LeaseStore& store) {
  if (revision_ > 0) (void)store.put("", revision_);
  revision_ = term_ = 0;
}

}  // namespace flash::coordinator
