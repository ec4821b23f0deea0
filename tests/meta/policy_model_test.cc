#include "meta/policy_model.h"
#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "meta/shared_policy.h"

namespace flash {
namespace {

SharedPolicyOptions policy_options() {
  SharedPolicyOptions o;
  o.state_dim = 3;
  o.outputs = o.action_width = 2;
  o.encoder = {EncoderKind::Set, 4, 8, 2, 8, 1e-3};
  o.hidden = {8};
  return o;
}

PolicyModel some_model() {
  std::vector<std::vector<float>> pool;
  for (int i = 0; i < 10; ++i) pool.push_back({static_cast<float>(i), 1, 2, 3});
  return {"oracle imitation, 200 pairs",
          {Task::ResourceLimits,
           {"cpu", "memory", "load"},
           {"cpu-limit", "memory-limit"},
           0,
           "default, alpha 0.5"},
          SharedPolicy::create(policy_options())->checkpoint(),
          *SeenEmbeddings::create(pool),
          {50, 0.06, -0.02, 0.15}};
}

std::string refusal_of(const TensorFile& file, const std::string& task = "resource-limits") {
  const auto m = to_policy_model(file, task);
  return m ? "" : m.error().message();
}

TEST(PolicyModel, GoesThroughAFile) {
  const auto file = decode_tensor_file(encode(to_tensor_file(some_model())));
  ASSERT_TRUE(file);
  const auto m = to_policy_model(*file, "resource-limits");
  ASSERT_TRUE(m) << m.error().message();
  EXPECT_EQ(m->model, "oracle imitation, 200 pairs");
  EXPECT_EQ(m->layout, some_model().layout);
  EXPECT_EQ(m->seen.size(), 10U);
  EXPECT_EQ(m->gain.pairs, 50U);
  EXPECT_DOUBLE_EQ(m->gain.lower, -0.02);

  const auto original = SharedPolicy::create(policy_options()), restored = SharedPolicy::restore(m->policy);
  ASSERT_TRUE(restored) << restored.error().message();
  const std::vector<float> state = {0.3F, -0.2F, 1}, context = {1, 2, 3, 4};
  const std::vector<int> pair = {0};
  std::vector<float> before(2), after(2);
  original->evaluate(state, pair, context, before);
  restored->evaluate(state, pair, context, after);
  EXPECT_EQ(before, after);
}

TEST(PolicyModel, EveryDamagedByteIsRefused) {
  const std::string good = encode(to_tensor_file(some_model()));
  for (std::size_t i = 0; i < good.size(); i += 7) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const auto file = decode_tensor_file(bad);
    EXPECT_FALSE(file && to_policy_model(*file, "resource-limits")) << "byte " << i;
  }
  EXPECT_FALSE(decode_tensor_file(good.substr(0, good.size() / 2)));
}

TEST(PolicyModel, IsRefusedWithTheReason) {
  const TensorFile good = to_tensor_file(some_model());
  EXPECT_EQ(refusal_of(good), "");
  EXPECT_NE(refusal_of(good, "cpu-frequency").find("'resource-limits'"), std::string::npos);
  const auto with = [&](auto&& change) {
    TensorFile bad = good;
    change(bad);
    return refusal_of(bad);
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(with([](TensorFile& f) { f.kind = "policy"; }), HasSubstr("policy"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["policy_model_format"] = 2; }), HasSubstr("format is 2"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta->erase("policy"); }), HasSubstr("no policy"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["model"] = "a\nb"; }), HasSubstr("model"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta->erase("reward"); }), HasSubstr("reward"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["state_names"] = {1, 2}; }), HasSubstr("state_names"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["gain"]["lower"] = 1; }), HasSubstr("gain"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["gain"].erase("pairs"); }), HasSubstr("gain"));
  EXPECT_THAT(with([](TensorFile& f) { f.meta["seen"]["neighbours"] = 10; }), HasSubstr("neighbours"));
  EXPECT_THAT(with([](TensorFile& f) { f.tensors.front().values.front() = NAN; }), HasSubstr("not finite"));
  EXPECT_THAT(with([](TensorFile& f) {
                std::erase_if(f.tensors, [](const Tensor& t) { return t.name.starts_with("policy/"); });
              }),
              HasSubstr("no arrays"));
  EXPECT_THAT(
      with([](TensorFile& f) { std::erase_if(f.tensors, [](const Tensor& t) { return t.name == "seen"; }); }),
      HasSubstr("seen"));
}

/// Every number and text of a policy's meta in turn made absurd: restore() refuses or takes it, and what it
/// takes can be evaluated.
TEST(PolicyModel, APolicyOfAnyMetaIsRefusedOrWhole) {
  const TensorFile good = SharedPolicy::create(policy_options())->checkpoint();
  int refused = 0, tried = 0;
  const auto try_one = [&](const TensorFile& file) {
    ++tried;
    const auto policy = SharedPolicy::restore(file);
    if (!policy) {
      EXPECT_FALSE(policy.error().message().empty());
      ++refused;
      return;
    }
    const std::vector<float> context(static_cast<std::size_t>(policy->context_dim()));
    EXPECT_FALSE(policy->snapshot(context).actor.empty());
  };
  for (const nlohmann::json& absurd :
       {nlohmann::json(), nlohmann::json(-1), nlohmann::json(5), nlohmann::json(1e300),
        nlohmann::json(4294967297), nlohmann::json("x"), nlohmann::json::array({1, 2, 3})}) {
    for (const auto& [key, value] : good.meta->items()) {
      TensorFile bad = good;
      bad.meta[key] = absurd;
      try_one(bad);
    }
    for (const auto& [key, value] : good.meta["encoder"].items()) {
      TensorFile bad = good;
      bad.meta["encoder"][key] = absurd;
      try_one(bad);
    }
  }
  for (std::size_t i = 0; i < good.tensors.size(); ++i) {
    TensorFile bad = good;
    bad.tensors[i].values.pop_back();
    try_one(bad);
    bad.tensors.erase(bad.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    try_one(bad);
  }
  EXPECT_GT(refused, tried / 2);
}

}  // namespace
}  // namespace flash
