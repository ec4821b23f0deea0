// Purpose: which agents of this node the coordinator is to be asked about: those that have an embedding and
// do not serve yet; again when the embedding is another by now, for the first one is of one episode.
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/messages.h"
#include "core/time.h"
#include "link/episode.h"
#include "link/neighbour.h"

namespace flash::sync {

struct NearestOptions {
  std::size_t agents = 4096;   // that are remembered; further ones are not asked about
  std::size_t per_round = 16;  // questions at once
  Duration retry_first = std::chrono::seconds(5), retry_longest = std::chrono::minutes(10);
  Duration again_longest = std::chrono::hours(1);  // who has a neighbour and another embedding since
};

class NearestQuestions {
 public:
  explicit NearestQuestions(NearestOptions options = {}) : options_(options) {}

  /// An episode has ended: what its agent is now.
  void seen(const link::Episode& episode);
  /// To be asked now; each counts as asked.
  std::vector<link::NearestQuestion> due(Duration now);
  enum class Heard {
    Unasked,  // no answer to anything that was asked
    Nobody,   // no neighbour is known yet: asked again later
    Same,     // the neighbour that was told before
    Another,
  };
  Heard answered(const coordinator::NearestAnswer& answer);
  /// flashd started again and knows no answer any more.
  void forget() { agents_.clear(); }
  /// Agents that were told no neighbour yet.
  std::size_t waiting() const;

 private:
  struct Agent {
    link::NearestQuestion question;
    std::uint64_t episode = 0;                        // its last one
    bool asked = false, open = false, moved = false;  // open: no answer yet; moved: another embedding since
    std::optional<link::Neighbour> told;
    Duration retry{}, ask_at{};
  };
  NearestOptions options_;
  std::map<std::string, Agent> agents_;
};

}  // namespace flash::sync
