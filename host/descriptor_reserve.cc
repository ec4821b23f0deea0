#include "host/descriptor_reserve.h"

#include <fcntl.h>

namespace flash {

void DescriptorReserve::set_aside() {
  for (Fd& fd : kept_)
    if (!fd) fd = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void DescriptorReserve::release() {
  for (Fd& fd : kept_) fd.reset();
}

}  // namespace flash
