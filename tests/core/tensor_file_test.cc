#include "core/tensor_file.h"
#include "core/json.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/random.h"
#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TensorFile small_file() {
  TensorFile file;
  file.kind = "checkpoint";
  *file.meta = {{"steps", 7}, {"note", "gr\u00fc\u00df"}};
  file.tensors = {{"scalar", {}, {2.5F}},
                  {"matrix", {2, 3}, {1, -2, 3, 4e-39F, 5, std::numeric_limits<float>::infinity()}},
                  {"empty", {0, 4}, {}}};
  return file;
}

/// A file with this header and these array bytes under a digest that is right.
std::string sealed(const std::string& header, const std::string& data = "") {
  std::string out = "FLASHTF1";
  const auto n = static_cast<std::uint32_t>(header.size());
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((n >> shift) & 0xFF);
  out += header + data;
  const std::string hex = sha256_hex(out);
  for (std::size_t i = 0; i < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

std::string refusal(const std::string& bytes) {
  const auto decoded = decode_tensor_file(bytes);
  if (decoded) return "accepted";
  EXPECT_TRUE(decoded.error().is(std::errc::invalid_argument));
  return decoded.error().message();
}

std::string header_with(const json& arrays) {
  return json{{"kind", "checkpoint"}, {"format", 1}, {"meta", json::object()}, {"arrays", arrays}}.dump();
}

PolicySnapshot policy() {
  PolicySnapshot p;
  p.layout = SpaceLayout{Task::CpuFrequency, {"ips", "load"}, {"cpu-frequency"}, 1, ""};
  p.task = Task::CpuFrequency;
  p.version = std::numeric_limits<std::uint64_t>::max();
  p.model = "iql, seed 1, 1200 updates";
  p.algorithm = "iql";
  p.data_steps = 1234;
  p.expires = WallTime(Duration(1'795'000'000'123'456'789));
  p.mean = {1, 0.1F};
  p.scale = {2, 1e-3F};
  p.embedding = {0.5F};
  p.actor = {{3, 2, {1, 0, 0, 0, 1, 2}, {0, -3}, Activation::Relu, true},
             {2, 1, {0.5F, 1}, {0.1F}, Activation::Tanh}};
  p.critic = {{3, 1, {1, 2, 3}, {4}, Activation::Linear}};
  p.value_offset = -1.5F;
  p.value_scale = 0.1F;
  p.stay_margin = 0.25F;
  p.exploration = {0.05F, 0.1F};
  p.estimate = {true, "fqe", 0.7F, 0.6F, -0.1F, 0.3F, 900};
  return p;
}

TEST(TensorFile, ComesBackAsItWas) {
  const TensorFile file = small_file();
  const auto back = decode_tensor_file(encode(file));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->kind, "checkpoint");
  EXPECT_EQ(back->format, 1);
  EXPECT_EQ(*back->meta, *file.meta);
  ASSERT_EQ(back->tensors.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back->tensors[i].name, file.tensors[i].name);
    EXPECT_EQ(back->tensors[i].shape, file.tensors[i].shape);
    EXPECT_EQ(back->tensors[i].values, file.tensors[i].values);
  }
  ASSERT_NE(back->find("scalar"), nullptr);
  EXPECT_EQ(back->find("scalar")->values[0], 2.5F);
  EXPECT_EQ(back->find("vector"), nullptr);
}

TEST(TensorFile, HasTheDocumentedLayout) {
  TensorFile file;
  file.kind = "checkpoint";
  file.tensors = {{"x", {1}, {1.0F}}};
  const std::string bytes = encode(file);
  const std::string header =
      R"({"arrays":[{"name":"x","shape":[1]}],"format":1,"kind":"checkpoint","meta":{}})";
  EXPECT_EQ(bytes, sealed(header, std::string("\0\0\x80\x3f", 4)));
}

TEST(TensorFile, RefusesEveryFlippedBit) {
  const std::string bytes = encode(small_file());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(decode_tensor_file(damaged)) << "byte " << i << " bit " << bit;
    }
}

TEST(TensorFile, RefusesEveryTruncationAndWhatFollowsTheEnd) {
  const std::string bytes = encode(small_file());
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_tensor_file(bytes.substr(0, n))) << n;
  EXPECT_FALSE(decode_tensor_file(bytes + '\0'));
  EXPECT_FALSE(decode_tensor_file(bytes + bytes));
}

TEST(TensorFile, EveryRefusalNamesThePart) {
  EXPECT_THAT(refusal("PK\x03\x04"), HasSubstr("magic"));
  EXPECT_THAT(refusal("FLASHTF1"), HasSubstr("header ends early"));
  EXPECT_THAT(refusal("FLASHTF1" + std::string("\xff\xff\xff\xff", 4) + std::string(100, 'x')),
              HasSubstr("header of 4294967295 bytes"));
  std::string damaged = encode(small_file());
  damaged[30] ^= 1;
  EXPECT_THAT(refusal(damaged), HasSubstr("digest differs"));

  EXPECT_THAT(refusal(sealed("{")), HasSubstr("header: not JSON at byte"));
  EXPECT_THAT(refusal(sealed("[1]")), HasSubstr("header: not an object"));
  EXPECT_THAT(refusal(sealed("{\"kind\":\"\xff\xfe\"}")), HasSubstr("header: not JSON at byte"));
  EXPECT_THAT(refusal(sealed("{\"kind\":1e999}")), HasSubstr("header: not JSON"));
  EXPECT_THAT(refusal(sealed("{}")), HasSubstr("kind"));
  EXPECT_THAT(refusal(sealed(R"({"kind":"policy","format":2})")), HasSubstr("format is not 1"));
  EXPECT_THAT(refusal(sealed(R"({"kind":"policy","format":1,"meta":[]})")), HasSubstr("meta"));
  EXPECT_THAT(refusal(sealed(R"({"kind":"policy","format":1,"meta":{}})")), HasSubstr("arrays"));
  EXPECT_THAT(refusal(sealed(R"({"kind":"policy","code":"import os"})")), HasSubstr("unknown key 'code'"));

  EXPECT_THAT(refusal(sealed(header_with({1}))), HasSubstr("array 0: not an object"));
  EXPECT_THAT(refusal(sealed(header_with({{{"shape", {1}}}}))), HasSubstr("array 0: name"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}}}))), HasSubstr("array 0 'x': shape"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", {-1}}}}))),
              HasSubstr("array 0 'x': shape"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", {1.5}}}}))),
              HasSubstr("array 0 'x': shape"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", {0}}, {"type", "f16"}}}))),
              HasSubstr("array 0 'x': unknown key 'type'"));
  EXPECT_THAT(
      refusal(sealed(header_with({{{"name", "x"}, {"shape", {0}}}, {{"name", "x"}, {"shape", {0}}}}))),
      HasSubstr("array 1 'x': named twice"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", {2}}}}), "1234")),
              HasSubstr("array 0 'x': larger than the 4 bytes that are left"));
  EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", {1}}}}), "12345678")),
              HasSubstr("4 bytes after the last array"));
  EXPECT_THAT(refusal(sealed(header_with(json::array()), "123")), HasSubstr("3 bytes after the last array"));
}

TEST(TensorFile, BoundsTheHeadersDepthAndSize) {
  const auto deep = [](std::size_t n) {
    return R"({"kind":"policy","format":1,"arrays":[],"meta":{"x":)" + std::string(n, '[') +
           std::string(n, ']') + "}}";
  };
  EXPECT_TRUE(decode_tensor_file(sealed(deep(10))));
  EXPECT_THAT(refusal(sealed(deep(20))), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(sealed(deep(400'000))), HasSubstr("nested deeper"));
  std::string many = R"({"kind":"policy","format":1,"arrays":[],"meta":{"x":[0)";
  for (int i = 0; i < 300'000; ++i) many += ",0";
  EXPECT_THAT(refusal(sealed(many + "]}}")), HasSubstr("values"));
  EXPECT_THAT(refusal(sealed(std::string((1u << 20) + 1, ' '))), HasSubstr("header of 1048577 bytes"));
  json arrays = json::array();
  for (std::size_t i = 0; i <= kTensorFileMaxArrays; ++i)
    arrays.push_back({{"name", std::to_string(i)}, {"shape", {0}}});
  EXPECT_THAT(refusal(sealed(header_with(arrays))), HasSubstr("arrays is not a list of at most 4096"));
}

std::int64_t peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(TensorFile, DeclaredSizesAllocateNothing) {
  const std::int64_t before = peak_kib();
  for (const json& shape :
       {json{67108864}, json{67108864, 67108864, 67108864}, json{65536, 65536, 65536, 65536},
        json{4294967295}, json{18446744073709551615U}, json{9223372036854775807}})
    EXPECT_THAT(refusal(sealed(header_with({{{"name", "x"}, {"shape", shape}}}), "1234")),
                HasSubstr("array 0 'x'"));
  EXPECT_LT(peak_kib() - before, 32 * 1024);
}

TEST(TensorFile, WritesNamesThatAreNotUtf8AsReadableText) {
  TensorFile file = small_file();
  file.meta["note"] = "\xff\xfe";
  const auto back = decode_tensor_file(encode(file));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->meta["note"], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(TensorFile, DigestIsSha256) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(TensorFileOnDisk, IsReadAsWritten) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  ASSERT_TRUE(write_tensor_file(path, small_file()));
  TensorFile second = small_file();
  second.meta["steps"] = 8;
  ASSERT_TRUE(write_tensor_file(path, second));
  const auto back = read_tensor_file(path);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->meta["steps"], 8);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TensorFileOnDisk, ErrorsNameThePath) {
  TemporaryFolder folder;
  auto absent = read_tensor_file(folder.path() + "/absent");
  ASSERT_FALSE(absent);
  EXPECT_TRUE(absent.error().is(std::errc::no_such_file_or_directory));
  EXPECT_THAT(absent.error().message(), HasSubstr("open " + folder.path() + "/absent"));

  auto nowhere = write_tensor_file(folder.path() + "/no/a", small_file());
  ASSERT_FALSE(nowhere);
  EXPECT_TRUE(nowhere.error().is(std::errc::no_such_file_or_directory));
  EXPECT_THAT(nowhere.error().message(), HasSubstr("/no/a.tmp"));

  auto directory = read_tensor_file(folder.path());
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message(), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_FALSE(read_tensor_file(folder.path() + "/fifo"));

  std::ofstream(folder.path() + "/foreign") << "PK\x03\x04 a zip archive with pickled code";
  auto foreign = read_tensor_file(folder.path() + "/foreign");
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message(), HasSubstr("/foreign: magic"));

  std::ofstream(folder.path() + "/huge") << "FLASHTF1";
  ASSERT_EQ(truncate((folder.path() + "/huge").c_str(), 1LL << 40), 0);
  auto huge = read_tensor_file(folder.path() + "/huge");
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message(), HasSubstr("at most 67108864"));
}

TEST(TensorFileOnDisk, AFullDiskLeavesTheOldFile) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  ASSERT_TRUE(write_tensor_file(path, small_file()));
  TensorFile larger = small_file();
  larger.tensors.push_back({"many", {10000}, std::vector<float>(10000, 1.0F)});
  // A file size limit stops write() halfway, as a full disk does.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8192, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_tensor_file(path, larger);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_TRUE(written.error().is(std::errc::file_too_large));
  EXPECT_THAT(written.error().message(), HasSubstr("write " + path + ".tmp"));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const auto back = read_tensor_file(path);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->tensors.size(), 3u);
}

TEST(TensorFileOnDisk, ACrashBeforeTheRenameLeavesTheOldFile) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  ASSERT_TRUE(write_tensor_file(path, small_file()));
  std::ofstream(path + ".tmp") << encode(small_file()).substr(0, 40);  // what such a crash leaves
  const auto old = read_tensor_file(path);
  ASSERT_TRUE(old) << old.error().message();
  EXPECT_EQ(old->meta["steps"], 7);
  TensorFile next = small_file();
  next.meta["steps"] = 8;
  ASSERT_TRUE(write_tensor_file(path, next));
  const auto now = read_tensor_file(path);
  ASSERT_TRUE(now) << now.error().message();
  EXPECT_EQ(now->meta["steps"], 8);
}

TEST(TensorFileOnDisk, AWriterKilledAtAnyMomentLeavesAWholeFile) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  TensorFile file = small_file();
  file.tensors.push_back({"many", {5000}, std::vector<float>(5000, 1.0F)});
  ASSERT_TRUE(write_tensor_file(path, file));
  Random random(1);
  for (int kill_number = 0; kill_number < 30; ++kill_number) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;)
        if (!write_tensor_file(path, file)) _exit(1);
    }
    usleep(static_cast<useconds_t>(random.below(5000)));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const auto back = read_tensor_file(path);
    ASSERT_TRUE(back) << back.error().message();
    ASSERT_EQ(back->tensors.size(), 4u);
  }
}

PolicySnapshot gaussian() {
  PolicySnapshot p = policy();
  p.task = Task::ResourceLimits;
  p.layout = SpaceLayout{Task::ResourceLimits, {"cpu", "memory"}, {"cpu-limit"}, 0, ""};
  p.stay_margin = 0;
  p.head = PolicyHead::Gaussian;
  p.log_sigma = {-1.5F};
  p.state_value = {{3, 1, {3, 2, 1}, {0.5F}, Activation::Linear}};
  return p;
}

TEST(PolicyFile, AStochasticHeadComesBackAsItWas) {
  const auto back = to_policy(*decode_tensor_file(encode(to_tensor_file(gaussian()))));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->head, PolicyHead::Gaussian);
  EXPECT_EQ(back->log_sigma, gaussian().log_sigma);
  ASSERT_EQ(back->state_value.size(), 1u);
  EXPECT_EQ(back->state_value[0].weights, gaussian().state_value[0].weights);

  PolicySnapshot levels = policy();
  levels.head = PolicyHead::Categorical;
  const TensorFile file = to_tensor_file(levels);
  EXPECT_EQ(file.find("log_sigma"), nullptr);
  const auto categorical = to_policy(file);
  ASSERT_TRUE(categorical) << categorical.error().message();
  EXPECT_EQ(categorical->head, PolicyHead::Categorical);
}

TEST(PolicyFile, AFileWithoutAHeadIsDeterministic) {
  const TensorFile file = to_tensor_file(policy());
  for (const char* key : {"head", "state_value"}) EXPECT_FALSE(file.meta->contains(key)) << key;
  EXPECT_EQ(file.find("log_sigma"), nullptr);
  const auto back = to_policy(file);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->head, PolicyHead::Deterministic);
  EXPECT_TRUE(back->log_sigma.empty());
  EXPECT_TRUE(back->state_value.empty());
}

TEST(PolicyFile, AHeadIsReadStrictly) {
  const auto refused = [](auto change, const std::string& why) {
    TensorFile file = to_tensor_file(gaussian());
    change(file);
    const auto back = to_policy(file);
    ASSERT_FALSE(back) << why;
    EXPECT_THAT(back.error().message(), HasSubstr(why));
  };
  for (const json& head : {json("deterministic"), json("Gaussian"), json(1), json(nullptr)})
    refused([&](TensorFile& f) { f.meta["head"] = head; }, "meta.head: not a name that is known");
  refused([](TensorFile& f) { f.meta->erase("head"); }, "array 'log_sigma' is no part of a policy");
  refused([](TensorFile& f) { f.meta["head"] = "categorical"; }, "array 'log_sigma' is no part of a policy");
  refused(
      [](TensorFile& f) { std::erase_if(f.tensors, [](const Tensor& t) { return t.name == "log_sigma"; }); },
      "array 'log_sigma' is missing");
  refused(
      [](TensorFile& f) {
        for (Tensor& t : f.tensors)
          if (t.name == "log_sigma") t.shape = {1, 1};
      },
      "array 'log_sigma' has 2 dimensions, not 1");
  refused([](TensorFile& f) { f.meta->erase("state_value"); },
          "array 'state_value/0/weights' is no part of a policy");
  refused([](TensorFile& f) { f.meta["state_value"] = 1; }, "meta.state_value: not a list");
}

TEST(PolicyFile, WithoutAStayMarginTheHighestScoreDecides) {
  PolicySnapshot p = policy();
  p.stay_margin = 0;
  TensorFile file = to_tensor_file(p);
  EXPECT_FALSE(file.meta->contains("stay_margin")) << "files of before have none";
  ASSERT_TRUE(to_policy(file));
  EXPECT_EQ(to_policy(file)->stay_margin, 0);
  file.meta["stay_margin"] = "much";
  const auto wrong = to_policy(file);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("meta.stay_margin"));
}

TEST(PolicyFile, ComesBackAsItWas) {
  const PolicySnapshot p = policy();
  const auto file = decode_tensor_file(encode(to_tensor_file(p)));
  ASSERT_TRUE(file) << file.error().message();
  const auto back = to_policy(*file);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(back->validate(2, 1));
  EXPECT_EQ(back->task, p.task);
  EXPECT_EQ(back->version, p.version);
  EXPECT_EQ(back->model, p.model);
  EXPECT_EQ(back->algorithm, p.algorithm);
  EXPECT_EQ(back->data_steps, p.data_steps);
  EXPECT_EQ(back->expires, p.expires);
  EXPECT_EQ(back->mean, p.mean);
  EXPECT_EQ(back->scale, p.scale);
  EXPECT_EQ(back->embedding, p.embedding);
  EXPECT_EQ(back->value_offset, p.value_offset);
  EXPECT_EQ(back->value_scale, p.value_scale);
  EXPECT_EQ(back->stay_margin, p.stay_margin);
  EXPECT_EQ(back->exploration.epsilon, p.exploration.epsilon);
  EXPECT_EQ(back->exploration.sigma, p.exploration.sigma);
  EXPECT_TRUE(back->estimate.given);
  EXPECT_EQ(back->estimate.method, "fqe");
  EXPECT_EQ(back->estimate.learned, 0.7F);
  EXPECT_EQ(back->estimate.fallback, 0.6F);
  EXPECT_EQ(back->estimate.lower, -0.1F);
  EXPECT_EQ(back->estimate.upper, 0.3F);
  EXPECT_EQ(back->estimate.transitions, 900u);
  ASSERT_EQ(back->actor.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->actor[i].inputs, p.actor[i].inputs);
    EXPECT_EQ(back->actor[i].outputs, p.actor[i].outputs);
    EXPECT_EQ(back->actor[i].weights, p.actor[i].weights);
    EXPECT_EQ(back->actor[i].bias, p.actor[i].bias);
    EXPECT_EQ(back->actor[i].activation, p.actor[i].activation);
    EXPECT_EQ(back->actor[i].layer_norm, p.actor[i].layer_norm);
  }
  EXPECT_EQ(back->layout, p.layout);
  ASSERT_EQ(back->critic.size(), 1u);
  EXPECT_EQ(back->critic[0].weights, p.critic[0].weights);
  EXPECT_EQ(encode(to_tensor_file(*back)), encode(to_tensor_file(p)));
}

TEST(PolicyFile, WithoutEmbeddingCriticAndEstimateToo) {
  PolicySnapshot p = policy();
  p.embedding.clear();
  p.critic.clear();
  p.estimate = {};
  const auto file = decode_tensor_file(encode(to_tensor_file(p)));
  ASSERT_TRUE(file) << file.error().message();
  const auto back = to_policy(*file);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(back->embedding.empty());
  EXPECT_TRUE(back->critic.empty());
  EXPECT_FALSE(back->estimate.given);
}

TEST(PolicyFile, EveryRefusalNamesThePart) {
  const TensorFile good = to_tensor_file(policy());
  const auto refused = [](const TensorFile& file) {
    const auto read = to_policy(file);
    if (read) return std::string("accepted");
    EXPECT_TRUE(read.error().is(std::errc::invalid_argument));
    return read.error().message();
  };
  ASSERT_EQ(refused(good), "accepted");
  TensorFile file = good;
  file.kind = "checkpoint";
  EXPECT_THAT(refused(file), HasSubstr("kind is 'checkpoint'"));
  for (const auto& [key, value] : good.meta->items()) {
    if (key == "estimate") continue;  // may be null
    file = good;
    file.meta->erase(key);
    if (key != "stay_margin" && key != "layout") {
      EXPECT_THAT(refused(file), HasSubstr("meta." + key));
    }
    for (const json& wrong : {json(nullptr), json(json::array({1})), json(json{{"a", 1}}), json(-1.5e300)}) {
      file = good;
      file.meta[key] = wrong;
      EXPECT_THAT(refused(file), HasSubstr("meta." + key)) << wrong;
    }
  }
  for (const char* key : {"method", "learned", "lower", "transitions"}) {
    file = good;
    file.meta["estimate"].erase(key);
    EXPECT_THAT(refused(file), HasSubstr(std::string("meta.estimate.") + key));
  }
  file = good;
  file.meta["model"] = "evil\x1b[2J";
  EXPECT_THAT(refused(file), HasSubstr("meta.model: has a control character"));
  file = good;
  file.meta["model"] = std::string(257, 'x');
  EXPECT_THAT(refused(file), HasSubstr("meta.model: longer"));
  file = good;
  file.meta["script"] = "rm";
  EXPECT_THAT(refused(file), HasSubstr("meta: unknown key 'script'"));
  file = good;
  file.meta["actor"][0]["activation"] = "sigmoid";
  EXPECT_THAT(refused(file), HasSubstr("meta.actor/0.activation"));
  file = good;
  file.meta["actor"] = json(9, file.meta["actor"][0]);
  EXPECT_THAT(refused(file), HasSubstr("meta.actor: not a list of at most 8"));
  for (std::size_t i = 0; i < good.tensors.size(); ++i) {
    const std::string& name = good.tensors[i].name;
    file = good;
    file.tensors.erase(file.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(refused(file), HasSubstr("array '" + name + "' is missing"));
    file = good;
    file.tensors[i].shape.push_back(1);
    EXPECT_THAT(refused(file), HasSubstr("array '" + name + "' has"));
  }
  file = good;
  file.tensors.push_back({"extra", {1}, {1}});
  EXPECT_THAT(refused(file), HasSubstr("array 'extra' is no part of a policy"));
  file = good;
  for (Tensor& tensor : file.tensors)
    if (tensor.name == "actor/0/bias") tensor = {"actor/0/bias", {3}, {1, 2, 3}};
  EXPECT_THAT(refused(file), HasSubstr("'actor/0/bias' does not fit"));
  file = good;
  for (Tensor& tensor : file.tensors)
    if (tensor.name == "actor/0/weights") tensor = {"actor/0/weights", {0, 1 << 25}, {}};
  EXPECT_THAT(refused(file), HasSubstr("does not fit its weights"));
}

}  // namespace
}  // namespace flash
