#include "core/signature.h"

#include <fcntl.h>
#include <gcrypt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "core/digest.h"

namespace flash {
namespace {

constexpr std::string_view kSecretWord = "flash-model-key secret ";
constexpr std::string_view kOpenWord = "flash-model-key public ";

struct Release {
  void operator()(gcry_sexp_t s) const { gcry_sexp_release(s); }
};
using Expression = std::unique_ptr<std::remove_pointer_t<gcry_sexp_t>, Release>;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

Error failed(gcry_error_t code, const char* what) {
  return invalid(std::string(what) + ": " + gcry_strerror(code));
}

int length(std::string_view bytes) {
  return static_cast<int>(bytes.size());
}

/// nullptr: out of memory, or too long for libgcrypt.
template <class... Parts>
Expression expression(const char* format, Parts... parts) {
  gcry_sexp_t made = nullptr;
  if (gcry_sexp_build(&made, nullptr, format, parts...) != 0) return nullptr;
  return Expression(made);
}

Expression message(std::string_view bytes) {
  return expression("(data (flags eddsa) (hash-algo sha512) (value %b))", length(bytes), bytes.data());
}

/// A number of kKeyBytes bytes below `name`.
std::optional<std::string> bytes_of(gcry_sexp_t from, const char* name) {
  const Expression part(gcry_sexp_find_token(from, name, 0));
  std::size_t size = 0;
  const char* data = part ? gcry_sexp_nth_data(part.get(), 1, &size) : nullptr;
  if (data == nullptr || size != kKeyBytes) return std::nullopt;
  return std::string(data, size);
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

std::optional<std::string> unhex(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (text.size() != 2 * kKeyBytes) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

Result<void> write_new(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return Error::from_errno(errno, "open " + path);
  const ssize_t n = write(fd, text.data(), text.size());
  const bool whole = n == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int why = n < 0 || whole ? errno : ENOSPC;
  close(fd);
  if (whole) return {};
  unlink(path.c_str());
  return Error::from_errno(why, "write " + path);
}

/// The key after `word` in the file's first line.
Result<std::string> read_key(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  std::array<char, 256> line{};
  if (!file.getline(line.data(), line.size()))
    return Error(file.is_open() ? std::errc::invalid_argument : std::errc::no_such_file_or_directory,
                 path + " cannot be read, or is no key");
  const std::string_view text(line.data());
  const auto key = text.starts_with(word) ? unhex(text.substr(word.size())) : std::nullopt;
  if (!key)
    return invalid(path + ": its first line is not '" + std::string(word) + "' and 64 hexadecimal digits");
  return *key;
}

Result<TrustedKey> read_trusted_key(const std::filesystem::path& path) {
  FLASH_TRY(std::string key, read_key(path.string(), kOpenWord));
  return TrustedKey{std::move(key), path.stem().string()};
}

}  // namespace

Result<KeyPair> make_key_pair() {
  prepare_gcrypt();
  const Expression wanted = expression("(genkey (ecc (curve Ed25519) (flags eddsa)))");
  gcry_sexp_t made = nullptr;
  if (const gcry_error_t code = gcry_pk_genkey(&made, wanted.get()); code != 0)
    return failed(code, "making a key");
  const Expression both(made);
  const Expression secret(gcry_sexp_find_token(made, "private-key", 0));
  const auto d = secret ? bytes_of(secret.get(), "d") : std::nullopt;
  const auto q = secret ? bytes_of(secret.get(), "q") : std::nullopt;
  if (!d || !q) return invalid("making a key: libgcrypt gave none of 32 bytes");
  return KeyPair{*d, *q};
}

Result<std::string> sign(const KeyPair& key, std::string_view bytes) {
  prepare_gcrypt();
  if (key.secret.size() != kKeyBytes || key.open.size() != kKeyBytes) return invalid("not an Ed25519 key");
  if (bytes.size() > kMaxSignedText) return invalid("too long to be signed");
  const Expression secret =
      expression("(private-key (ecc (curve Ed25519) (flags eddsa) (q %b) (d %b)))", length(key.open),
                 key.open.data(), length(key.secret), key.secret.data());
  const Expression data = message(bytes);
  gcry_sexp_t made = nullptr;
  if (const gcry_error_t code = gcry_pk_sign(&made, data.get(), secret.get()); code != 0)
    return failed(code, "signing");
  const Expression signature(made);
  const auto r = bytes_of(made, "r"), s = bytes_of(made, "s");
  if (!r || !s || !verify(key.open, bytes, *r + *s))
    return invalid("signing: the two halves of the key do not fit");
  return *r + *s;
}

bool verify(std::string_view open_key, std::string_view bytes, std::string_view signature) {
  prepare_gcrypt();
  if (open_key.size() != kKeyBytes || signature.size() != kSignatureBytes || bytes.size() > kMaxSignedText)
    return false;
  const std::string_view r = signature.substr(0, kKeyBytes), s = signature.substr(kKeyBytes);
  const Expression key = expression("(public-key (ecc (curve Ed25519) (flags eddsa) (q %b)))",
                                    length(open_key), open_key.data());
  const Expression data = message(bytes);
  const Expression given =
      expression("(sig-val (eddsa (r %b) (s %b)))", length(r), r.data(), length(s), s.data());
  return key && data && given && gcry_pk_verify(given.get(), data.get(), key.get()) == 0;
}

Result<void> write_key_pair(const std::string& path, const KeyPair& key) {
  FLASH_CHECK(write_new(
      path, std::string(kSecretWord) + hex(key.secret) + "\n" + std::string(kOpenWord) + hex(key.open) + "\n",
      0600));
  auto done = write_new(path + ".pub", std::string(kOpenWord) + hex(key.open) + "\n", 0644);
  if (!done) unlink(path.c_str());
  return done;
}

Result<KeyPair> read_key_pair(const std::string& path) {
  KeyPair key;
  FLASH_TRY(key.secret, read_key(path, kSecretWord));
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::getline(file, line);
  const auto open_key = line.starts_with(kOpenWord) ? unhex(line.substr(kOpenWord.size())) : std::nullopt;
  if (!open_key) return invalid(path + ": its second line is not the public key");
  key.open = *open_key;
  return key;
}

Result<std::vector<TrustedKey>> read_trusted_keys(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".pub") files.push_back(at->path());
    if (error) return Error(error, "reading " + path + ": " + error.message());
    std::sort(files.begin(), files.end());
  } else if (fs::exists(path, error)) {
    files.emplace_back(path);
  }
  if (files.size() > kMaxTrustedKeys)
    return invalid(path + ": " + std::to_string(files.size()) + " keys, at most " +
                   std::to_string(kMaxTrustedKeys));
  std::vector<TrustedKey> keys;
  for (const fs::path& file : files) {
    FLASH_TRY(TrustedKey key, read_trusted_key(file));
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace flash
