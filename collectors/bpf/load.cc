#include "collectors/bpf/load.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "host/file_io.h"

namespace flash {
namespace {

/// libbpf's first complaint: part of the reason when loading fails. The room logs nothing itself.
std::string& complaint() {
  static std::string text;
  return text;
}

int note_complaint(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN) return 0;
  char text[256];
  const int n = std::vsnprintf(text, sizeof text, format, arguments);
  std::string_view line(text, static_cast<std::size_t>(std::clamp<int>(n, 0, sizeof text - 1)));
  line = line.substr(0, line.find('\n'));
  // The first one names the cause; those after it say that therefore something else failed.
  if (complaint().empty()) complaint() = line;
  return n;
}

bool locked_down() {
  const auto text = read_file("/sys/kernel/security/lockdown");
  return text && text->find("[confidentiality]") != std::string::npos;
}

}  // namespace

void note_bpf_complaints() {
  libbpf_set_print(note_complaint);
  complaint().clear();
}

Error why_not_loaded(int err, std::string_view capabilities) {
  if (!exists("/sys/kernel/btf/vmlinux"))
    return {std::errc::no_such_file_or_directory, "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"};
  if (err == EPERM || err == EACCES)
    return {std::errc::operation_not_permitted,
            locked_down() ? "the kernel is locked down (confidentiality): no BPF program may read it"
                          : "not permitted (" + std::string(capabilities) + " are needed)"};
  Error error = Error::from_errno(err, "the kernel did not accept the program");
  if (complaint().empty()) return error;
  return {error.code(), error.message() + " (" + complaint() + ")"};
}

}  // namespace flash
