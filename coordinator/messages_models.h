// Purpose: what crosses the network about pretrained models, and under which subjects; messages.h has the
// rest. docs/MODELS.md. All of it is kept by the stream FLASH_MODELS, the newest message of each subject.
// Ownership: values.
// Thread rule: pure functions.
//
//   flash.v1.bc.models                 Models: what is handed out to how many nodes, what was withdrawn
//   flash.v1.ck.NAME.VERSION.manifest  SignedManifest
//   flash.v1.ck.NAME.VERSION.CHUNK     kModelChunkBytes of the model; the last one fewer. No envelope: the
//                                      manifest has the digest of each
//
//   flash-sync  -> flash.v1.rq.NODE.model   ModelQuestion, a request
//   coordinator -> its inbox                ModelAnswer: what the stream has under one of those subjects
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "link/model_manifest.h"

namespace flash::coordinator {

inline constexpr const char* kModelStream = "FLASH_MODELS";
inline constexpr const char* kModelsSubject = "flash.v1.bc.models";
inline constexpr const char* kChunkSubjects = "flash.v1.ck.>";

inline constexpr std::size_t kMaxOfferedModels = 32;
inline constexpr std::size_t kMaxWithdrawnModels = 256;

/// A version that nodes are to take. Nobody signs this: it can only choose among what is signed.
struct OfferedModel {
  std::string name;
  std::uint64_t version = 0;
  std::uint32_t share = 0;  // of the nodes, 0 to 100
  std::int64_t published_us = 0;
  std::int64_t since_us = 0;  // the share is what it is
  bool operator==(const OfferedModel&) const = default;
};

/// Nodes that use it go back to the one they had before.
struct WithdrawnModel {
  std::string name;
  std::uint64_t version = 0;
  std::string reason;
  std::int64_t since_us = 0;
  bool operator==(const WithdrawnModel&) const = default;
};

struct Models {
  std::vector<OfferedModel> offered;
  std::vector<WithdrawnModel> withdrawn;  // oldest first
  bool operator==(const Models&) const = default;
};

struct SignedManifest {
  std::string manifest, signature;
  bool operator==(const SignedManifest&) const = default;
};

/// Nodes read the stream through the coordinator: what the server itself answers, it answers under any
/// subject that a node names.
struct ModelQuestion {
  std::string subject;
};
struct ModelAnswer {
  std::string subject;
  bool found = false;
  std::string bytes;  // of the newest message there
  std::string seal;   // that it was stored with (authority.h); empty: none
};

std::string encode(const ModelQuestion& question);
std::string encode(const ModelAnswer& answer);
Result<ModelQuestion> decode_model_question(std::string_view bytes);
Result<ModelAnswer> decode_model_answer(std::string_view bytes);

std::string encode(const Models& models);
std::string encode(const SignedManifest& manifest);
/// As decode_record() of messages.h. What a SignedManifest holds is not looked at.
Result<Models> decode_models(std::string_view bytes);
Result<SignedManifest> decode_signed_manifest(std::string_view bytes);

/// What the subjects of its versions begin with.
std::string version_subjects(std::string_view name);
std::string manifest_subject(std::string_view name, std::uint64_t version);
std::string chunk_subject(std::string_view name, std::uint64_t version, std::size_t chunk);
/// The state's subject, a manifest's or a chunk's, spelled as these functions spell them.
bool is_model_subject(std::string_view subject);

inline constexpr const char* kAllModelQuestions = "flash.v1.rq.*.model";
std::string model_question_subject(std::string_view node);
/// nullopt: not a subject that these questions come under.
std::optional<std::string> model_asking_node(std::string_view subject);

/// Is the node among the first `share` of 100? The same node always is for the same model, and stays so while
/// the share grows.
bool in_share(std::string_view node, std::string_view name, std::uint64_t version, std::uint32_t share);
/// The newest version of the name that the node is to have; 0: none.
std::uint64_t wanted_version(const Models& models, std::string_view node, std::string_view name);
bool is_withdrawn(const Models& models, std::string_view name, std::uint64_t version);

}  // namespace flash::coordinator
