// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
// The request probe, kernel side: how long a server's TCP connection takes from the first byte in to the
// first byte out, per watched cgroup. Attached to the cgroups that are watched, so that the sockets of others
// cost nothing. The user side watches cgroups by making entries in `cgroups`; nothing is ever added to it
// here. What is known of a connection lies in its socket and goes with it.
//
// A connection is a server's when it was accepted (on_socket), or, if it is older than the probe, when its
// local port has a listener. Bytes that came or went already (retransmissions, keep-alive probes) begin and
// end nothing; so a packet that passes two watched cgroups, one in the other, counts once.
#include <linux/bpf.h>
#include <stdbool.h>
// clang-format off
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "collectors/bpf/cost.bpf.h"
#include "collectors/bpf/requests.bpf.h"

char LICENSE[] SEC("license") = "GPL";

#define PASS 1
#define AF_INET 2
#define AF_INET6 10

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);  // the loader
  __type(key, __u64);
  __type(value, struct flash_requests);
} cgroups SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct flash_connection);
} connections SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct flash_cost);
} costs SEC(".maps");

static __always_inline struct flash_cost* cost_of_cpu(void) {
  const __u32 first = 0;
  return bpf_map_lookup_elem(&costs, &first);
}

struct segment {
  __u32 begin;  // sequence number of its first byte
  __u32 bytes;  // without headers
  __u32 at;     // of the first byte in the packet
};

/// False: not TCP.
static __always_inline bool dissect(struct __sk_buff* skb, struct segment* s) {
  void* data = (void*)(long)skb->data;
  void* end = (void*)(long)skb->data_end;
  __u32 ip_bytes;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    struct iphdr* ip = data;
    if ((void*)(ip + 1) > end || ip->protocol != IPPROTO_TCP) return false;
    ip_bytes = ip->ihl * 4;
  } else {
    struct ipv6hdr* ip = data;
    if ((void*)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP) return false;
    ip_bytes = sizeof *ip;
  }
  if (ip_bytes < sizeof(struct iphdr) || ip_bytes > 60) return false;
  struct tcphdr* tcp = data + ip_bytes;
  if ((void*)(tcp + 1) > end) return false;
  s->begin = bpf_ntohl(tcp->seq);
  s->at = ip_bytes + tcp->doff * 4;
  s->bytes = skb->len > s->at ? skb->len - s->at : 0;
  return true;
}

/// Moves *end to the segment's; false: all of it was there already.
static __always_inline bool is_new(const struct segment* s, __u32* end, __u8* known) {
  const __u32 after = s->begin + s->bytes;
  if (*known && (__s32)(after - *end) <= 0) return false;
  *end = after;
  *known = 1;
  return true;
}

/// Of the first bytes that a client sends.
static __always_inline __u8 kind_of(struct __sk_buff* skb, const struct segment* s) {
  __u8 first[4] = {};
  if (bpf_skb_load_bytes(skb, s->at, first, 4) != 0) return FLASH_CONNECTION_PLAIN;
  if (first[0] == 0x16 && first[1] == 3) return FLASH_CONNECTION_TLS;  // a handshake record
  if (first[0] == 'P' && first[1] == 'R' && first[2] == 'I' && first[3] == ' ')
    return FLASH_CONNECTION_MULTIPLEXED;
  return FLASH_CONNECTION_PLAIN;
}

static __always_inline __u32 latency_slot(__u64 ns) {
  const __u64 v = ns >> FLASH_LATENCY_SHIFT;
  if (v < 16) return v;
  if (v >> 26) return FLASH_LATENCY_SLOTS - 1;
  __u32 m = 4;
  __u32 high = v >> 4;
  if (high >> 16) m += 16, high >>= 16;
  if (high >> 8) m += 8, high >>= 8;
  if (high >> 4) m += 4, high >>= 4;
  if (high >> 2) m += 2, high >>= 2;
  if (high >> 1) m += 1;
  return 16 * (m - 3) + ((v >> (m - 4)) & 15);
}

enum what { ANSWERED, ANSWERED_UNTIMED, IS_MULTIPLEXED, IS_UNSTORED };

/// For the socket's cgroup and those above it.
static __always_inline void count(struct __sk_buff* skb, enum what what, __u64 latency_ns) {
  __u32 slot = latency_slot(latency_ns);
  asm volatile("" : "+r"(slot));  // the bound below is for the verifier, in the register that it checks
  if (slot >= FLASH_LATENCY_SLOTS) return;
  for (int level = 1; level <= FLASH_REQUEST_DEPTH; ++level) {
    const __u64 id = bpf_skb_ancestor_cgroup_id(skb, level);
    if (!id) return;
    struct flash_requests* counts = bpf_map_lookup_elem(&cgroups, &id);
    if (!counts) continue;
    if (what == IS_MULTIPLEXED) {
      __sync_fetch_and_add(&counts->multiplexed, 1);
    } else if (what == IS_UNSTORED) {
      __sync_fetch_and_add(&counts->unstored, 1);
    } else {
      __sync_fetch_and_add(&counts->requests, 1);
      if (what == ANSWERED_UNTIMED)
        __sync_fetch_and_add(&counts->untimed, 1);
      else
        __sync_fetch_and_add(&counts->latencies[slot], 1);
    }
  }
}

/// Does the packet's destination have a listener? Asked once per connection that is older than the probe.
static __always_inline bool is_served(struct __sk_buff* skb, const struct segment* s) {
  // A peer that no connection has, so that only a listener is found.
  struct bpf_sock_tuple tuple = {};
  struct bpf_sock* sk;
  if (skb->protocol == bpf_htons(ETH_P_IP)) {
    struct iphdr ip;
    struct tcphdr tcp;
    if (bpf_skb_load_bytes(skb, 0, &ip, sizeof ip) != 0) return false;
    if (bpf_skb_load_bytes(skb, ip.ihl * 4, &tcp, sizeof tcp) != 0) return false;
    tuple.ipv4.daddr = ip.daddr;
    tuple.ipv4.dport = tcp.dest;
    sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof tuple.ipv4, BPF_F_CURRENT_NETNS, 0);
  } else {
    struct ipv6hdr ip;
    struct tcphdr tcp;
    if (bpf_skb_load_bytes(skb, 0, &ip, sizeof ip) != 0) return false;
    if (bpf_skb_load_bytes(skb, sizeof ip, &tcp, sizeof tcp) != 0) return false;
    __builtin_memcpy(tuple.ipv6.daddr, &ip.daddr, sizeof tuple.ipv6.daddr);
    tuple.ipv6.dport = tcp.dest;
    sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof tuple.ipv6, BPF_F_CURRENT_NETNS, 0);
  }
  if (!sk) return false;
  const bool listens = sk->state == BPF_TCP_LISTEN;
  bpf_sk_release(sk);
  return listens;
}

static __always_inline void begin(struct flash_connection* c) {
  if (!c->began_ns) c->began_ns = bpf_ktime_get_ns();
}

static __always_inline void came_in(struct __sk_buff* skb) {
  struct bpf_sock* sk = skb->sk;
  if (!sk) return;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->protocol != IPPROTO_TCP || sk->state == BPF_TCP_LISTEN) return;
  struct segment s;
  struct flash_connection* c = bpf_sk_storage_get(&connections, sk, 0, 0);
  if (c && c->kind >= FLASH_CONNECTION_MULTIPLEXED) return;
  if (!dissect(skb, &s) || s.bytes == 0) return;
  if (!c) {
    c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!c) {
      count(skb, IS_UNSTORED, 0);
      return;
    }
    if (!is_served(skb, &s)) {
      c->kind = FLASH_CONNECTION_CLIENT;
      return;
    }
  }
  if (!is_new(&s, &c->in_end, &c->in_known)) return;
  if (c->kind == FLASH_CONNECTION_NEW) {
    c->kind = kind_of(skb, &s);
    if (c->kind == FLASH_CONNECTION_MULTIPLEXED) {
      count(skb, IS_MULTIPLEXED, 0);
      return;
    }
  }
  if (c->kind == FLASH_CONNECTION_TLS) {
    // Only a record of application data asks for something.
    __u8 record = 0;
    if (!c->began_ns && (bpf_skb_load_bytes(skb, s.at, &record, 1) != 0 || record != 0x17)) return;
  }
  begin(c);
}

static __always_inline void goes_out(struct __sk_buff* skb) {
  struct bpf_sock* sk = skb->sk;
  if (!sk) return;
  sk = bpf_sk_fullsock(sk);
  if (!sk || sk->protocol != IPPROTO_TCP) return;
  struct flash_connection* c = bpf_sk_storage_get(&connections, sk, 0, 0);
  if (!c || c->kind >= FLASH_CONNECTION_MULTIPLEXED) return;
  struct segment s;
  if (!dissect(skb, &s) || s.bytes == 0 || !is_new(&s, &c->out_end, &c->out_known)) return;
  const __u64 began_ns = c->began_ns;
  if (!began_ns) return;
  c->began_ns = 0;
  // After its handshake a TLS 1.3 server sends session tickets, whenever it likes: they could be taken for
  // the first answer.
  const bool untimed = c->kind == FLASH_CONNECTION_TLS && c->answered == 0;
  if (c->answered < 255) c->answered++;
  count(skb, untimed ? ANSWERED_UNTIMED : ANSWERED, bpf_ktime_get_ns() - began_ns);
}

static __always_inline int timed(struct __sk_buff* skb, void (*look)(struct __sk_buff*)) {
  struct flash_cost* cost = cost_of_cpu();
  if (!cost) return PASS;
  const __u64 began = begin_run(cost);
  look(skb);
  end_run(cost, began);
  return PASS;
}

SEC("cgroup_skb/ingress")
int on_ingress(struct __sk_buff* skb) {
  return timed(skb, came_in);
}

SEC("cgroup_skb/egress")
int on_egress(struct __sk_buff* skb) {
  return timed(skb, goes_out);
}

SEC("sockops")
int on_socket(struct bpf_sock_ops* ops) {
  if (ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && ops->op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
    return 1;
  struct bpf_sock* sk = ops->sk;
  if (!sk) return 1;
  struct flash_connection* c = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  if (!c) return 1;  // the first byte that comes in tries again, and counts
  if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB) {
    c->kind = FLASH_CONNECTION_CLIENT;
    return 1;
  }
  // TCP_DEFER_ACCEPT and fast open: the packet that makes the connection brings the request, and passed
  // on_ingress as the listener's.
  struct tcphdr* tcp = (void*)(long)ops->skb_data;
  if ((void*)(tcp + 1) > (void*)(long)ops->skb_data_end) return 1;
  const __u32 header = tcp->doff * 4;
  if (ops->skb_len <= header) return 1;
  c->in_end = bpf_ntohl(tcp->seq) + tcp->syn + ops->skb_len - header;
  c->in_known = 1;
  c->kind = FLASH_CONNECTION_PLAIN;
  begin(c);
  return 1;
}
