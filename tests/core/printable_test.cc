#include "core/printable.h"

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

namespace flash {
namespace {

// What is shown and what is not: tests/cli/render_test.cc, beside flashctl's.

TEST(Printable, LinesOfATextStayAndOfALineDoNot) {
  EXPECT_EQ(printable_text("a\n\tb\x1b\r\n"), "a\n\tb??\n");
  EXPECT_EQ(printable_line("web\nflashd: error: made up"), "web?flashd: error: made up");
}

TEST(PrintableStream, CleansWhatIsWrittenInAnyPieces) {
  std::ostringstream out;
  {
    const PrintableStream clean(out);
    out << "gr"
        << "\xc3";
    out.put('\xb6') << "sse \x1b[2J" << 5 << "\n\x9b" << std::flush << "x";
  }
  EXPECT_EQ(out.str(), "gr\xc3\xb6sse ?[2J5\n?x");
  out << "\x1b";
  EXPECT_EQ(out.str().back(), '\x1b');  // as before
}

}  // namespace
}  // namespace flash
