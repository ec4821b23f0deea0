#include "coordinator/registrar.h"

#include <syslog.h>

#include <algorithm>
#include <utility>

#include "coordinator/jwt.h"
#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr Duration kRound = std::chrono::milliseconds(500);
constexpr Duration kRetryFirst = std::chrono::milliseconds(500), kRetryLongest = std::chrono::seconds(15);

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(clock_now(CLOCK_REALTIME)).count();
}

}  // namespace

Registrar::Registrar(NKey node_key, std::string account, std::int64_t lifetime, IdentityStore store,
                     LogSink say)
    : node_key_(std::move(node_key)),
      account_(std::move(account)),
      lifetime_(lifetime),
      store_(std::move(store)),
      say_(std::move(say)) {}

Result<std::string> Registrar::grant(const Petitioner& petitioner, std::string_view bytes, std::int64_t now) {
  FLASH_TRY(const Wish wish, decode_wish(bytes));
  const NodeCredentials given{wish.key, petitioner.node, now, now, now + lifetime_, 0};
  // Signed first: what is recorded can be given again, to the same key.
  FLASH_TRY(std::string jwt, role_user_jwt(node_key_, account_, {given.node, given.key, given.expires}, now));
  FLASH_CHECK(petitioner.token.empty() ? store_.renew(given) : store_.enroll(petitioner.token, given));
  say_(LOG_NOTICE, (petitioner.token.empty() ? "renewed " : "enrolled ") + given.node + ", key " + given.key);
  return jwt;
}

/// EINVAL: nobody who may be answered.
Result<Petitioner> Registrar::asker(std::string_view subject, std::string_view reply) const {
  auto petitioner = petitioner_of(subject);
  if (!petitioner) return Error(std::errc::invalid_argument, "not a subject of wishes");
  if (!is_inbox_of(reply, petitioner->token.empty() ? petitioner->node : petitioner->token))
    return Error(std::errc::invalid_argument,
                 petitioner->node + " wants the answer in another place than its own inbox");
  return std::move(*petitioner);
}

std::optional<std::string> Registrar::answer(std::string_view subject, std::string_view wish,
                                             std::string_view reply, std::int64_t now) {
  const auto petitioner = asker(subject, reply);
  // Where nobody may ask at all, all that do are one.
  const auto known = petitioner_of(subject);
  if (!budget_.take(known ? known->node : std::string(), std::chrono::seconds(now))) return std::nullopt;
  auto jwt = petitioner ? grant(*petitioner, wish, now) : Result<std::string>(petitioner.error());
  if (jwt) return encode(Credentials{std::move(*jwt)});
  const std::string& why = jwt.error().message();
  // Not the subject: it has the token's key.
  say_(LOG_WARNING, "refused credentials" +
                        (!petitioner                 ? std::string()
                         : petitioner->token.empty() ? " that " + petitioner->node + " wants renewed"
                                                     : " of " + petitioner->node + " by a token") +
                        ": " + why);
  if (auto counted = store_.count_refused(); !counted) say_(LOG_WARNING, counted.error().message());
  if (!petitioner) return std::nullopt;
  return encode(Refusal{why.substr(0, 256)});
}

RegistrarThread::RegistrarThread(NatsOptions nats, Registrar registrar, LogSink say)
    : nats_(std::move(nats)),
      registrar_(std::move(registrar)),
      say_(std::move(say)),
      thread_([this] { work(); }) {}

RegistrarThread::~RegistrarThread() {
  ending_ = true;
  thread_.join();
}

void RegistrarThread::work() {
  Duration pause = kRetryFirst;
  std::string said;
  while (!ending_) {
    const Duration began = clock_now(CLOCK_MONOTONIC);
    const auto done = serve();
    if (done) return;
    if (clock_now(CLOCK_MONOTONIC) - began > kRetryLongest) pause = kRetryFirst, said.clear();
    if (done.error().message() != said) say_(LOG_WARNING, "no enrolment: " + done.error().message());
    said = done.error().message();
    for (Duration waited{}; waited < pause && !ending_; waited += kRound) std::this_thread::sleep_for(kRound);
    pause = std::min(pause * 2, kRetryLongest);
  }
}

/// Until told to end, or the connection breaks.
Result<void> RegistrarThread::serve() {
  FLASH_TRY(const auto nats, Nats::connect(nats_));
  FLASH_CHECK(nats->subscribe(kIdentitySubjects));
  while (!ending_) {
    FLASH_TRY(const auto message, nats->next(kRound));
    if (!message) continue;
    const auto answer = registrar_.answer(message->subject, message->bytes, message->reply, unix_seconds());
    if (answer) FLASH_CHECK(nats->publish(message->reply, *answer));
  }
  return {};
}

}  // namespace flash::coordinator
