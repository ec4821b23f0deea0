#include "lab/pretrain/checkpoint.h"
#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "lab/pretrain/flash.h"

namespace flash {
namespace {

MetaOptions options(std::uint64_t seed = 1) {
  MetaOptions o;
  o.encoder.kind = EncoderKind::Set;
  o.encoder.embedding = 4;
  o.encoder.hidden = 8;
  o.encoder.fc = 8;
  o.seed = seed;
  return o;
}

RlModel registered(const MetaOptions& o, int state_dim = 3) {
  auto m = RlModel::create(o);
  EXPECT_TRUE(m);
  EXPECT_TRUE(m->register_base_learner("resource-limits", state_dim, 2));
  return *std::move(m);
}

std::vector<Trajectory> some_trajectories() {
  Random random(5);
  std::vector<Trajectory> out(3);
  for (Trajectory& t : out)
    for (int i = 0; i < 6; ++i)
      t.push_back({{static_cast<float>(random.normal()), 1, 2}, {0.5F, static_cast<float>(i)}, 1});
  return out;
}

TaskModel model() {
  TaskModel m;
  m.task = "resource-limits";
  m.version = 3;
  m.model = "ddpg, 200 pairs";
  m.meta = registered(options()).checkpoint();
  m.base.kind = "checkpoint";
  m.base.tensors.push_back({"actor/parameters", {2}, {1, 2}});
  std::vector<std::vector<float>> pool;
  for (int i = 0; i < 10; ++i) pool.push_back({static_cast<float>(i), 1, 2, 3});
  m.seen = *SeenEmbeddings::create(pool);
  return m;
}

std::string refusal(const TensorFile& file, const std::string& task = "resource-limits") {
  const auto m = to_task_model(file, task);
  return m ? "" : m.error().message();
}

TEST(TaskModel, GoesThroughAFile) {
  const auto file = decode_tensor_file(encode(to_tensor_file(model())));
  ASSERT_TRUE(file);
  const auto m = to_task_model(*file, "resource-limits");
  ASSERT_TRUE(m) << m.error().message();
  EXPECT_EQ(m->version, 3U);
  EXPECT_EQ(m->base.find("actor/parameters")->values, (std::vector<float>{1, 2}));
  ASSERT_TRUE(m->seen);
  EXPECT_EQ(m->seen->size(), 10U);

  RlModel original = registered(options()), restored = registered(options(99));
  ASSERT_TRUE(restored.restore(m->meta));
  const auto trajectories = some_trajectories();
  ASSERT_TRUE(original.insert_traj_samples(trajectories));
  ASSERT_TRUE(restored.insert_traj_samples(trajectories));
  EXPECT_EQ(*original.get_embedding(), *restored.get_embedding());
}

TEST(TaskModel, EveryDamagedByteIsRefused) {
  const std::string good = encode(to_tensor_file(model()));
  for (std::size_t i = 0; i < good.size(); i += 7) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const auto file = decode_tensor_file(bad);
    EXPECT_FALSE(file && to_task_model(*file, "resource-limits")) << "byte " << i;
  }
  EXPECT_FALSE(decode_tensor_file(good.substr(0, good.size() / 2)));
}

TEST(TaskModel, IsRefusedWithTheReason) {
  const TensorFile good = to_tensor_file(model());
  EXPECT_EQ(refusal(good), "");
  EXPECT_NE(refusal(good, "cpu-frequency").find("'resource-limits'"), std::string::npos);
  TensorFile bad = good;
  bad.kind = "policy";
  EXPECT_NE(refusal(bad).find("policy"), std::string::npos);
  bad = good;
  bad.meta["task_model_format"] = 2;
  EXPECT_NE(refusal(bad).find("format is 2"), std::string::npos);
  bad = good;
  bad.meta->erase("base");
  EXPECT_NE(refusal(bad).find("base"), std::string::npos);
  bad = good;
  bad.meta["version"] = 0;
  EXPECT_NE(refusal(bad).find("version"), std::string::npos);
  bad = good;
  bad.tensors.front().values.front() = NAN;
  EXPECT_NE(refusal(bad).find("not finite"), std::string::npos);
  bad = good;
  std::erase_if(bad.tensors, [](const Tensor& t) { return t.name.starts_with("meta/"); });
  EXPECT_NE(refusal(bad).find("meta has no arrays"), std::string::npos);
}

TEST(MetaCheckpoint, OfAnotherShapeOrEncoderIsRefusedAndChangesNothing) {
  const TensorFile good = registered(options()).checkpoint();
  const auto trajectories = some_trajectories();
  RlModel m = registered(options(8));
  ASSERT_TRUE(m.insert_traj_samples(trajectories));
  const auto before = *m.get_embedding();

  EXPECT_FALSE(registered(options(), 5).restore(good));
  MetaOptions wider = options();
  wider.encoder.embedding = 5;
  EXPECT_FALSE(registered(wider).restore(good));
  MetaOptions gru = options();
  gru.encoder.kind = EncoderKind::Gru;
  const auto refused = registered(gru).restore(good);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("encoder"), std::string::npos);

  for (const char* name : {"fc/parameters", "step/parameters", "input/scale"}) {
    TensorFile bad = good;
    for (Tensor& t : bad.tensors)
      if (t.name == name) t.values.back() = INFINITY;
    EXPECT_FALSE(m.restore(bad)) << name;
    std::erase_if(bad.tensors, [&](const Tensor& t) { return t.name == name; });
    EXPECT_FALSE(m.restore(bad)) << name;
  }
  EXPECT_EQ(*m.get_embedding(), before);
  EXPECT_TRUE(m.restore(good));
  EXPECT_NE(*m.get_embedding(), before);
}

}  // namespace
}  // namespace flash
