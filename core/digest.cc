#include "core/digest.h"

#include <gcrypt.h>

namespace flash {

void prepare_gcrypt() {
  // libsystemd uses libgcrypt too and may have been first. No daemon holds a secret key: no locked memory.
  static const bool ready = [] {
    if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P)) return true;
    gcry_check_version(nullptr);
    gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
    gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
    return true;
  }();
  (void)ready;
}

std::string sha256(std::string_view bytes) {
  prepare_gcrypt();
  std::string digest(kDigestBytes, '\0');
  gcry_md_hash_buffer(GCRY_MD_SHA256, digest.data(), bytes.data(), bytes.size());
  return digest;
}

}  // namespace flash
