#include "sync/models.h"

#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <numeric>

#include "core/digest.h"
#include "core/target.h"

namespace flash::sync {

using coordinator::Models;

namespace {

constexpr std::size_t kChunksPerStep = 8;
constexpr std::string_view kCurrent = ".signed", kPrevious = ".previous.signed", kNewest = ".newest";
constexpr const char* kSerial = "/registry.serial";

std::string words_of(const std::string& name, std::uint64_t version) {
  return "model " + name + " " + std::to_string(version);
}

ModelRefusal refusal_of(const Error& error) {
  if (error.is(std::errc::permission_denied)) return ModelRefusal::Unsigned;
  if (error.is(std::errc::not_supported)) return ModelRefusal::Software;
  if (error.is(std::errc::bad_message)) return ModelRefusal::Damaged;
  return ModelRefusal::Malformed;
}

/// 0: there is none.
std::uint64_t number_in(const std::string& path) {
  std::uint64_t number = 0;
  if (const auto text = link::read_whole_file(path, 32))
    std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

/// From one name to another of the same folder, so that both are there at any time.
Result<void> copy_name(const std::string& from, const std::string& to) {
  const std::string beside = to + ".new";
  unlink(beside.c_str());
  if (::link(from.c_str(), beside.c_str()) != 0) return Error::from_errno(errno, "link " + from);
  if (rename(beside.c_str(), to.c_str()) != 0) return Error::from_errno(errno, "rename " + to);
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelClient>> ModelClient::open(ModelClientOptions options, LogSink say) {
  FLASH_TRY(std::vector<TrustedKey> keys, read_trusted_keys(options.keys));
  auto client =
      std::unique_ptr<ModelClient>(new ModelClient(std::move(options), std::move(say), std::move(keys)));
  if (client->keys_.empty()) {
    client->say_(LOG_INFO, "no models are taken: " + client->options_.keys + " has no key");
    return client;
  }
  if (mkdir(client->options_.directory.c_str(), 0750) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "mkdir " + client->options_.directory);
  for (const Task task : known_tasks()) client->load(std::string(to_string(task)));
  client->serial_ = number_in(client->options_.directory + kSerial);
  return client;
}

Result<void> ModelClient::newer_state(std::uint64_t serial) {
  if (serial < serial_)
    return Error(std::errc::bad_message, "the registry's state is of " + std::to_string(serial) +
                                             ", older than one that was seen, of " + std::to_string(serial_));
  if (serial == serial_) return {};
  FLASH_CHECK(link::write_whole_file(options_.directory + kSerial, std::to_string(serial) + "\n"));
  serial_ = serial;
  return {};
}

std::string ModelClient::path(const std::string& name, std::string_view suffix) const {
  return options_.directory + "/" + name + std::string(suffix);
}

std::uint64_t& ModelClient::held(const std::string& name) {
  for (auto& h : state_.held)
    if (h.name == name) return h.version;
  return state_.held.emplace_back(name, 0).version;
}

/// nullopt: there is none that would be taken.
std::optional<std::uint64_t> ModelClient::good_version(const std::string& file, const std::string& name) {
  const auto bytes = link::read_whole_file(file, link::kMaxSignedBytes);
  if (!bytes && bytes.error().is(std::errc::no_such_file_or_directory)) return std::nullopt;
  const auto good = [&]() -> Result<std::uint64_t> {
    if (!bytes) return bytes.error();
    FLASH_TRY(const link::SignedModel model, link::decode_signed(*bytes));
    FLASH_TRY(const link::ModelManifest manifest, link::verify_signed(model, keys_, options_.software));
    if (manifest.name != name) return Error(std::errc::invalid_argument, "it is of " + manifest.name);
    return manifest.version;
  }();
  if (good) return *good;
  ++state_.refused[static_cast<std::size_t>(refusal_of(good.error()))];
  say_(LOG_WARNING, file + " is not used: " + good.error().message());
  return std::nullopt;
}

void ModelClient::load(const std::string& name) {
  const auto current = good_version(path(name, kCurrent), name);
  const auto previous = current ? std::nullopt : good_version(path(name, kPrevious), name);
  held(name) = current.value_or(previous.value_or(0));
  if (!current) unlink(path(name, kCurrent).c_str());
  if (previous)
    if (auto done = copy_name(path(name, kPrevious), path(name, kCurrent)); !done)
      say_(LOG_WARNING, done.error().message());
  newest_[name] = std::max(number_in(path(name, kNewest)), held(name));
  if (held(name) > 0) say_(LOG_INFO, "holds " + words_of(name, held(name)));
}

Result<void> ModelClient::step(Duration now, const Get& get) {
  if (keys_.empty()) return {};
  if (download_) return fetch(now, get);
  if (now < ask_at_) return {};
  ask_at_ = now + options_.every;
  return ask(now, get);
}

Result<void> ModelClient::ask(Duration now, const Get& get) {
  FLASH_TRY(const auto bytes, get(coordinator::kModelsSubject));
  if (!bytes) return {};
  const auto models = coordinator::decode_models(*bytes);
  if (!models) {
    refuse(now, {}, ModelRefusal::Malformed, models.error().message());
    return {};
  }
  for (const Task task : known_tasks()) {
    const std::string name(to_string(task));
    if (held(name) > 0 && coordinator::is_withdrawn(*models, name, held(name))) go_back(name, *models);
    const std::uint64_t wanted = coordinator::wanted_version(*models, options_.node, name);
    if (wanted == 0 || wanted == held(name)) continue;
    const auto known = refused_.find({name, wanted});
    if (known != refused_.end() && now < known->second.retry_at) continue;
    if (wanted < newest_[name]) {
      refuse(now, {name, wanted}, ModelRefusal::Old,
             "version " + std::to_string(newest_[name]) + " was good here already");
      continue;
    }
    return begin(now, name, wanted, get);  // the other name's turn comes with the next answer
  }
  return {};
}

/// To the one before, which was verified when it came. Withdrawn too, or none: to what the packages brought.
void ModelClient::go_back(const std::string& name, const Models& models) {
  const std::uint64_t withdrawn = held(name);
  const auto previous = good_version(path(name, kPrevious), name);
  const bool usable =
      previous && *previous != withdrawn && !coordinator::is_withdrawn(models, name, *previous);
  if (usable) {
    if (auto done = copy_name(path(name, kPrevious), path(name, kCurrent)); !done)
      return say_(LOG_WARNING, done.error().message());
  } else {
    unlink(path(name, kCurrent).c_str());
  }
  held(name) = usable ? *previous : 0;
  ++state_.went_back;
  say_(LOG_NOTICE,
       words_of(name, withdrawn) + " was withdrawn: " +
           (usable ? "back to " + std::to_string(*previous) : std::string("none is held any more")));
}

Result<void> ModelClient::begin(Duration now, const std::string& name, std::uint64_t version,
                                const Get& get) {
  const Key which{name, version};
  FLASH_TRY(const auto bytes, get(coordinator::manifest_subject(name, version)));
  if (!bytes) {
    refuse(now, which, ModelRefusal::Incomplete, "its manifest is not there");
    return {};
  }
  auto given = coordinator::decode_signed_manifest(*bytes);
  if (!given) {
    refuse(now, which, ModelRefusal::Malformed, given.error().message());
    return {};
  }
  auto manifest = link::verify_manifest(given->manifest, given->signature, keys_, options_.software);
  if (!manifest) {
    refuse(now, which, refusal_of(manifest.error()), manifest.error().message());
    return {};
  }
  if (manifest->name != name || manifest->version != version) {
    refuse(now, which, ModelRefusal::Old,
           "the manifest there is of " + words_of(manifest->name, manifest->version));
    return {};
  }
  download_ =
      Download{{std::move(given->manifest), std::move(given->signature), {}}, std::move(*manifest), 0};
  say_(LOG_INFO, "fetching " + words_of(name, version));
  return {};
}

Result<void> ModelClient::fetch(Duration now, const Get& get) {
  Download& d = *download_;
  const Key which{d.manifest.name, d.manifest.version};
  for (std::size_t i = 0; i < kChunksPerStep && d.next < d.manifest.chunks.size(); ++i) {
    FLASH_TRY(const auto bytes, get(coordinator::chunk_subject(which.first, which.second, d.next)));
    const std::string chunk = "chunk " + std::to_string(d.next);
    if (!bytes) {
      refuse(now, which, ModelRefusal::Incomplete, chunk + " is not there");
      return {};
    }
    const std::uint64_t left = d.manifest.size - d.model.model.size();
    if (bytes->size() > std::min<std::uint64_t>(left, link::kModelChunkBytes)) {
      refuse(now, which, ModelRefusal::TooLarge, chunk + " has " + std::to_string(bytes->size()) + " bytes");
      return {};
    }
    if (sha256(*bytes) != d.manifest.chunks[d.next]) {
      refuse(now, which, ModelRefusal::Damaged, chunk + " is not what was signed");
      return {};
    }
    d.model.model += *bytes;
    ++d.next;
  }
  if (d.next == d.manifest.chunks.size()) finish(now);
  return {};
}

void ModelClient::finish(Duration now) {
  const Key which{download_->manifest.name, download_->manifest.version};
  if (auto good = link::verify_signed(download_->model, keys_, options_.software); !good)
    return refuse(now, which, refusal_of(good.error()), good.error().message());
  if (auto kept = keep(*download_); !kept) {
    say_(LOG_WARNING, words_of(which.first, which.second) + " cannot be kept: " + kept.error().message());
  } else {
    held(which.first) = newest_[which.first] = which.second;
    ++state_.taken;
    refused_.erase(which);
    say_(LOG_NOTICE, "took " + words_of(which.first, which.second));
  }
  download_.reset();
}

/// The highest version first: a crash in between must not let an older one in.
Result<void> ModelClient::keep(const Download& done) {
  const std::string& name = done.manifest.name;
  FLASH_CHECK(link::write_whole_file(path(name, kNewest), std::to_string(done.manifest.version) + "\n"));
  if (held(name) > 0) FLASH_CHECK(copy_name(path(name, kCurrent), path(name, kPrevious)));
  return link::write_whole_file(path(name, kCurrent), encode(done.model));
}

/// Counted each time, said when it is another one, and looked at again ever later.
void ModelClient::refuse(Duration now, const Key& which, ModelRefusal reason, const std::string& words) {
  download_.reset();
  ++state_.refused[static_cast<std::size_t>(reason)];
  Refused& r = refused_[which];
  r.wait = std::min(std::max(r.wait * 2, options_.every), options_.retry_longest);
  r.retry_at = now + r.wait;
  const std::string what =
      which.second == 0 ? std::string("the registry's state") : words_of(which.first, which.second);
  const std::string text = "refused " + what + ": " + std::string(to_string(reason)) + ": " + words;
  if (text != said_) say_(LOG_WARNING, text);
  said_ = text;
  if (refused_.size() > coordinator::kMaxOfferedModels) refused_.erase(refused_.begin());
}

}  // namespace flash::sync
