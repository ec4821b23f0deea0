// Purpose: do the counters of a page go on where those of the page before were? An application restarts,
// and then all that it has counted since is new, if that can be so; or another process answers: one of
// several workers behind a port, or another machine behind an address. What lies between two processes'
// counters is nobody's rate.
// Ownership: a value per page.
// Thread rule: none needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flash::sync {

/// What a series counts; each kind is judged by itself, so that nothing is added up twice.
enum class Counted : std::uint8_t { Latency, Requests, Errors };
inline constexpr std::size_t kCountedKinds = 3;

/// One series of a page: a histogram's buckets in order, the last of all, or a counter's one value.
struct CountedSeries {
  Counted kind = Counted::Requests;
  std::vector<double> counts;  // never empty
};

struct PageCounters {
  std::map<std::string, CountedSeries> series;  // by a name that is the same on every page
  std::optional<double> process_start;          // process_start_time_seconds, where there is just one
};

class Continuity {
 public:
  struct Verdict {
    /// Empty: the differences hold, with series that are not in `goes_on` counted from zero. Else why they do
    /// not.
    std::string doubt;
    /// The doubt comes again and again: not one process that restarted.
    bool several = false;
  };
  /// Compares two pages, `covers_s` apart.
  Verdict judge(const PageCounters& before, const PageCounters& now, double covers_s);
  /// Does that series of the page just judged go on, or is it counted from zero?
  bool goes_on(const std::string& series) const { return goes_on_.contains(series); }
  /// About how much memory it uses.
  std::size_t bytes() const;
  /// Instead of judge(), of pages that cannot be compared. True: that happens again and again.
  bool note_change();

 private:
  static constexpr std::uint64_t kRemembered = 10;  // pages
  static constexpr std::size_t kMaxFallen = 4096;
  struct Fallen {
    double from = 0;
    std::uint64_t page = 0;
  };
  void next_page();
  bool changes_often() const;
  bool came_back(const PageCounters& before, const PageCounters& now);

  std::uint64_t page_ = 0;
  bool settling_ = true;  // nothing says yet that what answers is one process
  std::map<std::string, bool> goes_on_;
  std::map<std::string, Fallen> fallen_;                 // series that fell recently
  std::map<double, std::uint64_t> starts_;               // of processes that answered recently
  std::deque<std::uint64_t> changes_;                    // pages on which something came back or changed
  std::array<std::deque<double>, kCountedKinds> rates_;  // per second, of the last intervals that held
};

}  // namespace flash::sync
