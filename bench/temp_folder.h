// Purpose: a folder for the files of one measurement.
// Ownership: the folder is made and removed here.
// Thread rule: one thread.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "core/result.h"

namespace flash::bench {

class TempFolder {
 public:
  /// flash-bench-NAME-XXXXXX in `parent`: a name that nobody can know before, for root alone.
  static Result<TempFolder> make(const std::string& name, const std::filesystem::path& parent) {
    std::string path = (parent / ("flash-bench-" + name + "-XXXXXX")).string();
    if (!::mkdtemp(path.data())) return Error::from_errno(errno, "mkdtemp " + path);
    return TempFolder(std::move(path));
  }
  /// In the folder for temporary files.
  static Result<TempFolder> make(const std::string& name) {
    std::error_code error;
    const auto parent = std::filesystem::temp_directory_path(error);
    if (error) return Error(error, "the folder for temporary files: " + error.message());
    return make(name, parent);
  }
  TempFolder(TempFolder&& o) noexcept : path_(std::exchange(o.path_, {})) {}
  TempFolder& operator=(TempFolder&& o) noexcept {
    std::swap(path_, o.path_);
    return *this;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace flash::bench
