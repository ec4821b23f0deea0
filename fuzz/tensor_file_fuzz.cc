// Tensor files and policies from the learner or a foreign hand. First the bytes as they are; then again with
// the header's length and the digest put right, so that what they protect is reached too. What is accepted as
// a policy and passes validate() is evaluated, and drawn from where its head is stochastic: no answer may crash,
// however absurd.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy_head.h"
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

void draw_from(const flash::CompiledPolicy& policy, flash::EvaluatorScratch& scratch) {
  const flash::PolicySnapshot& s = policy.snapshot;
  if (s.head == flash::PolicyHead::Deterministic) return;
  policy.actor.prepare(scratch);
  const std::vector<float> state(s.mean.size(), 1.0F);
  const auto outputs = policy.actor.evaluate(state, scratch);
  if (!std::all_of(outputs.begin(), outputs.end(), [](float y) { return std::isfinite(y); })) return;
  const flash::ActionDistribution of{s.head, outputs, s.log_sigma};
  std::vector<float> action(flash::action_size(of));
  flash::Random random(1);
  for (int i = 0; i < 8; ++i) {
    flash::draw(of, random, action);
    if (s.head == flash::PolicyHead::Categorical)
      FUZZ_REQUIRE(action[0] >= 0 && action[0] < static_cast<float>(outputs.size()));
    else
      for (float& a : action) a = std::clamp(a, -1.0F, 1.0F);
    FUZZ_REQUIRE(!std::isnan(flash::log_probability(of, action)));
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
  evaluate(compiled.state_value, scratch);
  draw_from(compiled, scratch);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(flash::fuzz::sealed(bytes));
  return 0;
}
