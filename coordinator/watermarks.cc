#include "coordinator/watermarks.h"

#include <algorithm>
#include <utility>

namespace flash::coordinator {
namespace {

constexpr std::size_t kMostPeers = 64;

}  // namespace

void Watermarks::committed(const Position& at, std::vector<Committed::NodeWatermark> watermarks,
                           Duration now) {
  if (watermarks.empty()) return;
  if (waiting_.size() >= options_.commits) waiting_.pop_front();
  waiting_.push_back({at, now, std::move(watermarks)});
}

void Watermarks::heard(const std::string& name, const CoordinatorBeat& beat, Duration now,
                       std::int64_t now_us) {
  std::erase_if(peers_, [&](const auto& p) { return now - p.second.heard_at > options_.peer_lives; });
  if (peers_.size() < kMostPeers || peers_.contains(name)) peers_[name] = {beat, now, now_us};
}

std::map<std::string, Watermarks::Peer> Watermarks::peers(Duration now) const {
  std::map<std::string, Peer> out;
  for (const auto& [name, peer] : peers_)
    if (now - peer.heard_at <= options_.peer_lives) out.emplace(name, peer);
  return out;
}

bool Watermarks::all_have(const Waiting& w, Duration now) const {
  return std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const Peer& p = entry.second;
    const bool counts = now - p.heard_at <= options_.peer_lives && p.beat.in_step &&
                        p.beat.stream_created_ns == w.at.stream_created_ns;
    return !counts || p.beat.position >= w.at.last;
  });
}

std::vector<Committed::NodeWatermark> Watermarks::due(Duration now, bool speaker) {
  if (!speaker) {
    while (!waiting_.empty() && now - waiting_.front().since >= options_.remember) waiting_.pop_front();
    return {};
  }
  // Of a commit: a later one is not less.
  std::map<std::pair<std::string, std::string>, std::uint64_t> newest;
  while (!waiting_.empty()) {
    const Waiting& first = waiting_.front();
    if (!all_have(first, now)) {
      if (now - first.since < options_.wait) break;
      ++not_waited_;
    }
    for (const auto& w : first.watermarks) newest[{w.node, w.watermark.run}] = w.watermark.seq;
    waiting_.pop_front();
  }
  std::vector<Committed::NodeWatermark> out;
  for (const auto& [key, seq] : newest) out.push_back({key.first, {key.second, seq}});
  return out;
}

}  // namespace flash::coordinator
