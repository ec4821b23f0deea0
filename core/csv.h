// Purpose: tables as text that others made, a row at a time: files of any size in constant memory. Commas (or
// what a "sep=;" line or the first row uses), quotes as in RFC 4180, CR and LF in any form, a byte order
// mark, blank rows and blanks around fields are read for what they mean; what is no such text (compressed,
// UTF-16, binary) is named as what it is. Errors are "FILE:LINE: what".
// Ownership: a reader owns its file; fields are views that the next row overwrites.
// Thread rule: an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash {

class CsvReader {
 public:
  /// What a row may have at most; a file may have any number of rows.
  static constexpr std::size_t kRowBytesMax = 64U << 10;

  /// `text` outlives the reader; `name` is for errors.
  CsvReader(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}
  /// ENOENT and what else opening can give.
  static Result<CsvReader> open(const std::string& path);

  /// The next row that has something in it; false at the end. EINVAL: a row that is too long, not text, or
  /// quoted in a way that means nothing; EIO.
  Result<bool> next();
  /// Of the row that next() found. Blanks around a field, and its quotes, are not part of it.
  const std::vector<std::string_view>& fields() const { return fields_; }
  /// Where that row begins, from 1.
  std::size_t line() const { return line_; }
  const std::string& name() const { return name_; }
  /// From the beginning again.
  Result<void> rewind();
  /// "FILE:LINE: what", EINVAL.
  Error wrong(std::string_view what) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit CsvReader(std::string name) : name_(std::move(name)) {}
  Result<void> start();
  Result<bool> next_row(std::span<char>& row);
  Result<void> fill();
  Result<void> split(std::span<char> row);
  std::string_view waiting() const { return {buffer_.data() + at_, buffer_.size() - at_}; }

  std::string_view text_;
  std::size_t text_at_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
  std::string name_;
  std::string buffer_;
  std::size_t at_ = 0;  // of what was not read, in buffer_
  bool ended_ = false;  // the source has no more
  bool started_ = false;
  char separator_ = '\0';  // not known yet
  std::size_t line_ = 0;
  std::size_t next_line_ = 1;
  std::vector<std::string_view> fields_;
};

/// The column of that name: as it is spelt, else without regard to case.
std::optional<std::size_t> column_of(std::span<const std::string_view> header, std::string_view name);
/// Are these the names, in this order, without regard to case?
bool same_names(std::span<const std::string_view> header, std::span<const std::string_view> names);

}  // namespace flash
