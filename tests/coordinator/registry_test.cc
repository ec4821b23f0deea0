// The registry's messages and its changes; the server's part is tests/system/coordinator_models.sh.
#include "coordinator/registry.h"

#include <gmock/gmock.h>

#include "core/json.h"

#include "tests/link/signed_models.h"

namespace flash::coordinator {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kName = "resource-limits";

Models models() {
  return {{{kName, 3, 100, 1, 1}, {kName, 4, 20, 2, 3}, {"cpu-frequency", 9, 0, 3, 3}},
          {{kName, 2, "by hand", 4}}};
}

TEST(ModelMessages, TheStateComesBackAsItWas) {
  const auto back = decode_models(encode(models()));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, models());
  EXPECT_EQ(*decode_models(encode(Models{})), Models{});
}

TEST(ModelMessages, ASignedManifestComesBackAsItWas) {
  const auto model = link::signed_as(link::manifest(4));
  const SignedManifest given{model.manifest, model.signature};
  const auto back = decode_signed_manifest(encode(given));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, given);
}

std::string state_error(const char* path, json value) {
  json j = json::from_cbor(encode(models()));
  j[json::json_pointer(path)] = std::move(value);
  const auto bytes = json::to_cbor(j);
  const auto back = decode_models(std::string(bytes.begin(), bytes.end()));
  return back ? "accepted" : back.error().message();
}

TEST(ModelMessages, NamesTheFieldOfTheStateThatIsOutOfBounds) {
  EXPECT_THAT(state_error("/v", 2), HasSubstr("version 2"));
  EXPECT_THAT(state_error("/t", "watermark"), HasSubstr("unknown type"));
  EXPECT_THAT(state_error("/offered/1/name", "../x"), HasSubstr("offered[1].name: not a task"));
  EXPECT_THAT(state_error("/offered/0/version", 0), HasSubstr("offered[0].version"));
  EXPECT_THAT(state_error("/offered/0/share", 101), HasSubstr("offered[0].share"));
  EXPECT_THAT(state_error("/offered/0/published_us", -1), HasSubstr("offered[0].published_us"));
  EXPECT_THAT(state_error("/offered/0/more", 1), HasSubstr("unknown key"));
  EXPECT_THAT(state_error("/offered", json::array({1})), HasSubstr("not a map"));
  EXPECT_THAT(state_error("/withdrawn/0/reason", ""), HasSubstr("withdrawn[0].reason"));
  EXPECT_THAT(state_error("/withdrawn/0/since_us", -1), HasSubstr("since_us"));
  EXPECT_THAT(state_error("/withdrawn", "x"), HasSubstr("not a list"));
  EXPECT_THAT(state_error("/offered", json::array_t(kMaxOfferedModels + 1, 1)), HasSubstr("at most"));
  EXPECT_FALSE(decode_models("rubbish"));
}

TEST(ModelMessages, BoundsASignedManifest) {
  const auto model = link::signed_as(link::manifest(4));
  json j = json::from_cbor(encode(SignedManifest{model.manifest, model.signature}));
  const auto error = [&](const char* key, json value) {
    json k = j;
    k[key] = std::move(value);
    const auto bytes = json::to_cbor(k);
    const auto back = decode_signed_manifest(std::string(bytes.begin(), bytes.end()));
    return back ? "accepted" : back.error().message();
  };
  EXPECT_THAT(error("signature", json::binary(std::vector<std::uint8_t>(63))),
              HasSubstr("signature: 63 bytes"));
  EXPECT_THAT(error("manifest", json::binary({})), HasSubstr("manifest: 0 bytes"));
  EXPECT_THAT(error("manifest", json::binary(std::vector<std::uint8_t>(link::kMaxManifestBytes + 1))),
              HasSubstr("manifest: 8193 bytes"));
  EXPECT_THAT(error("manifest", "text"), HasSubstr("not bytes"));
}

TEST(ModelMessages, SubjectsNameModelVersionAndChunk) {
  EXPECT_EQ(manifest_subject(kName, 4), "flash.v1.ck.resource-limits.4.manifest");
  EXPECT_EQ(chunk_subject(kName, 4, 2), "flash.v1.ck.resource-limits.4.2");
}

TEST(RollOut, AShareIsThatShareOfTheNodesAndGrowsByAddingSome) {
  int few = 0, more = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string node = "node-" + std::to_string(i);
    const bool in_few = in_share(node, kName, 4, 10), in_more = in_share(node, kName, 4, 40);
    few += in_few;
    more += in_more;
    EXPECT_TRUE(in_more || !in_few) << node;
    EXPECT_FALSE(in_share(node, kName, 4, 0));
    EXPECT_TRUE(in_share(node, kName, 4, 100));
  }
  EXPECT_NEAR(few, 1000, 120);
  EXPECT_NEAR(more, 4000, 200);
}

TEST(RollOut, OtherVersionsBeginWithOtherNodes) {
  int both = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string node = "node-" + std::to_string(i);
    both += in_share(node, kName, 4, 10) && in_share(node, kName, 5, 10);
  }
  EXPECT_LT(both, 200);
}

TEST(RollOut, ANodeIsToHaveTheNewestOfItsShareThatIsNotWithdrawn) {
  Models m{{{kName, 3, 100, 1, 1}, {kName, 4, 100, 2, 2}, {kName, 5, 0, 3, 3}}, {}};
  EXPECT_EQ(wanted_version(m, "n", kName), 4U);
  EXPECT_EQ(wanted_version(m, "n", "cpu-frequency"), 0U);
  m.withdrawn.push_back({kName, 4, "bad", 4});
  EXPECT_EQ(wanted_version(m, "n", kName), 3U);
}

TEST(Registry, VersionsGrowAndAWithdrawnOneDoesNotComeBack) {
  Models m;
  ASSERT_TRUE(offer(m, kName, 3, 10, 1));
  EXPECT_THAT(offer(m, kName, 3, 10, 2).error().message(), HasSubstr("not above version 3"));
  EXPECT_THAT(roll_out(m, kName, 4, 50, 2).error().message(), HasSubstr("not handed out"));
  ASSERT_TRUE(roll_out(m, kName, 3, 50, 2));
  EXPECT_EQ(m.offered[0].share, 50U);
  ASSERT_TRUE(withdraw(m, kName, 3, "worse", 3));
  EXPECT_TRUE(m.offered.empty());
  EXPECT_THAT(withdraw(m, kName, 3, "worse", 3).error().message(), HasSubstr("already"));
  EXPECT_THAT(roll_out(m, kName, 3, 100, 4).error().message(), HasSubstr("withdrawn"));
  EXPECT_THAT(offer(m, kName, 3, 100, 4).error().message(), HasSubstr("not above"));
  EXPECT_TRUE(offer(m, "cpu-frequency", 1, 100, 4));
}

TEST(Registry, WhatIsHandedOutIsTheNewTheOneBeforeAndTheNewestForAllNodes) {
  Models m;
  const auto versions = [&] {
    std::vector<std::uint64_t> out;
    for (const auto& o : m.offered)
      if (o.name == kName) out.push_back(o.version);
    return out;
  };
  ASSERT_TRUE(offer(m, "cpu-frequency", 1, 100, 1));
  ASSERT_TRUE(offer(m, kName, 1, 100, 1));
  ASSERT_TRUE(offer(m, kName, 2, 100, 1));
  EXPECT_THAT(versions(), ElementsAre(1, 2));
  ASSERT_TRUE(offer(m, kName, 3, 10, 1));
  EXPECT_THAT(versions(), ElementsAre(2, 3));
  ASSERT_TRUE(offer(m, kName, 4, 100, 1));
  EXPECT_THAT(versions(), ElementsAre(2, 3, 4));
  ASSERT_TRUE(offer(m, kName, 5, 100, 1));
  EXPECT_THAT(versions(), ElementsAre(4, 5));
  EXPECT_EQ(m.offered.size(), 3U);  // the other name's stays
}

Message state_message(const std::string& bytes, std::uint64_t position) {
  return {kModelsSubject, bytes, "", position};
}

TEST(Registry, TheNewestStateThatIsOneCountsAndWhatIsNoneIsNamed) {
  EXPECT_EQ(newest_good({}).position, 0U);
  const Registered good =
      newest_good({state_message(encode(Models{}), 4), state_message(encode(models()), 9)});
  EXPECT_EQ(good.models, models());
  EXPECT_EQ(good.position, 9U);
  EXPECT_EQ(good.trouble, "");
  const Registered behind =
      newest_good({state_message(encode(Models{}), 4), state_message(encode(models()), 9),
                   state_message("rubbish", 12), state_message("", 13)});
  EXPECT_EQ(behind.models, models());
  EXPECT_EQ(behind.position, 13U);  // that is what a change replaces
  EXPECT_THAT(behind.trouble, AllOf(HasSubstr("flash.v1.bc.models: message 13 is passed over"),
                                    HasSubstr("message 12 is passed over"), HasSubstr("message 9 counts")));
  const Registered none = newest_good({state_message("rubbish", 3)});
  EXPECT_EQ(none.models, Models{});
  EXPECT_THAT(none.trouble, HasSubstr("none is left"));
}

TEST(Registry, SubjectsOfAnotherNameAreNoVersionsOfThisOne) {
  EXPECT_EQ(version_of_subject(chunk_subject(kName, 4, 2), kName), 4U);
  EXPECT_EQ(version_of_subject(manifest_subject(kName, 12), kName), 12U);
  EXPECT_EQ(version_of_subject(chunk_subject("cpu-frequency", 4, 2), kName), std::nullopt);
  EXPECT_EQ(version_of_subject("flash.v1.ck.resource-limits.x.0", kName), std::nullopt);
}

TEST(Registry, StaysWithinItsMessagesBounds) {
  Models m;
  for (std::uint64_t v = 1; v <= 2 * kMaxWithdrawnModels; ++v) {
    ASSERT_TRUE(offer(m, kName, v, 0, 1));
    if (v % 2 == 0) {
      ASSERT_TRUE(withdraw(m, kName, v, "even", 1));
    }
  }
  EXPECT_LE(m.offered.size(), 3U);
  EXPECT_TRUE(decode_models(encode(m)));
}

}  // namespace
}  // namespace flash::coordinator
