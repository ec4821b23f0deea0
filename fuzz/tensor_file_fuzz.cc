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
#include "fuzz/sealed.h"

namespace {

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
  read(flash::fuzz::sealed(bytes));
  return 0;
}
