#include "coordinator/registry.h"

#include <algorithm>

namespace flash::coordinator {
namespace {

constexpr int kTries = 5;
constexpr std::size_t kOffersPerName = 8;  // older ones are what no node goes back to

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

/// The oldest of the name, where there are too many.
void forget_oldest(Models& models, std::string_view name) {
  const auto of_name = [&](const OfferedModel& o) { return o.name == name; };
  if (std::count_if(models.offered.begin(), models.offered.end(), of_name) <= std::ptrdiff_t{kOffersPerName})
    return;
  models.offered.erase(std::find_if(models.offered.begin(), models.offered.end(), of_name));
}

}  // namespace

Result<void> offer(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                   std::int64_t now_us) {
  if (version <= newest_version(models, name))
    return invalid(words(name, version) + " is not above version " +
                   std::to_string(newest_version(models, name)) + ", which was published");
  models.offered.push_back({std::string(name), version, share, now_us, now_us});
  forget_oldest(models, name);
  return {};
}

Result<void> roll_out(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                      std::int64_t now_us) {
  if (is_withdrawn(models, name, version)) return invalid(words(name, version) + " is withdrawn");
  const auto at = std::find_if(models.offered.begin(), models.offered.end(),
                               [&](const OfferedModel& o) { return o.name == name && o.version == version; });
  if (at == models.offered.end()) return invalid(words(name, version) + " was never published");
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

Result<Models> Registry::models() {
  FLASH_TRY(const auto message, nats_.newest(kModelStream, kModelsSubject));
  if (!message) return Models{};
  return decode_models(message->bytes);
}

Result<void> Registry::change(const std::function<Result<void>(Models&)>& how) {
  FLASH_CHECK(nats_.ensure_model_stream());
  for (int i = 0;; ++i) {
    FLASH_TRY(const auto message, nats_.newest(kModelStream, kModelsSubject));
    Models models;
    if (message) {
      FLASH_TRY(models, decode_models(message->bytes));
    }
    FLASH_CHECK(how(models));
    auto done = nats_.put(kModelStream, kModelsSubject, encode(models), message ? message->position : 0);
    if (done || !done.error().is(std::errc::resource_unavailable_try_again) || i + 1 == kTries) return done;
  }
}

Result<void> Registry::publish(const link::SignedModel& model, const link::ModelManifest& manifest,
                               std::uint32_t share, std::int64_t now_us) {
  const auto add = [&](Models& m) { return offer(m, manifest.name, manifest.version, share, now_us); };
  FLASH_CHECK(nats_.ensure_model_stream());
  FLASH_TRY(Models known, models());
  FLASH_CHECK(add(known));
  for (std::size_t i = 0; i < manifest.chunks.size(); ++i)
    FLASH_CHECK(nats_.put(kModelStream, chunk_subject(manifest.name, manifest.version, i),
                          link::chunk_of(model.model, i)));
  FLASH_CHECK(nats_.put(kModelStream, manifest_subject(manifest.name, manifest.version),
                        encode(SignedManifest{model.manifest, model.signature})));
  return change(add);
}

}  // namespace flash::coordinator
