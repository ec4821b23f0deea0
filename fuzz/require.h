// Purpose: what a fuzzer asserts beyond "does not crash".
// Ownership: none.
// Thread rule: none needed.
#pragma once

#include <cstdio>
#include <cstdlib>

/// Not assert(): it must hold in builds with NDEBUG too.
#define FUZZ_REQUIRE(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (0)
