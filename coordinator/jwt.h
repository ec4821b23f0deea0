// Purpose: the JWTs that make a NATS server know its operator, accounts and users (version 2 of NATS'
// claims): writing ours, reading one that comes from outside.
// Ownership: values.
// Thread rule: pure functions; time is a parameter (seconds since 1970).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/nkey.h"
#include "core/result.h"

namespace flash::coordinator {

/// Which subjects; in a role {{name()}} stands for the user's name and {{subject()}} for its key.
struct Permissions {
  std::vector<std::string> publish, subscribe;
};

/// A key that may sign users of an account, and what every such user may do: no more, whatever it signs.
struct Role {
  std::string name, key;
  Permissions permissions;
};

struct Account {
  std::string name, key;
  bool jetstream = false;
  std::vector<Role> roles;
  /// What users may do whom the account's own key signed; nothing: everything in the account.
  std::optional<Permissions> own_users = {};
  std::map<std::string, std::int64_t> revoked;  // user's key: JWTs issued up to then are refused
};

struct User {
  std::string name, key;
  std::int64_t expires = 0;  // 0: never
};

inline constexpr std::size_t kMaxJwt = 64 * 1024;  // an account's grows with what is revoked

Result<std::string> operator_jwt(const NKey& signer, const std::string& name,
                                 const std::string& system_account, std::int64_t now);
Result<std::string> account_jwt(const NKey& signer, const Account& account, std::int64_t now);
/// Signed by the key of a role: the role's permissions.
Result<std::string> role_user_jwt(const NKey& signer, const std::string& account, const User& user,
                                  std::int64_t now);
/// Signed by the account's own key: what the account gives its own users.
Result<std::string> full_user_jwt(const NKey& signer, const User& user, std::int64_t now);

struct Jwt {
  std::string type;  // operator, account, user
  std::string issuer, subject, name;
  std::string issuer_account;            // of a user whom a role's key signed; else empty
  std::int64_t issued = 0, expires = 0;  // expires 0: never
  Account account;                       // of an account: what is revoked
};
/// Its signature is the issuer's; whether the issuer may is the caller's question. EINVAL: not a JWT of
/// NATS'; EBADMSG: signed by somebody else.
Result<Jwt> read_jwt(std::string_view text);

/// Its middle part alone, which nobody has signed yet.
Result<Jwt> read_claims(std::string_view json);

/// A .creds file as NATS' libraries read it.
std::string creds_file(const std::string& jwt, const NKey& user);
struct Creds {
  std::string jwt, seed;
};
/// EINVAL: not such a file.
Result<Creds> read_creds(std::string_view text);

}  // namespace flash::coordinator
