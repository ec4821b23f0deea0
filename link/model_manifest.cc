#include "link/model_manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>

#include "core/digest.h"
#include "core/durable_file.h"
#include "core/fd.h"
#include "core/target.h"
#include "link/cbor.h"

namespace flash::link {
namespace {

using cbor::Check;
using cbor::Fields;
using cbor::json;
using cbor::Writer;

constexpr int kFormat = 1;
constexpr std::string_view kMagic = "FLASHSM1";
constexpr std::size_t kLengthBytes = 4;
constexpr mode_t kFileMode = 0640;

std::size_t chunks_for(std::uint64_t size) {
  return static_cast<std::size_t>((size + kModelChunkBytes - 1) / kModelChunkBytes);
}

Result<void> check(const ModelManifest& m) {
  Check c;
  if (!task_from_name(m.name)) c.fail("name", "not a task");
  c.range("version", static_cast<double>(m.version), 1, static_cast<double>(kMaxModelVersion));
  if (m.previous >= m.version) c.fail("previous", "not below version");
  c.range("size", static_cast<double>(m.size), 1, static_cast<double>(kMaxModelBytes));
  if (m.digest.size() != kDigestBytes) c.fail("digest", "not 32 bytes");
  if (m.chunks.size() != chunks_for(m.size)) c.fail("chunks", "not as many as size says");
  for (const std::string& d : m.chunks)
    if (d.size() != kDigestBytes) c.fail("chunks", "not 32 bytes each");
  c.range("made_us", static_cast<double>(m.made_us), 0, 9e15);
  c.name("software", m.software);
  return c.result();
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& p : parts) all += p;
  return all;
}

void put_u32(std::string& out, std::size_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((value >> shift) & 0xFF);
}

std::size_t get_u32(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    value |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

std::string encode(const ModelManifest& m) {
  assert(check(m));
  Writer w;
  cbor::begin(w, kFormat, "model-manifest", 8);
  w.field("name", m.name);
  w.field("version", m.version);
  w.field("previous", m.previous);
  w.field("size", m.size);
  w.text("digest");
  w.bytes(m.digest);
  w.text("chunks");
  w.bytes(joined(m.chunks));
  w.field("made_us", m.made_us);
  w.field("software", m.software);
  return w.take();
}

Result<ModelManifest> decode_manifest(std::string_view bytes) {
  if (bytes.size() > kMaxManifestBytes)
    return cbor::invalid("manifest: " + std::to_string(bytes.size()) + " bytes");
  FLASH_TRY(const json j, cbor::parse(bytes));
  FLASH_TRY(const std::string type, cbor::type_of(j, kFormat));
  if (type != "model-manifest") return cbor::unknown_type(type);
  ModelManifest m;
  Fields f = cbor::fields_of(j);
  f.get("name", m.name);
  f.get("version", m.version);
  f.get("previous", m.previous);
  f.get("size", m.size);
  std::string chunks;
  f.get_bytes("digest", m.digest);
  f.get_bytes("chunks", chunks);
  f.get("made_us", m.made_us);
  f.get("software", m.software);
  FLASH_CHECK(
      f.done({"v", "t", "name", "version", "previous", "size", "digest", "chunks", "made_us", "software"}));
  for (std::size_t i = 0; i < chunks.size(); i += kDigestBytes)
    m.chunks.push_back(chunks.substr(i, kDigestBytes));
  FLASH_CHECK(check(m));
  return m;
}

std::string_view chunk_of(std::string_view model, std::size_t chunk) {
  return model.substr(std::min(model.size(), chunk * kModelChunkBytes), kModelChunkBytes);
}

Result<ModelManifest> manifest_of(std::string_view model) {
  if (model.empty() || model.size() > kMaxModelBytes)
    return cbor::invalid("a model of " + std::to_string(model.size()) + " bytes, from 1 to " +
                         std::to_string(kMaxModelBytes));
  ModelManifest m;
  m.size = model.size();
  m.digest = sha256(model);
  for (std::size_t i = 0; i < chunks_for(m.size); ++i) m.chunks.push_back(sha256(chunk_of(model, i)));
  return m;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& text) {
    std::uint64_t number = 0;
    const std::string_view part = text.substr(0, text.find('.'));
    std::from_chars(part.data(), part.data() + part.size(), number);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    return number;
  };
  while (!a.empty() || !b.empty()) {
    const std::uint64_t x = next(a), y = next(b);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

Result<ModelManifest> verify_manifest(std::string_view manifest, std::string_view signature,
                                      std::span<const TrustedKey> keys, std::string_view software) {
  const bool known = manifest.size() <= kMaxManifestBytes &&
                     std::any_of(keys.begin(), keys.end(), [&](const TrustedKey& key) {
                       return verify(key.open, manifest, signature);
                     });
  if (!known) return Error(std::errc::permission_denied, "not signed by a trusted key");
  FLASH_TRY(ModelManifest m, decode_manifest(manifest));
  if (compare_versions(software, m.software) < 0)
    return Error(std::errc::not_supported,
                 "needs version " + m.software + ", this is " + std::string(software));
  return m;
}

std::string encode(const SignedModel& m) {
  std::string out(kMagic);
  out.reserve(kMagic.size() + kLengthBytes + m.manifest.size() + m.signature.size() + m.model.size());
  put_u32(out, m.manifest.size());
  return out.append(m.manifest).append(m.signature).append(m.model);
}

Result<SignedModel> decode_signed(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return cbor::invalid("not a signed model");
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < kLengthBytes) return cbor::invalid("signed model: ends early");
  const std::size_t length = get_u32(bytes);
  bytes.remove_prefix(kLengthBytes);
  if (length > kMaxManifestBytes) return cbor::invalid("signed model: a manifest that is too long");
  if (bytes.size() < length + kSignatureBytes) return cbor::invalid("signed model: ends early");
  SignedModel m;
  m.manifest = bytes.substr(0, length);
  m.signature = bytes.substr(length, kSignatureBytes);
  bytes.remove_prefix(length + kSignatureBytes);
  if (bytes.size() > kMaxModelBytes) return cbor::invalid("signed model: a model that is too long");
  m.model = bytes;
  return m;
}

Result<ModelManifest> verify_signed(const SignedModel& m, std::span<const TrustedKey> keys,
                                    std::string_view software) {
  FLASH_TRY(ModelManifest manifest, verify_manifest(m.manifest, m.signature, keys, software));
  if (m.model.size() != manifest.size || sha256(m.model) != manifest.digest)
    return Error(std::errc::bad_message, "the model is not the one that was signed");
  return manifest;
}

Result<std::string> read_whole_file(const std::string& path, std::size_t most) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return Error::from_errno(errno, "open " + path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return Error::from_errno(errno, "stat " + path);
  if (!S_ISREG(status.st_mode)) return cbor::invalid(path + " is no regular file");
  if (static_cast<std::uint64_t>(status.st_size) > most)
    return Error(std::errc::file_too_large, path + ": more than " + std::to_string(most) + " bytes");
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t got = 0; got < bytes.size();) {
    const ssize_t n = read(file.get(), bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno(errno, "read " + path);
    if (n == 0) return cbor::invalid(path + " became shorter");
    got += static_cast<std::size_t>(n);
  }
  return bytes;
}

Result<void> write_whole_file(const std::string& path, std::string_view bytes) {
  return write_durable_file(path, bytes, {.mode = kFileMode});
}

}  // namespace flash::link
