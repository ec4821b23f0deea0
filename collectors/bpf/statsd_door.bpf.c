// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
// The door to the StatsD socket, kernel side: a socket filter, which on a UNIX datagram socket runs in the
// sender's own context, before anything is queued. So a flood costs the one who floods, takes no place in the
// queue from others, and wakes nobody. Who is admitted is what the user side put into `members`; cgroups
// below an admitted one share its budget, all others have a small one of their own and one together. A
// datagram that is dropped is no error for its sender.
#include <linux/bpf.h>
#include <stdbool.h>
// clang-format off
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
// clang-format on

#include "collectors/bpf/statsd_door.bpf.h"

// The parts of the kernel's types that are read here; their offsets are found when the object is loaded.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
  __u64 id;
};
struct cgroup_subsys_state {
  struct cgroup* cgroup;
  struct cgroup_subsys_state* parent;
};
struct cgroup {
  struct cgroup_subsys_state self;
  struct kernfs_node* kn;
};
struct css_set {
  struct cgroup_subsys_state* subsys[1];
  struct cgroup* dfl_cgrp;
};
struct task_struct {
  struct css_set* cgroups;
};
#pragma clang attribute pop

enum cgroup_subsys_id { cpu_cgrp_id = 1, memory_cgrp_id = 4 };

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 hierarchy = FLASH_DOOR_UNIFIED;
struct flash_door_settings settings;  // the user side may change it

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);  // the loader
  __type(key, __u64);
  __type(value, struct flash_member);
} members SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, FLASH_DOOR_STRANGERS);
  __type(key, __u64);
  __type(value, __u64);  // until when its budget is spent
} strangers SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct flash_door_counts);
} counts SEC(".maps");

__u64 strangers_paid_ns;

static __always_inline struct cgroup* cgroup_of(struct task_struct* task) {
  struct css_set* set = BPF_CORE_READ(task, cgroups);
  if (hierarchy == FLASH_DOOR_UNIFIED) return BPF_CORE_READ(set, dfl_cgrp);
  const __u64 index = hierarchy == FLASH_DOOR_CPU
                          ? bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)
                          : bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
  struct cgroup_subsys_state** subsys = (void*)set + bpf_core_field_offset(struct css_set, subsys);
  struct cgroup_subsys_state* state = 0;
  bpf_probe_read_kernel(&state, sizeof state, subsys + index);
  return BPF_CORE_READ(state, cgroup);
}

SEC("socket")
int at_door(struct __sk_buff* skb) {
  const __u32 first = 0;
  struct flash_door_counts* count = bpf_map_lookup_elem(&counts, &first);
  if (!count) return -1;
  const __u64 now = bpf_ktime_get_ns();
  const __u64 cost = FLASH_DATAGRAM_COST + skb->len;
  struct cgroup* cgroup = cgroup_of((void*)bpf_get_current_task());
  __u64 own = 0;
  for (int level = 0; level < FLASH_DOOR_DEPTH && cgroup; ++level) {
    const __u64 id = BPF_CORE_READ(cgroup, kn, id);
    if (level == 0) own = id;
    struct flash_member* member = bpf_map_lookup_elem(&members, &id);
    if (member) {
      if (flash_take(&member->paid_ns, settings.member, cost, now)) {
        count->passed++;
        return -1;  // all of it
      }
      __sync_fetch_and_add(&member->dropped, 1);
      count->dropped_members++;
      return 0;
    }
    cgroup = BPF_CORE_READ(cgroup, self.parent, cgroup);
  }
  __u64* paid_ns = bpf_map_lookup_elem(&strangers, &own);
  if (!paid_ns) {
    const __u64 unspent = 0;
    bpf_map_update_elem(&strangers, &own, &unspent, BPF_NOEXIST);
    paid_ns = bpf_map_lookup_elem(&strangers, &own);
  }
  // Its own first: who spends that takes nothing of what the others share.
  if (paid_ns && flash_take(paid_ns, settings.stranger, cost, now) &&
      flash_take(&strangers_paid_ns, settings.strangers, cost, now)) {
    count->passed++;
    return -1;
  }
  count->dropped_strangers++;
  return 0;
}
