// Work of a known number of instructions, and others who use the PMU; pmu_checks.py says what for.
//
//   pmu_load self N              executes N instructions and prints how many its own perf event counted
//   pmu_load work N MS FILE      executes N every MS milliseconds; FILE holds the sum, a 64-bit number
//   pmu_load hold EVENTS [pinned]
//       counts instructions of the whole CPU 0 with so many events at once, each a group of its own, prints
//       how many of them have a counter now, and stays
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/// Two instructions per round.
static void execute(uint64_t instructions) {
  uint64_t rounds = instructions / 2;
  __asm__ volatile(
      "1: subs %0, %0, #1\n"
      "   b.ne 1b\n"
      : "+r"(rounds)
      :
      : "cc");
}

static int count_instructions(struct perf_event_attr attr, int pid, int cpu) {
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = PERF_COUNT_HW_INSTRUCTIONS;
  const int fd = (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) err(1, "perf_event_open");
  return fd;
}

static void self(uint64_t instructions) {
  const int fd = count_instructions((struct perf_event_attr){.disabled = 1, .exclude_kernel = 1}, 0, -1);
  uint64_t counted;
  ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
  execute(instructions);
  ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
  if (read(fd, &counted, sizeof counted) != sizeof counted) err(1, "read");
  printf("%llu\n", (unsigned long long)counted);
}

static void work(uint64_t instructions, long period_ms, const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  volatile uint64_t* sum;
  if (fd < 0 || ftruncate(fd, sizeof *sum) != 0) err(1, "%s", path);
  sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (sum == MAP_FAILED) err(1, "%s", path);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (;;) {
    execute(instructions);
    *sum += instructions;
    next.tv_nsec += period_ms * 1000000;
    next.tv_sec += next.tv_nsec / 1000000000;
    next.tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
  }
}

static void hold(int events, int pinned) {
  int counting = 0;
  int* fds = calloc((size_t)events, sizeof *fds);
  if (!fds) err(1, NULL);
  for (int i = 0; i < events; ++i)
    fds[i] = count_instructions((struct perf_event_attr){.pinned = pinned ? 1 : 0}, -1, 0);
  for (int i = 0; i < events; ++i) {
    uint64_t before, now;  // a pinned event without a counter reads as end of file
    if (read(fds[i], &before, sizeof before) == sizeof before && read(fds[i], &now, sizeof now) == sizeof now)
      counting += now > before;
  }
  printf("%d\n", counting);
  fflush(stdout);
  pause();
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "self") == 0)
    self(strtoull(argv[2], NULL, 10));
  else if (argc == 5 && strcmp(argv[1], "work") == 0)
    work(strtoull(argv[2], NULL, 10), atol(argv[3]), argv[4]);
  else if ((argc == 3 || argc == 4) && strcmp(argv[1], "hold") == 0)
    hold(atoi(argv[2]), argc == 4);
  else
    errx(2, "what is asked?");
  return 0;
}
