/* Purpose: what the kernel side (requests.bpf.c) and the user side (requests.cc) of the request probe share.
 * Ownership: plain data. Thread rule: none needed. */
#ifndef COLLECTORS_BPF_REQUESTS_BPF_H
#define COLLECTORS_BPF_REQUESTS_BPF_H

#include <linux/types.h>

/* Histogram of latencies in units of 1024 ns: 16 slots per octave: 0 to 15, then
 * [2^m * (16+s)/16, 2^m * (17+s)/16) in slot 16 * (m - 3) + s; the last one is open: 368 slots reach 68 s. */
#define FLASH_LATENCY_SLOTS 368
#define FLASH_LATENCY_SHIFT 10

/* Levels above a socket's cgroup that are looked at for watched ones. */
#define FLASH_REQUEST_DEPTH 16

/* Of one watched cgroup with its descendants, since it is watched. */
struct flash_requests {
  __u64 requests;    /* answered: a first byte in had its first byte out */
  __u64 untimed;     /* of those, in no slot: the first exchange of a TLS connection */
  __u64 multiplexed; /* connections that begin as HTTP/2 does: nothing of theirs is counted */
  __u64 unstored;    /* connections that the kernel had no room to follow */
  __u32 latencies[FLASH_LATENCY_SLOTS]; /* wrap around: only differences mean something */
};

/* What a connection is. */
enum flash_connection_kind {
  FLASH_CONNECTION_NEW, /* a server's; nothing has come in */
  FLASH_CONNECTION_PLAIN,
  FLASH_CONNECTION_TLS,
  FLASH_CONNECTION_MULTIPLEXED, /* not followed */
  FLASH_CONNECTION_CLIENT,      /* not followed */
};

/* Of one connection; in its socket, gone with it. */
struct flash_connection {
  __u64 began_ns; /* first byte of the request under way; 0: none */
  __u32 in_end;   /* sequence number after the newest byte that came in, and went out */
  __u32 out_end;
  __u8 kind;
  __u8 in_known;
  __u8 out_known;
  __u8 answered; /* requests, up to 255 */
  __u32 padding;
};

#endif
