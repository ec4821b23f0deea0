#include "bench/cluster_servers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace flash::bench {
namespace {

namespace fs = std::filesystem;

/// Ports that nobody listens on now.
Result<std::vector<int>> free_ports(int count) {
  std::vector<int> ports, held;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      return Error::from_errno(errno, "no free port");
    ports.push_back(ntohs(address.sin_port));
    held.push_back(fd);
  }
  for (const int fd : held) close(fd);
  return ports;
}

std::string nats_server() {
  for (const char* path : {"/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"})
    if (fs::exists(path)) return path;
  return {};
}

std::uint64_t bytes_under(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error); !error && at != fs::end(at);
       at.increment(error))
    if (std::error_code gone; at->is_regular_file(gone))
      if (const auto size = at->file_size(gone); !gone) bytes += size;
  return bytes;
}

bool says(const std::string& log, const std::string& words) {
  return last_words(log).find(words) != std::string::npos;
}

}  // namespace

ClusterServers::~ClusterServers() {
  coordinator_.clear();
  servers_.clear();
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<std::unique_ptr<ClusterServers>> ClusterServers::start(int servers) {
  std::unique_ptr<ClusterServers> all(new ClusterServers);
  std::string folder = (fs::temp_directory_path() / "flash-bench-cluster-XXXXXX").string();
  if (!mkdtemp(folder.data())) return Error::from_errno(errno, "mkdtemp " + folder);
  all->folder_ = folder;
  FLASH_TRY(all->ports_, free_ports(2 * servers));
  for (std::size_t i = 0; i < static_cast<std::size_t>(servers); ++i) FLASH_CHECK(all->start_server(i));
  FLASH_CHECK(all->start_coordinator());
  return all;
}

Result<void> ClusterServers::start_server(std::size_t index) {
  const std::string program = nats_server();
  if (program.empty()) return Error(std::errc::no_such_file_or_directory, "nats-server is not installed");
  const std::size_t servers = ports_.size() / 2;
  const std::string base = folder_ + "/nats" + std::to_string(index);
  std::ofstream config(base + ".conf");
  config << "server_name: nats" << index << "\nlisten: \"127.0.0.1:" << ports_[index]
         << "\"\njetstream { store_dir: \"" << base << "\", max_file_store: 8GB, max_memory_store: 8MB }\n";
  if (servers > 1) {
    config << "cluster { name: bench, listen: \"127.0.0.1:" << ports_[servers + index] << "\", routes: [";
    for (std::size_t i = 0; i < servers; ++i)
      config << (i > 0 ? ", " : "") << "\"nats://127.0.0.1:" << ports_[servers + i] << '"';
    config << " ] }\n";
  }
  config.close();
  FLASH_TRY(auto started, Program::start({program, "-c", base + ".conf"}, base + ".log"));
  servers_.push_back(std::move(started));
  for (int i = 0; i < 300 && !says(base + ".log", "Listening for client"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return all_running();
}

Result<void> ClusterServers::start_coordinator() {
  FLASH_TRY(auto started, Program::start({beside_or("flash-coordinator", "/usr/sbin/flash-coordinator"),
                                          "--nats", urls(), "--replicas", std::to_string(servers_.size()),
                                          "--listen", "none", "--store", store()},
                                         folder_ + "/coordinator.log"));
  coordinator_.push_back(std::move(started));
  return {};
}

std::string ClusterServers::urls() const {
  std::string all;
  for (std::size_t i = 0; i < ports_.size() / 2; ++i)
    all += (all.empty() ? "" : ",") + std::string("nats://127.0.0.1:") + std::to_string(ports_[i]);
  return all;
}

std::vector<Usage> ClusterServers::servers() const {
  std::vector<Usage> all;
  for (const Program& p : servers_) all.push_back(usage_of(p.pid()));
  return all;
}

Result<void> ClusterServers::all_running() {
  for (std::size_t i = 0; i < servers_.size(); ++i)
    if (!servers_[i].running())
      return Error(std::errc::io_error,
                   "nats-server ended: " + last_words(folder_ + "/nats" + std::to_string(i) + ".log"));
  for (Program& p : coordinator_)
    if (!p.running())
      return Error(std::errc::io_error,
                   "flash-coordinator ended: " + last_words(folder_ + "/coordinator.log"));
  return {};
}

std::uint64_t ClusterServers::stream_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < servers_.size(); ++i)
    bytes += bytes_under(folder_ + "/nats" + std::to_string(i));
  return bytes;
}

std::uint64_t ClusterServers::store_bytes() const {
  std::error_code none;
  const auto size = fs::file_size(store(), none);
  return none ? 0 : size;
}

}  // namespace flash::bench
