#include "coordinator/model_commands.h"

#include <algorithm>
#include <cstdio>

#include "coordinator/registry.h"
#include "core/command_line.h"
#include "core/digest.h"
#include "core/json.h"
#include "core/process.h"
#include "core/target.h"
#include "core/tensor_file.h"
#include "core/time.h"

namespace flash::coordinator {
namespace {

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

struct Verb {
  std::string_view name, arguments;
  std::size_t count = 0;
};
constexpr Verb kVerbs[] = {{"keygen", "FILE", 1},
                           {"sign", "FILE", 1},
                           {"publish", "SIGNED", 1},
                           {"list", "", 0},
                           {"roll-out", "NAME VERSION PERCENT", 3},
                           {"withdraw", "NAME VERSION", 2}};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(read_clocks().wall.time_since_epoch()).count();
}

Result<std::uint64_t> number(const std::string& text, const char* what, std::uint64_t most) {
  const auto value = parse_integer(text);
  if (!value || *value > most) return invalid("'" + text + "' is no " + what);
  return *value;
}

/// The task of a file of flash-pretrain --out.
Result<std::string> task_of(const std::string& bytes) {
  FLASH_TRY(const TensorFile file, decode_tensor_file(bytes));
  const auto task = file.meta->find("task");
  if (file.kind != "policy-model" || task == file.meta->end() || !task->is_string() ||
      !task_from_name(task->get<std::string>()))
    return invalid("it is no pretrained model of a task");
  return task->get<std::string>();
}

Result<std::string> keygen(const std::string& path) {
  FLASH_TRY(const KeyPair key, make_key_pair());
  FLASH_CHECK(write_key_pair(path, key));
  return path + ": keep it where no network is\n" + path +
         ".pub: for /etc/flashd/model-keys.d of every node\n";
}

Result<std::string> sign_model(const ModelCommand& c, const std::string& software) {
  const std::string& path = c.words[1];
  FLASH_TRY(const KeyPair key, read_key_pair(c.key));
  FLASH_TRY(std::string bytes, link::read_whole_file(path, link::kMaxModelBytes));
  auto task = task_of(bytes);
  if (!task) return std::move(task).error().context(path);
  FLASH_TRY(link::ModelManifest manifest, link::manifest_of(bytes));
  manifest.name = *task;
  manifest.version = c.version;
  manifest.previous = c.previous;
  manifest.made_us = now_us();
  manifest.software = c.software.empty() ? software : c.software;
  if (manifest.previous >= manifest.version) return invalid("--previous is not below --model-version");
  link::SignedModel model{link::encode(manifest), {}, std::move(bytes)};
  FLASH_TRY(model.signature, sign(key, model.manifest));
  const std::string out = c.out.empty() ? path + ".signed" : c.out;
  FLASH_CHECK(link::write_whole_file(out, link::encode(model)));
  return out + ": " + manifest.name + " " + std::to_string(manifest.version) + ", " +
         std::to_string(manifest.size) + " bytes in " + std::to_string(manifest.chunks.size()) + " chunks\n";
}

/// Nodes refuse what their keys do not sign; a coordinator with the keys does so before they have to.
Result<std::string> publish(const ModelCommand& c, Registry& registry, const std::string& software) {
  FLASH_TRY(const std::string bytes, link::read_whole_file(c.words[1], link::kMaxSignedBytes));
  FLASH_TRY(const link::SignedModel model, link::decode_signed(bytes));
  FLASH_TRY(const std::vector<TrustedKey> keys, read_trusted_keys(c.trusted));
  if (keys.empty())
    return invalid("there is no key in " + c.trusted + " to verify it with: see --model-keys");
  FLASH_TRY(const link::ModelManifest manifest, link::verify_signed(model, keys, software));
  const auto share = static_cast<std::uint32_t>(c.share);
  FLASH_CHECK(registry.publish(model, manifest, share, now_us()));
  return manifest.name + " " + std::to_string(manifest.version) + " goes to " + std::to_string(share) +
         " % of the nodes\n";
}

std::string models_json(const Models& models) {
  nlohmann::ordered_json j{{"offered", nlohmann::ordered_json::array()},
                           {"withdrawn", nlohmann::ordered_json::array()}};
  for (const auto& o : models.offered)
    j["offered"].push_back({{"name", o.name},
                            {"version", o.version},
                            {"share", o.share},
                            {"published_us", o.published_us},
                            {"since_us", o.since_us}});
  for (const auto& w : models.withdrawn)
    j["withdrawn"].push_back(
        {{"name", w.name}, {"version", w.version}, {"reason", w.reason}, {"since_us", w.since_us}});
  return j.dump(2) + "\n";
}

std::string models_text(const Models& models) {
  std::string out;
  char line[160];
  for (const auto& o : models.offered) {
    std::snprintf(line, sizeof line, "%-16s %10llu  %3u %% of the nodes\n", o.name.c_str(),
                  static_cast<unsigned long long>(o.version), o.share);
    out += line;
  }
  for (const auto& w : models.withdrawn) {
    std::snprintf(line, sizeof line, "%-16s %10llu  withdrawn: ", w.name.c_str(),
                  static_cast<unsigned long long>(w.version));
    out += line + w.reason + "\n";
  }
  return out.empty() ? "No model was published.\n" : out;
}

Result<std::string> list(const ModelCommand& c, Registry& registry) {
  FLASH_TRY(const Models models, registry.models());
  return c.json ? models_json(models) : models_text(models);
}

Result<std::string> roll_out_command(const ModelCommand& c, Registry& registry) {
  FLASH_TRY(const std::uint64_t version, number(c.words[2], "version", link::kMaxModelVersion));
  FLASH_TRY(const std::uint64_t share, number(c.words[3], "percentage", 100));
  FLASH_CHECK(registry.change(
      [&](Models& m) {
        return roll_out(m, c.words[1], version, static_cast<std::uint32_t>(share), now_us());
      },
      now_us()));
  return c.words[1] + " " + c.words[2] + " goes to " + c.words[3] + " % of the nodes\n";
}

Result<std::string> withdraw_command(const ModelCommand& c, Registry& registry) {
  FLASH_TRY(const std::uint64_t version, number(c.words[2], "version", link::kMaxModelVersion));
  FLASH_CHECK(registry.change([&](Models& m) { return withdraw(m, c.words[1], version, c.reason, now_us()); },
                              now_us()));
  return c.words[1] + " " + c.words[2] + " is withdrawn; nodes go back to what they had before\n";
}

}  // namespace

Result<void> check(const ModelCommand& c) {
  const std::string verb = c.words.empty() ? "" : c.words[0];
  const auto at =
      std::find_if(std::begin(kVerbs), std::end(kVerbs), [&](const Verb& v) { return v.name == verb; });
  if (at == std::end(kVerbs))
    return invalid("'model " + verb + "' is not keygen, sign, publish, list, roll-out or withdraw");
  if (c.words.size() != at->count + 1)
    return invalid("model " + verb + " takes " +
                   (at->count == 0 ? std::string("nothing more") : std::string(at->arguments)));
  if (verb == "sign" && (c.key.empty() || c.version == 0))
    return invalid("model sign needs --key and --model-version");
  return {};
}

Result<std::string> run_model_command(const ModelCommand& c, const NatsOptions& options,
                                      const std::string& software, std::string& warning) {
  FLASH_CHECK(check(c));
  const std::string& verb = c.words[0];
  if (verb == "keygen") return keygen(c.words[1]);
  if (verb == "sign") return sign_model(c, software);
  FLASH_TRY(const auto nats, Nats::connect_surely(options));
  Registry registry(*nats, c.replicas);
  auto text = verb == "publish"    ? publish(c, registry, software)
              : verb == "list"     ? list(c, registry)
              : verb == "roll-out" ? roll_out_command(c, registry)
                                   : withdraw_command(c, registry);
  warning = registry.trouble();
  return text;
}

}  // namespace flash::coordinator
