#include "bench/learner_bench.h"

#include <time.h>

#include <algorithm>
#include <memory>

#include "core/json.h"
#include "core/network_kernels.h"
#include "core/policy_snapshot.h"
#include "core/random.h"
#include "policy/observation_space.h"

namespace flash::bench {
namespace {

using nlohmann::json;

constexpr int kTransitions = 2000;

/// CPU time: what else runs on the host is not our cost (its use of the caches is in it).
double now_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

std::vector<float> numbers(Random& random, int n) {
  std::vector<float> v;
  for (int i = 0; i < n; ++i) v.push_back(static_cast<float>(random.uniform(-1, 1)));
  return v;
}

/// A chain of states; the fallback and the policy take turns, so that all algorithms have what they need.
Result<void> fill(Agent& agent, const AgentSpaces& spaces, Random& random) {
  const auto action = [&] {
    if (action_form(spaces.task) == ActionForm::Continuous) return numbers(random, spaces.action_dim);
    return std::vector<float>{
        static_cast<float>(random.below(static_cast<std::uint64_t>(spaces.action_dim)))};
  };
  std::vector<float> state = numbers(random, spaces.state_dim), fallback = action();
  for (int i = 0; i < kTransitions; ++i) {
    Transition t;
    t.state = state;
    t.by_fallback = i % 2 == 0;
    t.fallback = fallback;
    t.action = t.by_fallback ? fallback : action();
    t.reward = static_cast<float>(random.uniform());
    t.next_state = state = numbers(random, spaces.state_dim);
    t.next_fallback = fallback = action();
    FLASH_CHECK(agent.add(t));
  }
  return {};
}

AgentSpaces limits() {
  return {Task::ResourceLimits, state_dim(Task::ResourceLimits), action_dim(Task::ResourceLimits)};
}
AgentSpaces frequency() {
  return {Task::CpuFrequency, state_dim(Task::CpuFrequency), action_dim(Task::CpuFrequency)};
}

Result<PolicySnapshot> fresh_policy(std::uint64_t seed) {
  AgentOptions options;
  options.seed = seed;
  options.replay_steps = options.learning_starts;
  FLASH_TRY(auto agent, Agent::create(limits(), options));
  PolicySnapshot policy = agent->snapshot();
  policy.version = seed;
  FLASH_CHECK(policy.validate(state_dim(Task::ResourceLimits), action_dim(Task::ResourceLimits)));
  return policy;
}

/// Puts other data in the caches' place, as the rest of a host does between two ticks.
class CacheFlush {
 public:
  void run() {
    for (std::size_t i = 0; i < bytes_.size(); i += 64) ++bytes_[i];
  }

 private:
  std::vector<char> bytes_ = std::vector<char>(64u << 20);
};

}  // namespace

json percentiles(const std::vector<double>& sorted) {
  if (sorted.empty()) return {{"p50", nullptr}, {"p99", nullptr}};
  const auto at = [&](double q) {
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}};
}

std::vector<Algorithm> algorithms() {
  std::vector<Algorithm> all = {{"ddpg", limits(), {}, false},
                                {"q", frequency(), {}, false},
                                {"tabular-q", frequency(), {}, false},
                                {"td3+bc", limits(), {}, true},
                                {"bcq", limits(), {}, true},
                                {"iql", frequency(), {}, true},
                                {"bcq-discrete", frequency(), {}, true}};
  for (Algorithm& a : all) {
    if (a.name == "tabular-q") a.options.online = a.name;
    if (a.name == "bcq" || a.name == "bcq-discrete") a.options.offline = "bcq";
  }
  return all;
}

Result<UpdateBench> UpdateBench::make() {
  UpdateBench bench;
  for (Algorithm& algorithm : algorithms()) {
    Random random(1);
    FLASH_TRY(auto agent, Agent::create(algorithm.spaces, algorithm.options));
    FLASH_CHECK(fill(*agent, algorithm.spaces, random));
    bench.subjects_.push_back({std::move(algorithm), std::move(agent), {}});
  }
  return bench;
}

void UpdateBench::measure(int n) {
  constexpr int kWarmUp = 50;
  constexpr int kSlice = 8;  // offline updates come in slices, TrainerOptions::slice_updates
  for (Subject& s : subjects_) {
    const int slice = s.algorithm.offline ? kSlice : 1;
    for (int i = -kWarmUp; i < n; i += slice) {
      const double begun = now_us();
      const UpdateReport report =
          s.algorithm.offline ? s.agent->learn_offline(slice) : s.agent->learn_online(1);
      const double took = now_us() - begun;
      if (report.updates == 0) break;
      if (i >= 0) s.us.push_back(took / static_cast<double>(report.updates));
    }
  }
}

std::vector<double> UpdateBench::times(const std::string& name) const {
  for (const Subject& s : subjects_)
    if (s.algorithm.name == name) {
      std::vector<double> sorted = s.us;
      std::sort(sorted.begin(), sorted.end());
      return sorted;
    }
  return {};
}

Result<json> measure_decisions() {
  constexpr int kAgents[] = {1, 10, 100, 1000};
  constexpr int kTicks = 1000, kColdTicks = 50;
  Random random(1);
  std::vector<std::unique_ptr<CompiledPolicy>> policies;
  std::vector<std::vector<float>> states;
  EvaluatorScratch scratch;
  for (int i = 0; i < kAgents[3]; ++i) {
    FLASH_TRY(PolicySnapshot policy, fresh_policy(static_cast<std::uint64_t>(i) + 1));
    policies.push_back(std::make_unique<CompiledPolicy>(std::move(policy)));
    policies.back()->actor.prepare(scratch);
    states.push_back(numbers(random, state_dim(Task::ResourceLimits)));
  }
  CacheFlush flush;
  json out = json::object();
  float kept = 0;  // so that no evaluation is left out
  double clock_us = 1e9;
  for (int i = 0; i < 1000; ++i) {
    const double begun = now_us();
    clock_us = std::min(clock_us, now_us() - begun);
  }
  for (const int agents : kAgents) {
    const auto tick = [&] {
      const double begun = now_us();
      for (std::size_t i = 0; i < static_cast<std::size_t>(agents); ++i)
        kept += policies[i]->actor.evaluate(states[i], scratch)[0];
      return std::max(0.0, now_us() - begun - clock_us);  // reading it costs more than one decision
    };
    std::vector<double> warm, cold;
    for (int i = 0; i < kTicks; ++i) warm.push_back(tick());
    for (int i = 0; i < kColdTicks; ++i) {
      flush.run();
      cold.push_back(tick());
    }
    std::sort(warm.begin(), warm.end());
    std::sort(cold.begin(), cold.end());
    json row = percentiles(warm);
    row["cold_p50"] = percentiles(cold)["p50"];
    row["cold_p99"] = percentiles(cold)["p99"];
    out[std::to_string(agents)] = std::move(row);
  }
  if (!(kept == kept)) return Error(std::errc::result_out_of_range, "a decision was not a number");
  return out;
}

Result<json> measure_swap() {
  constexpr int kSwaps = 1000;
  std::vector<std::string> bytes;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    FLASH_TRY(const PolicySnapshot policy, fresh_policy(seed));
    bytes.push_back(encode(to_tensor_file(policy)));
  }
  std::shared_ptr<const CompiledPolicy> seat;
  std::vector<double> us;
  for (int i = 0; i < kSwaps; ++i) {
    const double begun = now_us();
    FLASH_TRY(const TensorFile file, decode_tensor_file(bytes[static_cast<std::size_t>(i) % bytes.size()]));
    FLASH_TRY(PolicySnapshot policy, to_policy(file));
    FLASH_CHECK(policy.validate(state_dim(Task::ResourceLimits), action_dim(Task::ResourceLimits)));
    seat = std::make_shared<const CompiledPolicy>(std::move(policy));
    us.push_back(now_us() - begun);
  }
  std::sort(us.begin(), us.end());
  return percentiles(us);
}

}  // namespace flash::bench
