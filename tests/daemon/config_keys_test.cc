// The table of configuration keys, and what is derived from it: schema, manual, defaults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "core/json.h"
#include "daemon/config.h"
#include "daemon/config_keys.h"
#include "tests/daemon/config_fixture.h"

namespace flash::config_keys_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using config_fixture::parse;
using config_fixture::read_file;
using config_fixture::source;

// FLASH_UPDATE=1 writes what the table says into the file instead of comparing.
bool updating() {
  return std::getenv("FLASH_UPDATE") != nullptr;
}

TEST(ConfigKeys, EveryRowIsComplete) {
  for (const auto& key : config_keys()) {
    SCOPED_TRACE(key.pointer);
    EXPECT_EQ(find_config_key(key.pointer), &key) << "twice in the table";
    EXPECT_TRUE(key.meaning.ends_with('.'));
    const bool leaf = key.type != KeyType::Object && key.type != KeyType::Rules;
    EXPECT_EQ(key.get != nullptr, leaf);
    EXPECT_EQ(key.set != nullptr, leaf);
    if (key.type == KeyType::Number || key.type == KeyType::Integer) {
      EXPECT_TRUE(std::isfinite(key.min) && std::isfinite(key.max) && key.min < key.max);
    }
    if (key.type == KeyType::Text || key.type == KeyType::Texts) {
      EXPECT_TRUE(key.check != nullptr && !key.form.empty());
    }
    if (key.nullable) {
      EXPECT_TRUE(key.get(ConfigDraft{}).is_null() && !key.default_words.empty());
    }
    const auto parent = key.pointer.substr(0, key.pointer.rfind('/'));
    if (!parent.empty()) {
      EXPECT_NE(find_config_key(parent), nullptr);
    }
  }
}

TEST(Config, AListOfTextsIsCheckedTextByText) {
  const auto with = [](const std::string& senders) {
    return parse(R"({"rules": {"web": {"select": {"unit": "web.service"}, "slo": {"statsd": {"senders": )" +
                 senders + "}}}}}");
  };
  const auto right = with(R"(["/system.slice/proxy.service", "*"])");
  ASSERT_TRUE(right) << right.errors.at(0);
  EXPECT_THAT(right.config->rules.at(0)->slo.statsd.senders, ElementsAre("/system.slice/proxy.service", "*"));
  EXPECT_THAT(with(R"("*")").errors, ElementsAre(HasSubstr("expected a list in brackets, got the text")));
  EXPECT_THAT(with(R"(["*", 1])").errors,
              ElementsAre(HasSubstr("/rules/web/slo/statsd/senders/1: expected text (globs), got ")));
  EXPECT_THAT(with(R"(["proxy"])").errors, ElementsAre(HasSubstr("does not begin with '/'")));
  std::string many = "[\"*\"";
  for (std::size_t i = 0; i < kMostTexts; ++i) many += ", \"/a\"";
  EXPECT_THAT(with(many + "]").errors, ElementsAre(HasSubstr("has more than 64 entries")));
}

TEST(ConfigKeys, DefaultsAreAcceptedByTheirOwnRows) {
  for (const auto& key : config_keys()) {
    if (!key.get || key.nullable) continue;
    SCOPED_TRACE(key.pointer);
    const json value = key.get(ConfigDraft{});
    if (value.is_number()) {
      EXPECT_GE(value.get<double>(), key.min);
      EXPECT_LE(value.get<double>(), key.max);
    }
    if (key.type == KeyType::Choice) {
      EXPECT_THAT(key.choices, ::testing::Contains(value.get<std::string>()));
    }
    if (key.type == KeyType::Text && key.default_words.empty() && key.name() != "application") {
      EXPECT_EQ(key.check(value.get<std::string>()), std::nullopt);
    }
  }
}

TEST(ConfigKeys, EachKeySetsItsOwnFieldAndReadsItBack) {
  for (const auto& key : config_keys()) {
    if (!key.set || key.type == KeyType::Text) continue;
    SCOPED_TRACE(key.pointer);
    json value;
    const json was = key.get(ConfigDraft{});
    if (key.type == KeyType::Boolean) value = !was.get<bool>();
    if (key.type == KeyType::Texts) value = json::array({"/a", "/b*"});
    if (key.type == KeyType::Choice)
      value = std::string(was == std::string(key.choices.back()) ? key.choices.front() : key.choices.back());
    if (key.type == KeyType::Number || key.type == KeyType::Integer)
      value = was == std::floor(key.max) ? key.min : std::floor(key.max);
    ConfigDraft draft;
    key.set(draft, value);
    EXPECT_EQ(key.get(draft), value);
    int changed = 0;
    for (const auto& other : config_keys())
      if (other.get && other.get(draft) != other.get(ConfigDraft{})) ++changed;
    EXPECT_EQ(changed, 1) << "another key shares the field";
  }
}

TEST(ConfigKeys, ShippedSchemaIsWhatTheTableSays) {
  const auto path = source("daemon/schema/flashd.schema.json");
  if (updating()) std::ofstream(path) << config_schema();
  EXPECT_EQ(read_file(path), config_schema()) << "run this test with FLASH_UPDATE=1";
}

std::string roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::string man_page_keys() {
  std::string page;
  for (const auto& key : config_keys()) {
    if (key.type == KeyType::Object || key.type == KeyType::Rules) {
      page += ".SS " + roff(key.pointer) + "\n" + roff(key.meaning) + "\n";
      if (key.only) page += "Only in " + roff(to_string(*key.only)) + " rules.\n";
      continue;
    }
    page += ".TP\n.B " + roff(key.pointer) + "\n" + roff(type_in_words(key)) +
            "; default: " + roff(default_in_words(key)) + ".\n.br\n" + roff(key.meaning) + "\n";
    const auto parent = find_config_key(key.pointer.substr(0, key.pointer.rfind('/')));
    if (key.only && !(parent && parent->only)) page += "Only in " + roff(to_string(*key.only)) + " rules.\n";
  }
  return page;
}

TEST(ConfigKeys, ManualListsWhatTheTableSays) {
  constexpr std::string_view kBegin = ".\\\" keys: generated from the table by config_test\n";
  constexpr std::string_view kEnd = ".\\\" end of keys\n";
  const auto path = source("docs/man/flashd.json.5");
  std::string page = read_file(path);
  const auto begin = page.find(kBegin);
  const auto end = page.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const auto from = begin + kBegin.size();
  if (updating()) {
    page.replace(from, end - from, man_page_keys());
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(from, end - from), man_page_keys()) << "run this test with FLASH_UPDATE=1";
}

TEST(CpuList, IsReadAndWrittenAsTheKernelDoes) {
  EXPECT_EQ(cpus_from_text("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(cpus_from_text("8,0,0-1"), (std::vector<int>{0, 1, 8}));
  EXPECT_EQ(cpus_from_text("all"), std::vector<int>{});
  EXPECT_EQ(cpus_to_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(cpus_to_text({}), "all");
  for (const char* bad : {"", "a", "1-", "-1", "2-1", "1,,2", "1,", "65536", "1 ", "99999999999", "1\n"})
    EXPECT_EQ(cpus_from_text(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace flash::config_keys_test
