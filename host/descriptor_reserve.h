// Purpose: file descriptors set aside for what must work when none is left: putting knobs back.
// Ownership: owns them while they are set aside.
// Thread rule: one thread.
#pragma once

#include <array>

#include "host/file_io.h"

namespace flash {

class DescriptorReserve {
 public:
  DescriptorReserve() { set_aside(); }

  /// As many as can be had now; those that are set aside already stay.
  void set_aside();
  /// From here on they are anybody's, until set_aside().
  void release();

 private:
  std::array<Fd, 16> kept_;
};

}  // namespace flash
