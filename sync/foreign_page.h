// Purpose: what an answer is that is no metrics page, so that its refusal names the cause and what to do: a
// login page, compressed bytes, JSON, another text encoding.
// Ownership: none.
// Thread rule: pure.
#pragma once

#include <string>
#include <string_view>

namespace flash::sync {

/// For people, of our words alone; empty: it looks like text of metrics. `content_type`: what the answer says
/// it is; may be empty. To be asked of what could not be read.
std::string foreign_page(std::string_view body, std::string_view content_type);

/// What the HTTP status of a page that did not come means, and what to do; empty: nothing is known.
std::string_view words_for_status(long status);

}  // namespace flash::sync
