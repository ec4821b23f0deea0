#include "coordinator/model_watch.h"

#include <syslog.h>

namespace flash::coordinator {
namespace {

constexpr std::int64_t kBeforeUs = std::int64_t{7} * 86400 * 1'000'000;  // before it was published
constexpr std::uint32_t kEverywhere = 100;

}  // namespace

void ModelWatch::look(Duration mono, std::int64_t now_us) {
  if (mono < due_) return;
  due_ = mono + every_;
  const std::string trouble = look_at_all(now_us);
  if (trouble != said_ && !trouble.empty()) say_(LOG_WARNING, trouble);
  said_ = trouble;
}

std::string ModelWatch::look_at_all(std::int64_t now_us) {
  const auto nats = Nats::connect(options_);
  if (!nats) return "models are not watched: " + nats.error().message();
  Registry registry(**nats, replicas_);
  std::string trouble;
  if (auto set = (*nats)->set_replicas(kModelStream, replicas_); !set) trouble = set.error().message();
  if (auto done = registry.sign_what_is_not(now_us); !done)
    trouble = "the state of the models is not signed: " + done.error().message();
  if (auto judged = judge_all(registry, now_us); !judged)
    trouble = "models are not watched: " + judged.error().message();
  return registry.trouble().empty() ? trouble : registry.trouble();
}

Result<void> ModelWatch::judge_all(Registry& registry, std::int64_t now_us) {
  FLASH_TRY(const Models models, registry.models());
  // At 0 nobody has it, at 100 nobody is left to compare with.
  for (const OfferedModel& m : models.offered)
    if (m.share > 0 && m.share < kEverywhere) FLASH_CHECK(look_at(m, registry, now_us));
  return {};
}

Result<void> ModelWatch::look_at(const OfferedModel& m, Registry& registry, std::int64_t now_us) {
  FLASH_TRY(const auto gains, store_.gains(m.name, {m.published_us - kBeforeUs, m.published_us, m.since_us}));
  const Judgement j = judge(m, gains);
  const std::string what = m.name + " " + std::to_string(m.version) + ": " + words_of(j);
  say_(LOG_DEBUG, what);
  if (!j.worse()) return {};
  say_(LOG_WARNING, "model " + what + ": withdrawn");
  return registry.change(
      [&](Models& models) {
        return withdraw(models, m.name, m.version, "it earns less: " + words_of(j), now_us);
      },
      now_us);
}

}  // namespace flash::coordinator
