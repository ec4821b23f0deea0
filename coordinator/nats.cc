#include "coordinator/nats.h"

#include <nats/nats.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/durable_file.h"
#include "coordinator/messages_models.h"
#include "coordinator/server_version.h"
#include "core/json.h"
#include "core/process.h"

namespace flash::coordinator {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 5000;
constexpr int kAuthenticationTries = 3;  // one of 256 fails
constexpr std::int64_t kPingMs = 10000;  // a server that is silent for three of them is gone
constexpr std::int64_t kWriteDeadlineMs = 5000;
constexpr std::int64_t kStreamAgeNs = std::int64_t{7} * 86400 * 1'000'000'000;
constexpr std::int32_t kMessageBytes = 64 * 1024;
constexpr std::int64_t kModelStreamBytes = std::int64_t{1} << 30;
// With the headers of put().
constexpr std::int32_t kModelMessageBytes = static_cast<std::int32_t>(link::kModelChunkBytes) + 1024;
constexpr std::int64_t kModelMessagesPerSubject = 16;  // what is good behind messages that are not
constexpr std::int64_t kAnswerMs = 5000;
constexpr int kWaitingMessages = 4096, kWaitingBytes = 8 << 20;  // that came and nobody has read
constexpr const char* kSealHeader = "Flash-Seal";
// A new nats-server (2.9.10) enables an account's JetStream for each of the connections that first come to it
// at the same time, and each removes what lies in the folder of streams: one that the first connection makes
// meanwhile is never stored, and no restart of ours brings it back. Those that came with this one are through
// by then; later ones find the account enabled.
constexpr Duration kAccountEnabled = std::chrono::seconds(2);

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using OptionsHandle = std::unique_ptr<natsOptions, Destroy<natsOptions_Destroy>>;
using ConnectionHandle = std::unique_ptr<natsConnection, Destroy<natsConnection_Destroy>>;
using ContextHandle = std::unique_ptr<jsCtx, Destroy<jsCtx_Destroy>>;
using SubscriptionHandle = std::unique_ptr<natsSubscription, Destroy<natsSubscription_Destroy>>;
using MessageHandle = std::unique_ptr<natsMsg, Destroy<natsMsg_Destroy>>;
using MetaHandle = std::unique_ptr<jsMsgMetaData, Destroy<jsMsgMetaData_Destroy>>;
using BucketHandle = std::unique_ptr<kvStore, Destroy<kvStore_Destroy>>;
using EntryHandle = std::unique_ptr<kvEntry, Destroy<kvEntry_Destroy>>;
using AckHandle = std::unique_ptr<jsPubAck, Destroy<jsPubAck_Destroy>>;
using StreamHandle = std::unique_ptr<jsStreamInfo, Destroy<jsStreamInfo_Destroy>>;

std::errc code_of(natsStatus status) {
  switch (status) {
    case NATS_NOT_PERMITTED:
    case NATS_CONNECTION_AUTH_FAILED:
      return std::errc::permission_denied;
    case NATS_INVALID_ARG:
    case NATS_ADDRESS_MISSING:
    case NATS_INVALID_SUBJECT:
      return std::errc::invalid_argument;
    case NATS_TIMEOUT:
      return std::errc::timed_out;
    default:
      return std::errc::not_connected;
  }
}

/// What the library knows of this thread's last error, without the place in its source: "(conn.c:2088): ".
std::string words_for(natsStatus status) {
  natsStatus last = NATS_OK;
  const char* detail = nats_GetLastError(&last);
  if (last != status || !detail || !*detail) return natsStatus_GetText(status);
  const std::string_view text(detail);
  const auto end = text.starts_with('(') ? text.find("): ") : text.npos;
  return std::string(end == text.npos ? text : text.substr(end + 3));
}

Result<void> done(natsStatus status, const std::string& what) {
  if (status == NATS_OK) return {};
  return Error(code_of(status), what + ": " + words_for(status));
}

std::int64_t milliseconds(Duration d) {
  return std::chrono::ceil<std::chrono::milliseconds>(d).count();
}

Message plain_message(natsMsg* got) {
  Message message;
  message.subject = natsMsg_GetSubject(got);
  if (const char* reply = natsMsg_GetReply(got)) message.reply = reply;
  message.bytes.assign(natsMsg_GetData(got), static_cast<std::size_t>(natsMsg_GetDataLength(got)));
  const char* seal = nullptr;
  if (natsMsgHeader_Get(got, kSealHeader, &seal) == NATS_OK && seal) message.seal = seal;
  return message;
}

Result<MessageHandle> made_message(const std::string& subject, std::string_view bytes,
                                   const std::string& seal) {
  natsMsg* made = nullptr;
  FLASH_CHECK(
      done(natsMsg_Create(&made, subject.c_str(), nullptr, bytes.data(), static_cast<int>(bytes.size())),
           "publish " + subject));
  MessageHandle handle(made);
  if (!seal.empty())
    FLASH_CHECK(done(natsMsgHeader_Set(made, kSealHeader, seal.c_str()), "publish " + subject));
  return handle;
}

Result<Authority> authority_of(const NatsOptions& o) {
  if (o.credentials.empty()) return Authority();
  FLASH_TRY(const std::string text, read_whole(o.credentials));
  auto authority = Authority::of(text);
  if (!authority) return std::move(authority).error().context(o.credentials);
  return authority;
}

// Without one the library writes to stderr; trouble() has the words.
void count_error(natsConnection*, natsSubscription*, natsStatus status, void* violations) {
  if (status == NATS_NOT_PERMITTED) ++*static_cast<std::atomic<std::uint64_t>*>(violations);
}

/// One of them is taken, by chance.
Result<void> set_servers(natsOptions* options, const std::string& urls) {
  std::vector<std::string> list;
  std::istringstream text(urls);
  for (std::string url; std::getline(text, url, ',');) list.push_back(url);
  std::vector<const char*> pointers;
  for (const std::string& url : list) pointers.push_back(url.c_str());
  return done(natsOptions_SetServers(options, pointers.data(), static_cast<int>(pointers.size())), urls);
}

Result<OptionsHandle> options_for(const NatsOptions& o, std::atomic<std::uint64_t>& violations) {
  natsOptions* made = nullptr;
  FLASH_CHECK(done(natsOptions_Create(&made), "libnats"));
  OptionsHandle handle(made);
  FLASH_CHECK(set_servers(made, o.url));
  FLASH_CHECK(done(natsOptions_SetName(made, o.name.c_str()), "libnats"));
  FLASH_CHECK(done(natsOptions_SetTimeout(made, kConnectTimeoutMs), "libnats"));
  FLASH_CHECK(done(natsOptions_SetPingInterval(made, kPingMs), "libnats"));
  FLASH_CHECK(done(natsOptions_SetWriteDeadline(made, kWriteDeadlineMs), "libnats"));
  FLASH_CHECK(done(natsOptions_SetAllowReconnect(made, false), "libnats"));
  FLASH_CHECK(done(natsOptions_SetErrorHandler(made, count_error, &violations), "libnats"));
  if (!o.ca.empty()) FLASH_CHECK(done(natsOptions_LoadCATrustedCertificates(made, o.ca.c_str()), o.ca));
  if (o.url.starts_with("tls://")) FLASH_CHECK(done(natsOptions_SetSecure(made, true), "TLS"));
  if (!o.credentials.empty())
    FLASH_CHECK(
        done(natsOptions_SetUserCredentialsFromFiles(made, o.credentials.c_str(), nullptr), o.credentials));
  if (!o.inbox_prefix.empty())
    FLASH_CHECK(done(natsOptions_SetCustomInboxPrefix(made, o.inbox_prefix.c_str()), o.inbox_prefix));
  return handle;
}

bool as_wanted(const jsStreamConfig& there, const StreamOptions& wanted) {
  return there.Replicas == wanted.replicas && there.MaxBytes == wanted.bytes &&
         there.Discard == js_DiscardOld && there.NoAck;
}

void fill(jsStreamConfig& config, const StreamOptions& wanted, const char** subjects) {
  config.Name = wanted.name.c_str();
  config.Subjects = subjects;
  config.SubjectsLen = 1;
  config.Storage = js_FileStorage;
  config.Replicas = wanted.replicas;
  config.MaxAge = kStreamAgeNs;
  config.MaxBytes = wanted.bytes;
  config.MaxMsgSize = kMessageBytes;
  config.Discard = js_DiscardOld;
  config.NoAck = true;
}

void fill_for_models(jsStreamConfig& config, int replicas) {
  static const char* subjects[] = {kModelsSubject, kChunkSubjects};
  config.Name = kModelStream;
  config.Subjects = subjects;
  config.SubjectsLen = 2;
  config.Storage = js_FileStorage;
  config.Replicas = replicas;
  config.MaxBytes = kModelStreamBytes;
  config.MaxMsgSize = kModelMessageBytes;
  config.MaxMsgsPerSubject = kModelMessagesPerSubject;
  config.Discard = js_DiscardNew;  // a publication that does not fit fails, instead of an older one
}

}  // namespace

struct Nats::Impl {
  /// Before something is stored whose like this server may never have had.
  void wait_until_account_is_enabled() const {
    std::this_thread::sleep_for(connected_at + kAccountEnabled - clock_now(CLOCK_MONOTONIC));
  }

  Authority authority;
  Duration connected_at{};                    // CLOCK_MONOTONIC
  std::atomic<std::uint64_t> violations = 0;  // the library's threads count
  // In the order of being made: the last one goes first.
  ConnectionHandle connection;
  ContextHandle context, bucket_context;
  SubscriptionHandle subscription;
  std::vector<SubscriptionHandle> others;
  BucketHandle bucket;
  bool stream = false;  // the subscription is one of a stream
};

Nats::Nats(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Nats::~Nats() = default;

Result<std::unique_ptr<Nats>> Nats::connect(const NatsOptions& options) {
  auto impl = std::make_unique<Impl>();
  FLASH_TRY(impl->authority, authority_of(options));
  FLASH_TRY(const OptionsHandle handle, options_for(options, impl->violations));
  natsConnection* connection = nullptr;
  FLASH_CHECK(done(natsConnection_Connect(&connection, handle.get()), options.url));
  impl->connection.reset(connection);
  impl->connected_at = clock_now(CLOCK_MONOTONIC);
  jsCtx* context = nullptr;
  FLASH_CHECK(done(natsConnection_JetStream(&context, connection, nullptr), "JetStream"));
  impl->context.reset(context);
  return std::unique_ptr<Nats>(new Nats(std::move(impl)));
}

Result<std::unique_ptr<Nats>> Nats::connect_surely(const NatsOptions& options) {
  auto nats = connect(options);
  for (int i = 1; i < kAuthenticationTries && !nats && nats.error().is(std::errc::permission_denied); ++i)
    nats = connect(options);
  return nats;
}

bool Nats::open() const {
  return !natsConnection_IsClosed(impl_->connection.get());
}

std::string Nats::trouble() const {
  const char* words = nullptr;
  const natsStatus status = natsConnection_GetLastError(impl_->connection.get(), &words);
  if (status == NATS_OK) return {};
  return words && *words ? words : natsStatus_GetText(status);
}

std::uint64_t Nats::violations() const {
  return impl_->violations;
}

std::string Nats::old_server() const {
  std::array<char, 512> url{};
  if (natsConnection_GetConnectedUrl(impl_->connection.get(), url.data(), url.size()) != NATS_OK) return {};
  const auto version = server_version(url.data());
  return version ? why_too_old(*version) : std::string();
}

const Authority& Nats::authority() const {
  return impl_->authority;
}

Result<void> Nats::publish(const std::string& subject, std::string_view bytes, const std::string& seal) {
  FLASH_TRY(const MessageHandle message, made_message(subject, bytes, seal));
  return done(natsConnection_PublishMsg(impl_->connection.get(), message.get()), "publish " + subject);
}

Result<std::string> Nats::request(const std::string& subject, std::string_view bytes, Duration longest) {
  natsMsg* got = nullptr;
  FLASH_CHECK(done(natsConnection_Request(&got, impl_->connection.get(), subject.c_str(), bytes.data(),
                                          static_cast<int>(bytes.size()), milliseconds(longest)),
                   "no answer"));
  const MessageHandle handle(got);
  return std::string(natsMsg_GetData(got), static_cast<std::size_t>(natsMsg_GetDataLength(got)));
}

Result<void> Nats::subscribe(const std::string& subject, const std::string& group) {
  natsSubscription* made = nullptr;
  natsConnection* connection = impl_->connection.get();
  FLASH_CHECK(done(group.empty()
                       ? natsConnection_SubscribeSync(&made, connection, subject.c_str())
                       : natsConnection_QueueSubscribeSync(&made, connection, subject.c_str(), group.c_str()),
                   "subscribe " + subject));
  impl_->subscription.reset(made);
  // The library's own bound of 64 MiB is more than a node may have. What is dropped is asked again.
  FLASH_CHECK(done(natsSubscription_SetPendingLimits(made, kWaitingMessages, kWaitingBytes), subject));
  impl_->stream = false;
  return {};
}

Result<StreamState> Nats::ensure_stream(const StreamOptions& wanted) {
  jsStreamInfo* info = nullptr;
  natsStatus status = js_GetStreamInfo(&info, impl_->context.get(), wanted.name.c_str(), nullptr, nullptr);
  const StreamHandle found(status == NATS_OK ? info : nullptr);
  if (found && as_wanted(*found->Config, wanted))
    return StreamState{found->Created, found->State.FirstSeq, found->State.LastSeq};
  jsStreamConfig config;
  FLASH_CHECK(done(jsStreamConfig_Init(&config), "libnats"));
  const char* subjects[] = {wanted.subjects.c_str()};
  fill(config, wanted, subjects);
  if (found) {
    status = js_UpdateStream(&info, impl_->context.get(), &config, nullptr, nullptr);
  } else if (status == NATS_NOT_FOUND) {
    impl_->wait_until_account_is_enabled();
    status = js_AddStream(&info, impl_->context.get(), &config, nullptr, nullptr);
  }
  FLASH_CHECK(done(status, "stream " + wanted.name));
  const StreamHandle made(info);
  return StreamState{made->Created, made->State.FirstSeq, made->State.LastSeq};
}

Result<void> Nats::ensure_model_stream(int replicas) {
  jsStreamInfo* info = nullptr;
  natsStatus status = js_GetStreamInfo(&info, impl_->context.get(), kModelStream, nullptr, nullptr);
  const StreamHandle found(status == NATS_OK ? info : nullptr);
  if (found && found->Config->MaxMsgsPerSubject == kModelMessagesPerSubject) return {};
  jsStreamConfig config;
  FLASH_CHECK(done(jsStreamConfig_Init(&config), "libnats"));
  fill_for_models(config, found ? static_cast<int>(found->Config->Replicas) : replicas);
  if (found) {
    status = js_UpdateStream(nullptr, impl_->context.get(), &config, nullptr, nullptr);
  } else if (status == NATS_NOT_FOUND) {
    impl_->wait_until_account_is_enabled();
    status = js_AddStream(nullptr, impl_->context.get(), &config, nullptr, nullptr);
  }
  return done(status, std::string("stream ") + kModelStream);
}

Result<void> Nats::set_replicas(const std::string& stream, int replicas) {
  jsStreamInfo* info = nullptr;
  natsStatus status = js_GetStreamInfo(&info, impl_->context.get(), stream.c_str(), nullptr, nullptr);
  if (status == NATS_NOT_FOUND) return {};
  const StreamHandle found(status == NATS_OK ? info : nullptr);
  if (found && found->Config->Replicas == replicas) return {};
  if (found) {
    found->Config->Replicas = replicas;
    status = js_UpdateStream(nullptr, impl_->context.get(), found->Config, nullptr, nullptr);
  }
  return done(status, std::to_string(replicas) + " replicas of " + stream);
}

Result<void> Nats::put(const std::string& stream, const std::string& subject, std::string_view bytes,
                       std::optional<std::uint64_t> after, const std::string& seal) {
  FLASH_TRY(const MessageHandle message, made_message(subject, bytes, seal));
  jsPubOptions options;
  FLASH_CHECK(done(jsPubOptions_Init(&options), "libnats"));
  options.MaxWait = kAnswerMs;
  options.ExpectStream = stream.c_str();
  options.ExpectLastSubjectSeq = after.value_or(0);
  options.ExpectNoMessage = after == 0U;
  jsPubAck* made = nullptr;
  jsErrCode code{};
  const natsStatus status = js_PublishMsg(&made, impl_->context.get(), message.get(), &options, &code);
  const AckHandle handle(made);
  if (code == JSStreamWrongLastSequenceErr)
    return Error(std::errc::resource_unavailable_try_again, "somebody else changed " + subject);
  return done(status, "publish " + subject);
}

Result<std::optional<Message>> Nats::newest(const std::string& stream, const std::string& subject) {
  jsOptions options;
  FLASH_CHECK(done(jsOptions_Init(&options), "libnats"));
  options.Wait = kAnswerMs;
  natsMsg* got = nullptr;
  jsErrCode code{};
  const natsStatus status =
      js_GetLastMsg(&got, impl_->context.get(), stream.c_str(), subject.c_str(), &options, &code);
  if (status == NATS_NOT_FOUND || code == JSStreamNotFoundErr) return std::optional<Message>{};
  FLASH_CHECK(done(status, "get " + subject));
  const MessageHandle handle(got);
  Message message = plain_message(got);
  message.position = natsMsg_GetSequence(got);
  return std::optional<Message>{std::move(message)};
}

Result<std::vector<Message>> Nats::kept(const std::string& stream, const std::string& subject) {
  jsSubOptions options;
  FLASH_CHECK(done(jsSubOptions_Init(&options), "libnats"));
  options.Stream = stream.c_str();
  options.Ordered = true;
  options.Config.DeliverPolicy = js_DeliverAll;
  natsSubscription* made = nullptr;
  FLASH_CHECK(done(js_SubscribeSync(&made, impl_->context.get(), subject.c_str(), nullptr, &options, nullptr),
                   "subscribe " + stream));
  const SubscriptionHandle subscription(made);
  std::vector<Message> out;
  for (std::uint64_t pending = 1; pending > 0;) {
    natsMsg* got = nullptr;
    FLASH_CHECK(done(natsSubscription_NextMsg(&got, made, kAnswerMs), "get " + subject));
    const MessageHandle handle(got);
    jsMsgMetaData* meta = nullptr;
    FLASH_CHECK(done(natsMsg_GetMetaData(&meta, got), "message without a position"));
    const MetaHandle owned(meta);
    out.push_back(plain_message(got));
    out.back().position = meta->Sequence.Stream;
    pending = meta->NumPending;
  }
  return out;
}

Result<std::vector<std::string>> Nats::subjects(const std::string& stream, const std::string& filter) {
  jsOptions options;
  FLASH_CHECK(done(jsOptions_Init(&options), "libnats"));
  options.Wait = kAnswerMs;
  options.Stream.Info.SubjectsFilter = filter.c_str();
  jsStreamInfo* info = nullptr;
  FLASH_CHECK(done(js_GetStreamInfo(&info, impl_->context.get(), stream.c_str(), &options, nullptr),
                   "subjects of " + stream));
  const StreamHandle handle(info);
  std::vector<std::string> out;
  if (const jsStreamStateSubjects* all = info->State.Subjects)
    for (int i = 0; i < all->Count; ++i) out.emplace_back(all->List[i].Subject);
  return out;
}

Result<void> Nats::purge(const std::string& stream, const std::string& subject) {
  jsOptions options;
  FLASH_CHECK(done(jsOptions_Init(&options), "libnats"));
  options.Wait = kAnswerMs;
  options.Stream.Purge.Subject = subject.c_str();
  return done(js_PurgeStream(impl_->context.get(), stream.c_str(), &options, nullptr), "purge " + subject);
}

Result<void> Nats::subscribe_stream(const std::string& stream, const std::string& subjects,
                                    std::uint64_t position) {
  jsSubOptions options;
  FLASH_CHECK(done(jsSubOptions_Init(&options), "libnats"));
  options.Stream = stream.c_str();
  options.Ordered = true;
  options.Config.DeliverPolicy = js_DeliverByStartSequence;
  options.Config.OptStartSeq = std::max<std::uint64_t>(position, 1);
  natsSubscription* made = nullptr;
  FLASH_CHECK(
      done(js_SubscribeSync(&made, impl_->context.get(), subjects.c_str(), nullptr, &options, nullptr),
           "subscribe " + stream));
  impl_->subscription.reset(made);
  impl_->stream = true;
  return {};
}

Result<void> Nats::open_bucket(const std::string& bucket, int replicas) {
  jsOptions options;
  FLASH_CHECK(done(jsOptions_Init(&options), "libnats"));
  options.Wait = milliseconds(kBucketWait);
  jsCtx* context = nullptr;
  FLASH_CHECK(done(natsConnection_JetStream(&context, impl_->connection.get(), &options), "JetStream"));
  impl_->bucket.reset();
  impl_->bucket_context.reset(context);
  kvStore* made = nullptr;
  natsStatus status = js_KeyValue(&made, context, bucket.c_str());
  if (status == NATS_NOT_FOUND) {
    kvConfig config;
    FLASH_CHECK(done(kvConfig_Init(&config), "libnats"));
    config.Bucket = bucket.c_str();
    config.History = 1;
    config.StorageType = js_FileStorage;
    config.Replicas = replicas;
    impl_->wait_until_account_is_enabled();
    kvStore* first = nullptr;  // several servers may need longer to agree on a new one
    FLASH_CHECK(done(js_CreateKeyValue(&first, impl_->context.get(), &config), "bucket " + bucket));
    const BucketHandle owned(first);
    status = js_KeyValue(&made, context, bucket.c_str());
  }
  FLASH_CHECK(done(status, "bucket " + bucket));
  impl_->bucket.reset(made);
  return {};
}

Result<std::optional<Nats::BucketEntry>> Nats::bucket_get(const std::string& key) {
  kvEntry* got = nullptr;
  const natsStatus status = kvStore_Get(&got, impl_->bucket.get(), key.c_str());
  if (status == NATS_NOT_FOUND) return std::optional<BucketEntry>{};
  FLASH_CHECK(done(status, "get " + key));
  const EntryHandle handle(got);
  const auto* bytes = static_cast<const char*>(kvEntry_Value(got));
  return std::optional(BucketEntry{std::string(bytes, static_cast<std::size_t>(kvEntry_ValueLen(got))),
                                   kvEntry_Revision(got)});
}

Result<std::uint64_t> Nats::bucket_put(const std::string& key, const std::string& value,
                                       std::uint64_t revision) {
  std::uint64_t fresh = 0;
  const auto size = static_cast<int>(value.size());
  const natsStatus status =
      revision == 0 ? kvStore_Create(&fresh, impl_->bucket.get(), key.c_str(), value.data(), size)
                    : kvStore_Update(&fresh, impl_->bucket.get(), key.c_str(), value.data(), size, revision);
  // What the server refuses comes as a general error: another revision is what it refuses a lone key for.
  if (status == NATS_ERR)
    return Error(std::errc::resource_unavailable_try_again, "another revision of " + key);
  FLASH_CHECK(done(status, "put " + key));
  return fresh;
}

Result<void> Nats::listen(const std::string& subject) {
  natsSubscription* made = nullptr;
  FLASH_CHECK(done(natsConnection_SubscribeSync(&made, impl_->connection.get(), subject.c_str()),
                   "subscribe " + subject));
  impl_->others.emplace_back(made);
  return {};
}

Result<std::optional<Message>> Nats::heard() {
  for (const SubscriptionHandle& s : impl_->others) {
    std::uint64_t waiting = 0;
    FLASH_CHECK(done(natsSubscription_QueuedMsgs(s.get(), &waiting), "waiting messages"));
    if (waiting == 0) continue;
    natsMsg* got = nullptr;
    FLASH_CHECK(done(natsSubscription_NextMsg(&got, s.get(), 1), "waiting message"));
    const MessageHandle handle(got);
    return std::optional<Message>(plain_message(got));
  }
  return std::optional<Message>{};
}

Result<std::optional<Message>> Nats::next(Duration longest) {
  natsMsg* got = nullptr;
  // The library takes 0 for "at once", and needs a moment to look.
  const std::int64_t ms = std::max<std::int64_t>(milliseconds(longest), 1);
  const natsStatus status = natsSubscription_NextMsg(&got, impl_->subscription.get(), ms);
  // Said once after messages were dropped; those that wait come with the next call.
  const bool dropped = status == NATS_SLOW_CONSUMER && !impl_->stream;
  if ((status == NATS_TIMEOUT || dropped) && open()) return std::optional<Message>{};
  FLASH_CHECK(done(status, "next message"));
  const MessageHandle handle(got);
  Message message = plain_message(got);
  if (impl_->stream) {
    jsMsgMetaData* meta = nullptr;
    FLASH_CHECK(done(natsMsg_GetMetaData(&meta, got), "message without a position"));
    const MetaHandle owned(meta);
    message.position = meta->Sequence.Stream;
  }
  return std::optional<Message>{std::move(message)};
}

}  // namespace flash::coordinator
