#include <string>
#include <string_view>
#include <vector>

#include "daemon/dbus_service.h"

namespace flash {

extern const std::string_view kOrgFlashdXml;  // daemon/dbus/introspection.cc.in

namespace {

std::string collapse_spaces(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// <doc>text</doc> as the annotation GLib's tools know.
std::string docs_as_annotations(std::string_view xml) {
  constexpr std::string_view kOpen = "<doc>", kClose = "</doc>";
  std::string out;
  while (true) {
    const auto open = xml.find(kOpen);
    const auto close = xml.find(kClose);
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) break;
    out += xml.substr(0, open);
    out += "<annotation name=\"org.gtk.GDBus.DocString\" value=\"";
    for (char c : collapse_spaces(xml.substr(open + kOpen.size(), close - open - kOpen.size())))
      c == '"' ? out += "&quot;" : out += c;
    out += "\"/>";
    xml.remove_prefix(close + kClose.size());
  }
  return out += xml;
}

/// What every object of sd-bus answers besides our interfaces.
constexpr std::string_view kStandardInterfaces = R"(  <interface name="org.freedesktop.DBus.Peer">
    <method name="Ping"/>
    <method name="GetMachineId"><arg type="s" name="machine_uuid" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect"><arg name="xml_data" type="s" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Properties">
    <method name="Get">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="property_name" type="s" direction="in"/>
      <arg name="value" type="v" direction="out"/>
    </method>
    <method name="GetAll">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="props" type="a{sv}" direction="out"/>
    </method>
    <method name="Set">
      <arg name="interface_name" type="s" direction="in"/>
      <arg name="property_name" type="s" direction="in"/>
      <arg name="value" type="v" direction="in"/>
    </method>
    <signal name="PropertiesChanged">
      <arg type="s" name="interface_name"/>
      <arg type="a{sv}" name="changed_properties"/>
      <arg type="as" name="invalidated_properties"/>
    </signal>
  </interface>
)";
constexpr std::string_view kObjectManagerInterface =
    R"(  <interface name="org.freedesktop.DBus.ObjectManager">
    <method name="GetManagedObjects">
      <arg type="a{oa{sa{sv}}}" name="objects" direction="out"/>
    </method>
    <signal name="InterfacesAdded">
      <arg type="o" name="object"/>
      <arg type="a{sa{sv}}" name="interfaces_and_properties"/>
    </signal>
    <signal name="InterfacesRemoved">
      <arg type="o" name="object"/>
      <arg type="as" name="interfaces"/>
    </signal>
  </interface>
)";

}  // namespace

std::string dbus_introspection(std::string_view interface, bool object_manager,
                               const std::vector<std::string>& children) {
  std::string out =
      "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n"
      "\"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n";
  out += kStandardInterfaces;
  if (object_manager) out += kObjectManagerInterface;
  if (!interface.empty()) {
    const auto begin = kOrgFlashdXml.find("<interface name=\"" + std::string(interface) + "\"");
    if (begin != std::string_view::npos) {
      constexpr std::string_view kEnd = "</interface>";
      const auto end = kOrgFlashdXml.find(kEnd, begin);
      out += "  " + docs_as_annotations(kOrgFlashdXml.substr(begin, end + kEnd.size() - begin)) + "\n";
    }
  }
  for (const auto& child : children) out += "  <node name=\"" + child + "\"/>\n";
  return out += "</node>\n";
}

}  // namespace flash
