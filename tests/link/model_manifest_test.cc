#include "link/model_manifest.h"

#include <gmock/gmock.h>

#include "core/json.h"

#include "tests/actuators/temporary_folder.h"
#include "tests/link/signed_models.h"

namespace flash::link {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ModelManifest, ComesBackAsItWas) {
  const auto back = decode_manifest(encode(manifest(4)));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, manifest(4));
  EXPECT_EQ(back->chunks.size(), 3U);
}

std::string error(const std::string& key, json value) {
  json j = json::from_cbor(encode(manifest(4)));
  j[key] = std::move(value);
  const auto bytes = json::to_cbor(j);
  const auto back = decode_manifest(std::string(bytes.begin(), bytes.end()));
  return back ? "accepted" : back.error().message();
}

TEST(ModelManifest, NamesTheFieldThatIsOutOfBounds) {
  EXPECT_THAT(error("v", 2), HasSubstr("version 2"));
  EXPECT_THAT(error("t", "models"), HasSubstr("unknown type"));
  EXPECT_THAT(error("name", "cookies"), HasSubstr("name: not a task"));
  EXPECT_THAT(error("version", 0), HasSubstr("version"));
  EXPECT_THAT(error("previous", 4), HasSubstr("previous: not below version"));
  EXPECT_THAT(error("size", kMaxModelBytes + 1), HasSubstr("size"));
  EXPECT_THAT(error("size", 1), HasSubstr("chunks: not as many"));
  EXPECT_THAT(error("digest", json::binary({1, 2, 3})), HasSubstr("digest: not 32 bytes"));
  EXPECT_THAT(error("chunks", json::binary(std::vector<std::uint8_t>(95))),
              HasSubstr("chunks: not 32 bytes each"));
  EXPECT_THAT(error("chunks", "text"), HasSubstr("chunks: not bytes"));
  EXPECT_THAT(error("made_us", -1), HasSubstr("made_us"));
  EXPECT_THAT(error("software", ""), HasSubstr("software"));
  EXPECT_THAT(error("more", 1), HasSubstr("more: unknown key"));
  EXPECT_FALSE(decode_manifest("rubbish"));
  EXPECT_FALSE(decode_manifest(std::string(kMaxManifestBytes + 1, '\xa0')));
}

TEST(SignedModel, OfATrustedKeyIsTaken) {
  const auto file = decode_signed(encode(signed_as(manifest(4))));
  ASSERT_TRUE(file) << file.error().message();
  const auto verified = verify_signed(*file, trusted(), "0.1.0");
  ASSERT_TRUE(verified) << verified.error().message();
  EXPECT_EQ(*verified, manifest(4));
}

TEST(SignedModel, OfAnotherKeyOrNoneIsRefusedBeforeItIsRead) {
  SignedModel forged = signed_as(manifest(4), model_bytes(), strange_key());
  EXPECT_TRUE(verify_signed(forged, trusted(), "0.1.0").error().is(std::errc::permission_denied));
  forged.signature.assign(kSignatureBytes, '\0');
  EXPECT_TRUE(verify_signed(forged, trusted(), "0.1.0").error().is(std::errc::permission_denied));
  EXPECT_TRUE(verify_signed(signed_as(manifest(4)), {}, "0.1.0").error().is(std::errc::permission_denied));
  SignedModel changed = signed_as(manifest(4));
  changed.manifest = encode(manifest(5));
  EXPECT_TRUE(verify_signed(changed, trusted(), "0.1.0").error().is(std::errc::permission_denied));
}

TEST(SignedModel, AnyOfSeveralKeysWillDo) {
  const std::vector<TrustedKey> keys = {{strange_key().open, "old"}, {release_key().open, "new"}};
  EXPECT_TRUE(verify_signed(signed_as(manifest(4)), keys, "0.1.0"));
}

TEST(SignedModel, ThatWasDamagedOrCutIsRefused) {
  SignedModel damaged = signed_as(manifest(4));
  damaged.model[kModelChunkBytes + 3] ^= 1;
  EXPECT_TRUE(verify_signed(damaged, trusted(), "0.1.0").error().is(std::errc::bad_message));
  SignedModel cut = signed_as(manifest(4));
  cut.model.pop_back();
  EXPECT_TRUE(verify_signed(cut, trusted(), "0.1.0").error().is(std::errc::bad_message));
  const std::string whole = encode(signed_as(manifest(4)));
  for (const std::size_t n : {0U, 7U, 8U, 11U, 12U, 100U})
    EXPECT_FALSE(decode_signed(std::string_view(whole).substr(0, n))) << n;
  std::string long_manifest = whole;
  long_manifest[11] = 1;
  EXPECT_THAT(decode_signed(long_manifest).error().message(), HasSubstr("too long"));
}

TEST(SignedModel, ForNewerSoftwareIsRefused) {
  EXPECT_TRUE(verify_signed(signed_as(manifest(4)), trusted(), "0.0.9").error().is(std::errc::not_supported));
  EXPECT_EQ(compare_versions("0.10.0", "0.9.1"), 1);
  EXPECT_EQ(compare_versions("0.1", "0.1.0"), 0);
  EXPECT_EQ(compare_versions("0.1.0", "1"), -1);
}

TEST(WholeFile, IsReadUpToItsBoundAndNothingButAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/f";
  ASSERT_TRUE(write_whole_file(path, "12345"));
  EXPECT_EQ(*read_whole_file(path, 5), "12345");
  EXPECT_TRUE(read_whole_file(path, 4).error().is(std::errc::file_too_large));
  EXPECT_FALSE(read_whole_file(folder.path(), 5));
  EXPECT_TRUE(read_whole_file(path + "x", 5).error().is(std::errc::no_such_file_or_directory));
}

}  // namespace
}  // namespace flash::link
