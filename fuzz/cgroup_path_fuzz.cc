// A cgroup's path, named by whoever runs containers or owns the folder: what is recognised is a part of it.
// And how near it is to a pattern.
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "host/cgroup_id.h"
#include "policy/near_miss.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace flash;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Container container = container_of(text);
  FUZZ_REQUIRE(container.runtime.empty() == container.id.empty());
  FUZZ_REQUIRE(text.find(container.id) != text.npos);
  FUZZ_REQUIRE(text.starts_with(system_unit_path(text)));
  (void)unit_of(text);

  // Neither systemd nor an engine is here: nothing is anybody's but the kubelet's and known engines'.
  static const CgroupIdentifier identifier(HostRoot("/nonexistent"), CgroupLayout());
  const auto line = text.substr(0, text.find('\n'));
  const Ownership owner = identifier.owner_of(line);
  FUZZ_REQUIRE(is_kubelets(line) == (owner.owner == CgroupOwner::Kubelet));
  FUZZ_REQUIRE(owner.owner != CgroupOwner::Systemd && owner.owner != CgroupOwner::Delegated);
  FUZZ_REQUIRE((owner.owner == CgroupOwner::Unknown) == !owner.spell_out.empty());
  FUZZ_REQUIRE((std::string(line) + "/").starts_with(owner.spell_out));

  // What follows the first line is a pattern.
  const std::string_view pattern =
      line.size() < text.size() ? text.substr(line.size() + 1) : std::string_view{};
  std::size_t work = 1 << 20;
  FUZZ_REQUIRE(glob_distance(pattern, line, 7, work) <= 8);
  Rule rule;
  rule.select.cgroup = rule.select.unit = pattern;
  Target target;
  target.cgroup = target.unit = line;
  NearMiss near;
  near.consider(rule, target, work);
  for (const unsigned char c : near.explain()) FUZZ_REQUIRE(c >= ' ' && c <= '~');
  return 0;
}
