#include "sync/scraper.h"

#include <curl/curl.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "sync/differences.h"
#include "sync/foreign_page.h"
#include "sync/page_buffer.h"

namespace flash::sync {
namespace {

using link::sync::Reading;
using link::sync::ReadingState;
using link::sync::Scrape;

constexpr Duration kIdle = std::chrono::seconds(3600);
// While a page waits for its turn.
constexpr Duration kAsk = std::chrono::milliseconds(25);
// Of one answer, with what follows a chunked one and however many answers of 1xx come before it.
constexpr std::size_t kHeaderBytes = 16u << 10, kHeaders = 128;
// The kernel doubles it. Its default of several MiB would be ours to pay for where control groups count
// sockets.
constexpr int kSocketBytes = 32 << 10;
constexpr char kAccept[] =
    "Accept: application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.7,*/*;q=0.1";

long milliseconds(double s) {
  return std::max(1L, static_cast<long>(s * 1000));
}

/// The encodings that a page may come in, of those this libcurl does not know.
std::string words_for_encoding(CURL* easy) {
  curl_header* header = nullptr;
  if (curl_easy_header(easy, "Content-Encoding", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
    return "the page comes in a transfer encoding that is not read: serve it as it is";
  const std::string_view said = header->value;
  for (const char* known : {"gzip", "deflate", "br", "zstd", "compress"})
    if (said == known)
      return "the page says that it comes as " + std::string(known) +
             ", and cannot be read as that: broken, or more than this libcurl knows; serve it as it is";
  return "the page comes in an encoding that is not known: serve it as it is, or as gzip";
}

/// Not libcurl's own message: it counts milliseconds, so that the same trouble would never read the same.
std::string words_for(CURL* easy, CURLcode code) {
  const auto and_then = [code](const char* what) { return curl_easy_strerror(code) + std::string(what); };
  switch (code) {
    case CURLE_COULDNT_CONNECT: {
      long os_error = 0;
      curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_error);
      return os_error != 0 ? std::strerror(static_cast<int>(os_error)) : curl_easy_strerror(code);
    }
    case CURLE_BAD_CONTENT_ENCODING:
      return words_for_encoding(easy);
    case CURLE_UNSUPPORTED_PROTOCOL:  // what answers does not begin as HTTP/1 does
    case CURLE_WEIRD_SERVER_REPLY:
      return "what answers there does not speak HTTP/1: is it https, or another port?";
    case CURLE_SSL_CONNECT_ERROR:
      return and_then(": is it http, not https, there?");
    case CURLE_PEER_FAILED_VERIFICATION:
      return and_then(": its certificate must be of an authority that this host trusts");
    case CURLE_GOT_NOTHING:
      return and_then(": is it https there, or does it not take requests from this host?");
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
      return and_then(": the page was cut");
    case CURLE_OPERATION_TIMEDOUT:
      return and_then(": no whole page within timeout_s");
    default:
      return curl_easy_strerror(code);
  }
}

/// Of "Name: value", if that is its name.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':' ||
      strncasecmp(line.data(), name.data(), name.size()) != 0)
    return std::nullopt;
  line.remove_prefix(name.size() + 1);
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && blank(line.back())) line.remove_suffix(1);
  return line;
}

bool one_of(std::string_view value, std::initializer_list<std::string_view> all) {
  return std::any_of(all.begin(), all.end(), [&](std::string_view a) {
    return a.size() == value.size() && strncasecmp(a.data(), value.data(), a.size()) == 0;
  });
}

std::string in_kib(std::size_t bytes) {
  return std::to_string(bytes >> 10) + " KiB";
}

struct SlistDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// Why a transfer was ended by us.
enum class Ended : std::uint8_t { No, TooLong, NoRoom, Crowded, Headers, Encoding };

/// One page that is fetched again and again.
struct Job {
  Job(Scrape s, PageBudget& all, std::size_t longest)
      : scrape(std::move(s)), budget(all), differences(scrape) {
    account.longest = longest;
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    drop();
    budget.leave(account);
  }

  /// What a transfer leaves with libcurl's handle (headers, buffers) goes with it.
  void drop() {
    if (!easy) return;
    if (running) curl_multi_remove_handle(multi, easy);
    curl_easy_cleanup(easy);
    running = false;
    easy = nullptr;
    body.clear();
  }

  Scrape scrape;
  PageBudget& budget;
  PageBudget::Account account;
  Differences differences;
  CURLM* multi = nullptr;
  CURL* easy = nullptr;  // of a transfer: from its begin until it is read
  bool running = false;
  bool again = false;  // it found no room and was asked for again, or will be
  CURLcode code = CURLE_OK;
  Ended ended = Ended::No;
  Duration due{};
  const Duration* now = nullptr;  // of the perform() that is running
  PageBuffer body;
  std::size_t header_bytes = 0, headers = 0, encodings = 0;

  static std::size_t write(char* data, std::size_t, std::size_t size, void* self) noexcept {
    Job& job = *static_cast<Job*>(self);
    const std::size_t whole = job.body.size() + size;
    if (whole > job.account.longest)
      job.ended = Ended::TooLong;
    else if (!job.budget.grow(*job.now, job.account, whole))
      job.ended = Ended::NoRoom;
    if (job.ended != Ended::No) return 0;  // ends the transfer
    job.body.append({data, size});
    return size;
  }

  /// One line. Before the first byte of a body libcurl has made what unpacks it; more than one, or one with a
  /// window of many MiB (br, zstd), is memory that write() does not see.
  static std::size_t header(char* data, std::size_t, std::size_t size, void* self) noexcept {
    Job& job = *static_cast<Job*>(self);
    const std::string_view line(data, size);
    job.header_bytes += size;
    if (job.header_bytes > kHeaderBytes || ++job.headers > kHeaders) job.ended = Ended::Headers;
    if (const auto v = value_of(line, "Content-Encoding");
        v && !one_of(*v, {"identity"}) && (!one_of(*v, {"gzip", "x-gzip", "deflate"}) || ++job.encodings > 1))
      job.ended = Ended::Encoding;
    if (const auto v = value_of(line, "Transfer-Encoding"); v && !one_of(*v, {"identity", "chunked"}))
      job.ended = Ended::Encoding;
    return job.ended == Ended::No ? size : 0;
  }

  static int socket_made(void*, curl_socket_t fd, curlsocktype) noexcept {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes);
    return CURL_SOCKOPT_OK;
  }
};

}  // namespace

struct Scraper::Impl {
  Impl(ScraperOptions o, Random r, OnReading f)
      : options(std::move(o)),
        random(r),
        on_reading(std::move(f)),
        headers(curl_slist_append(nullptr, kAccept)),
        budget(options.memory) {}
  ~Impl() {
    jobs.clear();
    if (multi) curl_multi_cleanup(multi);
  }

  bool prepare(Job& job);
  void start(Job& job);
  void finish(Job& job);
  void tell(const Reading& r);
  Reading read(Job& job);
  std::string words_for_turn() const;
  std::size_t may_keep(const Job& job) const;
  Job& job_of(const PageBudget::Account* account) const;

  ScraperOptions options;
  Random random;
  OnReading on_reading;
  std::unique_ptr<curl_slist, SlistDeleter> headers;
  PageBudget budget;  // outlives the jobs
  CURLM* multi = nullptr;
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<Job*> done;  // transfers that have ended and are not read yet
  Duration now{};
  ScraperCounters counters;
};

Scraper::Scraper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scraper::~Scraper() = default;

Result<std::unique_ptr<Scraper>> Scraper::open(ScraperOptions options, Random random, OnReading on_reading) {
  // Once per process; libcurl counts the calls.
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return Error(std::errc::not_supported, "libcurl cannot be initialised");
  auto impl = std::make_unique<Impl>(std::move(options), random, std::move(on_reading));
  impl->multi = curl_multi_init();
  if (!impl->multi) return Error(std::errc::not_enough_memory, "libcurl: no multi handle");
  return std::unique_ptr<Scraper>(new Scraper(std::move(impl)));
}

bool Scraper::Impl::prepare(Job& job) {
  job.multi = multi;
  job.now = &now;
  job.ended = Ended::No;
  job.code = CURLE_OK;
  job.header_bytes = job.headers = job.encodings = 0;
  job.easy = curl_easy_init();
  if (!job.easy || !job.body.open(job.account.longest)) return false;
  bool good = true;
  const auto set = [&](CURLoption option, auto value) {
    good = good && curl_easy_setopt(job.easy, option, value) == CURLE_OK;
  };
  set(CURLOPT_URL, job.scrape.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, "");  // not what the environment says
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT_MS, milliseconds(job.scrape.timeout_s));
  set(CURLOPT_MAXFILESIZE, static_cast<long>(job.account.longest));
  // Not asked for, but read where it comes all the same: write() counts what is unpacked.
  set(CURLOPT_ACCEPT_ENCODING, "identity");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_USERAGENT, options.user_agent.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_WRITEFUNCTION, &Job::write);
  set(CURLOPT_WRITEDATA, &job);
  set(CURLOPT_HEADERFUNCTION, &Job::header);
  set(CURLOPT_HEADERDATA, &job);
  set(CURLOPT_SOCKOPTFUNCTION, &Job::socket_made);
  set(CURLOPT_PRIVATE, &job);
  return good;
}

void Scraper::set(Duration now, const std::vector<Scrape>& scrapes) {
  std::vector<std::unique_ptr<Job>> next;
  for (const Scrape& s : scrapes) {
    const auto known = std::find_if(impl_->jobs.begin(), impl_->jobs.end(),
                                    [&](const auto& j) { return j && j->scrape == s; });
    if (known != impl_->jobs.end()) {
      next.push_back(std::move(*known));
      continue;
    }
    auto job = std::make_unique<Job>(s, impl_->budget, impl_->options.max_page_bytes);
    // Not all at the same moment.
    job->due = now + from_seconds(s.interval_s * impl_->random.uniform(0, 1));
    next.push_back(std::move(job));
  }
  std::erase_if(impl_->done, [&](const Job* d) {
    return std::none_of(next.begin(), next.end(), [&](const auto& j) { return j.get() == d; });
  });
  impl_->jobs = std::move(next);
  impl_->budget.set_pages(impl_->jobs.size());
}

std::size_t Scraper::size() const {
  return impl_->jobs.size();
}

Job& Scraper::Impl::job_of(const PageBudget::Account* account) const {
  return **std::find_if(jobs.begin(), jobs.end(), [&](const auto& j) { return &j->account == account; });
}

void Scraper::Impl::tell(const Reading& r) {
  if (r.state == ReadingState::Unreachable)
    ++counters.unreachable;
  else if (r.state == ReadingState::Invalid)
    ++counters.invalid;
  else
    ++counters.pages;
  on_reading(r);
}

void Scraper::Impl::start(Job& job) {
  job.running = prepare(job) && curl_multi_add_handle(multi, job.easy) == CURLM_OK;
  if (job.running) return;
  job.drop();
  budget.end(now, job.account, false);
  tell(job.differences.unreachable("libcurl refuses the address"));
}

std::string Scraper::Impl::words_for_turn() const {
  return "pages of more than " + in_kib(budget.own()) + " wait for each other's memory: ";
}

Duration Scraper::start_due(Duration now) {
  Duration next = kIdle;
  impl_->now = now;
  for (auto& job : impl_->jobs) {
    if (job->easy) continue;
    if (now >= job->due) {
      // A whole number of intervals later, however long it takes.
      const Duration interval = from_seconds(job->scrape.interval_s);
      job->due += interval * ((now - job->due) / interval + 1);
      job->again = false;
      if (job->account.waits) {
        ++impl_->counters.without_turn;
        impl_->tell(job->differences.unreachable(impl_->words_for_turn() + "it had no turn in its interval"));
      } else if (impl_->budget.begin(now, job->account)) {
        impl_->start(*job);
      }
    }
    if (!job->easy) next = std::min(next, job->due - now);
  }
  while (const PageBudget::Account* account = impl_->budget.next(now)) impl_->start(impl_->job_of(account));
  if (impl_->budget.waiting() > 0) next = std::min(next, kAsk);
  return impl_->done.empty() ? next : Duration{};
}

void Scraper::wait(std::span<pollfd> others, Duration longest) {
  std::vector<curl_waitfd> fds(others.size());
  for (std::size_t i = 0; i < others.size(); ++i)
    fds[i] = {others[i].fd,
              static_cast<short>((others[i].events & POLLIN ? CURL_WAIT_POLLIN : 0) |
                                 (others[i].events & POLLOUT ? CURL_WAIT_POLLOUT : 0)),
              0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::clamp(longest, Duration{}, kIdle));
  (void)curl_multi_poll(impl_->multi, fds.data(), static_cast<unsigned>(fds.size()),
                        static_cast<int>(ms.count()), nullptr);
  for (std::size_t i = 0; i < others.size(); ++i)
    others[i].revents = static_cast<short>((fds[i].revents & CURL_WAIT_POLLIN ? POLLIN : 0) |
                                           (fds[i].revents & CURL_WAIT_POLLOUT ? POLLOUT : 0));
}

/// Of the memory for series: half is shared out evenly, half is for who comes first.
std::size_t Scraper::Impl::may_keep(const Job& job) const {
  const std::size_t share = options.max_kept_bytes / 2 / jobs.size();
  std::size_t beyond = 0;  // that others have taken
  for (const auto& other : jobs)
    if (other.get() != &job && other->differences.kept() > share) beyond += other->differences.kept() - share;
  return share + options.max_kept_bytes / 2 - std::min(options.max_kept_bytes / 2, beyond);
}

Reading Scraper::Impl::read(Job& job) {
  counters.bytes += job.body.size();
  const CURLcode code = job.code;
  if (job.ended == Ended::TooLong || code == CURLE_FILESIZE_EXCEEDED)
    return job.differences.invalid("the page is longer than " + std::to_string(job.account.longest) +
                                   " bytes");
  if (job.ended == Ended::Headers)
    return job.differences.invalid("the answer has more than " + std::to_string(kHeaders) + " headers, or " +
                                   in_kib(kHeaderBytes) + " of them");
  if (job.ended == Ended::NoRoom || job.ended == Ended::Crowded) {
    ++counters.without_turn;
    return job.differences.unreachable(words_for_turn() + (job.ended == Ended::Crowded
                                                               ? "it was ended, as it held its own for long"
                                                               : "there was no room for the rest of it"));
  }
  if (job.ended == Ended::Encoding || code == CURLE_BAD_CONTENT_ENCODING)
    return job.differences.invalid(words_for_encoding(job.easy));
  if (code != CURLE_OK) return job.differences.unreachable(words_for(job.easy, code));
  long status = 0;
  curl_easy_getinfo(job.easy, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    std::string reason = "HTTP status " + std::to_string(status);
    if (const auto words = words_for_status(status); !words.empty()) reason.append("; ").append(words);
    return job.differences.unreachable(reason);
  }
  const char* said = nullptr;
  curl_easy_getinfo(job.easy, CURLINFO_CONTENT_TYPE, &said);
  const std::string_view type = said ? said : "";
  job.differences.may_keep(may_keep(job));
  return job.differences.page(now, job.body.text(), type.starts_with("application/openmetrics-text"), type);
}

void Scraper::Impl::finish(Job& job) {
  // Its first try: nobody knew that it is large. Now it waits for its turn.
  const bool anew = job.ended == Ended::NoRoom && !std::exchange(job.again, true);
  const bool whole = job.ended == Ended::No && job.code == CURLE_OK;
  std::optional<Reading> r;
  if (!anew) r = read(job);
  job.drop();
  budget.end(now, job.account, whole);
  if (r)
    tell(*r);
  else if (budget.begin(now, job.account))
    start(job);
}

void Scraper::perform(Duration now) {
  Impl& me = *impl_;
  me.now = now;
  int running = 0;
  (void)curl_multi_perform(me.multi, &running);
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(me.multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Job* job = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &job);
    job->code = message->data.result;
    curl_multi_remove_handle(me.multi, job->easy);
    job->running = false;
    me.done.push_back(job);
  }
  // All small ones, and one large one: reading it takes time in which the others' deadlines come nearer.
  bool large = false;
  for (Job* job : std::exchange(me.done, {})) {
    if (job->body.size() <= me.budget.own() || !std::exchange(large, true))
      me.finish(*job);
    else
      me.done.push_back(job);
  }
  while (const PageBudget::Account* account = me.budget.overdue(now)) {
    Job& job = me.job_of(account);
    if (!job.running) break;  // it is whole, and about to be read
    curl_multi_remove_handle(me.multi, job.easy);
    job.running = false;
    job.ended = Ended::Crowded;
    me.finish(job);
  }
}

const ScraperCounters& Scraper::counters() const {
  return impl_->counters;
}

}  // namespace flash::sync
