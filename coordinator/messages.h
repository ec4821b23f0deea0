// Purpose: what crosses the network between flash-sync and flash-coordinator, and under which subjects: one
// CBOR map per message, {"v": 1, "t": TYPE, ...}, with every bound. docs/COORDINATOR_PROTOCOL.md.
// Ownership: values.
// Thread rule: pure functions.
//
//   flash-sync  -> flash.v1.up.POOL.NODE.ep   Record, kept by the stream FLASH_UP; again until a Watermark
//   coordinator -> flash.v1.dn.NODE.wm        Watermark, after each commit
//   flash-sync  -> flash.v1.rq.NODE.nearest   NearestQuestion, again until a NearestAnswer
//   coordinator -> flash.v1.dn.NODE.nearest   NearestAnswer
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "link/episode.h"
#include "link/neighbour.h"

namespace flash::coordinator {

inline constexpr int kVersion = 1;
inline constexpr const char* kStream = "FLASH_UP";
inline constexpr const char* kStreamSubjects = "flash.v1.up.>";

/// An episode as one node's outbox numbered it. (node, run, seq) is its identity; the node is the subject's.
struct Record {
  std::string run;         // of the outbox: 32 hexadecimal digits, random, one per file
  std::uint64_t seq = 0;   // from 1, grows
  std::uint64_t prev = 0;  // of the one before it in the outbox; what lies between was thinned. 0: none
  link::Episode episode;
};

/// All records of the run up to this one are on the coordinator's disk, but those that were thinned.
struct Watermark {
  std::string run;
  std::uint64_t seq = 0;
  std::uint64_t lease = 0;  // of the coordinator that says it: one with a lower one does not count any more
};

struct NearestAnswer {
  std::string agent;                         // who asked
  std::optional<link::Neighbour> neighbour;  // nothing: nobody is known yet
};

std::string encode(const Record& record);
/// The same, of an episode as encode_episode() wrote it.
std::string encode_record(std::string_view run, std::uint64_t seq, std::uint64_t prev,
                          std::string_view episode);
std::string encode_episode(const link::Episode& episode);
std::string encode(const Watermark& watermark);
std::string encode(const link::NearestQuestion& question);
std::string encode(const NearestAnswer& answer);

/// Within the bounds? EINVAL names the field.
Result<void> validate(const link::NearestQuestion& question);

/// EINVAL: not a message, or not within the bounds; the field is named. EPROTONOSUPPORT: another version.
Result<Record> decode_record(std::string_view bytes);
/// Its place in its outbox, whatever the episode is like.
struct RecordPlace {
  std::string run;
  std::uint64_t seq = 0, prev = 0;
};
Result<RecordPlace> decode_record_place(std::string_view bytes);
Result<Watermark> decode_watermark(std::string_view bytes);
Result<link::NearestQuestion> decode_nearest_question(std::string_view bytes);
Result<NearestAnswer> decode_nearest_answer(std::string_view bytes);

/// What may stand for a node or pool: 1 to 64 of A-Z a-z 0-9 - _.
bool is_token(std::string_view text);

struct Origin {
  std::string pool, node;
};
/// REQUIRES: is_token() accepts all of them.
std::string record_subject(const Origin& origin);
std::string watermark_subject(std::string_view node);
std::string question_subject(std::string_view node);
std::string answer_subject(std::string_view node);
/// All that is said to this node.
std::string all_for_node(std::string_view node);
inline constexpr const char* kAllQuestions = "flash.v1.rq.*.nearest";
/// nullopt: not a subject that records come under.
std::optional<Origin> origin_of(std::string_view subject);
/// nullopt: not a subject that questions come under.
std::optional<std::string> asking_node(std::string_view subject);

}  // namespace flash::coordinator
