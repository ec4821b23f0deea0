#include "collectors/bpf/requests.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectors/bpf/load.h"
#include "host/file_io.h"
#include "requests.skel.h"

namespace flash {
namespace {

constexpr std::uint32_t kBatch = 64;
constexpr std::string_view kCapabilities = "CAP_BPF and CAP_NET_ADMIN";

struct LinkEnd {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
using Link = std::unique_ptr<bpf_link, LinkEnd>;

double total(const LatencySlots& requests) {
  double sum = 0;
  for (const auto n : requests) sum += n;
  return sum;
}

}  // namespace

double latency_slot_begin_ms(std::size_t slot) {
  constexpr double kUnitMs = (1 << FLASH_LATENCY_SHIFT) / 1e6;
  if (slot < 16) return static_cast<double>(slot) * kUnitMs;
  return std::ldexp(static_cast<double>(16 + slot % 16), static_cast<int>(slot / 16) - 1) * kUnitMs;
}

std::size_t latency_quantile_slot(const LatencySlots& requests, double q) {
  const double rank = q * total(requests);
  double below = 0;
  std::size_t last = 0;
  for (std::size_t slot = 0; slot < requests.size(); ++slot) {
    if (requests[slot] == 0) continue;
    below += requests[slot];
    last = slot;
    if (below >= rank) break;
  }
  return last;
}

double latency_quantile_ms(const LatencySlots& requests, double q) {
  const double all = total(requests);
  if (all == 0) return 0;
  const std::size_t slot = latency_quantile_slot(requests, q);
  double below = 0;
  for (std::size_t i = 0; i < slot; ++i) below += requests[i];
  const double share = (q * all - below) / requests[slot];
  const double begin = latency_slot_begin_ms(slot), end = latency_slot_begin_ms(slot + 1);
  return begin + (end - begin) * std::clamp(share, 0.0, 1.0);
}

struct RequestProbe::Impl {
  ~Impl() {
    links.clear();
    requests_bpf::destroy(skeleton);
  }
  int cgroups_fd() const { return bpf_map__fd(skeleton->maps.cgroups); }
  Result<std::array<Link, 3>> attach(int directory);

  requests_bpf* skeleton = nullptr;
  std::unordered_map<std::uint64_t, std::array<Link, 3>> links;  // by watched cgroup
  std::vector<std::uint64_t> ids;
  std::vector<flash_requests> values;
  mutable std::vector<flash_cost> costs;  // one per possible CPU
};

RequestProbe::RequestProbe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RequestProbe::~RequestProbe() = default;

Result<std::unique_ptr<RequestProbe>> RequestProbe::open(RequestProbeOptions options) {
  note_bpf_complaints();
  auto impl = std::make_unique<Impl>();
  impl->skeleton = requests_bpf::open();
  if (!impl->skeleton) return why_not_loaded(errno, kCapabilities);
  bpf_map__set_max_entries(impl->skeleton->maps.cgroups, static_cast<std::uint32_t>(options.max_cgroups));
  if (const int r = requests_bpf::load(impl->skeleton); r != 0) return why_not_loaded(-r, kCapabilities);
  impl->ids.resize(kBatch);
  impl->values.resize(kBatch);
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 0) return Error::from_errno(-cpus, "possible CPUs");
  impl->costs.resize(static_cast<std::size_t>(cpus));
  return std::unique_ptr<RequestProbe>(new RequestProbe(std::move(impl)));
}

Result<std::array<Link, 3>> RequestProbe::Impl::attach(int directory) {
  std::array<Link, 3> all;
  // What marks a server's connections before what looks for the mark.
  const bpf_program* programs[] = {skeleton->progs.on_socket, skeleton->progs.on_ingress,
                                   skeleton->progs.on_egress};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].reset(bpf_program__attach_cgroup(programs[i], directory));
    if (!all[i]) return Error::from_errno(errno, "attaching to the cgroup");
  }
  return all;
}

Result<std::uint64_t> RequestProbe::watch(const std::string& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno(errno, directory);
  FLASH_TRY(const std::uint64_t id, inode_of(directory));
  const flash_requests zero{};
  if (bpf_map_update_elem(impl_->cgroups_fd(), &id, &zero, BPF_NOEXIST) != 0)
    return Error::from_errno(errno, "watching a cgroup");
  auto links = impl_->attach(fd.get());
  if (!links) {
    bpf_map_delete_elem(impl_->cgroups_fd(), &id);
    return std::move(links).error();
  }
  impl_->links[id] = *std::move(links);
  return id;
}

void RequestProbe::forget(std::uint64_t id) {
  if (impl_->links.erase(id) > 0) bpf_map_delete_elem(impl_->cgroups_fd(), &id);
}

std::size_t RequestProbe::watched() const {
  return impl_->links.size();
}

Result<void> RequestProbe::read(
    const std::function<void(std::uint64_t id, const flash_requests& counts)>& take) {
  std::uint32_t position = 0;
  for (bool more = watched() > 0, first = true; more; first = false) {
    std::uint32_t n = kBatch;
    const int r = bpf_map_lookup_batch(impl_->cgroups_fd(), first ? nullptr : &position, &position,
                                       impl_->ids.data(), impl_->values.data(), &n, nullptr);
    if (r != 0 && r != -ENOENT) return Error::from_errno(-r, "reading the requests");
    more = r == 0;
    for (std::uint32_t i = 0; i < n; ++i) take(impl_->ids[i], impl_->values[i]);
  }
  return {};
}

ProbeCost RequestProbe::cost() const {
  const std::uint32_t first = 0;
  ProbeCost sum;
  if (bpf_map_lookup_elem(bpf_map__fd(impl_->skeleton->maps.costs), &first, impl_->costs.data()) != 0)
    return sum;
  for (const flash_cost& cpu : impl_->costs) sum.add(cpu);
  return sum;
}

}  // namespace flash
