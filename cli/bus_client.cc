#include "cli/bus_client.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace flash::cli {
namespace {

using nlohmann::json;

struct ErrorRow {
  const char* name;
  Exit code;
};
constexpr std::array kErrors = {
    ErrorRow{SD_BUS_ERROR_SERVICE_UNKNOWN, Exit::NotRunning},
    ErrorRow{SD_BUS_ERROR_NAME_HAS_NO_OWNER, Exit::NotRunning},
    ErrorRow{SD_BUS_ERROR_DISCONNECTED, Exit::NotRunning},
    // sd-bus' own, when the connection fails or is refused before the bus answers.
    ErrorRow{"System.Error.ENOTCONN", Exit::NotRunning},
    ErrorRow{"System.Error.ECONNRESET", Exit::NotRunning},
    ErrorRow{"System.Error.ECONNREFUSED", Exit::NotRunning},
    ErrorRow{"System.Error.EPIPE", Exit::NotRunning},
    ErrorRow{SD_BUS_ERROR_ACCESS_DENIED, Exit::Denied},
    ErrorRow{SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED, Exit::Denied},
    ErrorRow{"org.flashd.Error.NoSuchTarget", Exit::NoSuchTarget},
    ErrorRow{"org.flashd.Error.AmbiguousTarget", Exit::NoSuchTarget},
    ErrorRow{SD_BUS_ERROR_UNKNOWN_OBJECT, Exit::NoSuchTarget},
    ErrorRow{SD_BUS_ERROR_INVALID_ARGS, Exit::Usage},
};

[[noreturn]] void raise(const sd_bus_error& e, int r, const char* program) {
  const std::string name = e.name ? e.name : SD_BUS_ERROR_FAILED;
  std::string message = e.message ? e.message : std::strerror(-r);
  Exit code = Exit::Failure;
  for (const auto& row : kErrors)
    if (name == row.name) code = row.code;
  if (code == Exit::NotRunning)
    message = std::string(program) + " cannot be reached, is it running? (" + message + ")";
  throw CliError(code, name, message);
}

json decode(sd_bus_message* m);

json decode_container(sd_bus_message* m, char type, const char* contents) {
  json out = json::array();
  const bool dictionary = type == SD_BUS_TYPE_ARRAY && contents[0] == SD_BUS_TYPE_DICT_ENTRY_BEGIN;
  if (dictionary) out = json::object();
  if (sd_bus_message_enter_container(m, type, contents) < 0) return nullptr;
  while (sd_bus_message_at_end(m, 0) == 0) {
    json item = decode(m);
    if (dictionary)
      out[item[0].is_string() ? item[0].get<std::string>() : item[0].dump()] = std::move(item[1]);
    else
      out.push_back(std::move(item));
  }
  sd_bus_message_exit_container(m);
  if (type == SD_BUS_TYPE_VARIANT) return out.empty() ? json() : json(out[0]);
  return out;
}

template <class T>
json decode_basic(sd_bus_message* m, char type) {
  T value{};
  if (sd_bus_message_read_basic(m, type, &value) < 0)
    throw CliError(Exit::Failure, "flashctl.BadAnswer", "the answer of flashd cannot be read");
  return value;
}

json decode(sd_bus_message* m) {
  char type = 0;
  const char* contents = nullptr;
  if (sd_bus_message_peek_type(m, &type, &contents) <= 0)
    throw CliError(Exit::Failure, "flashctl.BadAnswer", "the answer of flashd cannot be read");
  switch (type) {
    case SD_BUS_TYPE_STRING:
    case SD_BUS_TYPE_OBJECT_PATH:
    case SD_BUS_TYPE_SIGNATURE:
      return decode_basic<const char*>(m, type);
    case SD_BUS_TYPE_BOOLEAN:
      return decode_basic<int>(m, type) != 0;
    case SD_BUS_TYPE_BYTE:
      return decode_basic<std::uint8_t>(m, type);
    case SD_BUS_TYPE_INT16:
      return decode_basic<std::int16_t>(m, type);
    case SD_BUS_TYPE_UINT16:
      return decode_basic<std::uint16_t>(m, type);
    case SD_BUS_TYPE_INT32:
      return decode_basic<std::int32_t>(m, type);
    case SD_BUS_TYPE_UINT32:
      return decode_basic<std::uint32_t>(m, type);
    case SD_BUS_TYPE_INT64:
      return decode_basic<std::int64_t>(m, type);
    case SD_BUS_TYPE_UINT64:
      return decode_basic<std::uint64_t>(m, type);
    case SD_BUS_TYPE_DOUBLE:
      return decode_basic<double>(m, type);
    default:
      return decode_container(m, type, contents);
  }
}

}  // namespace

BusClient::BusClient(const std::string& address, Peer peer) : peer_(peer) {
  sd_bus* bus = nullptr;
  int r = 0;
  if (address.empty()) {
    r = sd_bus_open_system(&bus);
    bus_.reset(bus);
  } else {
    r = sd_bus_new(&bus);
    bus_.reset(bus);
    if (r >= 0) r = sd_bus_set_address(bus, address.c_str());
    if (r >= 0) r = sd_bus_set_bus_client(bus, 1);
    if (r >= 0) r = sd_bus_start(bus);
  }
  if (r < 0)
    throw CliError(Exit::NotRunning, SD_BUS_ERROR_NO_SERVER,
                   "no connection to the " +
                       (address.empty() ? std::string("system bus") : "bus at " + address) + ": " +
                       std::strerror(-r));
}

BusClient::Message BusClient::prepare(const std::string& path, const char* interface, const char* member) {
  sd_bus_message* m = nullptr;
  check(sd_bus_message_new_method_call(bus_.get(), &m, peer_.bus_name, path.c_str(), interface, member),
        member);
  Message message(m);
  // flashctl asks; only systemd starts the daemon.
  check(sd_bus_message_set_auto_start(m, 0), member);
  return message;
}

nlohmann::json BusClient::send(sd_bus_message* m, std::uint64_t timeout_us) {
  sd_bus_error error = SD_BUS_ERROR_NULL;
  sd_bus_message* raw = nullptr;
  int r = sd_bus_call(bus_.get(), m, timeout_us, &error, &raw);
  // Who asks for the first time is a stranger until flashd has heard from the bus who it is.
  for (int again = 0; again < 3 && r < 0 && sd_bus_error_has_name(&error, SD_BUS_ERROR_LIMITS_EXCEEDED);
       ++again) {
    sd_bus_error_free(&error);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    r = sd_bus_call(bus_.get(), m, timeout_us, &error, &raw);
  }
  Message reply(raw);
  if (r < 0) {
    struct Free {
      sd_bus_error* e;
      ~Free() { sd_bus_error_free(e); }
    } free{&error};
    raise(error, r, peer_.program);
  }
  json results = json::array();
  while (sd_bus_message_at_end(raw, 1) == 0) results.push_back(decode(raw));
  return results;
}

void BusClient::check(int r, const char* what) {
  if (r >= 0) return;
  const bool gone = r == -ENOTCONN || r == -ECONNRESET;
  throw CliError(gone ? Exit::NotRunning : Exit::Failure, SD_BUS_ERROR_FAILED,
                 std::string(what) + ": " + std::strerror(-r));
}

}  // namespace flash::cli
