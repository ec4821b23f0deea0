#include "core/csv.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace flash {
namespace {

constexpr std::size_t kPiece = 1U << 18;

bool blank(char c) {
  return c == ' ' || c == '\t';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

/// What begins like this is no text; what to do instead.
struct Magic {
  std::string_view bytes;
  const char* what;
};
constexpr Magic kMagics[] = {
    {"\x1f\x8b", "is compressed with gzip: unpack it first (gzip -d)"},
    {std::string_view("\xfd"
                      "7zXZ\0",
                      6),
     "is compressed with xz: unpack it first (xz -d)"},
    {"\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first (zstd -d)"},
    {"BZh91AY", "is compressed with bzip2: unpack it first (bzip2 -d)"},
    {"\x04\x22\x4d\x18", "is compressed with lz4: unpack it first (lz4 -d)"},
    {"7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it first"},
    {"Rar!\x1a\x07", "is a RAR archive: unpack it first"},
    {"PK\x03\x04", "is a zip archive or a spreadsheet (.xlsx): unpack it, or save it as CSV"},
    {"\xd0\xcf\x11\xe0", "is a spreadsheet (.xls): save it as CSV"},
    {"PAR1\x15", "is a Parquet file: write it as CSV"},
    {"\xff\xfe", "is UTF-16 text: write it as UTF-8"},
    {"\xfe\xff", "is UTF-16 text: write it as UTF-8"},
};

/// The separator of a table's first row: a comma where there is one.
char separator_of(std::string_view row) {
  bool quoted = false;
  char found = ',';
  for (const char c : row) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ',') return c;
    if (c == ';' || (c == '\t' && found != ';')) found = c;
  }
  return found;
}

/// "sep=;" as spreadsheets write it before the header.
std::optional<char> declared_separator(std::string_view row) {
  if (row.size() >= 2 && row.front() == '"' && row.back() == '"') row = row.substr(1, row.size() - 2);
  if (row.size() != 5 || !same(row.substr(0, 4), "sep=")) return std::nullopt;
  return row[4] == '"' ? std::nullopt : std::optional(row[4]);
}

}  // namespace

Result<CsvReader> CsvReader::open(const std::string& path) {
  CsvReader reader(path);
  reader.file_.reset(std::fopen(path.c_str(), "rbe"));
  if (!reader.file_) return Error::from_errno(errno, path);
  return reader;
}

Error CsvReader::wrong(std::string_view what) const {
  return Error(std::errc::invalid_argument,
               name_ + ":" + std::to_string(std::max<std::size_t>(line_, 1)) + ": " + std::string(what));
}

Result<void> CsvReader::rewind() {
  if (file_ && std::fseek(file_.get(), 0, SEEK_SET) != 0) return Error::from_errno(errno, name_);
  text_at_ = at_ = line_ = 0;
  next_line_ = 1;
  buffer_.clear();
  fields_.clear();
  ended_ = started_ = false;
  separator_ = '\0';
  return {};
}

/// More of the source behind what waits.
Result<void> CsvReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  if (!file_) {
    const auto piece = text_.substr(text_at_, kPiece);
    buffer_ += piece;
    text_at_ += piece.size();
    ended_ = text_at_ == text_.size();
    return {};
  }
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kPiece);
  errno = 0;
  const std::size_t n = std::fread(buffer_.data() + before, 1, kPiece, file_.get());
  buffer_.resize(before + n);
  if (std::ferror(file_.get())) return Error::from_errno(errno ? errno : EIO, name_);
  ended_ = n < kPiece;
  return {};
}

Result<void> CsvReader::start() {
  started_ = true;
  FLASH_CHECK(fill());
  for (const Magic& magic : kMagics)
    if (waiting().starts_with(magic.bytes))
      return Error(std::errc::invalid_argument, name_ + ": " + magic.what);
  if (waiting().starts_with("\xef\xbb\xbf")) at_ += 3;
  return {};
}

/// Up to the next line break outside quotes, without it. False at the end.
Result<bool> CsvReader::next_row(std::span<char>& row) {
  line_ = next_line_;
  bool quoted = false, field_start = true;
  for (std::size_t i = 0;; ++i) {
    // One byte more than the row, so that CR LF is seen as one.
    if (i + 1 >= waiting().size() && !ended_) FLASH_CHECK(fill());
    const auto text = waiting();
    if (i >= text.size()) {
      if (text.empty()) return false;
      if (quoted) return wrong("a quote is not closed");
      row = {buffer_.data() + at_, text.size()};
      at_ = buffer_.size();
      return true;
    }
    if (i > kRowBytesMax)
      return wrong("the line is longer than " + std::to_string(kRowBytesMax) + " bytes" +
                   (quoted ? ": is a quote not closed?" : ""));
    const char c = text[i];
    if (c == '"') {
      // Only at the begin of a field a quote is one; a doubled one closes and opens.
      if (quoted || field_start) {
        field_start = quoted;
        quoted = !quoted;
      }
      continue;
    }
    const bool crlf = c == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
    if (c == '\n' || c == '\r') {
      if (!crlf) ++next_line_;
      if (quoted) continue;
      if (crlf) ++next_line_;
      row = {buffer_.data() + at_, i};
      at_ += i + (crlf ? 2 : 1);
      return true;
    }
    const bool separates = separator_ != '\0' ? c == separator_ : c == ',' || c == ';' || c == '\t';
    field_start = separates || (field_start && blank(c));
  }
}

/// Fields of a row; quoted ones are unescaped where they lie.
Result<void> CsvReader::split(std::span<char> row) {
  fields_.clear();
  char* at = row.data();
  char* const end = at + row.size();
  if (std::memchr(at, '\0', row.size()) != nullptr) return wrong("a zero byte: is this text?");
  const auto is_blank = [this](char c) { return blank(c) && c != separator_; };
  for (;;) {
    while (at < end && is_blank(*at)) ++at;
    if (at < end && *at == '"') {
      char* const begin = ++at;
      char* out = begin;
      for (; at < end; ++at) {
        if (*at == '"') {
          if (at + 1 >= end || at[1] != '"') break;
          ++at;
        }
        *out++ = *at;
      }
      if (at == end) return wrong("a quote is not closed");
      ++at;
      while (at < end && is_blank(*at)) ++at;
      if (at < end && *at != separator_) return wrong("text after a closing quote");
      fields_.emplace_back(begin, static_cast<std::size_t>(out - begin));
    } else {
      char* const begin = at;
      at = std::find(at, end, separator_);
      char* last = at;
      while (last > begin && is_blank(last[-1])) --last;
      fields_.emplace_back(begin, static_cast<std::size_t>(last - begin));
    }
    if (at == end) return {};
    ++at;
  }
}

Result<bool> CsvReader::next() {
  if (!started_) FLASH_CHECK(start());
  for (std::span<char> row;;) {
    FLASH_TRY(const bool more, next_row(row));
    if (!more) {
      fields_.clear();
      return false;
    }
    const std::string_view text(row.data(), row.size());
    if (std::all_of(text.begin(), text.end(), blank)) continue;
    if (separator_ == '\0') {
      if (const auto declared = declared_separator(text)) {
        separator_ = *declared;
        continue;
      }
      separator_ = separator_of(text);
    }
    FLASH_CHECK(split(row));
    // Spreadsheets write empty rows as nothing but separators.
    if (std::all_of(fields_.begin(), fields_.end(), [](std::string_view f) { return f.empty(); })) continue;
    return true;
  }
}

std::optional<std::size_t> column_of(std::span<const std::string_view> header, std::string_view name) {
  for (std::size_t i = 0; i < header.size(); ++i)
    if (header[i] == name) return i;
  for (std::size_t i = 0; i < header.size(); ++i)
    if (same(header[i], name)) return i;
  return std::nullopt;
}

bool same_names(std::span<const std::string_view> header, std::span<const std::string_view> names) {
  return std::equal(header.begin(), header.end(), names.begin(), names.end(), same);
}

}  // namespace flash
