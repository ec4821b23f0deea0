// Purpose: the service over a socketpair, without a bus daemon: client and server ends live in this thread
// and are processed in turn.
// Ownership: owns both ends and the world.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "daemon/dbus_service.h"
#include "tests/support/service_world.h"

namespace flash {

inline constexpr const char* kRoot = "/org/flashd";
inline constexpr const char* kManager = "org.flashd.Manager1";
inline constexpr const char* kAgent = "org.flashd.Agent1";
inline constexpr const char* kProperties = "org.freedesktop.DBus.Properties";

struct Unref {
  void operator()(sd_bus* b) const { sd_bus_close_unref(b); }
  void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
};
using Bus = std::unique_ptr<sd_bus, Unref>;
using Message = std::unique_ptr<sd_bus_message, Unref>;

struct Signal1 {
  std::string path, member;
  std::set<std::string> properties;
};

class DbusServiceTest : public testing::Test {
 protected:
  DbusServiceTest() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) check(-errno);
    sd_bus* raw = nullptr;
    sd_id128_t id{};
    id.bytes[0] = 1;
    check(sd_bus_new(&raw));
    server_.reset(raw);
    check(sd_bus_set_fd(raw, ends[0], ends[0]));
    check(sd_bus_set_server(raw, 1, id));
    check(sd_bus_start(raw));
    check(sd_bus_new(&raw));
    client_.reset(raw);
    check(sd_bus_set_fd(raw, ends[1], ends[1]));
    check(sd_bus_start(raw));
    check(sd_bus_add_filter(client_.get(), nullptr, on_message, this));
    world_.start(server_.get());
    settle();
    signals_.clear();
  }

  static void check(int r) {
    if (r < 0) throw std::system_error(-r, std::generic_category());
  }

  void settle() {
    int idle = 0;
    while (idle < 3) {
      int busy = 0;
      for (sd_bus* bus : {server_.get(), client_.get()}) {
        const int r = sd_bus_process(bus, nullptr);
        check(r);
        busy += r;
      }
      idle = busy ? 0 : idle + 1;
    }
  }

  struct Answer {
    Message message;
    std::string error, text;
    bool ok() const { return message && error.empty(); }
    sd_bus_message* operator*() const { return message.get(); }
  };

  template <class... Args>
  Answer call(const char* path, const char* interface, const char* member, const char* types = "",
              Args... args) {
    sd_bus_message* raw = nullptr;
    check(sd_bus_message_new_method_call(client_.get(), &raw, "org.flashd", path, interface, member));
    Message m(raw);
    check(sd_bus_message_append(raw, types, args...));
    Answer answer;
    check(sd_bus_call_async(client_.get(), nullptr, raw, on_answer, &answer, 0));
    settle();
    EXPECT_TRUE(answer.message) << member << " was not answered";
    return answer;
  }
  template <class... Args>
  Answer manager(const char* member, const char* types = "", Args... args) {
    return call(kRoot, kManager, member, types, args...);
  }

  template <class T>
  T property(const char* path, const char* interface, const char* name, const char* type) {
    Answer a = call(path, kProperties, "Get", "ss", interface, name);
    EXPECT_EQ(a.error, "") << name;
    T value{};
    EXPECT_GE(sd_bus_message_read(*a, "v", type, &value), 0) << name;
    return value;
  }
  std::string text_property(const char* path, const char* interface, const char* name) {
    Answer a = call(path, kProperties, "Get", "ss", interface, name);
    const char* value = "";
    EXPECT_GE(sd_bus_message_read(*a, "v", "s", &value), 0) << name;
    return value;
  }

  static std::vector<std::string> strings(sd_bus_message* m) {
    std::vector<std::string> out;
    const char* text = nullptr;
    check(sd_bus_message_enter_container(m, 'a', "s"));
    while (sd_bus_message_read(m, "s", &text) > 0) out.emplace_back(text);
    check(sd_bus_message_exit_container(m));
    return out;
  }
  static std::string path_of(const Answer& a) {
    const char* path = "";
    EXPECT_GE(sd_bus_message_read(*a, "o", &path), 0) << a.error << " " << a.text;
    return path;
  }

  static int on_answer(sd_bus_message* m, void* userdata, sd_bus_error*) {
    Answer& a = *static_cast<Answer*>(userdata);
    a.message.reset(sd_bus_message_ref(m));
    if (const sd_bus_error* e = sd_bus_message_get_error(m)) {
      a.error = e->name;
      a.text = e->message ? e->message : "";
    }
    return 0;
  }

  static int on_message(sd_bus_message* m, void* userdata, sd_bus_error*) {
    std::uint8_t type = 0;
    sd_bus_message_get_type(m, &type);
    if (type != SD_BUS_MESSAGE_SIGNAL) return 0;
    Signal1 s{sd_bus_message_get_path(m), sd_bus_message_get_member(m), {}};
    if (s.member == "PropertiesChanged") {
      check(sd_bus_message_skip(m, "s"));
      check(sd_bus_message_enter_container(m, 'a', "{sv}"));
      const char* name = nullptr;
      while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
        check(sd_bus_message_read(m, "s", &name));
        check(sd_bus_message_skip(m, "v"));
        check(sd_bus_message_exit_container(m));
        s.properties.insert(name);
      }
    } else {
      const char* path = nullptr;
      check(sd_bus_message_read(m, "o", &path));
      s.path = path;
    }
    static_cast<DbusServiceTest*>(userdata)->signals_.push_back(s);
    return 0;
  }

  Bus server_, client_;
  fake::ServiceWorld world_;
  std::vector<Signal1> signals_;
};

}  // namespace flash
