#include "coordinator/registry.h"

#include <algorithm>
#include <set>

#include "core/command_line.h"

namespace flash::coordinator {
namespace {

constexpr int kTries = 5;
constexpr std::uint32_t kEverywhere = 100;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

std::string words(std::string_view name, std::uint64_t version) {
  return std::string(name) + " " + std::to_string(version);
}

std::uint64_t newest_version(const Models& models, std::string_view name) {
  std::uint64_t newest = 0;
  for (const auto& o : models.offered)
    if (o.name == name) newest = std::max(newest, o.version);
  for (const auto& w : models.withdrawn)
    if (w.name == name) newest = std::max(newest, w.version);
  return newest;
}

/// All below `version` but the one before it and the newest that goes to all nodes.
void forget_older(Models& models, std::string_view name, std::uint64_t version) {
  std::uint64_t before = 0, everywhere = 0;
  for (const OfferedModel& o : models.offered) {
    if (o.name != name || o.version >= version) continue;
    before = std::max(before, o.version);
    if (o.share == kEverywhere) everywhere = std::max(everywhere, o.version);
  }
  std::erase_if(models.offered, [&](const OfferedModel& o) {
    return o.name == name && o.version < version && o.version != before && o.version != everywhere;
  });
}

}  // namespace

Result<void> offer(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                   std::int64_t now_us) {
  if (version <= newest_version(models, name))
    return invalid(words(name, version) + " is not above version " +
                   std::to_string(newest_version(models, name)) + ", which was published");
  models.offered.push_back({std::string(name), version, share, now_us, now_us});
  forget_older(models, name, version);
  return {};
}

Result<void> roll_out(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                      std::int64_t now_us) {
  if (is_withdrawn(models, name, version)) return invalid(words(name, version) + " is withdrawn");
  const auto at = std::find_if(models.offered.begin(), models.offered.end(),
                               [&](const OfferedModel& o) { return o.name == name && o.version == version; });
  if (at == models.offered.end()) return invalid(words(name, version) + " is not handed out");
  at->share = share;
  at->since_us = now_us;
  return {};
}

Result<void> withdraw(Models& models, std::string_view name, std::uint64_t version, std::string_view reason,
                      std::int64_t now_us) {
  if (is_withdrawn(models, name, version)) return invalid(words(name, version) + " is withdrawn already");
  const std::size_t before = models.offered.size();
  std::erase_if(models.offered,
                [&](const OfferedModel& o) { return o.name == name && o.version == version; });
  if (models.offered.size() == before) return invalid(words(name, version) + " is not handed out");
  if (models.withdrawn.size() == kMaxWithdrawnModels) models.withdrawn.erase(models.withdrawn.begin());
  models.withdrawn.push_back({std::string(name), version, std::string(reason), now_us});
  return {};
}

Registered newest_good(const std::vector<Message>& kept, const Authority& authority) {
  Registered out;
  if (!kept.empty()) out.position = kept.back().position;
  struct Unsigned {
    Models models;
    std::uint64_t position = 0;
  };
  std::optional<Unsigned> before;  // the newest that nobody signed
  const auto counts = [&](std::uint64_t position) {
    if (!out.trouble.empty()) out.trouble += "; message " + std::to_string(position) + " counts";
    return out;
  };
  for (auto m = kept.rbegin(); m != kept.rend(); ++m) {
    auto models = decode_models(m->bytes);
    const auto serial = authority.check(kModelsSubject, m->bytes, m->seal);
    if (models && serial) {
      out.models = std::move(*models);
      out.serial = *serial;
      return counts(m->position);
    }
    if (models && m->seal.empty() && !before) before = Unsigned{*models, m->position};
    out.trouble += (out.trouble.empty() ? std::string(kModelsSubject) + ": " : "; ") + "message " +
                   std::to_string(m->position) +
                   " is passed over: " + (models ? serial.error() : models.error()).message();
  }
  if (before) {
    out.models = std::move(before->models);
    return counts(before->position);
  }
  if (!out.trouble.empty()) out.trouble += "; none is left that counts: begun anew";
  return out;
}

std::optional<std::uint64_t> version_of_subject(std::string_view subject, std::string_view name) {
  const std::string prefix = version_subjects(name);
  if (!subject.starts_with(prefix)) return std::nullopt;
  subject.remove_prefix(prefix.size());
  return parse_integer(subject.substr(0, subject.find('.')));
}

Result<Registered> Registry::read() {
  FLASH_TRY(auto newest, nats_.newest(kModelStream, kModelsSubject));
  if (!newest) return Registered{};
  Registered out = newest_good({std::move(*newest)}, nats_.authority());
  if (!out.trouble.empty()) {
    FLASH_TRY(const auto kept, nats_.kept(kModelStream, kModelsSubject));
    out = newest_good(kept, nats_.authority());
  }
  trouble_ = out.trouble;
  return out;
}

Result<Models> Registry::models() {
  FLASH_TRY(Registered known, read());
  return std::move(known.models);
}

Result<void> Registry::sign_what_is_not(std::int64_t now_us) {
  if (!nats_.authority().known()) return {};
  FLASH_TRY(const Registered known, read());
  if (known.position == 0 || known.serial > 0 || known.models == Models()) return {};
  return change([](Models&) { return Result<void>(); }, now_us);
}

Result<void> Registry::change(const std::function<Result<void>(Models&)>& how, std::int64_t now_us) {
  FLASH_CHECK(nats_.ensure_model_stream(replicas_));
  for (int i = 0;; ++i) {
    FLASH_TRY(Registered known, read());
    FLASH_CHECK(how(known.models));
    const std::string bytes = encode(known.models);
    // By the wall clock, so that it goes on growing where the stream was lost.
    const std::uint64_t serial =
        std::max(known.serial + 1, static_cast<std::uint64_t>(std::max<std::int64_t>(now_us, 0)));
    auto done = nats_.put(kModelStream, kModelsSubject, bytes, known.position,
                          nats_.authority().seal(kModelsSubject, bytes, serial));
    if (done || !done.error().is(std::errc::resource_unavailable_try_again) || i + 1 == kTries) return done;
  }
}

Result<void> Registry::publish(const link::SignedModel& model, const link::ModelManifest& manifest,
                               std::uint32_t share, std::int64_t now_us) {
  Models after;
  const auto add = [&](Models& m) -> Result<void> {
    FLASH_CHECK(offer(m, manifest.name, manifest.version, share, now_us));
    after = m;
    return {};
  };
  FLASH_CHECK(nats_.ensure_model_stream(replicas_));
  FLASH_TRY(Models known, models());
  FLASH_CHECK(add(known));
  for (std::size_t i = 0; i < manifest.chunks.size(); ++i)
    FLASH_CHECK(nats_.put(kModelStream, chunk_subject(manifest.name, manifest.version, i),
                          link::chunk_of(model.model, i)));
  FLASH_CHECK(nats_.put(kModelStream, manifest_subject(manifest.name, manifest.version),
                        encode(SignedManifest{model.manifest, model.signature})));
  FLASH_CHECK(change(add, now_us));
  // It is published; what could not be removed is tried again with the next one.
  if (auto done = forget_chunks(manifest.name, manifest.version, after); !done)
    trouble_ += (trouble_.empty() ? "" : "; ") + ("older chunks stay: " + done.error().message());
  return {};
}

/// Above `below` somebody else may be publishing.
Result<void> Registry::forget_chunks(std::string_view name, std::uint64_t below, const Models& models) {
  FLASH_TRY(const auto subjects, nats_.subjects(kModelStream, version_subjects(name) + ">"));
  std::set<std::uint64_t> old;
  for (const std::string& subject : subjects)
    if (const auto version = version_of_subject(subject, name); version && *version < below)
      old.insert(*version);
  for (const OfferedModel& o : models.offered)
    if (o.name == name) old.erase(o.version);
  for (const std::uint64_t version : old)
    FLASH_CHECK(nats_.purge(kModelStream, version_subjects(name) + std::to_string(version) + ".>"));
  return {};
}

}  // namespace flash::coordinator
