#include "lab/report/report_figures.h"

#include <algorithm>
#include <cmath>

#include "lab/report/svg.h"

namespace flash::lab {
namespace {

Result<Figures> adapt(const Value& r) {
  constexpr Measure kMeasures[] = {
      {"score", "score: 0 random, 1 oracle",
       "Score after adaptation, (R - R_random) / (R_oracle - R_random)."},
      {"score_before", "score: 0 random, 1 oracle", "Score before any adaptation."},
      {"reward_drop_pct", "reward drop, % of converged",
       "Reward lost to the converged agent without retraining."},
      {"episodes_to_converge", "episodes to the reference",
       "Episodes until all evaluations stay within 95 % of the reference."},
      {"episodes_to_converged_agent", "episodes to the converged agent",
       "Episodes until all evaluations stay within 95 % of the converged agent's reward."},
      {"adaptation/utilization", "utilisation, share", "Utilisation during adaptation."},
      {"adaptation/slo_preservation", "SLO preservation", "SLO preservation during adaptation."},
      {"reward", "reward per step", "Reward after adaptation."}};
  Figures out;
  if (const auto curves = r.find("curves")) {
    FLASH_TRY(const Members all, curves->members());
    FLASH_TRY(Figure f, lines(all, 0, "episodes of adaptation", "score",
                              "Score from episode to episode (FLASH Figs. 8 and 9)."));
    out.figures.push_back(std::move(f));
  }
  FLASH_TRY(auto measured, bars_by_measure(r, kMeasures));
  append(out, std::move(measured));
  if (auto ok = add_differences(out, r, "gain", "reward per step", "Differences, pair by pair."); !ok)
    return std::move(ok).error();
  if (auto ok = add_differences(out, r, "speed_up_over_tl", "times",
                                "How many times faster than transfer learning the adaptation is.");
      !ok)
    return std::move(ok).error();
  return out;
}

Result<Figures> characterize(const Value& r) {
  Figures out;
  FLASH_TRY(const Value changes, r.at("changes"));
  FLASH_TRY(Figure drops, grouped(changes, "reward_drop_pct", "reward drop, % of converged",
                                  "Reward lost when the pair changes and nothing is retrained."));
  out.figures.push_back(std::move(drops));
  if (const auto cdf = r.find("cdf")) {
    FLASH_TRY(const Members all, cdf->members());
    for (const auto& [change, ways] : all) {
      FLASH_TRY(const Members curves, ways.members());
      XyChart chart;
      std::string words = change;
      std::replace(words.begin(), words.end(), '_', ' ');
      const std::string caption = "Distribution of the drop over trials: " + words + ".";
      chart.title = caption;
      chart.x_title = "reward drop, % of converged";
      chart.y_title = "share of trials with at most this drop";
      Table table{{"", "trials", "median", "90 %", "largest"}, {}};
      for (const auto& [name, value] : curves) {
        FLASH_TRY(std::vector<double> drop, value.numbers());
        std::erase_if(drop, [](double v) { return !std::isfinite(v); });
        std::sort(drop.begin(), drop.end());
        if (drop.empty()) continue;
        Series s;
        s.name = name;
        s.steps = true;
        const auto n = static_cast<double>(drop.size());
        for (std::size_t k = 0; k < drop.size(); ++k) {
          s.x.push_back(drop[k]);
          s.y.push_back((static_cast<double>(k) + 1) / n);
        }
        const auto at = [&](double q) { return digits(drop[static_cast<std::size_t>(q * (n - 1))]); };
        table.rows.push_back({name, digits(n), at(0.5), at(0.9), at(1)});
        chart.series.push_back(std::move(s));
      }
      chart.y_low = 0;
      chart.y_high = 1;
      out.figures.push_back({caption, svg(chart), std::move(table)});
    }
  }
  if (const auto updates = r.find("updates")) {
    FLASH_TRY(Figure f, grouped(*updates, "reward_drop_pct", "reward drop, % of converged",
                                "By kind of update (AWARE 2.3)."));
    out.figures.push_back(std::move(f));
  }
  return out;
}

constexpr Measure kLived[] = {{"loss_pct", "reward lost, % of the best policy's",
                               "Reward lost to an agent that converged on the updated pair."},
                              {"violations_pct", "seconds with SLO violated, %", "SLO violations."},
                              {"cpu_utilization", "CPU utilisation, share", "CPU utilisation."},
                              {"memory_utilization", "memory utilisation, share", "Memory utilisation."},
                              {"frequency", "frequency, place in its range", "Frequency."},
                              {"reward", "reward per step", "Reward."}};

Result<Figures> bootstrap(const Value& r) {
  Figures out;
  FLASH_TRY(const Value methods, r.at("methods"));
  FLASH_TRY(auto bars, bars_of(methods, kLived));
  append(out, std::move(bars));
  if (const auto curves = r.find("curves"))
    for (const Measure& m : kLived) {
      FLASH_TRY(const Members all, curves->members());
      Members of;
      for (const auto& [name, keys] : all)
        if (const auto curve = keys.find(m.key)) of.emplace_back(name, *curve);
      if (of.empty()) continue;
      FLASH_TRY(Figure f, lines(of, 1, "episode of training", m.title,
                                std::string(m.caption) + " From episode to episode (AWARE Fig. 10)."));
      out.figures.push_back(std::move(f));
    }
  if (const auto against = r.find("against_rule")) {
    FLASH_TRY(auto more, bars_of(*against, kLived));
    for (Figure& f : more) f.caption = "Against the rules, pair by pair: " + f.caption;
    append(out, std::move(more));
  }
  if (const auto worst = r.find("worst")) {
    FLASH_TRY(const Members ways, worst->members());
    Table table{{"", "worst pair, points", "pairs above by more than 1"}, {}};
    for (const auto& [name, of] : ways) {
      FLASH_TRY(const Value points, of.at("violations_pct"));
      FLASH_TRY(const double more, points.number());
      FLASH_TRY(const Value count, of.at("pairs_above_by_1"));
      FLASH_TRY(const double pairs, count.number());
      table.rows.push_back({name, digits(more), std::to_string(std::llround(pairs))});
    }
    out.figures.push_back({"Violations against the rules of the pair that fares worst, which means hide.", "",
                           std::move(table)});
  }
  if (auto ok = add_shown(out, r); !ok) return std::move(ok).error();
  return out;
}

Result<Figures> serve(const Value& r) {
  Figures out;
  FLASH_TRY(const Value methods, r.at("methods"));
  FLASH_TRY(auto bars, bars_of(methods, kLived));
  append(out, std::move(bars));
  if (const auto curves = r.find("curves")) {
    FLASH_TRY(const Members all, curves->members());
    FLASH_TRY(Figure f, lines(all, 1, "episodes since the update", "reward per step",
                              "Reward after an update (AWARE Fig. 9)."));
    out.figures.push_back(std::move(f));
  }
  if (const auto updates = r.find("by_update")) {
    FLASH_TRY(const Members all, updates->members());
    BarChart chart{"", "reward lost, % of converged", {}, {}, {}, std::nullopt};
    Table table{{""}, {}};
    for (const auto& [name, value] : all) {
      FLASH_TRY(const Value losses, value.at("loss_pct"));
      FLASH_TRY(const Members ways, losses.members());
      if (chart.series.empty())
        for (const auto& [way, loss] : ways) chart.series.push_back(way), table.head.push_back(way);
      auto& row = table.rows.emplace_back();
      row.push_back(name);
      chart.groups.push_back(name);
      auto& values = chart.values.emplace_back();
      for (const std::string& way : chart.series) {
        Interval i{kNone, kNone, kNone};
        if (const auto loss = losses.find(way)) {
          FLASH_TRY(i, loss->interval());
        }
        values.push_back(i);
        row.push_back(cell(i));
      }
    }
    chart.title = "Reward lost by kind of update.";
    if (!all.empty()) out.figures.push_back({chart.title, svg(chart), std::move(table)});
  }
  if (const auto thresholds = r.find("thresholds")) {
    constexpr std::pair<const char*, const char*> kColumns[] = {{"retrain_below_pct", "retrain below, %"},
                                                                {"window_episodes", "window, episodes"},
                                                                {"loss_pct", "reward lost, %"},
                                                                {"retrainings", "retrainings per update"},
                                                                {"online_pct", "episodes online, %"}};
    FLASH_TRY(Table table, rows_of(*thresholds, kColumns));
    out.figures.push_back({"Other thresholds of the detector (-: as shipped).", "", std::move(table)});
  }
  if (auto ok = add_shown(out, r); !ok) return std::move(ok).error();
  return out;
}

Result<Figures> predict(const Value& r) {
  Figures out;
  FLASH_TRY(const Value points, r.at("points"));
  FLASH_TRY(const Members all, points.members());
  std::vector<double> similarity, drop, cost;
  for (const auto& [index, point] : all)
    for (const auto& [key, to] :
         {std::pair{"similarity", &similarity}, {"reward_drop_pct", &drop}, {"retraining_episodes", &cost}}) {
      FLASH_TRY(const Value v, point.at(key));
      FLASH_TRY(const Interval i, v.interval());
      to->push_back(i.mean);
    }
  const auto fit = r.find("fit");
  for (const bool drops : {true, false}) {
    XyChart chart;
    const std::string caption = drops
                                    ? "Reward drop after a move, by similarity of the pairs (FLASH Fig. 10)."
                                    : "Episodes of retraining after a move, by similarity.";
    chart.title = caption;
    chart.x_title = "similarity S of the embeddings";
    chart.y_title = drops ? "reward drop, % of converged" : "episodes of retraining";
    chart.series.push_back({"moves", similarity, drops ? drop : cost, {}, {}, true, false});
    if (fit) {
      Series line;
      line.name = "predicted";
      for (const auto& [key, to] : {std::pair{"similarity", &line.x},
                                    {drops ? "drop" : "cost", &line.y},
                                    {"drop_lower", &line.lo},
                                    {"drop_upper", &line.hi}}) {
        if (!drops && std::string_view(key).starts_with("drop_")) continue;
        FLASH_TRY(const Value v, fit->at(key));
        FLASH_TRY(*to, v.numbers());
      }
      chart.series.push_back(std::move(line));
    }
    out.figures.push_back({caption, svg(chart), {}});
  }
  if (const auto pools = r.find("by_pool")) {
    constexpr std::pair<const char*, const char*> kColumns[] = {
        {"pairs", "pairs of pretraining"},
        {"correlation/drop", "correlation of S with the drop"},
        {"error/drop", "error of the drop, %"},
        {"error/drop_constant", "of its mean, %"},
        {"correlation/cost", "S with the cost"},
        {"error/cost", "error of the cost, episodes"},
        {"error/cost_constant", "of its mean, episodes"}};
    FLASH_TRY(Table table, rows_of(*pools, kColumns));
    out.figures.push_back(
        {"Errors of the prediction (root mean square, leave-one-out) beside those of the mean: "
         "similarity is of use where the first is clearly below the second.",
         "", std::move(table)});
  }
  return out;
}

Result<Figures> amortize(const Value& r) {
  Figures out;
  FLASH_TRY(const Value curves, r.at("curves"));
  FLASH_TRY(const Members all, curves.members());
  FLASH_TRY(const Value counts, curves.at("pairs"));
  FLASH_TRY(const std::vector<double> x, counts.numbers());
  XyChart chart;
  chart.title = "Episodes per pair, pretraining included, by how many pairs it is used for (FLASH Fig. 15).";
  chart.x_title = "pairs that were adapted to";
  chart.y_title = "episodes per pair";
  chart.log_x = chart.log_y = true;
  for (const auto& [name, value] : all) {
    if (name == "pairs") continue;
    Series s;
    s.name = name == "tl" ? "tl" : "pretrained on " + name;
    s.x = x;
    FLASH_TRY(s.y, value.numbers());
    if (s.y.size() != x.size()) return value.wrong("not as many numbers as 'pairs'");
    chart.series.push_back(std::move(s));
  }
  Table table;
  if (const auto pools = r.find("pools")) {
    constexpr std::pair<const char*, const char*> kColumns[] = {
        {"pairs", "pairs of pretraining"},
        {"pretraining_s", "pretraining, s"},
        {"pretraining_episodes", "pretraining, episodes"},
        {"adaptation_episodes", "adaptation, episodes"},
        {"pays_from_pairs/episodes", "pays from (pairs, by episodes)"},
        {"pays_from_pairs/seconds", "pays from (pairs, by seconds)"}};
    FLASH_TRY(table, rows_of(*pools, kColumns));
  }
  out.figures.push_back({chart.title, svg(chart), std::move(table)});
  return out;
}

Result<Figures> rcs(const Value& r) {
  Figures out;
  FLASH_TRY(const Value mape, r.at("mape"));
  FLASH_TRY(Figure f, grouped(mape, "", "mean absolute percentage error, fraction",
                              "Error on applications that were never seen, from 1, 2 and 3 known runs "
                              "(FLASH Table 2)."));
  out.figures.push_back(std::move(f));
  if (const auto chosen = r.find("mape_chosen")) {  // results of before have none
    FLASH_TRY(Figure g, grouped(*chosen, "", "mean absolute percentage error, fraction",
                                "The same from the runs that the curve model would know first."));
    out.figures.push_back(std::move(g));
  }
  return out;
}

Result<Figures> overhead(const Value& r) {
  Figures out;
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"decision_us", "A decision, median CPU time in microseconds."},
      {"embedding_ms", "An embedding, median CPU time in milliseconds."},
      {"update_ms", "An update of the meta learner with 20 trajectories of 100 steps, milliseconds."}};
  for (const auto& [key, caption] : kParts) {
    FLASH_TRY(const Value part, r.at(key));
    FLASH_TRY(const Members all, part.members());
    BarChart chart{caption, std::string(key).ends_with("us") ? "microseconds" : "milliseconds",
                   {},      {""},
                   {},      std::nullopt};
    Table table{{"", chart.x_title}, {}};
    for (const auto& [name, value] : all) {
      if (!value.is_number()) continue;
      FLASH_TRY(const Interval i, value.interval());
      chart.groups.push_back(name);
      chart.values.push_back({i});
      table.rows.push_back({name, cell(i)});
    }
    out.figures.push_back({caption, svg(chart), std::move(table)});
  }
  return out;
}

Result<Figures> live(const Value& r) {
  constexpr Measure kMeasures[] = {
      {"reward", "reward per step", "Reward on real applications."},
      {"p99_over_slo", "p99 / SLO", "p99 latency against the objective."},
      {"slo_miss_share", "share of seconds", "Seconds in which the objective was missed."},
      {"cpu_reserved", "cores", "CPU reserved."},
      {"utilization", "utilisation, share", "Utilisation."}};
  Figures out;
  FLASH_TRY(const Value methods, r.at("methods"));
  FLASH_TRY(auto bars, bars_of(methods, kMeasures));
  append(out, std::move(bars));
  if (auto ok = add_differences(out, r, "difference", "reward per step",
                                "Reward, application by application and round by round.");
      !ok)
    return std::move(ok).error();
  return out;
}

Result<Figures> calibrate(const Value& r) {
  Figures out;
  FLASH_TRY(const Value points, r.at("points"));
  FLASH_TRY(const Members all, points.members());
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"p99_ms", "p99 latency, ms"}, {"rate", "throughput, requests per second"}, {"cpu", "CPU used, cores"}};
  for (const auto& [key, unit] : kKeys) {
    XyChart chart;
    chart.title = std::string("The model against real runs: ") + unit + ".";
    chart.x_title = std::string("real: ") + unit;
    chart.y_title = std::string("model: ") + unit;
    chart.diagonal = true;
    chart.log_x = chart.log_y = std::string_view(key) != "cpu";
    Series fitted{"fitted", {}, {}, {}, {}, true, false}, held{"held out", {}, {}, {}, {}, true, false};
    for (const auto& [index, point] : all) {
      FLASH_TRY(const Value fit, point.at("fit"));
      if (!fit.is_boolean()) return fit.wrong("neither true nor false");
      Series& to = fit.is_true() ? fitted : held;
      for (const auto& [side, values] : {std::pair{"real", &to.x}, {"model", &to.y}}) {
        FLASH_TRY(const Value of, point.at(side));
        FLASH_TRY(const Value v, of.at(key));
        FLASH_TRY(const Interval i, v.interval());
        values->push_back(i.mean);
      }
    }
    chart.series = {std::move(fitted), std::move(held)};
    out.figures.push_back({chart.title, svg(chart), {}});
  }
  Table table{{"median relative error", "points", "p99", "throughput", "utilisation"}, {}};
  for (const char* part : {"fitted", "held_out"}) {
    FLASH_TRY(const Value errors, r.at(part));
    auto& row = table.rows.emplace_back();
    row.emplace_back(part);
    for (const char* key : {"points", "p99", "throughput", "utilisation"}) {
      FLASH_TRY(const Value v, errors.at(key));
      FLASH_TRY(const Interval i, v.interval());
      row.push_back(cell(i));
    }
  }
  out.figures.back().table = std::move(table);
  return out;
}

Result<Figures> sim(const Value& r) {
  Figures out;
  FLASH_TRY(const Value tasks, r.at("tasks"));
  FLASH_TRY(const Members all, tasks.members());
  Table speed{{"task", "steps per second", "per CPU second", "oracle's label, us"}, {}};
  for (const auto& [task, value] : all) {
    auto& row = speed.rows.emplace_back();
    row.push_back(task);
    for (const char* key : {"steps_per_second", "steps_per_cpu_second", "oracle_label_us"}) {
      FLASH_TRY(const Value v, value.at(key));
      FLASH_TRY(const Interval i, v.interval());
      row.push_back(cell(i));
    }
    const auto headroom = value.find("headroom");
    if (!headroom) continue;
    FLASH_TRY(const Members ways, headroom->members());
    BarChart chart{"Mean reward per step of what needs no learning: " + task + ".",
                   "reward per step",
                   {},
                   {""},
                   {},
                   std::nullopt};
    Table table{{"", chart.x_title}, {}};
    for (const auto& [name, way] : ways) {
      if (!way.is_object() || !way.find("mean")) continue;
      FLASH_TRY(const Interval i, way.interval());
      chart.groups.push_back(name);
      chart.values.push_back({i});
      table.rows.push_back({name, cell(i)});
    }
    out.figures.push_back({chart.title, svg(chart), std::move(table)});
  }
  out.figures.push_back({"The simulator's speed.", "", std::move(speed)});
  return out;
}

constexpr Experiment kExperiments[] = {
    {"adapt", "Adaptation to unseen pairs",
     "What each way to control earns on pairs of application and environment that nobody learned from, "
     "before and "
     "during adaptation (FLASH 5.2, 5.3).",
     true, "--json", "--quick --json", adapt},
    {"characterize", "What unadapted models lose",
     "A model that converged on one pair, applied without retraining to other applications, after updates, "
     "on other "
     "processors (FLASH Figs. 4, 13; AWARE Fig. 3).",
     true, "--json", "--quick --json", characterize},
    {"bootstrap", "Bootstrapping", "What learning costs while it goes on (AWARE 5.4, Fig. 10).", true,
     "--json", "--quick --json", bootstrap},
    {"serve", "Serving through updates",
     "A policy serves while its application is updated under it; the retraining detector has to notice "
     "(AWARE 5.3, "
     "Fig. 9).",
     true, "--json", "--quick --json", serve},
    {"predict", "Predicting the drop",
     "What the similarity of embeddings says about a move to another pair before it is made (FLASH 5.5).",
     true, "--json", "--quick --json", predict},
    {"amortize", "From how many pairs on pretraining pays",
     "Pretraining's cost against retraining from pair to "
     "pair (FLASH A.7).",
     true, "--json", "--quick --json", amortize},
    {"rcs", "Resource configuration search",
     "The supervised agent with and without FLASH, and our curve model, on public measurements (FLASH 5.1, "
     "Table 2).",
     false, "--dataset DIR --json", "", rcs},
    {"overhead", "Overhead",
     "What FLASH adds to a decision and to training, plain libtorch beside each (FLASH "
     "Table 3).",
     false, "--json", "--quick --json", overhead},
    {"live", "Sim to real",
     "Real applications that no model saw, under real load and cgroup limits: fixed limits, the rules, "
     "flashd with "
     "the pretrained models.",
     false, "--minutes 30 --json", "", live},
    {"calibrate", "The simulator against real runs",
     "flash-workload under real CPU limits and loads, and what the "
     "simulator says of the same.",
     false, "--json", "", calibrate},
    {"sim", "The simulator", "Its speed, and what a pool leaves to learn.", false, "--json",
     "--pairs 12 --json", sim}};

}  // namespace

std::span<const Experiment> experiments() {
  return kExperiments;
}

}  // namespace flash::lab
