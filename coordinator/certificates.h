// Purpose: the TLS of a set-up of our own: a certificate authority, and one certificate for its servers
// (libcrypto; ECDSA P-256). All of it as PEM.
// Ownership: values.
// Thread rule: pure functions; time is a parameter (seconds since 1970).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash::coordinator {

struct Certified {
  std::string key, certificate;
};

struct CertificateFacts {
  std::vector<std::string> names;  // what a server may be called: names and addresses
  std::int64_t expires = 0;
};

Result<Certified> make_authority(std::int64_t now, std::int64_t expires);
/// REQUIRES: is_server_name() accepts the names.
Result<Certified> make_server_certificate(const Certified& authority, const std::vector<std::string>& names,
                                          std::int64_t now, std::int64_t expires);
Result<CertificateFacts> read_certificate(std::string_view pem);

/// A host's name or an address, as a certificate and a URL may have it.
bool is_server_name(std::string_view text);
bool is_address(std::string_view text);

}  // namespace flash::coordinator
