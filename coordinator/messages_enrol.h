// Purpose: what a node and the coordinator say about the node's identity, and the token that an operator
// carries from one to the other. docs/COORDINATOR_PROTOCOL.md.
// Ownership: values.
// Thread rule: pure functions.
//
//   node -> flash.v1.id.NODE.TOKENKEY   Wish, as the token's user: the server lets it say no other subject
//   node -> flash.v1.id.NODE.renew      Wish, as the node itself
//   coordinator -> reply                Credentials, or Refusal
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::coordinator {

inline constexpr const char* kIdentitySubjects = "flash.v1.id.>";
inline constexpr std::size_t kMaxNodeJwt = 4096, kMaxToken = 16 * 1024;

/// One line of text: all that a node needs to ask for its credentials, once.
struct Token {
  std::string servers;  // URLs, with commas
  std::string ca;       // PEM; empty: the system's certificates
  std::string pool, node;
  std::string jwt, seed;  // of the user that may ask for this node, until its JWT expires
};

/// "Credentials for this key, please."
struct Wish {
  std::string key;  // the node's own, U...
};
struct Credentials {
  std::string jwt;
};
struct Refusal {
  std::string reason;
};

std::string encode(const Token& token);
Result<Token> decode_token(std::string_view text);
/// For words that end up on a screen or in a log: what looks like a token is not repeated.
std::string without_tokens(std::string_view words);

std::string encode(const Wish& wish);
std::string encode(const Credentials& credentials);
std::string encode(const Refusal& refusal);
Result<Wish> decode_wish(std::string_view bytes);
/// EACCES with its reason: the coordinator refuses.
Result<Credentials> decode_credentials(std::string_view bytes);

/// Who wishes, as the server has checked it.
struct Petitioner {
  std::string node;
  std::string token;  // its key; empty: the node itself, to renew
};
/// REQUIRES: is_token() accepts the node.
std::string wish_subject(const Petitioner& petitioner);
std::optional<Petitioner> petitioner_of(std::string_view subject);
/// What the inboxes of a node, or of a token, begin with.
std::string inbox_prefix(std::string_view user);
/// May an answer to this user go to `reply`: is it one subject below the user's own inboxes? A request may
/// name any subject, and the answer is sent with the rights of the answering side.
bool is_inbox_of(std::string_view reply, std::string_view user);

}  // namespace flash::coordinator
