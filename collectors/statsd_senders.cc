#include "collectors/statsd_senders.h"

#include <algorithm>
#include <utility>

#include "core/glob.h"
#include "host/parse.h"

namespace flash {
namespace {

/// Accounts that are kept; beyond them all start over, within the bound over all strangers.
constexpr std::size_t kMostAccounts = 4096;

std::string name_in_process_file(const CgroupLayout& layout) {
  if (layout.version(layout.reference()) != CgroupVersion::V1) return {};
  return layout.reference() == CgroupController::Memory ? "memory" : "cpu";
}

/// The cgroup itself or one below it.
bool lives_in(std::string_view path, std::string_view cgroup) {
  if (cgroup == "/") return true;
  return path.starts_with(cgroup) && (path.size() == cgroup.size() || path[cgroup.size()] == '/');
}

/// The cgroup, or one above it, is named.
bool is_named(const std::string& path, const std::string& glob) {
  if (glob == "*") return false;  // that is everybody
  if (glob_matches(glob, path)) return true;
  for (std::size_t at = path.rfind('/'); at != std::string::npos && at > 0; at = path.rfind('/', at - 1))
    if (glob_matches(glob, path.substr(0, at))) return true;
  return false;
}

}  // namespace

bool StatsdSenders::Sender::may_speak_for(std::string_view application) const {
  return std::binary_search(applications.begin(), applications.end(), application, std::less<>());
}

StatsdSenders::StatsdSenders(HostRoot root, const CgroupLayout* layout)
    : root_(std::move(root)), buffer_(16 << 10) {
  if (!layout) return;
  layout_ = *layout;
  controller_ = name_in_process_file(*layout);
}

void StatsdSenders::track(const Target& target) {
  untrack(target.id);
  if (target.application.empty()) return;
  Voice voice{target.application, target.cgroup, target.statsd_senders};
  voice.anybody = std::find(voice.senders.begin(), voice.senders.end(), "*") != voice.senders.end();
  anybody_ += voice.anybody ? 1 : 0;
  voices_[target.id] = std::move(voice);
  ++generation_;
}

void StatsdSenders::untrack(TargetId id) {
  const auto found = voices_.find(id);
  if (found == voices_.end()) return;
  anybody_ -= found->second.anybody ? 1 : 0;
  voices_.erase(found);
  ++generation_;
}

flash_door_settings StatsdSenders::budgets() const {
  if (anybody()) return {kMemberBudget, kMemberBudget, kAnybodysBudget};
  return {kMemberBudget, kStrangerBudget, kStrangersBudget};
}

void StatsdSenders::give_voice(Sender& sender) const {
  sender.applications.clear();
  sender.target = sender.named = false;
  sender.account = sender.cgroup;
  std::size_t innermost = 0;
  for (const auto& [id, voice] : voices_) {
    const bool here =
        !sender.cgroup.empty() && !voice.cgroup.empty() && lives_in(sender.cgroup, voice.cgroup);
    const bool named = !sender.cgroup.empty() &&
                       std::any_of(voice.senders.begin(), voice.senders.end(),
                                   [&](const std::string& glob) { return is_named(sender.cgroup, glob); });
    sender.named |= named;
    if (here || named || voice.anybody) sender.applications.push_back(voice.application);
    if (!here) continue;
    sender.target = true;
    if (voice.cgroup.size() <= innermost) continue;
    innermost = voice.cgroup.size();
    sender.account = voice.cgroup;
  }
  std::sort(sender.applications.begin(), sender.applications.end());
  sender.applications.erase(std::unique(sender.applications.begin(), sender.applications.end()),
                            sender.applications.end());
}

const StatsdSenders::Sender& StatsdSenders::nobody() {
  if (nobody_generation_ != generation_) {
    give_voice(nobody_);
    nobody_generation_ = generation_;
  }
  return nobody_;
}

/// False: it is gone.
bool StatsdSenders::look(Known& known, Duration now) {
  const auto text = known.process.cgroups(buffer_);
  if (!text) return false;
  known.alive_at = now;
  if (*text == known.text) return true;
  known.text = *text;
  known.generation = 0;
  return true;
}

void StatsdSenders::place(Known& known) {
  if (known.generation == generation_) return;
  known.generation = generation_;
  const auto path = parse_process_cgroup(known.text, controller_);
  known.sender.cgroup = path && layout_ ? std::string(*path) : std::string();
  give_voice(known.sender);
}

const StatsdSenders::Sender& StatsdSenders::find(pid_t pid, Duration sent, Duration now) {
  if (pid <= 0) return nobody();  // in a namespace that is not seen from here
  auto found = known_.find(pid);
  if (found != known_.end() && sent > found->second.alive_at && !look(found->second, now)) {
    known_.erase(found);
    found = known_.end();
  }
  if (found == known_.end()) {
    auto process = HeldProcess::open(root_, pid);
    if (!process) return nobody();
    if (known_.size() >= kMostSenders) std::erase_if(known_, [](const auto& k) { return !k.second.spoke; });
    if (known_.size() >= kMostSenders) known_.clear();
    Known known{*std::move(process), {}, {}, {}, 0, false};
    if (!look(known, now)) return nobody();
    found = known_.emplace(pid, std::move(known)).first;
  }
  Known& known = found->second;
  // Another had this number when it was sent.
  if (known.process.started_by() > sent) return nobody();
  place(known);
  known.spoke = true;
  return known.sender;
}

bool StatsdSenders::afford(const Sender& sender, std::size_t bytes, Duration now) {
  const flash_door_settings all = budgets();
  const bool stranger = !sender.target && !sender.named;
  auto account = paid_ns_.find(std::string_view(sender.account));
  if (account == paid_ns_.end()) {
    if (paid_ns_.size() >= kMostAccounts) paid_ns_.clear();
    account = paid_ns_.emplace(sender.account, 0).first;
  }
  const auto now_ns = static_cast<std::uint64_t>(now.count());
  const std::uint64_t cost = FLASH_DATAGRAM_COST + bytes;
  if (!flash_take(&account->second, stranger ? all.stranger : all.member, cost, now_ns)) return false;
  // Nobody at all is many: their account is the one over all.
  return !stranger || flash_take(&strangers_paid_ns_, all.strangers, cost, now_ns);
}

void StatsdSenders::end_tick() {
  std::erase_if(known_, [](const auto& k) { return !k.second.spoke; });
  for (auto& [pid, known] : known_) known.spoke = false;
}

bool StatsdSenders::names(const std::string& cgroup) const {
  return std::any_of(voices_.begin(), voices_.end(), [&](const auto& v) {
    return std::any_of(v.second.senders.begin(), v.second.senders.end(),
                       [&](const std::string& glob) { return is_named(cgroup, glob); });
  });
}

std::vector<std::string> StatsdSenders::spelled_out() const {
  std::vector<std::string> all;
  for (const auto& [id, voice] : voices_)
    for (const std::string& glob : voice.senders)
      if (literal_beginning(glob).size() == glob.size()) all.push_back(glob);
  return all;
}

std::string StatsdSenders::directory_of(const std::string& cgroup) const {
  if (!layout_ || cgroup.empty()) return {};
  return layout_->directory(layout_->reference(), cgroup);
}

}  // namespace flash
