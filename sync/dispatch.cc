#include "sync/dispatch.h"

#include <algorithm>

namespace flash::sync {

void Dispatch::restart() {
  on_their_way_.clear();
  answered_ = false;
  lease_ = 0;
  resend_ = options_.resend_first;
}

Dispatch::Wanted Dispatch::wanted(Duration now) {
  if (!on_their_way_.empty() && now >= resend_at_) {
    // Lost, or its watermark was, or nobody listens: one record finds out.
    on_their_way_.clear();
    answered_ = false;
    resend_ = std::min(resend_ * 2, options_.resend_longest);
  }
  const std::size_t window = answered_ ? options_.window : 1;
  const std::uint64_t after = on_their_way_.empty() ? confirmed_ : on_their_way_.back();
  return {after, window - std::min(window, on_their_way_.size())};
}

void Dispatch::sent(Duration now, std::uint64_t seq) {
  if (on_their_way_.empty()) resend_at_ = now + resend_;
  on_their_way_.push_back(seq);
}

bool Dispatch::confirmed(Duration now, std::uint64_t seq, std::uint64_t lease) {
  if (lease < lease_) return false;
  lease_ = lease;
  answered_ = true;
  if (seq <= confirmed_) return false;
  confirmed_ = seq;
  while (!on_their_way_.empty() && on_their_way_.front() <= seq) on_their_way_.pop_front();
  resend_ = options_.resend_first;
  resend_at_ = now + resend_;
  return true;
}

}  // namespace flash::sync
