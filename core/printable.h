// Purpose: text on its way to a terminal. Names of cgroups, containers, nodes and metrics, lines of files and
// answers of servers were chosen by others; what a terminal would take for a command, for another direction
// of writing or for a line of its own is shown as "?". Programs write what is not theirs through this file
// alone (flashctl, which includes no other room, has the same in cli/render).
// Ownership: values; a PrintableStream borrows the stream that it writes to.
// Thread rule: functions from any thread, a stream from one.
#pragma once

#include <cstdio>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace flash {

/// One line: control characters (C0, DEL, C1, line and paragraph separators), invisible marks that turn the
/// direction of text round, and bytes that are no UTF-8 become "?".
std::string printable_line(std::string_view text);
/// Several lines: the same, but line feeds and tabs stay. For text whose lines are the program's own.
std::string printable_text(std::string_view text);
/// JSON that was written already (with U+FFFD for bytes that are no UTF-8): what printable_line() would not
/// show, and JSON lets stand, becomes \uXXXX, which means the same.
std::string printable_json(std::string_view json);

/// printable_line() and a line feed.
void print_line(std::FILE* to, std::string_view text);
void print_text(std::FILE* to, std::string_view text);

/// While it lives, everything that is written to `stream` goes through printable_text(), a line or a flush at
/// a time.
class PrintableStream : public std::streambuf {
 public:
  explicit PrintableStream(std::ostream& stream) : stream_(stream), below_(stream.rdbuf(this)) {}
  ~PrintableStream() override {
    PrintableStream::sync();
    stream_.rdbuf(below_);
  }
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

 private:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize n) override;
  int sync() override;
  bool pass_on(std::size_t bytes);

  std::ostream& stream_;
  std::streambuf* below_;
  std::string waiting_;
};

}  // namespace flash
