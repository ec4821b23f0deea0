/* Purpose: what the kernel side (schedule.bpf.c) and the user side (schedule.cc) of the schedule probe share.
 * Ownership: plain data. Thread rule: none needed. */
#ifndef COLLECTORS_BPF_SCHEDULE_BPF_H
#define COLLECTORS_BPF_SCHEDULE_BPF_H

#include <linux/types.h>

#include "collectors/bpf/cost.bpf.h"

/* Whose cgroup counts as a task's. v1 hosts have one per hierarchy. */
enum flash_hierarchy {
  FLASH_HIERARCHY_UNIFIED,
  FLASH_HIERARCHY_CPU,
  FLASH_HIERARCHY_CPUACCT,
  FLASH_HIERARCHY_MEMORY,
};

/* Histogram of waits in units of 1024 ns: four slots per octave, the last one open: 0, 1, 2, 3, then
 * [2^m * (4+s)/4, 2^m * (5+s)/4) in slot 4 * (m - 1) + s; 80 slots reach 2.1 s. */
#define FLASH_WAIT_SLOTS 80
#define FLASH_WAIT_SHIFT 10

/* Waits of the running cgroup that are not yet in its counts. */
#define FLASH_PENDING_WAITS 8

/* Levels above a task's cgroup that are looked at for watched ones. */
#define FLASH_DEPTH 16

/* One perf counter of a CPU as it was last read; of a cgroup, the sum of what it grew. */
struct flash_counter {
  __u64 count;
  __u64 enabled_ns;
  __u64 running_ns;
};
#define FLASH_INSTRUCTIONS 0
#define FLASH_CYCLES 1
#define FLASH_COUNTERS 2

/* What a CPU does now. Cache lines of its own. */
struct flash_cpu {
  __u64 ran; /* sum_exec_runtime of the task `pid` up to which all is in oncpu_ns */
  __u64 oncpu_ns;
  __u64 switches;
  __u64 waited_ns;
  __u32 waits;
  __u8 started;         /* `ran` is known */
  __u8 counted;         /* `counters` are known */
  __u16 busy;           /* the last switch was not to the idle task */
  __u64 counter_errors; /* a perf counter could not be read: its growth is missing */
  __u8 pending[FLASH_PENDING_WAITS];
  struct flash_counter counters[FLASH_COUNTERS];
  struct flash_cost cost; /* of on_switch */
  __s32 pid;              /* the running task, as far as is known: 0 is the idle one */
  __u32 unseen;           /* tasks that were there without a switch to them, whose time is not known */
};

/* Of one watched cgroup with its descendants, on one CPU, since it is watched. */
struct flash_counts {
  __u64 oncpu_ns;
  __u64 switches;  /* its tasks were switched away */
  __u64 waited_ns; /* its tasks were ready to run before they ran */
  struct flash_counter counters[FLASH_COUNTERS];
  __u32 waits[FLASH_WAIT_SLOTS];
};

#endif
