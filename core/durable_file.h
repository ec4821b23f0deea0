// Purpose: a small file that is, whatever happens, as it was or whole: written beside its name, synced, renamed to it, and
// its folder synced.
// Ownership: none.
// Thread rule: any thread, one per path at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/fd.h"
#include "core/result.h"

namespace flash {

struct NewFile {
  mode_t mode = 0600;    // less the process' umask, unless
  bool exactly = false;  // the mode is meant as it is
  std::optional<gid_t> group = {};
  bool synced = true;  // false: a crash of the machine may leave the one before, or an empty one
  std::string_view beside =
      ".new";  // ending of its name until it is whole; what a killed process left there goes
};

/// Errors name the step and the file: "write /var/lib/x.new: No space left on device"; the file beside is gone then, and
/// the one before stands. Follows no link. An error of the folder alone: the new file is in place, and may not stay.
Result<void> write_durable_file(const std::string& path, std::string_view bytes, const NewFile& how = {});

/// The same in its two halves, for who goes on writing the file: all but the folder, and the folder.
Result<Fd> put_file(const std::string& path, std::string_view bytes, const NewFile& how = {});
Result<void> sync_folder_of(const std::string& path);

}  // namespace flash
