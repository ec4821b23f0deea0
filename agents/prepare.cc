#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <torch/version.h>

#include "agents/agent.h"
#include "agents/mlp_kernels.h"

namespace flash {
namespace {

/// The file that a call of sgemm_ ends in: Debian chooses among several by a symbolic link.
std::string blas_file() {
  void* gemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info;
  if (gemm == nullptr || dladdr(gemm, &info) == 0 || info.dli_fname == nullptr) return "";
  char resolved[PATH_MAX];
  return realpath(info.dli_fname, resolved) != nullptr ? resolved : info.dli_fname;
}

}  // namespace

std::string prepare_libtorch(std::string& warning) {
  at::set_num_threads(1);
  at::globalContext().setFlushDenormal(true);
  warning.clear();
  std::string blas;
  const std::string file = blas_file();
  // OpenBLAS may be loaded for some other library's sake while sgemm_ is the reference's: the file decides.
  auto* config = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
  if (config != nullptr && file.find("openblas") != std::string::npos) {
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64"
    const std::string text = config();
    const bool threads = text.find("SINGLE_THREADED") == std::string::npos;
    blas = text.substr(0, text.find(' ', text.find(' ') + 1)) + (threads ? " with threads" : " serial");
    if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(1);
  } else if (file.find("/blas/") != std::string::npos) {
    blas = "reference BLAS";
    warning =
        "the reference BLAS (" + file + ") is loaded, which makes learning slow: install libopenblas0-serial";
  } else {
    blas = file.empty() ? "no BLAS" : "BLAS of " + file;
  }
  return "libtorch " TORCH_VERSION ", " + blas + ", kernels " + kernels::best().name;
}

}  // namespace flash
