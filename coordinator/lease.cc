#include "coordinator/lease.h"

namespace flash::coordinator {

Result<void> Lease::replace(Duration now, const LeaseStore& store) {
  auto put = store.put(self_, revision_ > 0 ? revision_ : seen_ ? seen_->revision : 0);
  if (!put && !put.error().is(std::errc::resource_unavailable_try_again))
    return std::move(put).error();  // where it is ours it runs out by itself
  if (!put) {                       // somebody was faster
    revision_ = term_ = 0;
    return {};
  }
  if (revision_ == 0) term_ = *put;
  revision_ = *put;
  renewed_at_ = seen_at_ = now;  // before it was sent
  seen_ = LeaseEntry{self_, *put};
  return {};
}

Result<void> Lease::look(Duration now, const LeaseStore& store) {
  FLASH_TRY(auto entry, store.get());
  if (!entry || !seen_ || seen_->revision != entry->revision) seen_at_ = now;
  seen_ = std::move(entry);
  const bool free =
      !seen_ || seen_->holder.empty() || seen_->holder == self_;  // ours: it ran out in an outage
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
