#include "link/messages.h"

#include <cassert>

#include "link/message_set.h"

namespace flash::link {

using DownSet = MessageSet<kVersion, Down>;
using UpSet = MessageSet<kVersion, Up>;

void also(cbor::Check& c, const Announce& m) {
  c.take(m.layout.check());
}

void also(cbor::Check& c, const Step& m) {
  if (!m.behaviour.given && (m.behaviour.log_probability != 0 || m.behaviour.value != 0))
    c.fail("behaviour", "numbers of one that is not given");
}

void also(cbor::Check& c, const Verdict& m) {
  if (m.accepted != m.reason.empty()) c.fail("reason", "given exactly where a policy is refused");
}

void also(cbor::Check& c, const Offer& m) {
  if (m.agents.empty()) c.fail("agents", "none");
}

Result<void> validate(const LearningSettings& settings) {
  return cbor::check(settings);
}

Result<void> validate(const Down& message) {
  return DownSet::check(message);
}

Result<void> validate(const Up& message) {
  return UpSet::check(message);
}

std::string encode(const Down& message) {
  return DownSet::encode(message);
}

std::string encode(const Up& message) {
  return UpSet::encode(message);
}

std::string encode_step(const Step& step) {
  assert(cbor::check(step));
  cbor::Writer w;
  w.reserve(step.agent.size() + 4 * (step.state.size() + step.action.size() + step.fallback.size()) + 160);
  cbor::write(w, step);
  return w.take();
}

std::string join_steps(std::span<const std::string_view> steps) {
  assert(!steps.empty() && steps.size() <= kMaxStepsPerMessage);
  std::size_t size = kStepsOverhead;
  for (std::string_view s : steps) size += s.size();
  cbor::Writer w;
  w.reserve(size);
  cbor::begin(w, kVersion, Steps::kType, 1);
  w.text("steps");
  w.head(cbor::Writer::kArray, steps.size());
  for (std::string_view s : steps) w.raw(s);
  return w.take();
}

Result<Down> decode_down(std::string_view bytes) {
  return DownSet::decode(bytes);
}

Result<Up> decode_up(std::string_view bytes) {
  return UpSet::decode(bytes);
}

}  // namespace flash::link
