#include "bench/cluster_bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cluster_nodes.h"
#include "bench/cluster_servers.h"
#include "bench/temp_folder.h"
#include "coordinator/store.h"
#include "core/json.h"
#include "core/process.h"

namespace flash::bench {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t kWords = 500;     // of a log
constexpr int kWarmUp = 5;              // seconds
constexpr int kFirstRecord = 60;        // seconds until a new cluster has chosen its leaders
constexpr int kLastRecord = 120;        // seconds until all is confirmed
constexpr std::uint64_t kBacklog = 64;  // records per node that wait where the rate is the highest

/// Nodes on threads of their own.
class Fleet {
 public:
  static Result<std::unique_ptr<Fleet>> start(const ClusterOptions& o, const std::string& urls,
                                              const std::string& folder, bool as_fast_as_possible) {
    std::unique_ptr<Fleet> fleet(new Fleet);
    const int nodes = std::max(1, o.agents / o.agents_per_node);
    const Random random(random_seed());
    for (int i = 0, first = 0; i < o.connections; ++i) {
      NodesOptions n;
      n.nats = {.url = urls, .name = "flash-bench"};
      n.folder = folder;
      n.first = first;
      n.nodes = (nodes - first) / (o.connections - i);
      n.agents = o.agents_per_node;
      n.period = from_seconds(o.agents / o.per_s);
      if (as_fast_as_possible) n.backlog = kBacklog;
      first += n.nodes;
      FLASH_TRY(auto opened, Nodes::open(n, random));
      fleet->parts_.push_back(std::move(opened));
    }
    for (const auto& part : fleet->parts_)
      fleet->threads_.emplace_back([f = fleet.get(), nodes = part.get()] {
        auto done = nodes->run(f->telling_, f->ending_);
        if (!done) f->trouble_ = true;
      });
    return fleet;
  }
  ~Fleet() {
    ending_ = true;
    for (auto& t : threads_) t.join();
  }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  std::uint64_t told() const { return sum(&Nodes::told); }
  std::uint64_t confirmed() const { return sum(&Nodes::confirmed); }
  std::uint64_t published() const { return sum(&Nodes::published); }
  void forget_latencies() {
    for (auto& p : parts_) p->forget_latencies();
  }
  /// Nothing more is told. Waits until all is confirmed, or so long.
  Result<void> finish() {
    telling_ = false;
    for (int i = 0; i < kLastRecord * 10 && confirmed() < told() && !trouble_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ending_ = true;
    for (auto& t : threads_) t.join();
    threads_.clear();
    if (trouble_) return Error(std::errc::io_error, "a connection of the nodes broke");
    return {};
  }
  /// After finish().
  Latencies latencies() const {
    Latencies all;
    for (const auto& p : parts_) {
      const Latencies& l = p->latencies();
      all.put.insert(all.put.end(), l.put.begin(), l.put.end());
      all.published.insert(all.published.end(), l.published.begin(), l.published.end());
    }
    return all;
  }
  std::vector<std::pair<std::string, std::uint64_t>> told_by_run() const {
    std::vector<std::pair<std::string, std::uint64_t>> all;
    for (const auto& p : parts_)
      for (auto& run : p->told_by_run()) all.push_back(std::move(run));
    return all;
  }

 private:
  Fleet() = default;
  std::uint64_t sum(std::uint64_t (Nodes::*count)() const) const {
    std::uint64_t n = 0;
    for (const auto& p : parts_) n += ((*p).*count)();
    return n;
  }

  std::atomic<bool> telling_ = true, ending_ = false, trouble_ = false;
  std::vector<std::unique_ptr<Nodes>> parts_;
  std::vector<std::thread> threads_;
};

Result<std::uint64_t> stored(const ClusterServers& servers) {
  FLASH_TRY(const auto store, coordinator::Store::open_to_read(servers.store()));
  FLASH_TRY(const auto counts, store.counts());
  return counts.records;
}

/// What the store has otherwise than it was told.
struct Books {
  std::uint64_t lost = 0, duplicated = 0, repeated = 0;
};

Result<Books> compare(const ClusterServers& servers, const Fleet& fleet, Books books) {
  FLASH_TRY(const auto store, coordinator::Store::open_to_read(servers.store()));
  FLASH_TRY(const auto runs, store.runs());
  FLASH_TRY(const auto counts, store.counts());
  std::map<std::string, std::uint64_t> there;
  for (const auto& r : runs) there[r.run] += r.records;
  for (const auto& [run, told] : fleet.told_by_run()) {
    const std::uint64_t has = there[run];
    books.lost += told - std::min(told, has);
    books.duplicated += has - std::min(told, has);
  }
  books.repeated = counts.duplicates;
  return books;
}

double rounded(double v, double per_one) {
  return std::round(v * per_one) / per_one;
}

ordered_json percentiles(std::vector<float> ms) {
  if (ms.empty()) return nullptr;
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double share) {
    return rounded(ms[static_cast<std::size_t>(share * static_cast<double>(ms.size() - 1))], 10);
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}};
}

struct Moment {
  Duration at{};
  std::uint64_t records = 0;
  std::vector<Usage> servers;
  Usage coordinator;
  double own_cpu_ns = 0;
};

Result<Moment> moment(const ClusterServers& servers) {
  Moment m;
  FLASH_TRY(m.records, stored(servers));
  m.at = clock_now(CLOCK_MONOTONIC);
  m.servers = servers.servers();
  m.coordinator = servers.coordinator();
  m.own_cpu_ns = usage_of(getpid()).cpu_ns;
  return m;
}

ordered_json usage(const Usage& before, const Usage& after, double elapsed) {
  return {{"cpu_percent", rounded((after.cpu_ns - before.cpu_ns) / elapsed / 1e7, 10)},
          {"rss_mib", rounded(after.rss_kib / 1024, 10)},
          {"rss_peak_mib", rounded(after.rss_peak_kib / 1024, 10)}};
}

ordered_json between(const Moment& a, const Moment& b) {
  const double elapsed = seconds(b.at - a.at);
  ordered_json servers = ordered_json::array();
  for (std::size_t i = 0; i < a.servers.size(); ++i)
    servers.push_back(usage(a.servers[i], b.servers[i], elapsed));
  return {{"seconds", rounded(elapsed, 10)},
          {"records_per_s", rounded(static_cast<double>(b.records - a.records) / elapsed, 10)},
          {"nats_servers", servers},
          {"coordinator", usage(a.coordinator, b.coordinator, elapsed)},
          {"nodes_cpu_percent", rounded((b.own_cpu_ns - a.own_cpu_ns) / elapsed / 1e7, 10)}};
}

Result<void> sleep_watching(ClusterServers& servers, int duration_s) {
  for (int i = 0; i < duration_s; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    FLASH_CHECK(servers.all_running());
  }
  return {};
}

Result<void> await_first_record(ClusterServers& servers, const Fleet& fleet) {
  for (int i = 0; i < kFirstRecord; ++i) {
    if (fleet.confirmed() > 0) return {};
    FLASH_CHECK(sleep_watching(servers, 1));
  }
  const std::string words = last_words(servers.folder() + "/coordinator.log");
  return Error(std::errc::timed_out,
               "no record reached the store: " + words.substr(words.size() - std::min(words.size(), kWords)));
}

/// A fleet that tells at its rate (or as fast as is taken) for so long; what that was like goes to `out`.
Result<Books> phase(const ClusterOptions& o, ClusterServers& servers, bool as_fast_as_possible,
                    const Books& before, ordered_json& out) {
  // A node's outbox is on a disk of its own; a thousand of them on ours would measure that disk.
  FLASH_TRY(const TempFolder folder,
            TempFolder::make("outboxes", fs::exists("/dev/shm") ? "/dev/shm" : "/tmp"));
  FLASH_TRY(auto fleet, Fleet::start(o, servers.urls(), folder.path(), as_fast_as_possible));
  FLASH_CHECK(await_first_record(servers, *fleet));
  FLASH_CHECK(sleep_watching(servers, kWarmUp));
  fleet->forget_latencies();
  FLASH_TRY(const Moment begin, moment(servers));
  FLASH_CHECK(sleep_watching(servers, as_fast_as_possible ? o.max_seconds : o.seconds));
  FLASH_TRY(const Moment end, moment(servers));
  FLASH_CHECK(fleet->finish());
  const Latencies latencies = fleet->latencies();
  out = between(begin, end);
  out["ack_ms"] = percentiles(latencies.put);
  out["publish_to_ack_ms"] = percentiles(latencies.published);
  out["told"] = fleet->told();
  out["published"] = fleet->published();
  return compare(servers, *fleet, before);
}

void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<ordered_json> measure_cluster(const ClusterOptions& o) {
  allow_many_files();
  const std::string hardware_before = hardware();
  FLASH_TRY(auto servers, ClusterServers::start(o.servers));
  ordered_json all = {{"agents", o.agents},           {"nodes", std::max(1, o.agents / o.agents_per_node)},
                      {"connections", o.connections}, {"servers", o.servers},
                      {"replicas", o.servers},        {"offered_per_s", o.per_s}};
  ordered_json sustained;
  FLASH_TRY(Books books, phase(o, *servers, false, {}, sustained));
  all.update(sustained);
  FLASH_TRY(const std::uint64_t records, stored(*servers));
  all["bytes_per_record"] = {
      {"store", rounded(static_cast<double>(servers->store_bytes()) / static_cast<double>(records), 1)},
      {"stream", rounded(static_cast<double>(servers->stream_bytes()) /
                             static_cast<double>(sustained["published"].get<std::uint64_t>()),
                         1)}};
  if (o.max_seconds > 0) {
    ordered_json highest;
    FLASH_TRY(books, phase(o, *servers, true, books, highest));
    all["max_records_per_s"] = highest["records_per_s"];
    all["max"] = std::move(highest);
  }
  all["lost"] = books.lost;
  all["duplicated"] = books.duplicated;
  all["repeated"] = books.repeated;  // came more than once, stored once
  all["hardware_before"] = hardware_before;
  return all;
}

}  // namespace flash::bench
