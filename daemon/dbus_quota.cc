#include "daemon/dbus_quota.h"

#include <algorithm>

namespace flash {
namespace {

constexpr Duration kRemember = std::chrono::seconds(10);
constexpr std::size_t kUsers = 1024;
constexpr double kRefusalBytes = 256;
/// All whom the bus has not named share these.
constexpr uid_t kNobodyKnown = static_cast<uid_t>(-1);

}  // namespace

BusQuota::BusQuota(uid_t own, BusQuotaBounds bounds) : own_(own), bounds_(bounds) {}

void BusQuota::Bucket::refill(const Allowance& allowance, Duration now) {
  left = full ? allowance.burst : std::min(allowance.burst, left + seconds(now - at) * allowance.per_s);
  full = false;
  at = now;
}

BusQuota::Caller& BusQuota::caller(std::string_view name, Duration now) {
  const std::string key(name);
  auto found = callers_.find(key);
  if (found == callers_.end()) {
    if (callers_.size() >= bounds_.callers) forget_some(now);
    found = callers_.emplace(key, Caller{}).first;
  }
  found->second.last = now;
  return found->second;
}

/// Forgets callers that were silent for long; where all are new, those that have nothing waiting. A forgotten
/// caller is identified again; what its user has used up stays with the user.
void BusQuota::forget_some(Duration now) {
  std::erase_if(callers_, [&](const auto& row) {
    return row.second.waiting == 0 && !row.second.asked && now - row.second.last > kRemember;
  });
  if (callers_.size() < bounds_.callers) return;
  std::erase_if(callers_, [&](const auto& row) { return row.second.waiting == 0 && !row.second.asked; });
}

BusQuota::User& BusQuota::user(uid_t uid, Duration now) {
  if (users_.size() > kUsers) {
    for (auto& [id, u] : users_) u.bytes.refill(bounds_.user_bytes, now);
    std::erase_if(users_, [&](const auto& row) {
      const User& u = row.second;
      return u.bytes.left >= bounds_.user_bytes.burst && now - u.refusals.at > kRemember &&
             now - u.changes.at > kRemember;
    });
  }
  return users_[uid];
}

void BusQuota::identify(Caller& caller, uid_t uid, pid_t pid, Duration now) {
  caller.uid = uid;
  caller.pid = pid;
  if (trusted(caller)) {
    unknown_bytes_.left += caller.unknown_bytes;  // it was not a stranger's after all
  } else if (caller.unknown_bytes > 0) {
    User& u = user(uid, now);
    u.bytes.refill(bounds_.user_bytes, now);
    u.bytes.left -= caller.unknown_bytes;
    all_bytes_.refill(bounds_.all_bytes, now);
    all_bytes_.left -= caller.unknown_bytes;
  }
  caller.unknown_bytes = 0;
}

BusQuota::Reply BusQuota::read(Caller& caller, std::size_t bytes, Duration now) {
  if (trusted(caller)) return Reply::Serve;
  const auto cost = static_cast<double>(bytes);
  // The last one may be larger than what is left: the next then waits the longer.
  if (!caller.uid) {
    unknown_bytes_.refill(bounds_.unknown_bytes, now);
    if (unknown_bytes_.left <= 0) return refuse(caller, now);
    unknown_bytes_.left -= cost;
    caller.unknown_bytes += cost;
    return Reply::Serve;
  }
  User& u = user(*caller.uid, now);
  u.bytes.refill(bounds_.user_bytes, now);
  all_bytes_.refill(bounds_.all_bytes, now);
  if (u.bytes.left <= 0 || all_bytes_.left <= 0) return refuse(caller, now);
  u.bytes.left -= cost;
  all_bytes_.left -= cost;
  return Reply::Serve;
}

BusQuota::Reply BusQuota::change(const Caller& caller, Duration now) {
  if (trusted(caller)) return Reply::Serve;
  User& u = user(caller.uid.value_or(kNobodyKnown), now);
  u.changes.refill(bounds_.user_changes, now);
  if (u.changes.left < 1) return refuse(caller, now);
  u.changes.left -= 1;
  return Reply::Serve;
}

BusQuota::Reply BusQuota::refuse(const Caller& caller, Duration now) {
  User& u = user(caller.uid.value_or(kNobodyKnown), now);
  u.refusals.refill(bounds_.user_refusals, now);
  all_refusals_.refill(bounds_.all_refusals, now);
  if (u.refusals.left < 1 || all_refusals_.left < 1) return Reply::Ignore;
  u.refusals.left -= 1;
  all_refusals_.left -= 1;
  u.bytes.refill(bounds_.user_bytes, now);
  u.bytes.left -= kRefusalBytes;
  return Reply::Refuse;
}

}  // namespace flash
