// Purpose: the memory that an application keeps: a hot part in use all the time and a cold part.
// Ownership: maps and unmaps both.
// Thread rule: touch() may be called from any thread; hot() may be read meanwhile, except for the first
// kTouchedBytes of each page.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flash {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kTouchedBytes = 128;
/// Every hot page is written once in so many calls of touch().
inline constexpr std::size_t kCallsPerRound = 64;

/// The hot part is anonymous memory, the kernel can take it away only by swapping. The cold part is a mapped
/// file: a memory limit between the two takes the cold pages and costs nothing, one below the hot part hurts
/// at once. That is the knee of a process with caches and heap.
class WorkingSet {
 public:
  /// Allocates and touches all of both. Without a disk for the cold part it is anonymous too.
  WorkingSet(std::uint64_t hot_bytes, std::uint64_t cold_bytes);
  ~WorkingSet();
  WorkingSet(const WorkingSet&) = delete;
  WorkingSet& operator=(const WorkingSet&) = delete;

  /// Writes the next share of the hot pages.
  void touch();
  std::span<const std::uint8_t> hot() const { return {hot_, hot_size_}; }

 private:
  std::uint8_t* hot_ = nullptr;
  std::size_t hot_size_ = 0;
  std::uint8_t* cold_ = nullptr;
  std::size_t cold_size_ = 0;
  std::atomic<std::size_t> next_ = 0;
};

/// An unlinked file on a disk: in TMPDIR, else /var/tmp; -1 when there is none.
int open_unlinked_file();

}  // namespace flash
