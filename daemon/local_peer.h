// Purpose: what flashd's sockets for its helper processes have in common beside link/peer.h: who may connect, and text as
// a message may carry it.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace flash {

/// Text from outside as a message may carry it: printable ASCII, not longer than a name.
std::string plain(std::string_view text);

/// nullopt: there is no such user. `group` becomes its primary group.
std::optional<uid_t> uid_of(const std::string& user, std::optional<gid_t>& group);

}  // namespace flash
