// Runs a fuzzer's function once over each file of the given directories, and over every prefix and a few
// damaged copies of it: a regression test that needs no clang.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Prefixes of long files in steps, so that a file costs at most this many runs.
constexpr std::size_t kPrefixes = 256;

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      run(text);
      const std::size_t step = text.size() / kPrefixes + 1;
      for (std::size_t n = 0; n < text.size(); n += step) {
        run(text.substr(0, n));
        std::string damaged = text;
        damaged[n] = static_cast<char>(damaged[n] ^ 0x15);
        run(damaged);
      }
      ++files;
    }
  }
  std::printf("%zu corpus files\n", files);
  return files > 0 ? 0 : 1;
}
