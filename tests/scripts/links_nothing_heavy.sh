#!/usr/bin/env bash
# ldd of the daemon names neither torch nor nats (nor curl, nor an HTTP server, nor TLS, nor a database, nor any BLAS).
set -u
libs=$(ldd "$1") || { echo "ldd $1 failed"; exit 1; }
echo "$libs" | grep -q libsystemd || { echo "ldd shows no libsystemd: is this the daemon?"; exit 1; }
if echo "$libs" | grep -Ei 'torch|nats|curl|microhttpd|libssl|gnutls|sqlite|blas|libc10'; then echo "flashd must not need these"; exit 1; fi
