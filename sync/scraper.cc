#include "sync/scraper.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "sync/differences.h"
#include "sync/foreign_page.h"

namespace flash::sync {
namespace {

using link::sync::Reading;
using link::sync::ReadingState;
using link::sync::Scrape;

constexpr Duration kIdle = std::chrono::seconds(3600);
constexpr char kAccept[] =
    "Accept: application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.7,*/*;q=0.1";

long milliseconds(double s) {
  return std::max(1L, static_cast<long>(s * 1000));
}

/// The encodings that a page may come in, of those this libcurl does not know.
std::string words_for_encoding(CURL* easy) {
  curl_header* header = nullptr;
  if (curl_easy_header(easy, "Content-Encoding", 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
    return "the page's encoding is broken";
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

struct SlistDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// One page that is fetched again and again.
struct Job {
  explicit Job(Scrape s, std::size_t max_bytes)
      : scrape(std::move(s)), max_page_bytes(max_bytes), differences(scrape) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    if (!easy) return;
    if (running) curl_multi_remove_handle(multi, easy);
    curl_easy_cleanup(easy);
  }

  Scrape scrape;
  std::size_t max_page_bytes;
  Differences differences;
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
  bool running = false;
  bool too_long = false;
  Duration due{};
  std::string body;

  static std::size_t write(char* data, std::size_t, std::size_t size, void* self) noexcept {
    Job& job = *static_cast<Job*>(self);
    if (job.body.size() + size > job.max_page_bytes) {
      job.too_long = true;
      return 0;  // ends the transfer
    }
    job.body.append(data, size);
    return size;
  }
};

}  // namespace

struct Scraper::Impl {
  Impl(ScraperOptions o, Random r, OnReading f)
      : options(std::move(o)),
        random(r),
        on_reading(std::move(f)),
        headers(curl_slist_append(nullptr, kAccept)) {}
  ~Impl() {
    jobs.clear();
    if (multi) curl_multi_cleanup(multi);
  }

  bool prepare(Job& job);
  void finish(Job& job, CURLcode code, Duration now);
  Reading read(Job& job, CURLcode code, Duration now);

  ScraperOptions options;
  Random random;
  OnReading on_reading;
  std::unique_ptr<curl_slist, SlistDeleter> headers;
  CURLM* multi = nullptr;
  std::vector<std::unique_ptr<Job>> jobs;
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
  job.easy = curl_easy_init();
  if (!job.easy) return false;
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
  set(CURLOPT_MAXFILESIZE, static_cast<long>(job.max_page_bytes));
  // Not asked for, but read where it comes all the same: write() counts what is unpacked.
  set(CURLOPT_ACCEPT_ENCODING, "identity");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_USERAGENT, options.user_agent.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_WRITEFUNCTION, &Job::write);
  set(CURLOPT_WRITEDATA, &job);
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
    auto job = std::make_unique<Job>(s, impl_->options.max_page_bytes);
    // Not all at the same moment.
    job->due = now + from_seconds(s.interval_s * impl_->random.uniform(0, 1));
    if (impl_->prepare(*job)) {
      next.push_back(std::move(job));
    } else {
      impl_->on_reading(job->differences.unreachable("libcurl refuses the address"));
    }
  }
  impl_->jobs = std::move(next);
}

std::size_t Scraper::size() const {
  return impl_->jobs.size();
}

Duration Scraper::start_due(Duration now) {
  Duration next = kIdle;
  for (auto& job : impl_->jobs) {
    if (job->running) continue;
    if (now >= job->due) {
      job->body.clear();
      job->too_long = false;
      job->running = curl_multi_add_handle(impl_->multi, job->easy) == CURLM_OK;
      // A whole number of intervals later, however long it takes.
      const Duration interval = from_seconds(job->scrape.interval_s);
      job->due += interval * ((now - job->due) / interval + 1);
    }
    if (!job->running) next = std::min(next, job->due - now);
  }
  return next;
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

Reading Scraper::Impl::read(Job& job, CURLcode code, Duration now) {
  counters.bytes += job.body.size();
  if (job.too_long || code == CURLE_FILESIZE_EXCEEDED)
    return job.differences.invalid("the page is longer than " + std::to_string(job.max_page_bytes) +
                                   " bytes");
  if (code == CURLE_BAD_CONTENT_ENCODING) return job.differences.invalid(words_for(job.easy, code));
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
  return job.differences.page(now, job.body, type.starts_with("application/openmetrics-text"), type);
}

void Scraper::Impl::finish(Job& job, CURLcode code, Duration now) {
  curl_multi_remove_handle(multi, job.easy);
  job.running = false;
  const Reading r = read(job, code, now);
  if (r.state == ReadingState::Unreachable)
    ++counters.unreachable;
  else if (r.state == ReadingState::Invalid)
    ++counters.invalid;
  else
    ++counters.pages;
  std::string().swap(job.body);
  on_reading(r);
}

void Scraper::perform(Duration now) {
  int running = 0;
  (void)curl_multi_perform(impl_->multi, &running);
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(impl_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Job* job = nullptr;
    const CURLcode code = message->data.result;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &job);
    impl_->finish(*job, code, now);
  }
}

const ScraperCounters& Scraper::counters() const {
  return impl_->counters;
}

}  // namespace flash::sync
