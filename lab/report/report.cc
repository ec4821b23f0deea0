#include "lab/report/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench/program.h"
#include "core/printable.h"
#include "lab/report/claims.h"
#include "lab/report/svg.h"

namespace flash::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTasks[] = {"resource-limits", "cpu-frequency"};

/// Colours s0 to s9 are told apart by people who see few of them, on light and on dark.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1f2328; --dim: #656d76; --paper: #fff; --card: #f6f8fa; --rule: #d8dee4;
  --s0: #0969da; --s1: #d1570f; --s2: #1a7f4b; --s3: #8b44c9; --s4: #8c959f; --s5: #9a6234; --s6: #c99700;
  --s7: #4a5560; --s8: #0b8a9c; --s9: #c2307a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --paper: #0d1117; --card: #161b22;
  --rule: #30363d; --s0: #58a6ff; --s1: #f0883e; --s2: #4ac26b; --s3: #bc8cff; --s4: #7d8590; --s5: #c69372;
  --s6: #e3b341; --s7: #b1bac4; --s8: #39c5cf; --s9: #f778ba; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: var(--paper);
  max-width: 64rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.35rem; margin: 0 0 .3rem; }
section { border-top: 1px solid var(--rule); margin-top: 2.2rem; padding-top: 1.4rem; }
p { margin: .3rem 0; max-width: 46rem; } a { color: var(--s0); } .dim { color: var(--dim); font-size: .88rem; }
nav ul { columns: 2; padding-left: 1.2rem; margin: .6rem 0; } nav li { break-inside: avoid; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; font-size: .85rem; margin: .6rem 0 1rem;
  background: var(--card); border-radius: 6px; padding: .6rem .8rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "DejaVu Sans Mono", monospace; }
figure { margin: 1.2rem 0 1.6rem; } figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; max-width: 760px; height: auto; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
svg .axis { fill: var(--dim); } svg .value { font-size: 11px; fill: var(--dim); }
.grid { stroke: var(--rule); stroke-width: 1; } .tick, .zero { stroke: var(--dim); stroke-width: 1; }
.zero { stroke-dasharray: 3 3; } .aim { stroke: var(--s9); stroke-width: 1.5; }
.error { stroke: var(--ink); stroke-width: 1.3; } .l { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dot { fill-opacity: .7; } .band { fill-opacity: .15; stroke: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin-top: .6rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; font-weight: 500; }
.missing { background: var(--card); border-left: 4px solid var(--s6); padding: .5rem .8rem; border-radius: 4px; }
.shown { list-style: none; padding: 0; } .yes::before { content: "\2713  "; color: var(--s2); }
.no::before { content: "\2717  "; color: var(--s9); }
)";

std::string style() {
  std::string css(kStyle);
  for (int c = 0; c < 10; ++c) {
    const std::string n = std::to_string(c), colour = "var(--s" + n + ")";
    css += ".f.s" + n + ", .dot.s" + n + ", .band.s" + n + " { fill: " + colour + "; } .l.s" + n +
           " { stroke: " + colour + "; }\n";
  }
  return css;
}

std::string html(const Table& table) {
  if (table.rows.empty()) return {};
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& h : table.head) out += "<th>" + escaped(h) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (const std::string& c : row) out += "<td>" + escaped(c) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

/// The experiment whose result a file name says it is: NAME.json or NAME-REST.json.
const Experiment* experiment_of(const std::string& file) {
  for (const Experiment& e : experiments()) {
    const std::string name(e.name);
    if (file == name + ".json" || (file.starts_with(name + "-") && file.ends_with(".json"))) return &e;
  }
  return nullptr;
}

std::string rest_of(const Experiment& e, const std::string& file) {
  std::string rest = file.substr(e.name.size(), file.size() - e.name.size() - 5);
  return rest.empty() ? rest : rest.substr(1);
}

std::string command_for(const Experiment& e, const std::string& file, std::string_view options) {
  const std::string rest = rest_of(e, file);
  return "flash-bench " + std::string(e.name) + (e.by_task && !rest.empty() ? " --task " + rest : "") + " " +
         std::string(options);
}

/// What a figure must say of itself: command, seed, hardware, and what else the result has at its top.
Result<std::string> provenance(const Experiment& e, const ResultFile& file) {
  const Value root = file.root();
  std::string out = "<dl>";
  const auto line = [&out](const std::string& what, const std::string& value) {
    out += "<dt>" + escaped(what) + "</dt><dd>" + value + "</dd>";
  };
  std::string command = "not recorded; as " + command_for(e, file.name, e.make);
  if (const auto v = root.find("command")) {
    FLASH_TRY(command, v->text());
  }
  line("command", "<code>" + escaped(command) + "</code>");
  std::string seed = "none: nothing is drawn";
  if (const auto v = root.find("seed")) {
    FLASH_TRY(seed, v->count_text());
  }
  line("seed", seed);
  std::string machine = "not recorded";
  if (const auto v = root.find("hardware")) {
    FLASH_TRY(machine, v->text());
  }
  line("hardware", escaped(machine));
  for (const char* key : {"pairs", "unseen", "budget", "repeats", "minutes", "model", "seconds"})
    if (const auto v = root.find(key)) {
      if (v->is_number()) {
        FLASH_TRY(const double number, v->number());
        line(key, number == std::round(number) ? std::to_string(std::llround(number)) : digits(number));
      } else if (auto text = v->text()) {
        line(key, escaped(*text));
      }
    }
  line("file", escaped(file.name));
  return out + "</dl>\n";
}

std::string title_of(const Experiment& e, const std::string& file) {
  const std::string rest = rest_of(e, file);
  return std::string(e.title) + (rest.empty() ? "" : ": " + rest);
}

Result<std::string> section(const Experiment& e, const ResultFile& file) {
  FLASH_TRY(const std::string from, provenance(e, file));
  FLASH_TRY(const Figures figures, e.figures(file.root()));
  std::string out = from;
  if (!figures.shown.empty()) {
    out += "<ul class=\"shown\">";
    for (const Shown& s : figures.shown)
      out += std::string("<li class=\"") + (s.is ? "yes" : "no") + "\">" + escaped(s.what) +
             (s.is ? "" : " (not so)") + "</li>";
    out += "</ul>\n";
  }
  for (const Figure& f : figures.figures)
    out += "<figure><figcaption>" + escaped(f.caption) + "</figcaption>\n" + f.picture + html(f.table) +
           "</figure>\n";
  return out;
}

Result<std::vector<ResultFile>> read_folder(const std::string& from) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".json" && experiment_of(it->path().filename().string()) != nullptr)
      paths.push_back(it->path());
  if (error) return Error(error, from + ": " + error.message());
  if (paths.size() > 100) return Error(std::errc::invalid_argument, from + ": more than 100 results");
  // Tasks in their order, then by name.
  const auto place = [](const fs::path& path) {
    const auto& file = path.filename().string();
    return std::pair(file.find(kTasks[0]) == std::string::npos, file);
  };
  std::sort(paths.begin(), paths.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::vector<ResultFile> out;
  for (const fs::path& path : paths) {
    FLASH_TRY(ResultFile file, read_result(path));
    out.push_back(std::move(file));
  }
  return out;
}

bool have(const std::vector<ResultFile>& results, const std::string& wanted) {
  const Experiment* e = experiment_of(wanted);
  return std::any_of(results.begin(), results.end(), [&](const ResultFile& r) {
    if (r.name == wanted) return true;
    if (!e->by_task) return experiment_of(r.name) == e;  // rcs-DATASET.json
    // NAME.json is of the task that it names.
    const auto task = r.root().find("task");
    return r.name == std::string(e->name) + ".json" && task && task->text() &&
           *task->text() == rest_of(*e, wanted);
  });
}

/// Runs `flash-bench COMMAND...`; what it prints becomes the file. Why not, else.
std::optional<std::string> run_into(const std::string& command, const fs::path& file) {
  std::vector<std::string> words{bench::beside_or("flash-bench", "/usr/bin/flash-bench")};
  std::string rest = command.substr(command.find(' ') + 1);
  for (std::size_t at = 0; at < rest.size();) {
    const auto space = std::min(rest.find(' ', at), rest.size());
    if (space > at) words.push_back(rest.substr(at, space - at));
    at = space + 1;
  }
  const std::string unfinished = file.string() + ".part", errors = file.string() + ".err";
  auto program = bench::Program::start(words, unfinished, errors);
  if (!program) return program.error().message();
  const int status = program->wait();
  std::error_code ignored;
  std::string why;
  if (status == 0) {
    fs::rename(unfinished, file, ignored);
    if (ignored) why = ignored.message();
  } else {
    why = bench::last_words(errors);
    if (why.empty()) why = "status " + std::to_string(status);
  }
  fs::remove(unfinished, ignored);
  fs::remove(errors, ignored);
  if (why.empty()) return std::nullopt;
  return why;
}

}  // namespace

std::vector<std::string> wanted_results() {
  std::vector<std::string> out;
  for (const Experiment& e : experiments()) {
    if (!e.by_task) out.push_back(std::string(e.name) + ".json");
    if (e.by_task)
      for (const char* task : kTasks) out.push_back(std::string(e.name) + "-" + task + ".json");
  }
  return out;
}

Result<std::string> report_page(const std::vector<ResultFile>& results, const std::vector<Missing>& missing) {
  std::string contents, body;
  int number = 0;
  const auto open = [&](const std::string& title, std::string_view about, bool there) {
    const std::string id = "r" + std::to_string(++number);
    contents +=
        "<li><a href=\"#" + id + "\">" + escaped(title) + "</a>" + (there ? "" : " (missing)") + "</li>";
    body += "<section id=\"" + id + "\"><h2>" + escaped(title) + "</h2>\n<p>" + escaped(about) + "</p>\n";
  };
  for (const Experiment& e : experiments()) {
    for (const ResultFile& r : results) {
      if (experiment_of(r.name) != &e) continue;
      open(title_of(e, r.name), e.about, true);
      FLASH_TRY(const std::string text, section(e, r));
      body += text + "</section>\n";
    }
    for (const Missing& m : missing) {
      if (experiment_of(m.file) != &e) continue;
      open(title_of(e, m.file), e.about, false);
      body += "<p class=\"missing\">Missing: " + escaped(m.file) +
              (m.why.empty() ? "" : " (" + escaped(m.why) + ")") + ". <code>" +
              escaped(command_for(e, m.file, e.make)) + " &gt; " + escaped(m.file) +
              "</code> makes it.</p></section>\n";
    }
  }
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>flash-bench "
         "report</title>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>" +
         style() +
         "</style></head><body>\n<h1>flash-bench report</h1>\n"
         "<p class=\"dim\">Bars and lines are means; error bars, bands and brackets are 95 % intervals. A "
         "method has "
         "the same colour everywhere.</p>\n<nav><ul>" +
         contents + "</ul></nav>\n" + body + "</body></html>\n";
}

Result<std::vector<ResultFile>> read_results(const std::string& from) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".json") paths.push_back(it->path());
  if (error) return Error(error, from + ": " + error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<ResultFile> out;
  for (const fs::path& path : paths) {
    FLASH_TRY(ResultFile file, read_result(path));
    out.push_back(std::move(file));
  }
  return out;
}

namespace {

Result<void> write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) return Error(std::errc::io_error, path + ": cannot be written");
  return {};
}

}  // namespace

Result<void> write_report(const ReportOptions& options) {
  if (options.markdown) {
    FLASH_TRY(const std::vector<ResultFile> all,
              read_results(options.from.empty() ? "results" : options.from));
    FLASH_TRY(const std::string page, results_page(all));
    return write_text(options.out.empty() ? "docs/RESULTS.md" : options.out, page);
  }
  const std::string to = options.out.empty() ? "flash-bench-report.html" : options.out;
  const bool quick = options.quick || options.from.empty();
  const std::string from = options.from.empty() ? "flash-bench-results" : options.from;
  std::error_code error;
  if (quick) fs::create_directories(from, error);
  if (error) return Error(error, from + ": " + error.message());
  FLASH_TRY(std::vector<ResultFile> results, read_folder(from));
  std::vector<Missing> missing;
  for (const std::string& file : wanted_results()) {
    if (have(results, file)) continue;
    const Experiment& e = *experiment_of(file);
    missing.push_back({file, ""});
    if (!quick) continue;
    if (e.quick.empty()) {
      missing.back().why = "it has no quick form";
      continue;
    }
    const std::string command = command_for(e, file, e.quick);
    print_line(stderr, "flash-bench: " + command);
    const auto why = run_into(command, fs::path(from) / file);
    if (!why) {
      missing.pop_back();
      FLASH_TRY(ResultFile made, read_result(fs::path(from) / file));
      results.push_back(std::move(made));
      continue;
    }
    std::fprintf(stderr, "flash-bench: %s\n", why->c_str());
    missing.back().why = *why;
  }
  FLASH_TRY(const std::string page, report_page(results, missing));
  FLASH_CHECK(write_text(to, page));
  std::fprintf(stderr, "flash-bench: wrote %s: %zu results, %zu missing\n", to.c_str(), results.size(),
               missing.size());
  return {};
}

}  // namespace flash::lab
