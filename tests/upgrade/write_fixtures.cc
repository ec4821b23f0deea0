// Writes files of the present version: tests/upgrade/README.md. Run once per release, when its formats are new; never to
// make a test pass.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "actuators/ledger.h"
#include "coordinator/store.h"
#include "core/policy_snapshot.h"
#include "daemon/hurt_records.h"
#include "daemon/journal.h"
#include "learner/model_inbox.h"
#include "learner/trainer.h"
#include "sync/outbox.h"
#include "tests/link/signed_models.h"
#include "tests/upgrade/fixtures.h"

namespace flash::upgrade {
namespace {

template <class R>
void must(const R& result) {
  if (result) return;
  std::fprintf(stderr, "write_fixtures: %s\n", result.error().message().c_str());
  std::exit(1);
}

/// What flash-learner leaves: the store, a checkpoint and the last policy of each agent.
void learner(const std::string& folder) {
  std::filesystem::create_directories(folder);
  auto store = TrajectoryStore::open(folder + "/trajectories.sqlite", nullptr);
  must(store);
  Now now{std::chrono::hours(1), WallTime(std::chrono::microseconds(kBegin_us))};
  TrainerOptions options;
  options.clock = [&now] { return now.mono; };
  Trainer trainer(std::move(options), *Checkpoints::open(folder), *store,
                  [](const Event& e) { std::printf("%s\n", e.message.c_str()); });
  link::HelloDown hello;
  hello.epoch = kEpoch;
  hello.settings.learning_starts = 20;
  hello.settings.offline_updates = 30;
  hello.settings.replay_steps = 200;
  trainer.configure(hello);
  for (const Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    const link::Announce a = agent_of(task);
    const RunId run = store->begin_run(a, kEpoch)->id;
    trainer.announce(a, run, now);
    for (std::uint64_t seq = 1; seq <= kLastStep; ++seq) {
      const link::Step s = step_of(task, seq);
      const TrajectoryStore::Entry entry{run, &s};
      must(store->append(std::span(&entry, 1)));
      trainer.take(s, now);
      now.mono += std::chrono::seconds(1);
      now.wall += std::chrono::seconds(1);
      while (trainer.work(now)) (void)trainer.take_offers();
    }
    now.mono += std::chrono::seconds(60);
    while (trainer.work(now)) (void)trainer.take_offers();
  }
  for (const link::Status& s : trainer.statuses())
    std::printf("%s: %llu transitions, %llu updates, %s\n", s.agent.c_str(),
                static_cast<unsigned long long>(s.transitions), static_cast<unsigned long long>(s.updates),
                s.doing.c_str());
  trainer.save(now, true, std::chrono::hours(1));
  must(store->checkpoint());
}

/// What flash-sync and flash-learner keep of the fleet's models.
void inbox(const std::string& folder) {
  std::filesystem::create_directories(folder);
  must(write_key_pair(folder + "/release", link::release_key()));
  std::filesystem::remove(folder + "/release");
  const auto put = [&](Task task, const std::string& name, std::uint64_t version) {
    const link::Announce a = agent_of(task);
    SharedPolicyOptions o;
    o.task = task;
    o.state_dim = a.layout.state_dim();
    o.outputs = a.layout.action_dim();
    o.action_width = a.layout.action_size();
    o.encoder = {EncoderKind::Set, 4, 8, 2, 8, 1e-3};
    o.hidden = {8};
    o.seed = version;
    std::vector<std::vector<float>> pool;
    for (int i = 0; i < 16; ++i)
      pool.push_back({static_cast<float>(i & 1), static_cast<float>(i >> 1 & 1),
                      static_cast<float>(i >> 2 & 1), static_cast<float>(i >> 3 & 1)});
    const PolicyModel model = {"of version " + std::to_string(version),
                               a.layout,
                               SharedPolicy::create(o)->checkpoint(),
                               *SeenEmbeddings::create(pool),
                               {50, 0.06, -0.02, 0.15}};
    const std::string bytes = encode(to_tensor_file(model));
    must(link::write_whole_file(
        folder + "/" + name,
        encode(link::signed_as(link::manifest(version, bytes, std::string(to_string(task))), bytes))));
  };
  put(Task::ResourceLimits, "resource-limits.signed", 5);
  put(Task::ResourceLimits, "resource-limits.previous.signed", 2);
  put(Task::CpuFrequency, "cpu-frequency.signed", 3);
  ModelInbox box({folder, folder + "/release.pub", "0.1.0", folder + "/accepted-models"},
                 [](const Event& e) { std::printf("%s\n", e.message.c_str()); });
  // 2 was in use before 5 came.
  box.accepted(Task::ResourceLimits, 2);
  for (const auto& found : box.look()) box.accepted(found.task, found.models.at(0)->version());
}

/// As a flashd that was killed leaves it: three knobs, one in the middle of a write.
void ledger(const std::string& folder) {
  std::filesystem::create_directories(folder);
  auto opened = Ledger::open(folder, "boot-1");
  must(opened);
  const Now now{{}, WallTime(std::chrono::microseconds(kBegin_us))};
  const auto begin = [&](const KnobRef& ref, double original, const std::string& raw, double value,
                         std::uint64_t id = 0) {
    LedgerIntent intent{id, &ref, original, raw, value};
    must(opened->begin(now, std::span(&intent, 1)));
    return intent.id;
  };
  const auto confirm = [&](std::uint64_t id, double value) {
    const LedgerValue v{id, value};
    must(opened->confirm(std::span(&v, 1)));
  };
  const TargetId web{TargetKind::Cgroup, 11};
  const KnobRef cpu{KnobKind::CpuLimit, web, "cgroupfs", "2 /system.slice/web.service"};
  const KnobRef memory{KnobKind::MemoryLimit, web, "systemd", "web.service"};
  const KnobRef clock{KnobKind::CpuFrequency, {TargetKind::CpuSet, 22}, "cpufreq", "policy0,policy\t4"};
  const std::uint64_t first = begin(cpu, kUnlimited, "max 100000", 2);
  confirm(first, 2);
  begin(cpu, kUnlimited, "max 100000", 1.5, first);
  confirm(first, 1.5);
  confirm(begin(clock, 3'000'000, "800000 3000000 schedutil", 2'100'000), 2'100'000);
  const std::uint64_t gone =
      begin({KnobKind::CpuLimit, {TargetKind::Cgroup, 12}, "cgroupfs", "2 /gone"}, 1, "100000 100000", 2);
  must(opened->drop(std::span(&gone, 1)));
  begin(memory, 1'073'741'824, "1073741824", 536'870'912);
  must(opened->set_keep(true, "the rule says keep"));
}

Decision decision(std::uint64_t seq) {
  Decision d;
  d.seq = seq;
  d.at = {std::chrono::seconds(100 + seq),
          WallTime(std::chrono::microseconds(kBegin_us) + std::chrono::seconds(seq))};
  d.mode = Mode::Control;
  d.episode = 3;
  d.step = static_cast<std::uint32_t>(seq);
  d.observation[Signal::LatencyP99] = Sample::good(12.5);
  d.reward = {.value = 0.625, .slo_preservation = 0.75, .utilization = 0.5, .trusted = true, .given = true};
  d.explanation = "of version 0.1.0";
  d.learning.state_trusted = true;
  return d;
}

void journal(const std::string& folder) {
  DecisionJournal journal;
  journal.configure({true, 1 << 20, folder});
  Target web;
  web.id = {TargetKind::Cgroup, 11};
  web.name = "web.service";
  web.cgroup = "/system.slice/web.service";
  web.application = "web";
  web.rule = "services";
  Target clock;
  clock.id = {TargetKind::CpuSet, 22};
  clock.name = "cpus 0-3";
  clock.cpus = {0, 1, 2, 3};
  clock.application = "batch";
  clock.rule = "clock";

  Decision d = decision(1);
  d.stage = Stage::Offline;
  d.controller = Controller::Fallback;
  d.current.set(KnobKind::CpuLimit, kUnlimited);
  d.current.set(KnobKind::MemoryLimit, 1'073'741'824);
  d.proposed.set(KnobKind::CpuLimit, 1.5);
  d.proposed.set(KnobKind::MemoryLimit, 536'870'912);
  d.allowed = d.proposed;
  d.contexts = {{KnobKind::CpuLimit, 0.125, 4, {}}, {KnobKind::MemoryLimit, 67'108'864, 8'589'934'592, {}}};
  d.verdicts = {{"slew", KnobKind::CpuLimit, Verdict::Changed, 1, 1.5, "too fast"}};
  d.outcomes = {{KnobKind::CpuLimit, WriteStatus::Written, 1.5, 1.5, ""}};
  d.learning.state = step_of(Task::ResourceLimits, 5).state;
  d.learning.action = {0.5F, -0.25F};
  d.learning.fallback = {0.5F, 0.25F};
  journal.add(d, web);

  d = decision(2);
  d.stage = Stage::Serving;
  d.controller = Controller::Learned;
  d.model_version = 9;
  d.explored = true;
  d.exploration = "one level up";
  d.current.set(KnobKind::CpuFrequency, 1'800'000);
  d.proposed.set(KnobKind::CpuFrequency, 2'100'000);
  d.allowed = d.proposed;
  d.contexts = {{KnobKind::CpuFrequency, 1'200'000, 3'000'000, {1'200'000, 1'800'000, 2'100'000, 3'000'000}}};
  d.alternatives = {{"fallback", d.current, 0.5}};
  d.attributions = {{"cpu_usage", 0.5, 0.125}};
  d.learning.state = step_of(Task::CpuFrequency, 6).state;
  d.learning.action = {4};
  d.learning.fallback = {5};
  d.learning.end_of_episode = true;
  journal.add(d, clock);
  journal.flush(d.at);
}

void outbox(const std::string& path) {
  auto box = sync::Outbox::open(path, std::string(32, 'a'), 1000, nullptr);
  must(box);
  std::vector<sync::Outbox::Item> items;
  for (std::uint64_t n = 1; n <= 4; ++n) {
    items.push_back({kEpoch, {2 * n - 1, episode_of(Task::ResourceLimits, n)}});
    items.push_back({kEpoch, {2 * n, episode_of(Task::CpuFrequency, n)}});
  }
  must(box->add(items));
  must(box->confirm(3));
}

void coordinator_store(const std::string& path) {
  using namespace coordinator;
  auto store = Store::open(path, nullptr);
  must(store);
  std::vector<Arrived> arrived;
  for (const char* node : {"n1", "n2"})
    for (std::uint64_t n = 1; n <= 4; ++n)
      for (const Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
        const std::uint64_t seq = 2 * n - (task == Task::ResourceLimits ? 1 : 0);
        arrived.push_back({{"pool", node}, {std::string(32, node[1]), seq, seq - 1, episode_of(task, n)}});
      }
  must(store->commit(arrived, 1, {1'700'000'000'000'000'000, 17}));
  // The first two episodes of each agent become summaries.
  must(store->retain({.days = 1}, kBegin_us + 86'400'000'000 + 250'000'000));
  const FleetNode node{"n1", "pool", "flash-sync 0.1.0", "flashd 0.1.0", "control", 2, 5, kBegin_us + 1};
  const FleetCoordinator coordinator{"c1", 17, true, 4, kBegin_us + 2};
  must(store->save(std::span(&node, 1), std::span(&coordinator, 1), {kBegin_us, kBegin_us + 3}));
}

void hurts(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<HurtRecord> records = {
      {"services", "web.service", 3, 1, WallTime(std::chrono::seconds(1'800'000'000))},
      {"clock", "cpus 0-3", 0, 2, {}}};
  must(write_hurt_records(folder, records));
}

}  // namespace
}  // namespace flash::upgrade

int main(int argc, char** argv) {
  using namespace flash::upgrade;
  if (argc != 2 || !std::filesystem::create_directory(argv[1])) {
    std::fprintf(stderr, "usage: write_fixtures FOLDER, which it makes\n");
    return 2;
  }
  const std::string folder = argv[1];
  learner(folder + "/learner");
  inbox(folder + "/models");
  ledger(folder + "/ledger");
  journal(folder + "/journal");
  outbox(folder + "/outbox.db");
  coordinator_store(folder + "/store.db");
  hurts(folder + "/flashd");
  return 0;
}
