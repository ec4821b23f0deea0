// Lines of a decision journal: never fatal; what is read can be replayed without leaving the recorded range.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "daemon/journal_reader.h"
#include "fuzz/require.h"
#include "policy/action_space.h"
#include "policy/learning_view.h"
#include "policy/observation_space.h"

namespace {

void read(std::string_view line) {
  using namespace flash;
  const auto entry = parse_journal_line(line);
  if (!entry) {
    FUZZ_REQUIRE(!entry.error().message().empty());
    return;
  }
  FUZZ_REQUIRE(entry->state.empty() ||
               entry->state.size() == static_cast<std::size_t>(state_dim(entry->task)));
  for (float x : entry->state) FUZZ_REQUIRE(std::isfinite(x));
  for (float y : {-1.0F, 0.3F, 1.0F}) {
    const std::vector<float> outputs(static_cast<std::size_t>(action_dim(entry->task)), y);
    Action action;
    PolicySnapshot policy;
    policy.task = entry->task;
    if (!entry->state.empty()) policy.stay_margin = std::max(y, 0.0F);
    from_network_form(policy, entry->state, outputs, entry->contexts, action);
    for (const KnobContext& c : entry->contexts) {
      FUZZ_REQUIRE(traits(c.knob).task == entry->task);
      if (!action.has(c.knob) || !std::isfinite(c.upper)) continue;
      FUZZ_REQUIRE(action[c.knob] >= c.lower * (1 - 1e-5) && action[c.knob] <= c.upper * (1 + 1e-5));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty()) {
    const auto end = text.find('\n');
    read(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return 0;
}
