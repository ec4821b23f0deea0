// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
// The schedule probe, kernel side: CPU time, context switches, run-queue waits and perf counters per watched
// cgroup. The user side watches cgroups by making entries in `cgroups`; nothing is ever added to it here.
//
// "Lazy": a switch between tasks of one cgroup only counts itself and the wait of the next task; sums are
// written when the CPU goes to another cgroup, when FLASH_PENDING_WAITS waits are pending, and by flush().
// A task that moves to another cgroup while it runs takes what is not yet accounted with it: at most the
// time since the last flush().
//
// CPU time is what the scheduler has added to the task's sum_exec_runtime, the same that it adds to cpu.stat:
// without steal and interrupt time, and without what choosing the next task takes. A wait is the run queue's
// clock less last_queued, what the kernel adds to a task's run_delay. So no program runs at wake-ups and no
// clock is read. A task that another CPU pulled while it waited counts its wait from then on.
#include <linux/bpf.h>
#include <stdbool.h>
// clang-format off
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
// clang-format on

#include "collectors/bpf/schedule.bpf.h"

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
struct sched_info {
  unsigned long long last_queued;
};
struct rq {
  __u64 clock;
};
struct cfs_rq {
  struct rq* rq;
};
struct sched_entity {
  struct cfs_rq* cfs_rq;
  __u64 sum_exec_runtime;
  __u64 prev_sum_exec_runtime;
};
struct task_struct {
  int pid;
  int prio;
  struct css_set* cgroups;
  struct sched_info sched_info;
  struct sched_entity se;
};
#pragma clang attribute pop

#define MAX_RT_PRIO 100 /* below: real-time and deadline tasks */

enum cgroup_subsys_id { cpu_cgrp_id = 1, cpuacct_cgrp_id = 2, memory_cgrp_id = 4 };

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 hierarchy = FLASH_HIERARCHY_UNIFIED;
const volatile __u8 has_counters = 0;  // no bool: the skeleton names the type in C++

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);  // the loader: possible CPUs
  __type(key, __u32);
  __type(value, struct flash_cpu);
} cpus SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 1);  // the loader
  __type(key, __u64);
  __type(value, struct flash_counts);
} cgroups SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(__u32));
} instructions SEC(".maps"), cycles SEC(".maps");

/// Of the CPU that the task is on. Tasks of every class have a cfs_rq, also the idle one (set_task_rq()). The
/// variable `runqueues` is not to be found on kernels without CONFIG_KALLSYMS_ALL.
static __always_inline struct rq* rq_of(struct task_struct* task) {
  return task->se.cfs_rq->rq;
}

static __always_inline struct cgroup* of_subsystem(struct css_set* set, __u32 index) {
  // A constant once loaded: the verifier follows it.
  struct cgroup_subsys_state** subsys = (void*)set + bpf_core_field_offset(struct css_set, subsys);
  return subsys[index]->cgroup;
}

static __always_inline struct cgroup* cgroup_of(struct task_struct* task) {
  struct css_set* set = task->cgroups;
  switch (hierarchy) {
    case FLASH_HIERARCHY_CPU:
      return of_subsystem(set, bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
    case FLASH_HIERARCHY_CPUACCT:
      return of_subsystem(set, bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id));
    case FLASH_HIERARCHY_MEMORY:
      return of_subsystem(set, bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
    default:
      return set->dfl_cgrp;
  }
}

static __always_inline __u32 wait_slot(__u64 ns) {
  __u64 v = ns >> FLASH_WAIT_SHIFT;
  if (v < 4) return v;
  if (v >> 21) return FLASH_WAIT_SLOTS - 1;
  __u32 m = 2;
  __u32 high = v >> 2;
  if (high >> 16) m += 16, high >>= 16;
  if (high >> 8) m += 8, high >>= 8;
  if (high >> 4) m += 4, high >>= 4;
  if (high >> 2) m += 2, high >>= 2;
  if (high >> 1) m += 1;
  return 4 * (m - 1) + ((v >> (m - 2)) & 3);
}

/// Growth of a counter since the last call on this CPU.
static __always_inline void grow(void* events, struct flash_cpu* cpu, struct flash_counter* last,
                                 struct flash_counter* growth) {
  struct bpf_perf_event_value now;
  if (bpf_perf_event_read_value(events, BPF_F_CURRENT_CPU, &now, sizeof now) != 0) {
    cpu->counter_errors++;
    return;
  }
  growth->count = now.counter - last->count;
  growth->enabled_ns = now.enabled - last->enabled_ns;
  growth->running_ns = now.running - last->running_ns;
  last->count = now.counter;
  last->enabled_ns = now.enabled;
  last->running_ns = now.running;
}

static __always_inline void add(struct flash_counter* sum, const struct flash_counter* growth) {
  sum->count += growth->count;
  sum->enabled_ns += growth->enabled_ns;
  sum->running_ns += growth->running_ns;
}

/// The task has run on this CPU until now.
///
/// A kernel need not tell of every switch (seen: none away from threads of a sandbox's own supervisor, on
/// Linux 6.18). Then the task is another than the one that `ran` is of, and their difference means nothing.
/// The fair scheduler keeps what it needs itself: the sum when it chose the task.
static __always_inline void run(struct flash_cpu* cpu, struct task_struct* task) {
  if (!cpu->started) return;
  const __u64 sum = task->se.sum_exec_runtime;
  __u64 ran = cpu->ran;
  barrier_var(ran);  // else clang makes one load of two addresses, which the verifier refuses
  if (cpu->pid != task->pid) {
    if (task->prio < MAX_RT_PRIO) {
      if (cgroup_of(task)->self.parent) cpu->unseen++;  // nobody watches the root
      return;
    }
    ran = task->se.prev_sum_exec_runtime;
  }
  if (sum > ran) cpu->oncpu_ns += sum - ran;
}

/// From now on the task runs on this CPU.
static __always_inline void start(struct flash_cpu* cpu, struct task_struct* task) {
  cpu->ran = task->se.sum_exec_runtime;
  cpu->pid = task->pid;
  cpu->started = 1;
}

/// What the CPU did since the last time goes to the task's cgroup and those above it.
static __always_inline void account(struct flash_cpu* cpu, struct task_struct* task) {
  struct flash_counter growth[FLASH_COUNTERS] = {};
  if (has_counters) {
    grow(&instructions, cpu, &cpu->counters[FLASH_INSTRUCTIONS], &growth[FLASH_INSTRUCTIONS]);
    grow(&cycles, cpu, &cpu->counters[FLASH_CYCLES], &growth[FLASH_CYCLES]);
  }
  struct cgroup* cgroup = cgroup_of(task);
  for (int level = 0; level < FLASH_DEPTH; ++level) {
    struct cgroup_subsys_state* parent = cgroup->self.parent;
    if (!parent) break;  // the root is not watched
    const __u64 id = cgroup->kn->id;
    struct flash_counts* counts = bpf_map_lookup_elem(&cgroups, &id);
    if (counts) {
      counts->oncpu_ns += cpu->oncpu_ns;
      counts->switches += cpu->switches;
      counts->waited_ns += cpu->waited_ns;
      if (has_counters && cpu->counted) {
        add(&counts->counters[FLASH_INSTRUCTIONS], &growth[FLASH_INSTRUCTIONS]);
        add(&counts->counters[FLASH_CYCLES], &growth[FLASH_CYCLES]);
      }
      for (__u32 i = 0; i < FLASH_PENDING_WAITS; ++i) {
        if (i >= cpu->waits) break;
        const __u32 slot = cpu->pending[i];
        if (slot < FLASH_WAIT_SLOTS) counts->waits[slot]++;
      }
    }
    cgroup = parent->cgroup;
  }
  cpu->counted = 1;
  cpu->oncpu_ns = 0;
  cpu->switches = 0;
  cpu->waited_ns = 0;
  cpu->waits = 0;
}

static __always_inline void switched(struct flash_cpu* cpu, struct task_struct* prev,
                                     struct task_struct* next) {
  cpu->switches++;
  run(cpu, prev);
  start(cpu, next);
  if ((prev->cgroups != next->cgroups && cgroup_of(prev)->kn->id != cgroup_of(next)->kn->id) ||
      cpu->waits >= FLASH_PENDING_WAITS)
    account(cpu, prev);
  cpu->busy = next->pid != 0;
  const __u64 queued = next->sched_info.last_queued;  // 0 for the idle task
  if (!queued) return;
  const __u64 clock = rq_of(next)->clock;
  const __u64 waited_ns = clock > queued ? clock - queued : 0;
  const __u32 n = cpu->waits;
  if (n < FLASH_PENDING_WAITS) {
    cpu->pending[n] = wait_slot(waited_ns);
    cpu->waits = n + 1;
    cpu->waited_ns += waited_ns;
  }
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct* prev, struct task_struct* next) {
  const __u32 index = bpf_get_smp_processor_id();
  struct flash_cpu* cpu = bpf_map_lookup_elem(&cpus, &index);
  if (!cpu) return 0;
  const __u64 began = begin_run(&cpu->cost);
  switched(cpu, prev, next);
  end_run(&cpu->cost, began);
  return 0;
}

// Run by the user side on a CPU before it reads (BPF_F_TEST_RUN_ON_CPU): what runs there has not been
// switched away yet. It never attaches to anything.
SEC("raw_tp")
int flush(void* context) {
  const __u32 index = bpf_get_smp_processor_id();
  struct flash_cpu* cpu = bpf_map_lookup_elem(&cpus, &index);
  if (!cpu) return 0;
  struct task_struct* task = bpf_get_current_task_btf();
  run(cpu, task);
  start(cpu, task);
  account(cpu, task);
  return 0;
}
