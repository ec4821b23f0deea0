// flash-bench adapt, rcs and overhead end to end, on measurements that are made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/bench/run_bench.h"

namespace flash {
namespace {

using testing::HasSubstr;

/// A folder of functions that scale with CPU or do not.
class MetaBench : public testing::Test {
 protected:
  MetaBench() : folder_(std::filesystem::path(testing::TempDir()) / ("rcs-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream out(folder_ / "profiles.csv");
    out << "provider,function,memory_mib,cpu_millicores,input_size_bytes,exec_time_ms,http_status\n";
    for (int f = 0; f < 6; ++f)
      for (int cpu = 1; cpu <= 6; ++cpu)
        out << "x,f" << f << "," << 512 * cpu << "," << 1000 * cpu << ",100,"
            << (f % 2 == 0 ? 1000.0 / cpu : 20.0) * (1 + f) << ",200\n";
  }
  ~MetaBench() override { std::filesystem::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }
  std::filesystem::path folder_;
};

TEST_F(MetaBench, RcsPrintsEveryMethodWithItsInterval) {
  const auto run = run_bench("rcs --dataset " + folder() + " --repeats 2 --epochs 2 --threads 1 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  for (const char* method : {"vanilla", "flash", "curve_model", "vanilla_raw", "persistence"})
    for (const char* known : {"1", "2", "3"})
      for (const char* runs : {"mape", "mape_chosen"}) {
        const auto& r = run.json[runs][method][known];
        EXPECT_GT(r["mean"], 0) << runs << method << known;
        EXPECT_LE(r["lo"], r["mean"]);
        EXPECT_GE(r["hi"], r["mean"]);
      }
  EXPECT_LT(run.json["mape"]["curve_model"]["3"]["mean"], run.json["mape"]["persistence"]["3"]["mean"]);
}

TEST_F(MetaBench, RcsIsTheSameWithTheSameSeed) {
  const std::string command =
      "rcs --dataset " + folder() + " --test " + folder() + " --repeats 2 --curves-only --json";
  const auto one = run_bench(command + " --threads 2"), other = run_bench(command + " --threads 1");
  ASSERT_EQ(one.status, 0) << one.text;
  EXPECT_EQ(one.json["repetitions"], other.json["repetitions"]);
  EXPECT_EQ(one.json["test"]["applications"], 6);
}

TEST_F(MetaBench, RcsSaysNothingOfMoreKnownRunsThanThereAre) {
  std::ofstream out(folder_ / "profiles.csv");
  out << "provider,function,memory_mib,cpu_millicores,input_size_bytes,exec_time_ms,http_status\n";
  for (int f = 0; f < 6; ++f)
    for (int cpu = 1; cpu <= 3; ++cpu)
      out << "x,f" << f << "," << 512 * cpu << "," << 1000 * cpu << ",100," << 100 * (1 + f) << ",200\n";
  out.close();
  const auto run = run_bench("rcs --dataset " + folder() + " --repeats 2 --curves-only --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_TRUE(run.json["mape"]["curve_model"].contains("2"));
  EXPECT_FALSE(run.json["mape"]["curve_model"].contains("3"));
  EXPECT_EQ(run_bench("rcs --dataset " + folder() + " --repeats 2 --curves-only").status, 0);
}

TEST_F(MetaBench, RcsCountsWhatItWasTestedOnAndHadLearnedFrom) {
  const auto run =
      run_bench("rcs --dataset " + folder() + " --test " + folder() + " --repeats 2 --curves-only --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["test"]["instances_learned_from"], 6);
}

TEST_F(MetaBench, BootstrapRefusesAMethodThatItDoesNotKnow) {
  const auto run = run_bench("bootstrap --methods imitation,imitatoin --json");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.text, HasSubstr("'imitatoin'"));
  const auto alone =
      run_bench("bootstrap --quick --pairs 2 --episodes 2 --methods converged --threads 1 --json --models " +
                std::string(FLASH_SOURCE_DIR "/models"));
  ASSERT_EQ(alone.status, 0) << alone.text;
  EXPECT_TRUE(alone.json["methods"].contains("converged"));
  EXPECT_FALSE(alone.json["methods"].contains("scratch")) << "it was not asked for";
}

TEST_F(MetaBench, RefusesWhatItCannotRead) {
  EXPECT_EQ(run_bench("rcs").status, 2);
  EXPECT_EQ(run_bench("rcs --dataset " + folder() + " --repeats 0").status, 2);
  const auto absent = run_bench("rcs --dataset " + folder() + "/absent --json");
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.text, HasSubstr("absent"));
}

TEST_F(MetaBench, AdaptJudgesEveryWayOnTheSamePairs) {
  const auto run = run_bench(
      "adapt --quick --pairs 3 --unseen 2 --budget 2 --converged 3 --sources 1 --rounds 1 --updates 20 "
      "--episodes 32 --threads 2 --models " +
      folder() + " --json");
  ASSERT_EQ(run.status, 0) << run.text;
  const auto& j = run.json;
  for (const char* name : {"flash", "imitation", "shared", "true_params", "scratch", "tl", "tl_plus",
                           "converged", "random", "rule", "best_fixed", "oracle", "no_foresight"}) {
    for (const char* key : {"score", "reward", "reward_drop_pct", "episodes_to_converge"}) {
      ASSERT_TRUE(j[key].contains(name)) << name << ' ' << key;
      const auto& v = j[key][name];
      EXPECT_LE(v["lo"].get<double>(), v["mean"].get<double>()) << name << ' ' << key;
      EXPECT_LE(v["mean"].get<double>(), v["hi"].get<double>()) << name << ' ' << key;
    }
  }
  EXPECT_DOUBLE_EQ(j["score"]["random"]["mean"].get<double>(), 0);
  EXPECT_DOUBLE_EQ(j["score"]["oracle"]["mean"].get<double>(), 1);
  EXPECT_LE(j["episodes_to_converge"]["scratch"]["mean"].get<double>(), 2);
  EXPECT_GE(j["episodes_to_converge"]["imitation"]["mean"].get<double>(), 1) << "the rules' episode";
  EXPECT_GT(j["adaptation"]["slo_preservation"]["tl"]["mean"].get<double>(), 0);
  for (const char* name : {"flash", "imitation", "tl_plus"})
    EXPECT_TRUE(j["speed_up_over_tl"].contains(name));
  for (const char* name : {"imitation_over_shared", "true_params_over_shared"})
    EXPECT_TRUE(j["gain"].contains(name)) << name;
  EXPECT_EQ(run_bench("adapt --task make-coffee").status, 2);
  std::ofstream(folder() + "/resource-limits.shared.model") << "no model";
  const auto broken = run_bench("adapt --quick --pairs 2 --unseen 2 --models " + folder() + " --json");
  EXPECT_EQ(broken.status, 1);
  EXPECT_THAT(broken.text, HasSubstr("resource-limits.shared.model"));
  const auto absent = run_bench("adapt --apps " + folder() + "/absent.json --unseen 2 --json");
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.text, HasSubstr("absent.json"));
}

TEST_F(MetaBench, ExperimentsOfLivesTakeThePackagedModels) {
  const std::string models = FLASH_SOURCE_DIR "/models";
  const auto run =
      run_bench("bootstrap --pairs 2 --episodes 2 --methods imitation --threads 1 --json --models " + models);
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["model"], models + "/resource-limits.model");
  std::filesystem::copy(models + "/cpu-frequency.model", folder_ / "resource-limits.model");
  const auto foreign = run_bench("bootstrap --pairs 2 --episodes 2 --json --models " + folder());
  EXPECT_EQ(foreign.status, 1);
  EXPECT_THAT(foreign.text, HasSubstr("/resource-limits.model"));
}

TEST_F(MetaBench, ExperimentsOfLivesJudgeEveryWayAndSayWhatTheyHadToShow) {
  const std::string small = " --quick --pairs 2 --models " + folder() + " --threads 1 --json ";
  const auto boot = run_bench("bootstrap --episodes 4" + small);
  ASSERT_EQ(boot.status, 0) << boot.text;
  for (const char* name : {"rule", "aware", "imitation", "no_offline", "scratch", "converged"}) {
    ASSERT_TRUE(boot.json["methods"].contains(name)) << name;
    EXPECT_EQ(boot.json["curves"][name]["reward"].size(), 4U);
    EXPECT_EQ(boot.json["per_pair"][name]["reward"].size(), 2U);
  }
  EXPECT_TRUE(boot.json["must_show"].contains("imitation_violations_not_above_rule"));
  const auto violations = [&](const char* name, int pair) {
    return boot.json["per_pair"][name]["violations_pct"][pair].get<double>();
  };
  const double more[] = {violations("scratch", 0) - violations("rule", 0),
                         violations("scratch", 1) - violations("rule", 1)};
  EXPECT_DOUBLE_EQ(boot.json["worst"]["scratch"]["violations_pct"], std::max(more[0], more[1]));
  EXPECT_EQ(boot.json["worst"]["scratch"]["pairs_above_by_1"], (more[0] > 1 ? 1 : 0) + (more[1] > 1 ? 1 : 0));
  EXPECT_EQ(boot.json["curves"]["aware"]["learned_share"][0], 0) << "the first episode is the rules'";

  const auto serve = run_bench("serve --episodes 2 --converged 2" + small);
  ASSERT_EQ(serve.status, 0) << serve.text;
  EXPECT_TRUE(serve.json["methods"]["aware"].contains("loss_pct"));
  EXPECT_EQ(serve.json["thresholds"].size(), 3U);
  EXPECT_EQ(serve.json["best_after_updates"].size(), 3U) << "what a loss is judged against";
  EXPECT_EQ(run_bench("serve --episodes 0").status, 2);
}

TEST_F(MetaBench, OverheadHasLibtorchBesideEach) {
  const auto run = run_bench("overhead --quick --json");
  ASSERT_EQ(run.status, 0) << run.text;
  // Which is faster is the bench's to say: that each was measured is the test's.
  const auto measured = [&](const char* table, std::initializer_list<const char*> names) {
    for (const char* name : names) EXPECT_GT(run.json[table].value(name, 0.0), 0) << table << " " << name;
  };
  measured("decision_us", {"without", "with_32"});
  measured("embedding_ms", {"one_new", "libtorch_one_new", "all", "libtorch_all"});
  measured("update_ms", {"gru", "libtorch"});
  measured("baseline", {"libtorch_gflop_per_s"});
  EXPECT_THAT(run.json.value("gru_kernel", ""), testing::AnyOf("avx512_bf16", "avx512", "avx2", "portable"))
      << "a figure names what it was measured with";
  // 20 x 100 steps, two directions of 10 inputs and one of 512, three gates of 256, forward and twice that
  // back.
  EXPECT_NEAR(run.json["baseline"]["update_gflop"], 3.0 * 2000 * 2 * 768 * (2 * 266 + 768) / 1e9, 0.01);
}

}  // namespace
}  // namespace flash
