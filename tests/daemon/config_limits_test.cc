#include "daemon/config_limits.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "daemon/config_keys.h"

namespace flash::config_limits_test {
namespace {

using nlohmann::json;

struct ToyLimit {
  Registry<KnobTraits>::Addition knob{kKnobs,
                                      {next_knob_kind(), "toy-limit", "toys", Task::ResourceLimits, 0.01}};
  KnobKind kind = knob.row().kind;
  Registry<LimitKeys>::Addition keys{
      limit_keys,
      {kind,
       "toy",
       "The toy limit.",
       "Whether it is managed.",
       {{{"min_kilotoys", &LimitOptions::min, 1, 100, "kilotoys", 1000, false, {}, "Never below."},
         {"max_kilotoys", &LimitOptions::max, 1, 100, "kilotoys", 1000, true, "all", "Never above."}}}}};
};

TEST(LimitKeys, EveryRowHasBothBoundsAndKeysThatAreThere) {
  for (const LimitKeys& row : limit_keys) {
    EXPECT_TRUE(row.key_of(&LimitOptions::min)) << row.object;
    EXPECT_TRUE(row.key_of(&LimitOptions::max)) << row.object;
    const std::string object = "/rules/*/" + std::string(row.object);
    EXPECT_TRUE(find_config_key(object));
    EXPECT_TRUE(find_config_key(object + "/manage"));
    for (const LimitKey& key : row.keys)
      if (!key.name.empty()) {
        EXPECT_TRUE(find_config_key(object + "/" + std::string(key.name))) << key.name;
      }
  }
}

TEST(LimitKeys, ARowIsKeysOfTheConfigurationForAsLongAsItIsThere) {
  {
    const ToyLimit toy;
    const ConfigKey* key = find_config_key("/rules/*/toy/max_kilotoys");
    ASSERT_TRUE(key);
    EXPECT_EQ(key->only, Task::ResourceLimits);
    ConfigDraft draft;
    EXPECT_TRUE(key->get(draft).is_null());
    key->set(draft, json(7));
    EXPECT_EQ(draft.rule.limits[toy.kind].max, 7000);
    EXPECT_EQ(key->get(draft), json(7));
    find_config_key("/rules/*/toy/manage")->set(draft, json(false));
    EXPECT_FALSE(draft.rule.limits[toy.kind].manage);
    EXPECT_TRUE(draft.rule.limits[KnobKind::CpuLimit].manage);
    EXPECT_NE(config_schema().find("min_kilotoys"), std::string::npos);
  }
  EXPECT_FALSE(find_config_key("/rules/*/toy/max_kilotoys"));
  EXPECT_EQ(config_schema().find("kilotoys"), std::string::npos);
}

}  // namespace
}  // namespace flash::config_limits_test
