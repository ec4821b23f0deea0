// Purpose: fetches metrics pages with libcurl, all in one thread, each at its interval, and says what each
// page said (differences.h). Bounded in time and size, each by itself and all together (page_budget.h): no
// application's page keeps another's from being read. No redirects, no proxies, nothing but http and https.
// Ownership: owns libcurl's handles.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/result.h"
#include "core/time.h"
#include "link/sync_messages.h"
#include "sync/page_budget.h"

namespace flash::sync {

struct ScraperOptions {
  std::string user_agent = "flash-sync";
  std::size_t max_page_bytes = 4u << 20;
  PageBudgetOptions memory;                // of all pages on their way
  std::size_t max_kept_bytes = 16u << 20;  // of what is remembered of all pages
};

struct ScraperCounters {
  std::uint64_t pages = 0;        // that were read
  std::uint64_t unreachable = 0;  // scrapes without one
  std::uint64_t invalid = 0;
  std::uint64_t bytes = 0;         // of bodies
  std::uint64_t without_turn = 0;  // of the unreachable: ended or not asked for, as others waited
};

class Scraper {
 public:
  using OnReading = std::function<void(const link::sync::Reading&)>;

  static Result<std::unique_ptr<Scraper>> open(ScraperOptions options, Random random, OnReading on_reading);
  ~Scraper();
  Scraper(const Scraper&) = delete;
  Scraper& operator=(const Scraper&) = delete;

  /// All that are wanted now; those that are wanted as before go on. REQUIRES: validate() accepts them.
  void set(Duration now, const std::vector<link::sync::Scrape>& scrapes);
  std::size_t size() const;

  /// Begins what is due. Returns the time until the next is.
  Duration start_due(Duration now);
  /// Waits until a transfer or one of `others` has something to do (their revents say which), or for so long.
  void wait(std::span<pollfd> others, Duration longest);
  /// Goes on with the transfers and tells on_reading what has come. REQUIRES: called after each wait().
  void perform(Duration now);

  const ScraperCounters& counters() const;

 private:
  struct Impl;
  explicit Scraper(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::sync
