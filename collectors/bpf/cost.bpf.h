/* Purpose: what a probe's program costs, timed by itself: every FLASH_TIMED_RUNS-th run on a CPU. (The
 * kernel's own BPF statistics are for CAP_SYS_ADMIN alone, and slow down every program of the machine while
 * they are on.) Ownership: plain data. Thread rule: one entry per CPU, written by the program there. */
#ifndef COLLECTORS_BPF_COST_BPF_H
#define COLLECTORS_BPF_COST_BPF_H

#include <linux/types.h>

#define FLASH_TIMED_RUNS 64
/* A run that takes longer was interrupted: it counts as one of this length. */
#define FLASH_LONGEST_RUN_NS 50000

struct flash_cost {
  __u64 runs;
  __u64 timed_ns; /* of the timed ones */
};

#ifdef __bpf__
/* At the beginning of a run; what it returns goes to end_run(). */
static __always_inline __u64 begin_run(struct flash_cost* cost) {
  return cost->runs++ % FLASH_TIMED_RUNS == 0 ? bpf_ktime_get_ns() : 0;
}

static __always_inline void end_run(struct flash_cost* cost, __u64 began) {
  if (!began) return;
  const __u64 ns = bpf_ktime_get_ns() - began;
  cost->timed_ns += ns < FLASH_LONGEST_RUN_NS ? ns : FLASH_LONGEST_RUN_NS;
}
#endif

#endif
