// Purpose: of several coordinators one speaks to the nodes (watermarks, answers): the holder of a lease, an
// entry that is replaced by compare-and-set and told apart by its revision. No clock is compared with another
// host's: who does not hold it waits until the revision has stood still for the lease's whole time, the
// holder stops before.
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/time.h"

namespace flash::coordinator {

struct LeaseEntry {
  std::string holder;          // empty: it was given up
  std::uint64_t revision = 0;  // grows with every replacement
  /// A coordinator wrote it and says that it replaced revision `replaced`. An entry that no coordinator
  /// wrote, or wrote for another place, neither takes the lease from its holder nor frees it.
  bool genuine = true;
  std::uint64_t replaced = std::numeric_limits<std::uint64_t>::max();
};

/// The bucket. `put` replaces the entry of this revision (0: there is none) and returns the new revision;
/// EAGAIN: another coordinator was faster.
struct LeaseStore {
  std::function<Result<std::optional<LeaseEntry>>()> get;
  std::function<Result<std::uint64_t>(const std::string& holder, std::uint64_t revision)> put;
};

struct LeaseOptions {
  Duration lasts = std::chrono::seconds(5);
  Duration renew = std::chrono::milliseconds(1500);
  Duration margin = std::chrono::seconds(1);  // the holder stops so much earlier
  /// Time until the next attempt after the bucket could not be reached: the caller has other work to do.
  Duration retry = std::chrono::seconds(1);
};

class Lease {
 public:
  /// `self`: unique for every instance.
  explicit Lease(std::string self, LeaseOptions options = {}) : self_(std::move(self)), options_(options) {}

  /// Call it often: renews the lease, or takes it when nobody renews it. An error: the bucket cannot be
  /// reached.
  Result<void> step(Duration now, const LeaseStore& store);
  /// Gives the lease up, so that another coordinator need not wait.
  void release(const LeaseStore& store);
  /// True: this one holds it, and no other can believe that it holds it now.
  bool held(Duration now) const {
    return revision_ > 0 && now < renewed_at_ + options_.lasts - options_.margin;
  }
  /// Of the lease that is held; 0: none. Grows with every holder.
  std::uint64_t revision() const { return term_; }
  /// Who held it when it was last looked at, and the entry's revision.
  const std::optional<LeaseEntry>& seen() const { return seen_; }
  /// How many entries were seen that no coordinator wrote.
  std::uint64_t strange() const { return strange_; }

 private:
  Result<void> replace(Duration now, const LeaseStore& store);
  Result<void> look(Duration now, const LeaseStore& store);
  bool counts(const LeaseEntry& entry) const;
  Result<std::optional<std::uint64_t>> put_over(std::uint64_t revision, const LeaseStore& store);

  std::string self_;
  LeaseOptions options_;
  std::uint64_t revision_ = 0;  // of our entry; 0: it is not ours
  std::uint64_t term_ = 0;      // of the entry with which we began to hold it
  Duration renewed_at_{}, look_at_{}, retry_at_{};
  std::optional<LeaseEntry> seen_;
  Duration seen_at_{};  // since when its revision stands still
  bool looked_ = false;
  std::uint64_t there_ = 0;  // revision of what lies there, whoever wrote it
  std::uint64_t strange_ = 0;
};

}  // namespace flash::coordinator
