#include "coordinator/site.h"

#include <array>

#include "coordinator/api.h"
#include "coordinator/page_files.h"
#include "coordinator/version.h"
#include "http/metrics_text.h"

namespace flash::coordinator {
namespace {

constexpr const char* kJson = "application/json";

/// Nothing from elsewhere, nothing inline, nobody around it.
const std::vector<std::pair<std::string, std::string>>& page_headers() {
  static const std::vector<std::pair<std::string, std::string>> headers = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
  };
  return headers;
}

struct File {
  std::string_view name, type, bytes;
};

const std::array<File, 6>& files() {
  using namespace embedded;
  constexpr std::string_view kScript = "text/javascript; charset=utf-8";
  static const std::array<File, 6> all = {{
      {"", "text/html; charset=utf-8", page_index_html},
      {"page.css", "text/css; charset=utf-8", page_page_css},
      {"page.js", kScript, page_page_js},
      {"tables.js", kScript, page_tables_js},
      {"charts.js", kScript, page_charts_js},
      {"icon.svg", "image/svg+xml", page_icon_svg},
  }};
  return all;
}

http::Response json_response(std::string body) {
  return {
      .type = kJson, .body = std::move(body), .headers = {{"Cross-Origin-Resource-Policy", "same-origin"}}};
}

http::Response refusal(unsigned status, const std::string& why) {
  return {.status = status, .type = kJson, .body = error_answer(why), .headers = {}};
}

template <class Query, class Answer>
http::Response asked(Result<Query> query, Answer answer) {
  if (!query) return refusal(400, query.error().message());
  return json_response(answer(*query));
}

http::Response metrics(const FleetView& view, const OwnState& own, const http::Request& request) {
  const http::PageFormat format = http::format_for(request.accept);
  return {.type = std::string(http::content_type(format)),
          .body = http::render(families_of(view, own, flash::kVersion), format),
          .headers = {}};
}

http::Response api(FleetView& view, const http::Target& target) {
  const auto& path = target.path;
  const std::string_view what = path[2];
  if (path.size() == 4 && what == "nodes") {
    if (auto none = no_query(target); !none) return refusal(400, none.error().message());
    auto answer = node_answer(view, path[3]);
    return answer ? json_response(std::move(*answer)) : refusal(404, "no such node");
  }
  if (path.size() != 3) return refusal(404, "no such path");
  if (what == "fleet") {
    if (auto none = no_query(target); !none) return refusal(400, none.error().message());
    return json_response(fleet_answer(view));
  }
  if (what == "nodes")
    return asked(nodes_query(target), [&](const auto& q) { return nodes_answer(view, q); });
  if (what == "agents")
    return asked(agents_query(target), [&](const auto& q) { return agents_answer(view, q); });
  if (what == "curves")
    return asked(curves_query(target), [&](const auto& q) { return curves_answer(view, q); });
  if (what == "map") return asked(map_query(target), [&](const auto& q) { return map_answer(view, q); });
  return refusal(404, "no such path");
}

}  // namespace

std::optional<http::Response> page_answer(const http::Target& target) {
  if (target.path.size() > 1) return std::nullopt;
  const std::string_view name = target.path.empty() ? std::string_view() : target.path[0];
  for (const File& f : files())
    if (f.name == name)
      return http::Response{
          .type = std::string(f.type), .body = std::string(f.bytes), .headers = page_headers()};
  return std::nullopt;
}

http::Response fleet_site(FleetView& view, const OwnState& own, const http::Request& request) {
  const auto& path = request.target.path;
  if (path.size() == 1 && path[0] == "metrics") return metrics(view, own, request);
  if (path.size() >= 3 && path[0] == "api" && path[1] == "v1") return api(view, request.target);
  return refusal(404, "no such path");
}

http::Response unavailable(const std::string& why) {
  return refusal(503, why);
}

}  // namespace flash::coordinator
