// Purpose: the code of a Result's error, to compare with.
#pragma once

#include "core/result.h"

namespace flash {

/// errc{} where there is no error.
template <class T>
std::errc code_of(const Result<T>& result) {
  return result ? std::errc{} : static_cast<std::errc>(result.error().code().value());
}

}  // namespace flash
