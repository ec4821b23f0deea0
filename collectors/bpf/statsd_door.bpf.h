/* Purpose: what the kernel side (statsd_door.bpf.c) and the user side (statsd_door.cc) of the door to the
 * StatsD socket share, with the budget that both keep. Ownership: plain data. Thread rule: none needed. */
#ifndef COLLECTORS_BPF_STATSD_DOOR_BPF_H
#define COLLECTORS_BPF_STATSD_DOOR_BPF_H

#include <linux/types.h>

/* Levels above a sender's cgroup that are looked at for admitted ones. */
#define FLASH_DOOR_DEPTH 16
/* Strangers' cgroups whose budgets are kept, the latest. */
#define FLASH_DOOR_STRANGERS 1024

/* What a datagram costs beside its bytes: taking it costs about as much as reading so many. */
#define FLASH_DATAGRAM_COST 256

/* Which hierarchy's cgroups are admitted. */
enum flash_door_hierarchy {
  FLASH_DOOR_UNIFIED,
  FLASH_DOOR_CPU,
  FLASH_DOOR_MEMORY,
};

/* So many bytes (with FLASH_DATAGRAM_COST) per second, and so many at once. */
struct flash_budget {
  __u64 per_s;
  __u64 burst;
};

/* Kept for the user side where the program cannot be loaded. */
struct flash_door_settings {
  struct flash_budget member;    /* of one admitted cgroup */
  struct flash_budget stranger;  /* of one cgroup that is not */
  struct flash_budget strangers; /* of all of them together */
};

/* An admitted cgroup. */
struct flash_member {
  __u64 paid_ns; /* until when its budget is spent */
  __u64 dropped;
};

struct flash_door_counts {
  __u64 passed;
  __u64 dropped_members;
  __u64 dropped_strangers;
};

/* Takes `cost` from a budget of which is known until when it is spent. 0: there is not so much left. Callers
 * on several CPUs at once may each take the same: at most as many times as there are CPUs. */
static inline int flash_take(__u64* paid_ns, struct flash_budget budget, __u64 cost, __u64 now_ns) {
  const __u64 per_s = budget.per_s ? budget.per_s : 1;
  const __u64 burst_ns = budget.burst * 1000000000ull / per_s;
  const __u64 oldest = now_ns > burst_ns ? now_ns - burst_ns : 0;
  __u64 paid = *paid_ns;
  if (paid < oldest) paid = oldest;
  paid += cost * 1000000000ull / per_s;
  if (paid > now_ns) return 0;
  *paid_ns = paid;
  return 1;
}

#endif
