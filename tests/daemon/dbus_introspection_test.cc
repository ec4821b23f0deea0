// The contract: what the bus says of itself, the tables behind it, the man page.
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/daemon/dbus_service_fixture.h"
#include "tests/support/introspection.h"

namespace flash {
namespace {

using fake::ServiceWorld;
using testing::HasSubstr;

std::string introspect(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST_F(DbusServiceTest, IntrospectsWithDocumentation) {
  const auto xml = [&](const char* path) {
    Answer a = call(path, "org.freedesktop.DBus.Introspectable", "Introspect");
    const char* text = "";
    EXPECT_GE(sd_bus_message_read(*a, "s", &text), 0) << a.error;
    return introspect(text);
  };
  EXPECT_THAT(xml(kRoot), HasSubstr("Kill switch: every knob goes back"));
  EXPECT_THAT(xml(kRoot), HasSubstr("org.freedesktop.DBus.ObjectManager"));
  EXPECT_THAT(xml(kRoot), HasSubstr("<node name=\"agent\"/>"));
  EXPECT_THAT(xml(kRoot), testing::Not(HasSubstr("<doc>"))) << "busctl refuses foreign elements";
  EXPECT_THAT(xml("/org/flashd/agent"), HasSubstr("<node name=\"limits_11\"/>"));
  EXPECT_THAT(xml(ServiceWorld::kWebPath), HasSubstr("interface name=\"org.flashd.Agent1\""));
  EXPECT_EQ(call("/org/flashd/agent/limits_99", "org.freedesktop.DBus.Introspectable", "Introspect").error,
            SD_BUS_ERROR_UNKNOWN_OBJECT);
}

TEST_F(DbusServiceTest, TablesSayWhatTheContractSays) {
  // What sd-bus itself says of the tables, on objects where nothing intercepts Introspect.
  check(
      sd_bus_add_object_vtable(server_.get(), nullptr, "/tables", kManager, dbus_manager_vtable(), &world_));
  check(sd_bus_add_object_vtable(server_.get(), nullptr, "/tables", kAgent, dbus_agent_vtable(), &world_));
  Answer a = call("/tables", "org.freedesktop.DBus.Introspectable", "Introspect");
  const char* text = "";
  ASSERT_GE(sd_bus_message_read(*a, "s", &text), 0);
  for (const char* interface : {kManager, kAgent}) {
    const auto tables = members(text, interface);
    EXPECT_GT(tables.size(), 10u);
    EXPECT_EQ(tables, members(dbus_introspection(interface, false, {}), interface));
  }
}

TEST(DbusIntrospection, DocumentsEveryMember) {
  for (const char* interface : {kManager, kAgent}) {
    const std::string xml = dbus_introspection(interface, false, {});
    const std::regex member("<(method|property) name=\"(\\w+)\"");
    for (std::sregex_iterator i(xml.begin(), xml.end(), member), end; i != end; ++i) {
      if (static_cast<std::size_t>(i->position()) < xml.find(std::string("<interface name=\"") + interface))
        continue;
      const auto close = xml.find("</" + (*i)[1].str(), static_cast<std::size_t>(i->position()));
      const std::string body = xml.substr(static_cast<std::size_t>(i->position()), close - i->position());
      EXPECT_THAT(body, HasSubstr("DocString")) << (*i)[2];
    }
  }
}

TEST(DbusManPage, NamesEveryMemberWithItsTypes) {
  std::ifstream in(std::string(FLASH_SOURCE_DIR) + "/docs/man/org.flashd.5");
  std::stringstream page;
  page << in.rdbuf();
  for (const char* interface : {kManager, kAgent}) {
    for (const std::string& line : members(dbus_introspection(interface, false, {}), interface)) {
      std::istringstream words(line);
      std::string kind, name, expected;
      words >> kind >> name;
      if (kind == "property") {
        std::string type, emits;
        words >> type >> emits;
        expected = ".BR " + name + " \" (" + type +
                   (emits == "emits=true"    ? ", emits"
                    : emits == "emits=const" ? ", constant"
                                             : "") +
                   ")\"";
      } else {
        expected = ".BR " + name + " \" " + arguments_in_roff(line) + "\"";
      }
      EXPECT_NE(page.str().find(expected + "\n"), std::string::npos) << expected;
    }
  }
}

}  // namespace
}  // namespace flash
