#include "core/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/digest.h"
#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using testing::HasSubstr;

std::string unhex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return out;
}

// RFC 8032, 7.1, test 2.
const std::string kSecret = unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
const std::string kOpen = unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
const std::string kSigned = unhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");

TEST(Signature, IsTheOneOfTheStandardForItsExample) {
  const auto made = sign({kSecret, kOpen}, "\x72");
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(*made, kSigned);
  EXPECT_TRUE(verify(kOpen, "\x72", kSigned));
}

TEST(Signature, DoesNotHoldForOtherBytesKeysOrSignatures) {
  const auto key = make_key_pair(), other = make_key_pair();
  ASSERT_TRUE(key && other);
  const std::string text(kMaxSignedText - 1, 'x');
  const auto made = sign(*key, text);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_TRUE(verify(key->open, text, *made));
  EXPECT_FALSE(verify(other->open, text, *made));
  EXPECT_FALSE(verify(key->open, text + "x", *made));
  EXPECT_FALSE(verify(key->open, text, std::string(kSignatureBytes, '\0')));
  EXPECT_FALSE(verify(key->open, text, made->substr(1)));
  EXPECT_FALSE(verify("", text, *made));
  for (const std::size_t i : {0U, 31U, 32U, 63U}) {
    std::string changed = *made;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(verify(key->open, text, changed)) << i;
  }
}

TEST(Signature, OfATextThatIsTooLongForTheLibraryIsRefused) {
  const auto key = make_key_pair();
  const std::string text(100'000, 'x');
  EXPECT_FALSE(sign(*key, text));
  EXPECT_FALSE(verify(key->open, text, std::string(kSignatureBytes, 'x')));
}

TEST(Signature, HalvesThatDoNotFitSignNothing) {
  EXPECT_FALSE(sign({kSecret, make_key_pair()->open}, "text"));
}

TEST(KeyFiles, ComeBackAndAreNeverOverwritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/release";
  const auto key = make_key_pair();
  ASSERT_TRUE(write_key_pair(path, *key));
  struct stat s {};
  ASSERT_EQ(stat(path.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777U, 0600U);
  const auto back = read_key_pair(path);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->secret, key->secret);
  EXPECT_EQ(back->open, key->open);
  EXPECT_TRUE(write_key_pair(path, *make_key_pair()).error().is(std::errc::file_exists));
  EXPECT_EQ(read_key_pair(path)->secret, key->secret);
}

TEST(KeyFiles, ADirectoryTrustsItsPublicKeysAlone) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_trusted_keys(folder.path() + "/none")->empty());
  const auto a = make_key_pair(), b = make_key_pair();
  ASSERT_TRUE(write_key_pair(folder.path() + "/b", *b));
  ASSERT_TRUE(write_key_pair(folder.path() + "/a", *a));
  const auto both = read_trusted_keys(folder.path());
  ASSERT_TRUE(both) << both.error().message();
  ASSERT_EQ(both->size(), 2U);
  EXPECT_EQ(both->at(0).open, a->open);
  EXPECT_EQ(both->at(1).name, "b");
  EXPECT_EQ(read_trusted_keys(folder.path() + "/a.pub")->at(0).open, a->open);
  // The secret half is not taken for a public one.
  EXPECT_FALSE(read_trusted_keys(folder.path() + "/a"));
  std::ofstream(folder.path() + "/c.pub") << "flash-model-key public 12\n";
  EXPECT_THAT(read_trusted_keys(folder.path()).error().message(), HasSubstr("c.pub"));
}

TEST(Digest, IsSha256) {
  EXPECT_EQ(sha256("abc"), unhex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

}  // namespace
}  // namespace flash
