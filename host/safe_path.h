// Purpose: paths that others may have had a hand in. A name that comes from a file (a cgroup, a cpufreq
// policy) is opened below the directory that it belongs to and nowhere else; a file that root believes
// (configuration, ledger) lies where nobody but root can put another in its place.
// Ownership: none.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "host/file_io.h"

namespace flash {

/// Opens `relative` (a leading slash does not count) below the directory `base`, which may itself be reached
/// over links. EINVAL: a component is empty, "." or "..". ELOOP: a component is a link. openat2(2); where the
/// kernel or a seccomp filter does not have it, one openat(2) per component.
Result<Fd> open_beneath(const std::string& base, std::string_view relative, int flags);
/// Inode of what is there. Errors as open_beneath().
Result<std::uint64_t> inode_beneath(const std::string& base, std::string_view relative);
/// One write(2) of the whole text into a file that is there. Errors as open_beneath().
Result<void> write_beneath(const std::string& base, std::string_view relative, std::string_view text);

/// One write(2) of the whole text at the beginning of a file that is open.
Result<void> write_open(const Fd& file, const std::string& path, std::string_view text);
/// May the process write the file of this path, by its capabilities and the file's owner and mode? Empty: it
/// may, or there is no such file. Else why not: "belongs to uid 1000 (mode 0644), and flashd has no
/// CAP_DAC_OVERRIDE", "Read-only file system". Says nothing of what the kernel will make of the text.
std::string why_not_writable(const std::string& path);

/// May the process believe what is in this open file? EPERM: it belongs to somebody else than root and the
/// process's own user, or others can write it; the message names `path`, the owner and the mode.
Result<void> check_owner(const Fd& file, const std::string& path);
/// Can nobody else add, remove or replace what is in this directory? It and all above it (links resolved)
/// belong to root or the process's own user, and others cannot write them; above it, directories with the
/// sticky bit (/tmp) will do. EPERM, ENOENT, ENOTDIR; the message names the one that is wrong.
/// `sticky_will_do`: for the directory itself too, where what is in it is checked on its own.
Result<void> check_directory(const std::string& directory, bool sticky_will_do = false);

}  // namespace flash
