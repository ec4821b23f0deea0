// Purpose: a connection to the bus that a call can never hold up for long.
// Ownership: the caller closes it (sd_bus_close_unref).
// Thread rule: one thread.
#pragma once

#include <systemd/sd-bus.h>

#include <string>

#include "core/time.h"

namespace flash {

/// `address` empty: the system bus; "none": none. Null: none, and `trouble` says why where one was wanted.
sd_bus* open_bus(const std::string& address, std::string& trouble);

/// Authentication and Hello: without them every call would wait for them, up to 25 s where the bus hangs.
bool wait_ready(sd_bus* bus, Duration longest);

}  // namespace flash
