// Pretrained models from a foreign hand: the bytes as they are, then with length and digest put right. What
// is accepted goes through a file again, and an embedding can be compared with what it has seen. Building the
// policy needs libtorch: PolicyModel.APolicyOfAnyMetaIsRefusedOrWhole in tests/meta.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_file.h"
#include "fuzz/require.h"
#include "fuzz/sealed.h"
#include "meta/policy_model.h"

namespace {

void read(std::string_view bytes) {
  const auto file = flash::decode_tensor_file(bytes);
  if (!file) return;
  for (const char* task : {"resource-limits", "cpu-frequency"}) {
    const auto model = flash::to_policy_model(*file, task);
    if (!model) {
      FUZZ_REQUIRE(!model.error().message().empty());
      continue;
    }
    FUZZ_REQUIRE(model->seen.width() > 0);
    for (const float x : {0.0F, 1.0F, -1e30F}) {
      const std::vector<float> embedding(model->seen.width(), x);
      const auto nearest = model->seen.nearest(embedding);
      FUZZ_REQUIRE(nearest.nearest < model->seen.size());
    }
    FUZZ_REQUIRE(flash::to_policy_model(flash::to_tensor_file(*model), task));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(flash::fuzz::sealed(bytes));
  return 0;
}
