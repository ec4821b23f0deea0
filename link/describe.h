// Purpose: the words in which a message is described, once for all that is done with it (message_set.h writes,
// reads and checks by it): its fields in the order of the wire, each with its key and what it may hold.
// Ownership: a bound borrows the words it was made of; Bits borrows the flags.
// Thread rule: pure.
//
//   struct Gone {
//     static constexpr std::string_view kType = "gone";  // of a message; a part of one has none
//     std::string agent;
//   };
//   template <class V, Of<Gone> E>
//   void describe(V& v, E& m) {
//     v("agent", m.agent, bound::Name{});
//   }
//   void also(cbor::Check& c, const Gone& m);  // where more must hold than each field's bound
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/algorithms.h"
#include "core/decision.h"
#include "core/target.h"

namespace flash::link {

namespace cbor {
class Check;
}

inline constexpr std::size_t kMaxMessage = 256 * 1024;  // bytes; also the socket buffers' floor
inline constexpr std::size_t kMaxName = 256;  // bytes of any name or reason: UTF-8, no control characters

/// T, or T that may not be written to.
template <class E, class T>
concept Of = std::same_as<std::remove_const_t<E>, T>;

/// What a field may hold beyond what its type says.
namespace bound {

struct None {};
struct Name {
  bool may_be_empty = false;
  std::size_t most = kMaxName;  // bytes
};
/// A text that nothing is wrong with.
struct Sound {
  std::optional<std::string> (*wrong)(std::string_view);
  bool may_be_empty = false;
};
/// The name of a learning algorithm of this form and phase.
struct Algorithm {
  ActionForm form;
  LearningPhase phase;
};
struct Within {
  double low, high;
};
struct FromOne {};
struct Finite {};
/// So many numbers, each finite.
struct Numbers {
  std::size_t least, most;
};
/// So many numbers, of any value.
struct Values {
  std::size_t most;
  std::string_view unit;  // "samples"
};
/// A string of bytes that are no text.
struct Bytes {
  std::size_t least, most;
};
struct Texts {
  std::size_t most;
  std::string_view unit;     // "names"
  std::optional<Name> each;  // nullopt: also() says
};
/// Of what has a description of its own.
struct List {
  std::size_t least, most;
  std::string_view unit;  // "steps"
};
/// Values of an enum, by the names that to_string() gives them.
template <class T, std::size_t n>
struct OneOf {
  std::array<T, n> all;
  std::string_view what;  // "a stage"
};
template <class T, std::size_t n>
OneOf(std::array<T, n>, std::string_view) -> OneOf<T, n>;

/// Any task that is known when a message is read.
struct KnownTask {
  struct All {
    auto begin() const { return known_tasks().begin(); }
    auto end() const { return known_tasks().end(); }
  } all;
  std::string_view what = "a task";
};
inline constexpr KnownTask kTask{};
inline constexpr OneOf kStage{std::array{Stage::Initialized, Stage::Offline, Stage::Online, Stage::Serving},
                              "a stage"};

}  // namespace bound

/// Flags that cross as one number, the first as its lowest bit.
template <class B, std::size_t n>
struct Bits {
  std::array<B*, n> flags;

  std::uint32_t packed() const {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < n; ++i) number |= *flags[i] ? 1u << i : 0u;
    return number;
  }
  /// False: it has more bits than there are flags.
  bool unpack(std::uint32_t number) const {
    for (std::size_t i = 0; i < n; ++i) *flags[i] = (number >> i & 1) != 0;
    return number >> n == 0;
  }
};

template <Of<bool> First, std::same_as<First>... Rest>
Bits<First, 1 + sizeof...(Rest)> bits(First& first, Rest&... rest) {
  static_assert(sizeof...(Rest) < 31);
  return {{&first, &rest...}};
}

}  // namespace flash::link
