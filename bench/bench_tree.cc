#include "bench/bench_tree.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "host/cgroup_layout.h"

namespace flash::bench {
namespace {

// As long as a real one: parsing it is part of the cost.
constexpr std::string_view kMemoryStat =
    "anon 41943040\nfile 20971520\nkernel 3145728\nkernel_stack 262144\npagetables 524288\nsec_pagetables 0\n"
    "percpu 20480\nsock 0\nvmalloc 0\nshmem 0\nzswap 0\nzswapped 0\nfile_mapped 8388608\nfile_dirty 0\n"
    "file_writeback 0\nswapcached 0\nanon_thp 0\nfile_thp 0\nshmem_thp 0\ninactive_anon 41000000\n"
    "active_anon 943040\ninactive_file 10485760\nactive_file 10485760\nunevictable 0\n"
    "slab_reclaimable 1048576\nslab_unreclaimable 1048576\nslab 2097152\nworkingset_refault_anon 0\n"
    "workingset_refault_file 0\nworkingset_activate_anon 0\nworkingset_activate_file 0\n"
    "workingset_restore_anon 0\nworkingset_restore_file 0\nworkingset_nodereclaim 0\npgscan 0\npgsteal 0\n"
    "pgfault 100000\npgmajfault 10\npgrefill 0\npgactivate 0\npgdeactivate 0\npglazyfree 0\npglazyfreed 0\n"
    "thp_fault_alloc 0\nthp_collapse_alloc 0\n";
constexpr std::string_view kMemoryStatV1 =
    "cache 20971520\nrss 41943040\nrss_huge 0\nshmem 0\nmapped_file 8388608\ndirty 0\nwriteback 0\nswap 0\n"
    "pgpgin 1000\npgpgout 1000\npgfault 100000\npgmajfault 10\ninactive_anon 41000000\nactive_anon 943040\n"
    "inactive_file 10485760\nactive_file 10485760\nunevictable 0\n"
    "hierarchical_memory_limit 9223372036854771712\ntotal_cache 20971520\ntotal_rss 41943040\n"
    "total_rss_huge 0\ntotal_shmem 0\ntotal_mapped_file 8388608\ntotal_dirty 0\ntotal_writeback 0\n"
    "total_swap 0\ntotal_pgpgin 1000\ntotal_pgpgout 1000\ntotal_pgfault 100000\ntotal_pgmajfault 10\n"
    "total_inactive_anon 41000000\ntotal_active_anon 943040\ntotal_inactive_file 10485760\n"
    "total_active_file 10485760\ntotal_unevictable 0\n";
constexpr std::string_view kPressure =
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
    "total=12345\n";
constexpr std::uint64_t kEpochUs = 1000000000000;  // so that the counters' width does not change

Result<void> failed(const std::string& what) {
  return Error::from_errno(errno, what);
}

}  // namespace

std::string_view to_string(TreeKind k) {
  switch (k) {
    case TreeKind::FakeV2:
      return "v2";
    case TreeKind::FakeV1:
      return "v1";
    case TreeKind::Real:
      break;
  }
  return "real";
}

void remove_cgroup(const std::string& directory) {
  for (int i = 0; i < 200 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

Result<std::unique_ptr<BenchTree>> BenchTree::make(TreeKind kind, int targets) {
  std::unique_ptr<BenchTree> tree(new BenchTree(kind, targets));
  // /dev/shm is memory on every Linux; a disk under the fake files would be measured with them.
  std::string pattern = "/dev/shm/flash-bench-XXXXXX";
  if (!::mkdtemp(pattern.data())) return Error::from_errno(errno, pattern);
  tree->directory_ = pattern;
  std::error_code error;
  std::filesystem::create_directories(tree->state_directory(), error);
  if (error) return Error(error, tree->state_directory());
  FLASH_CHECK(kind == TreeKind::Real ? tree->build_real() : tree->build_fake());
  return tree;
}

BenchTree::~BenchTree() {
  std::error_code ignored;
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) remove_cgroup(*it);
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

void BenchTree::put(const std::string& below, std::string_view text) {
  const std::filesystem::path path = directory_ + "/" + below;
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

Result<void> BenchTree::build_fake() {
  group_ = "bench";
  usage_us_.assign(static_cast<std::size_t>(targets_), kEpochUs);
  put("proc/stat",
      "cpu  2000 0 1000 9000 0 0 0 0 0 0\ncpu0 1000 0 500 4500 0 0 0 0 0 0\n"
      "cpu1 1000 0 500 4500 0 0 0 0 0 0\n");
  put("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 33554432 kB\nMemAvailable: 50331648 kB\n");
  for (const char* what : {"cpu", "memory", "io"}) put(std::string("proc/pressure/") + what, kPressure);
  for (const char* what : {"online", "possible", "present"})
    put(std::string("sys/devices/system/cpu/") + what, "0-1\n");
  const std::string top = "sys/fs/cgroup/";
  if (kind_ == TreeKind::FakeV2) put(top + "cgroup.controllers", "cpuset cpu io memory pids\n");
  for (int i = 0; i < targets_; ++i) {
    const std::string below = "/" + group_ + "/t" + std::to_string(i) + "/";
    if (kind_ == TreeKind::FakeV2) {
      const std::string dir = top + below.substr(1);
      put(dir + "cgroup.procs", "");
      put(dir + "cgroup.controllers", "cpuset cpu io memory pids\n");
      put(dir + "cpu.max", "max 100000\n");
      put(dir + "memory.high", "max\n");
      put(dir + "memory.max", "max\n");
      put(dir + "memory.stat", kMemoryStat);
      put(dir + "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n");
      put(dir + "io.stat", "254:0 rbytes=1048576 wbytes=2097152 rios=10 wios=20 dbytes=0 dios=0\n");
      put(dir + "pids.current", "12\n");
      for (const char* what : {"cpu", "memory", "io"}) put(dir + what + ".pressure", kPressure);
    } else {
      put(top + "cpu" + below + "cgroup.procs", "");
      put(top + "cpu" + below + "cpu.cfs_quota_us", "-1\n");
      put(top + "cpu" + below + "cpu.cfs_period_us", "100000\n");
      put(top + "memory" + below + "cgroup.procs", "");
      put(top + "memory" + below + "memory.limit_in_bytes", "9223372036854771712\n");
      put(top + "memory" + below + "memory.stat", kMemoryStatV1);
      put(top + "memory" + below + "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
      put(top + "memory" + below + "memory.failcnt", "0\n");
      put(top + "blkio" + below + "blkio.throttle.io_service_bytes_recursive",
          "254:0 Read 1048576\n254:0 Write 2097152\n254:0 Total 3145728\nTotal 3145728\n");
      put(top + "pids" + below + "pids.current", "12\n");
    }
  }
  advance(0);
  return {};
}

void BenchTree::advance(std::uint64_t step) {
  if (kind_ == TreeKind::Real) return;
  const std::string top = "sys/fs/cgroup/";
  for (int i = 0; i < targets_; ++i) {
    const double phase = static_cast<double>(step) / 40 + i;
    const double share = 0.5 + 0.4 * std::sin(phase);
    auto& usage = usage_us_[static_cast<std::size_t>(i)];
    usage += static_cast<std::uint64_t>(share * 1e6);
    const auto periods = kEpochUs + step * 10;
    const std::string memory =
        std::to_string(static_cast<std::uint64_t>((200 + 50 * std::sin(phase / 7)) * 1024 * 1024)) + "\n";
    const std::string below = "/" + group_ + "/t" + std::to_string(i) + "/";
    if (kind_ == TreeKind::FakeV2) {
      put(top + below.substr(1) + "cpu.stat",
          "usage_usec " + std::to_string(usage) + "\nuser_usec " + std::to_string(usage) +
              "\nsystem_usec 0\nnr_periods " + std::to_string(periods) +
              "\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n");
      put(top + below.substr(1) + "memory.current", memory);
    } else {
      put(top + "cpuacct" + below + "cpuacct.usage", std::to_string(usage * 1000) + "\n");
      put(top + "cpu" + below + "cpu.stat",
          "nr_periods " + std::to_string(periods) + "\nnr_throttled 0\nthrottled_time 0\n");
      put(top + "memory" + below + "memory.usage_in_bytes", memory);
    }
  }
}

Result<void> BenchTree::build_real() {
  group_ = "flashd-test-bench-" + std::to_string(::getpid());
  FLASH_TRY(const auto layout, CgroupLayout::detect(HostRoot()));
  std::set<std::string> mounts;
  for (auto c : {CgroupController::Cpu, CgroupController::CpuAcct, CgroupController::Memory,
                 CgroupController::Io, CgroupController::Pids})
    if (!layout.mount(c).empty()) mounts.insert(layout.mount(c));
  const auto make = [this](const std::string& path) -> Result<void> {
    if (::mkdir(path.c_str(), 0755) != 0) return failed(path);
    made_.push_back(path);
    return {};
  };
  for (const auto& mount : mounts) {
    const std::string top = mount + "/" + group_;
    FLASH_CHECK(make(top));
    // v2: what the children may have; what the kernel refuses they do not have. One at a time: of a write
    // with several it takes all or none.
    if (const std::string control = top + "/cgroup.subtree_control"; std::filesystem::exists(control))
      for (const char* controller : {"+cpu", "+memory", "+io", "+pids"}) std::ofstream(control) << controller;
    for (int i = 0; i < targets_; ++i) FLASH_CHECK(make(top + "/t" + std::to_string(i)));
  }
  return {};
}

}  // namespace flash::bench
