// Purpose: a table of rows that is complete when the program starts, and that a test can add rows to: what the
// house does per knob, limit or resource it does by going through one of these. Rows of a type with distinct(a, b) must be
// so pairwise: a table with two that are not does not compile, and the program ends where one is added.
// Ownership: rows are borrowed and outlive the registry; an Addition owns its row.
// Thread rule: rows are added and taken away before threads start and after they ended; reading needs no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace flash {

template <class Row>
class Registry {
 public:
  static constexpr std::size_t kMost = 16;

  template <std::size_t N>
  constexpr explicit Registry(const std::array<Row, N>& rows) {
    static_assert(N <= kMost);
    for (const Row& row : rows) add(&row);
  }
  /// Rows of several files.
  template <std::size_t N>
  constexpr explicit Registry(const std::array<const Row*, N>& rows) {
    static_assert(N <= kMost);
    for (const Row* row : rows) add(row);
  }
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  class Iterator {
   public:
    using value_type = Row;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    using pointer = const Row*;
    using reference = const Row&;
    Iterator() = default;
    explicit Iterator(const Row* const* at) : at_(at) {}
    const Row& operator*() const { return **at_; }
    const Row* operator->() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++at_;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const Row* const* at_ = nullptr;
  };
  Iterator begin() const { return Iterator(rows_.data()); }
  Iterator end() const { return Iterator(rows_.data() + size_); }
  std::size_t size() const { return size_; }
  const Row& operator[](std::size_t i) const { return *rows_[i]; }

  /// A row for as long as this lives, behind all that are there. What refers to it must be gone before.
  class Addition {
   public:
    Addition(Registry& registry, Row row) : registry_(registry), row_(std::move(row)) {
      if (registry_.size_ < kMost) registry_.add(&row_);
    }
    ~Addition() {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < registry_.size_; ++i)
        if (registry_.rows_[i] != &row_) registry_.rows_[kept++] = registry_.rows_[i];
      registry_.size_ = kept;
    }
    Addition(const Addition&) = delete;
    Addition& operator=(const Addition&) = delete;
    const Row& row() const { return row_; }

   private:
    Registry& registry_;
    Row row_;
  };

 private:
  constexpr void add(const Row* row) {
    if constexpr (requires { distinct(*row, *row); })
      for (std::size_t i = 0; i < size_; ++i)
        if (!distinct(*rows_[i], *row)) std::abort();
    rows_[size_++] = row;
  }

  std::array<const Row*, kMost> rows_{};
  std::size_t size_ = 0;
};

}  // namespace flash
