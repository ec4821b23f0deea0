// Purpose: who was given what: tokens, credentials, what was revoked, in SQLite beside the records. It is not
// in any stream: back it up with the keys.
// Ownership: owns the file.
// Thread rule: one thread; other processes may have it open too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"

namespace flash::coordinator {

struct IssuedToken {
  std::string key, node;
  std::int64_t issued = 0, expires = 0;  // seconds since 1970
  std::string used_by;                   // the node's key; empty: nobody yet
};

struct NodeCredentials {
  std::string key, node;
  std::int64_t enrolled = 0, issued = 0, expires = 0, revoked = 0;  // revoked 0: they are good
};

struct IdentityCounts {
  std::uint64_t enrolled = 0, renewed = 0, refused = 0;
};

class IdentityStore {
 public:
  /// As link::sqlite::Database::open().
  static Result<IdentityStore> open(const std::string& path, std::string* note);
  static Result<IdentityStore> open_to_read(const std::string& path);
  IdentityStore(IdentityStore&&) noexcept;
  IdentityStore& operator=(IdentityStore&&) noexcept;
  ~IdentityStore();

  Result<void> add(const IssuedToken& token);
  /// Gives this key the node, by a token that is this node's, not expired and not used by another key. EACCES
  /// says what is wrong with it. On the disk when it returns.
  Result<void> enroll(const std::string& token, const NodeCredentials& credentials);
  /// EACCES: the node has no such key, or it is revoked.
  Result<void> renew(const NodeCredentials& credentials);
  Result<void> count_refused();
  /// Revokes the node's valid keys and returns them; its unused tokens become void.
  Result<std::vector<std::string>> revoke(const std::string& node, std::int64_t now);

  Result<std::vector<NodeCredentials>> credentials() const;  // in order of node and time
  Result<std::vector<IssuedToken>> tokens() const;           // that nobody used
  Result<IdentityCounts> counts() const;

 private:
  struct Impl;
  explicit IdentityStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::coordinator
