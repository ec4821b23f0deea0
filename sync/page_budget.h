// Purpose: one bound over the memory of all metrics pages that are on their way, and whose turn it is.
//
// Each page has a small part of its own that no other page gets: small pages never wait. More than that comes
// from one shared store. A page that has been larger than its own part waits, before it is asked for, until
// the store has what it took last time. Of those that wait, the one that has used the least recently (bytes
// times seconds) is next, and none overtakes it. While one waits, a page that holds more than its own part is
// ended if it lets it lie idle or has held it for long, and has used more recently. So a slow or huge page
// makes only itself wait.
//
// Ownership: the accounts are the callers'; leave() before one goes.
// Thread rule: one thread. No clock: the calls take the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/time.h"

namespace flash::sync {

struct PageBudgetOptions {
  std::size_t total = 20u << 20;                   // bytes of all pages together
  std::size_t own = 64u << 10;                     // of it each page's own; less where there are many
  Duration idle = std::chrono::milliseconds(100);  // without a byte, while others wait
  Duration turn = std::chrono::milliseconds(250);  // nobody is ended before, while bytes come
  Duration forgotten = std::chrono::seconds(8);    // half of what somebody has had recently
};

class PageBudget {
 public:
  /// One page's.
  struct Account {
    std::size_t longest = 0;   // it may ever be
    std::size_t expected = 0;  // as it was last time
    std::size_t reserved = 0;  // beyond its own part
    std::size_t bytes = 0;     // that have come
    Duration since{};          // it waits, or holds what is reserved
    Duration heard{};          // of the last byte
    double had = 0;            // bytes times seconds, at had_at
    Duration had_at{};
    bool waits = false;
  };

  explicit PageBudget(PageBudgetOptions options = {});

  /// How many pages there are. Later calls go by it.
  void set_pages(std::size_t pages);
  /// The part that is each page's own.
  std::size_t own() const { return own_; }
  /// Reserved and set aside, together never more than the total.
  std::size_t in_use() const { return reserved_ + own_ * pages_; }
  std::size_t waiting() const { return waiting_.size(); }

  /// May it be asked for? False: it waits, next() will return it.
  bool begin(Duration now, Account& page);
  /// It has `bytes` now. False: there is no room for them; end() it and begin() again, to wait for a turn.
  bool grow(Duration now, Account& page, std::size_t bytes);
  /// It is read (`whole`), or will not be.
  void end(Duration now, Account& page, bool whole);
  /// A page that waited and may be asked for now; null: none. Call again until null.
  Account* next(Duration now);
  /// A page that is to be ended so that another gets its turn; null: none. Call again after each end().
  Account* overdue(Duration now) const;
  void leave(Account& page);

 private:
  std::size_t store() const { return options_.total - own_ * pages_; }
  std::size_t beyond(std::size_t bytes) const;
  double had(const Account& page, Duration now) const;
  Account* first(Duration now) const;
  void reserve(Duration now, Account& page, std::size_t bytes);

  PageBudgetOptions options_;
  std::size_t own_ = 0, pages_ = 0, reserved_ = 0;
  std::vector<Account*> waiting_, holding_;
};

}  // namespace flash::sync
