#include "coordinator/model_desk.h"

#include <syslog.h>

#include <algorithm>
#include <utility>

#include "coordinator/messages_enrol.h"
#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr const char* kGroup = "flash-models";
constexpr Duration kFresh = std::chrono::seconds(1);
constexpr std::size_t kKnownBytes = 16U << 20;
constexpr Duration kRound = std::chrono::milliseconds(500), kSayRefused = std::chrono::minutes(1);
constexpr Duration kRetryFirst = std::chrono::milliseconds(500), kRetryLongest = std::chrono::seconds(15);

}  // namespace

Result<ModelAnswer> ModelDesk::look_up(const std::string& subject, Duration now) {
  const auto at = known_.find(subject);
  if (at != known_.end() && now - at->second.at < kFresh) return at->second.answer;
  FLASH_TRY(auto message, get_(subject));
  ModelAnswer answer{.subject = subject, .found = false, .bytes = {}, .seal = {}};
  // What is longer than it can be here is nothing that a node would take.
  if (message && message->bytes.size() <= link::kModelChunkBytes && message->seal.size() <= kMaxSeal)
    answer = {subject, true, std::move(message->bytes), std::move(message->seal)};
  if (at != known_.end()) {
    known_bytes_ -= at->second.answer.bytes.size() + subject.size();
    known_.erase(at);
  }
  if (known_bytes_ + answer.bytes.size() > kKnownBytes || known_.size() > kKnownBytes / 1024) {
    known_.clear();
    known_bytes_ = 0;
  }
  known_bytes_ += answer.bytes.size() + subject.size();
  known_[subject] = {answer, now};
  return answer;
}

Result<std::optional<std::string>> ModelDesk::answer(const Message& question, Duration now) {
  const auto node = model_asking_node(question.subject);
  const auto wanted = decode_model_question(question.bytes);
  if (!node || !wanted || !is_inbox_of(question.reply, *node) || !budget_.take(*node, now)) {
    ++refused_;
    return std::optional<std::string>();
  }
  FLASH_TRY(const ModelAnswer answer, look_up(wanted->subject, now));
  return std::optional(encode(answer));
}

ModelDeskThread::ModelDeskThread(NatsOptions nats, LogSink say)
    : nats_(std::move(nats)), say_(std::move(say)), thread_([this] { work(); }) {}

ModelDeskThread::~ModelDeskThread() {
  ending_ = true;
  thread_.join();
}

void ModelDeskThread::work() {
  Duration pause = kRetryFirst;
  std::string said;
  while (!ending_) {
    const Duration began = clock_now(CLOCK_MONOTONIC);
    const auto done = serve();
    if (done) return;
    if (clock_now(CLOCK_MONOTONIC) - began > kRetryLongest) pause = kRetryFirst, said.clear();
    if (done.error().message() != said)
      say_(LOG_WARNING, "models are not handed out: " + done.error().message());
    said = done.error().message();
    for (Duration waited{}; waited < pause && !ending_; waited += kRound) std::this_thread::sleep_for(kRound);
    pause = std::min(pause * 2, kRetryLongest);
  }
}

/// Until told to end, or the connection breaks.
Result<void> ModelDeskThread::serve() {
  FLASH_TRY(const auto nats, Nats::connect(nats_));
  FLASH_CHECK(nats->subscribe(kAllModelQuestions, kGroup));
  ModelDesk desk([&nats](const std::string& subject) { return nats->newest(kModelStream, subject); });
  std::uint64_t said = 0;
  Duration say_at{};
  while (!ending_) {
    FLASH_TRY(const auto question, nats->next(kRound));
    const Duration now = clock_now(CLOCK_MONOTONIC);
    if (desk.refused() > said && now >= say_at) {
      say_(LOG_WARNING, "questions about models that nobody answers, of who may not ask so: " +
                            std::to_string(desk.refused() - said));
      said = desk.refused();
      say_at = now + kSayRefused;
    }
    if (!question) continue;
    FLASH_TRY(const auto answer, desk.answer(*question, now));
    if (answer) FLASH_CHECK(nats->publish(question->reply, *answer));
  }
  return {};
}

}  // namespace flash::coordinator
