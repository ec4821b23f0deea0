#include "daemon/local_peer.h"

#include <pwd.h>

#include <vector>

#include "core/tensor_file.h"
#include "link/messages.h"

namespace flash {

std::string plain(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u < 0x7f && u != '\\') {
      out += c;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      out.append("\\x").append(1, kHex[u >> 4]).append(1, kHex[u & 15]);
    }
  }
  if (out.size() > link::kMaxName) {
    const std::string digest = "..." + sha256_hex(text).substr(0, 16);
    out.resize(link::kMaxName - digest.size());
    out += digest;
  }
  return out;
}

std::optional<uid_t> uid_of(const std::string& user, std::optional<gid_t>& group) {
  std::vector<char> buffer(16384);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found)
    return std::nullopt;
  group = entry.pw_gid;
  return entry.pw_uid;
}

}  // namespace flash
