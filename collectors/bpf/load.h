// Purpose: why the kernel did not take a BPF program, for people.
// Ownership: none.
// Thread rule: one thread loads programs; libbpf has one place for its complaints in a process.
#pragma once

#include <string_view>

#include "core/result.h"

namespace flash {

/// Before opening a skeleton: libbpf's complaints go into why_not_loaded(), nowhere else.
void note_bpf_complaints();

/// `err`: errno of what failed. `capabilities` names those that the program needs. ENOENT: the kernel has no
/// BTF; EPERM: not permitted; else as it is, with libbpf's first complaint.
Error why_not_loaded(int err, std::string_view capabilities);

}  // namespace flash
