// Tensor files and policies from the learner or a foreign hand. First the bytes as they are; then again with
// the header's length and the digest put right, so that what they protect is reached too. What is accepted as
// a policy and passes validate() is evaluated: no answer may crash, however absurd.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy_snapshot.h"
#include "core/tensor_file.h"
#include "fuzz/require.h"

namespace {

constexpr std::size_t kPrefix = 12;  // magic and header length
constexpr std::size_t kDigest = 32;

std::string sealed(std::string_view bytes) {
  std::string out = "FLASHTF1";
  // The header ends at its last brace; where there is none, all is header.
  std::string_view rest = bytes.substr(std::min(bytes.size(), kPrefix));
  if (rest.size() >= kDigest) rest.remove_suffix(kDigest);
  int depth = 0;
  std::size_t header = rest.size();
  for (std::size_t i = 0; i < rest.size(); ++i) {
    depth += rest[i] == '{' ? 1 : rest[i] == '}' ? -1 : 0;
    if (depth == 0 && rest[i] == '}') {
      header = i + 1;
      break;
    }
  }
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((header >> shift) & 0xFF);
  out += rest;
  const std::string hex = flash::sha256_hex(out);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return out;
}

void evaluate(const flash::CompiledNetwork& network, flash::EvaluatorScratch& scratch) {
  if (network.empty()) return;
  network.prepare(scratch);
  for (const float x : {0.0F, 1.0F, -1e6F}) {
    const std::vector<float> input(static_cast<std::size_t>(network.inputs()), x);
    const auto y = network.evaluate(input, scratch);
    FUZZ_REQUIRE(y.size() == static_cast<std::size_t>(network.outputs()));
    std::vector<float> gradient(input.size());
    network.gradient(input, network.outputs() - 1, gradient);
  }
}

void read(std::string_view bytes) {
  const auto file = flash::decode_tensor_file(bytes);
  if (!file) {
    FUZZ_REQUIRE(!file.error().message().empty());
    return;
  }
  FUZZ_REQUIRE(flash::decode_tensor_file(flash::encode(*file)));
  const auto policy = flash::to_policy(*file);
  if (!policy) return;
  FUZZ_REQUIRE(flash::to_policy(flash::to_tensor_file(*policy)));
  const int outputs = policy->actor.empty() ? 0 : policy->actor.back().outputs;
  if (!policy->validate(static_cast<int>(policy->mean.size()), outputs)) return;
  const flash::CompiledPolicy compiled(*policy);
  flash::EvaluatorScratch scratch;
  evaluate(compiled.actor, scratch);
  evaluate(compiled.critic, scratch);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(sealed(bytes));
  return 0;
}
