#include "coordinator/certificates.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>

namespace flash::coordinator {
namespace {

constexpr std::int64_t kEarlier = 3600;  // a node's clock may be behind
constexpr std::size_t kSerialBytes = 16;

struct Destroy {
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, Destroy>;
using CertificateHandle = std::unique_ptr<X509, Destroy>;
using BioHandle = std::unique_ptr<BIO, Destroy>;
using ExtensionHandle = std::unique_ptr<X509_EXTENSION, Destroy>;
using NamesHandle = std::unique_ptr<GENERAL_NAMES, Destroy>;
using NumberHandle = std::unique_ptr<BIGNUM, Destroy>;

Error failed(const char* what) {
  return {std::errc::io_error, std::string("libcrypto: no ") + what};
}

BioHandle reader(std::string_view text) {
  return BioHandle(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_in(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

/// nullptr: not one. Never asks anybody for a password.
KeyHandle read_key(std::string_view pem) {
  const BioHandle in = reader(pem);
  static char no_password[] = "";
  return KeyHandle(PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, no_password));
}

CertificateHandle read_x509(std::string_view pem) {
  const BioHandle in = reader(pem);
  static char no_password[] = "";
  return CertificateHandle(PEM_read_bio_X509(in.get(), nullptr, nullptr, no_password));
}

Result<Certified> written(EVP_PKEY* key, X509* certificate) {
  const BioHandle for_key(BIO_new(BIO_s_mem())), for_certificate(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(for_key.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      PEM_write_bio_X509(for_certificate.get(), certificate) != 1)
    return failed("PEM");
  return Certified{text_in(for_key.get()), text_in(for_certificate.get())};
}

bool set_serial(X509* x) {
  std::array<unsigned char, kSerialBytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return false;
  bytes[0] = (bytes[0] & 0x7f) | 1;  // positive, and not short
  const NumberHandle number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x));
}

/// X.509 v3, valid in that time, for that key, of that name.
CertificateHandle blank(EVP_PKEY* key, const std::string& name, std::int64_t now, std::int64_t expires) {
  CertificateHandle x(X509_new());
  const std::time_t from = now - kEarlier, to = expires;
  const bool ok = x && X509_set_version(x.get(), X509_VERSION_3) == 1 && set_serial(x.get()) &&
                  ASN1_TIME_set(X509_getm_notBefore(x.get()), from) &&
                  ASN1_TIME_set(X509_getm_notAfter(x.get()), to) && X509_set_pubkey(x.get(), key) == 1 &&
                  X509_NAME_add_entry_by_txt(X509_get_subject_name(x.get()), "CN", MBSTRING_ASC,
                                             reinterpret_cast<const unsigned char*>(name.data()),
                                             static_cast<int>(name.size()), -1, 0) == 1;
  return ok ? std::move(x) : nullptr;
}

bool extend(X509* x, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, x, nullptr, nullptr, 0);
  const ExtensionHandle extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(x, extension.get(), -1) == 1;
}

std::string alternative_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  return text;
}

std::string name_in(const GENERAL_NAME* name) {
  if (name->type == GEN_DNS)
    return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
            static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName))};
  if (name->type != GEN_IPADD) return {};
  const int size = ASN1_STRING_length(name->d.iPAddress);
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ok = (size == 4 || size == 16) &&
                  inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress),
                            text.data(), text.size());
  return ok ? std::string(text.data()) : std::string();
}

}  // namespace

Result<Certified> make_authority(std::int64_t now, std::int64_t expires) {
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (!key) return failed("key");
  const CertificateHandle x = blank(key.get(), "flash-coordinator", now, expires);
  if (!x || X509_set_issuer_name(x.get(), X509_get_subject_name(x.get())) != 1 ||
      !extend(x.get(), x.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !extend(x.get(), x.get(), NID_key_usage, "critical,keyCertSign") ||
      !extend(x.get(), x.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(x.get(), key.get(), EVP_sha256()) == 0)
    return failed("certificate authority");
  return written(key.get(), x.get());
}

Result<Certified> make_server_certificate(const Certified& authority, const std::vector<std::string>& names,
                                          std::int64_t now, std::int64_t expires) {
  const KeyHandle ca_key = read_key(authority.key);
  const CertificateHandle ca = read_x509(authority.certificate);
  if (!ca_key || !ca || X509_check_private_key(ca.get(), ca_key.get()) != 1)
    return Error(std::errc::invalid_argument,
                 "the certificate authority's key and certificate do not belong together");
  const KeyHandle key(EVP_EC_gen("P-256"));
  if (!key) return failed("key");
  const CertificateHandle x = blank(key.get(), "nats-server", now, expires);
  if (!x || X509_set_issuer_name(x.get(), X509_get_subject_name(ca.get())) != 1 ||
      !extend(x.get(), ca.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !extend(x.get(), ca.get(), NID_key_usage, "critical,digitalSignature") ||
      // Servers of a cluster are each other's clients.
      !extend(x.get(), ca.get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      !extend(x.get(), ca.get(), NID_authority_key_identifier, "keyid") ||
      !extend(x.get(), ca.get(), NID_subject_alt_name, alternative_names(names)) ||
      X509_sign(x.get(), ca_key.get(), EVP_sha256()) == 0)
    return failed("server certificate");
  return written(key.get(), x.get());
}

Result<CertificateFacts> read_certificate(std::string_view pem) {
  const CertificateHandle x = read_x509(pem);
  if (!x) return Error(std::errc::invalid_argument, "not a certificate");
  CertificateFacts facts;
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(x.get()), &end) != 1)
    return Error(std::errc::invalid_argument, "a certificate without an end");
  facts.expires = timegm(&end);
  const NamesHandle names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i)
    if (std::string name = name_in(sk_GENERAL_NAME_value(names.get(), i)); !name.empty())
      facts.names.push_back(std::move(name));
  return facts;
}

bool is_address(std::string_view text) {
  std::array<unsigned char, 16> bytes{};
  const std::string name(text);
  return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

bool is_server_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  const bool name = !text.empty() && text.size() <= 253 && text.front() != '-' && text.front() != '.' &&
                    std::all_of(text.begin(), text.end(), allowed);
  return name || is_address(text);
}

}  // namespace flash::coordinator
