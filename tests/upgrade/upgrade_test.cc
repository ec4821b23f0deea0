// Files that flashd, flash-sync and flash-coordinator of earlier versions wrote: each is opened, and what was in it is there.
// What needs libtorch is in upgrade_learner_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "actuators/ledger.h"
#include "coordinator/messages.h"
#include "coordinator/store.h"
#include "core/policy_snapshot.h"
#include "core/tensor_file.h"
#include "daemon/hurt_records.h"
#include "daemon/journal_reader.h"
#include "sync/outbox.h"
#include "tests/upgrade/fixtures.h"

namespace flash::upgrade {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Task kTasks[] = {Task::ResourceLimits, Task::CpuFrequency};

class Upgrade : public ::testing::Test {
 protected:
  Files files_{"v0.1.0"};
};

TEST_F(Upgrade, TheLedgerSaysWhatEveryKnobWas) {
  auto ledger = Ledger::open(files_.at("ledger"), "boot-1");
  ASSERT_TRUE(ledger) << ledger.error().message();
  EXPECT_THAT(ledger->problems(), IsEmpty());
  EXPECT_TRUE(ledger->keep());
  EXPECT_EQ(ledger->keep_reason(), "the rule says keep");
  ASSERT_EQ(ledger->entries().size(), 3u);
  const LedgerEntry* cpu = ledger->find(
      KnobRef{KnobKind::CpuLimit, {TargetKind::Cgroup, 11}, "cgroupfs", "2 /system.slice/web.service"});
  ASSERT_NE(cpu, nullptr);
  EXPECT_EQ(cpu->original, kUnlimited);
  EXPECT_EQ(cpu->raw, "max 100000");
  EXPECT_EQ(cpu->confirmed, 1.5);
  EXPECT_FALSE(cpu->open_intent);
  EXPECT_FALSE(cpu->doubtful);
  EXPECT_EQ(cpu->when_s, 1'700'000'000);
  const LedgerEntry* memory =
      ledger->find(KnobRef{KnobKind::MemoryLimit, {TargetKind::Cgroup, 11}, "systemd", "web.service"});
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->original, 1'073'741'824);
  EXPECT_EQ(memory->intended, 536'870'912);
  EXPECT_TRUE(memory->open_intent);
  EXPECT_TRUE(std::isnan(memory->confirmed));
  const LedgerEntry* clock =
      ledger->find(KnobRef{KnobKind::CpuFrequency, {TargetKind::CpuSet, 22}, "cpufreq", "policy0,policy\t4"});
  ASSERT_NE(clock, nullptr);
  EXPECT_EQ(clock->original, 3'000'000);
  EXPECT_EQ(clock->raw, "800000 3000000 schedutil");
  EXPECT_EQ(clock->confirmed, 2'100'000);
}

TEST_F(Upgrade, TheLedgerOfAnotherBootIsSetAside) {
  auto ledger = Ledger::open(files_.at("ledger"), "boot-2");
  ASSERT_TRUE(ledger) << ledger.error().message();
  EXPECT_THAT(ledger->problems(), IsEmpty());
  EXPECT_THAT(ledger->entries(), IsEmpty());
  EXPECT_EQ(ledger->previous_boot().size(), 3u);
}

TEST_F(Upgrade, TheJournalCanBeReplayed) {
  std::vector<JournalEntry> entries;
  const auto read = read_journal(files_.at("journal"), [&](const JournalEntry& e) -> Result<void> {
    entries.push_back(e);
    return {};
  });
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->lines, 2u);
  EXPECT_EQ(read->half_lines, 0u);
  ASSERT_EQ(entries.size(), 2u);
  const JournalEntry& web = entries[0];
  EXPECT_EQ(web.seq, 1u);
  EXPECT_EQ(web.time_us, kBegin_us + 1'000'000);
  EXPECT_EQ(web.task, Task::ResourceLimits);
  EXPECT_EQ(web.target, "web.service");
  EXPECT_EQ(web.agent, "limits_11");
  EXPECT_EQ(web.cgroup, "/system.slice/web.service");
  EXPECT_EQ(web.application, "web");
  EXPECT_EQ(web.controller, Controller::Fallback);
  EXPECT_FALSE(web.explored);
  EXPECT_EQ(web.current[KnobKind::CpuLimit], kUnlimited);
  EXPECT_EQ(web.current[KnobKind::MemoryLimit], 1'073'741'824);
  EXPECT_EQ(web.proposed[KnobKind::CpuLimit], 1.5);
  EXPECT_EQ(web.proposed[KnobKind::MemoryLimit], 536'870'912);
  EXPECT_FALSE(web.proposed.has(KnobKind::CpuFrequency));
  ASSERT_EQ(web.contexts.size(), 2u);
  EXPECT_EQ(web.contexts[1].knob, KnobKind::MemoryLimit);
  EXPECT_EQ(web.contexts[1].lower, 67'108'864);
  EXPECT_EQ(web.contexts[1].upper, 8'589'934'592);
  EXPECT_THAT(web.state, ElementsAre(0.9375F, 0.1875F, 0.5F, 0.8125F, 0.0625F, 0.375F, 0.6875F, 1.0F, 0.25F));
  EXPECT_TRUE(web.state_trusted);
  const JournalEntry& clock = entries[1];
  EXPECT_EQ(clock.task, Task::CpuFrequency);
  EXPECT_EQ(clock.agent, "frequency_22");
  EXPECT_EQ(clock.controller, Controller::Learned);
  EXPECT_EQ(clock.model_version, 9u);
  EXPECT_TRUE(clock.explored);
  EXPECT_EQ(clock.current[KnobKind::CpuFrequency], 1'800'000);
  EXPECT_EQ(clock.proposed[KnobKind::CpuFrequency], 2'100'000);
  ASSERT_EQ(clock.contexts.size(), 1u);
  EXPECT_THAT(clock.contexts[0].steps, ElementsAre(1'200'000, 1'800'000, 2'100'000, 3'000'000));
  EXPECT_THAT(clock.state, ElementsAre(0.0625F, 0.4375F, 0.8125F, 0.125F, 0.5F, 0.875F, 0.1875F, 0.5625F,
                                       0.9375F, 0.25F, 0.625F, 1.0F, 0.3125F, 0.6875F));
}

TEST_F(Upgrade, HurtRecordsAreThere) {
  const auto read = read_hurt_records(files_.at("flashd"));
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].rule, "services");
  EXPECT_EQ((*read)[0].target, "web.service");
  EXPECT_EQ((*read)[0].hurts, 3u);
  EXPECT_EQ((*read)[0].failures, 1u);
  EXPECT_EQ((*read)[0].out_until, WallTime(std::chrono::seconds(1'800'000'000)));
  EXPECT_EQ((*read)[1].rule, "clock");
  EXPECT_EQ((*read)[1].failures, 2u);
}

TEST_F(Upgrade, PoliciesFitTheirTasks) {
  struct Row {
    const char* file;
    Task task;
    int state, actions;
    std::uint64_t version, steps;
    const char *model, *algorithm;
    float first, last;  // of the actor's weights
    float mean, sigma, epsilon;
  };
  const Row rows[] = {
      {"b3cdecc5ea54a6645c08f867a6a82f01", Task::ResourceLimits, 9, 2, 11, 127, "ddpg, seed 1, 313 updates",
       "ddpg", 0.281753302F, 0.00149201707F, 0.512842476F, 0.198650002F, 0},
      {"e56126a6ab4b9ba51cb741189f0a9fdc", Task::CpuFrequency, 14, 11, 12, 127,
       "q-learning, seed 1, 313 updates", "q-learning", -0.191090003F, -0.00178533187F, 0.512842476F, 0,
       0.198650002F},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.algorithm);
    const auto file = read_tensor_file(files_.at("learner/policies/") + row.file + ".policy");
    ASSERT_TRUE(file) << file.error().message();
    const auto policy = to_policy(*file);
    ASSERT_TRUE(policy) << policy.error().message();
    EXPECT_TRUE(policy->validate(row.state, row.actions));
    EXPECT_EQ(policy->task, row.task);
    EXPECT_EQ(policy->version, row.version);
    EXPECT_EQ(policy->data_steps, row.steps);
    EXPECT_EQ(policy->model, row.model);
    EXPECT_EQ(policy->algorithm, row.algorithm);
    EXPECT_EQ(policy->actor.front().weights.front(), row.first);
    EXPECT_EQ(policy->actor.back().weights.back(), row.last);
    EXPECT_EQ(policy->mean.front(), row.mean);
    EXPECT_EQ(policy->exploration.sigma, row.sigma);
    EXPECT_EQ(policy->exploration.epsilon, row.epsilon);
  }
}

TEST_F(Upgrade, TheOutboxStillHasWhatTheCoordinatorHasNot) {
  std::string note;
  auto box = sync::Outbox::open(files_.at("outbox.db"), std::string(32, 'f'), 1000, &note);
  ASSERT_TRUE(box) << box.error().message();
  EXPECT_EQ(note, "");
  EXPECT_EQ(box->run(), std::string(32, 'a'));
  EXPECT_EQ(box->counts().taken, 8u);
  EXPECT_EQ(box->counts().confirmed, 3u);
  EXPECT_EQ(box->counts().waiting, 5u);
  const auto rows = box->after(0, 100);
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 5u);
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const auto& row = (*rows)[i];
    const auto record =
        coordinator::decode_record(coordinator::encode_record(box->run(), row.seq, row.prev, row.episode));
    ASSERT_TRUE(record) << record.error().message();
    EXPECT_EQ(record->seq, i + 4);
    EXPECT_EQ(record->prev, i == 0 ? 0 : i + 3);
    EXPECT_EQ(record->episode, episode_of(kTasks[(i + 1) % 2], (i + 5) / 2));
  }
  // What flashd says again was taken already, also what is confirmed.
  const sync::Outbox::Item again{kEpoch, {2, episode_of(Task::CpuFrequency, 1)}};
  ASSERT_TRUE(box->add(std::span(&again, 1)));
  EXPECT_EQ(box->counts().taken, 8u);
}

TEST_F(Upgrade, TheCoordinatorsStoreKnowsItsFleet) {
  using namespace coordinator;
  std::string note;
  auto store = Store::open(files_.at("store.db"), &note);
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ(note, "");
  EXPECT_EQ(*store->position(), (Position{1'700'000'000'000'000'000, 17}));
  const auto counts = store->counts();
  ASSERT_TRUE(counts) << counts.error().message();
  EXPECT_EQ(counts->records, 16u);
  EXPECT_EQ(counts->refused, 1u);
  EXPECT_EQ(counts->thinned, 8u);
  const auto agents = store->agents();
  ASSERT_TRUE(agents) << agents.error().message();
  ASSERT_EQ(agents->size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const FleetAgent& a = (*agents)[i];
    EXPECT_EQ(a.node, i < 2 ? "n1" : "n2");
    EXPECT_EQ(a.pool, "pool");
    EXPECT_EQ(a.latest, episode_of(kTasks[(i + 1) % 2], 4));  // "cpu-frequency:..." comes first
    EXPECT_EQ(a.records, 4u);
    EXPECT_EQ(a.episodes_to_serving, 3u);
    EXPECT_EQ(a.first_us, kBegin_us + 100'000'000);
    ASSERT_TRUE(a.drift);
    EXPECT_NEAR(*a.drift, 2.71, 1e-6);  // 4 from the running mean: 1, 1.1, 1.29
  }
  const auto marks = store->marks();
  ASSERT_TRUE(marks) << marks.error().message();
  ASSERT_EQ(marks->size(), 2u);
  EXPECT_EQ((*marks)[0].run, std::string(32, '1'));
  EXPECT_EQ((*marks)[0].watermark, 8u);
  const auto history = store->history_after(0, 100);
  ASSERT_TRUE(history) << history.error().message();
  EXPECT_EQ(history->size(), 8u);  // the other eight are summaries
  const auto nodes = store->nodes();
  ASSERT_TRUE(nodes) << nodes.error().message();
  EXPECT_THAT(*nodes, ElementsAre(FleetNode{"n1", "pool", "flash-sync 0.1.0", "flashd 0.1.0", "control", 2, 5,
                                            kBegin_us + 1}));
  const auto coordinators = store->coordinators();
  ASSERT_TRUE(coordinators) << coordinators.error().message();
  ASSERT_EQ(coordinators->size(), 1u);
  EXPECT_EQ((*coordinators)[0].lease, 4u);
  EXPECT_EQ(store->watch()->until_us, kBegin_us + 3);
  // A record that comes again is known, also one that became a summary.
  std::vector<Arrived> again;
  for (const std::uint64_t seq : {1u, 7u})
    again.push_back({{"pool", "n1"},
                     {std::string(32, '1'), seq, seq - 1, episode_of(Task::ResourceLimits, (seq + 1) / 2)}});
  const auto committed = store->commit(again, 0, {1'700'000'000'000'000'000, 19});
  ASSERT_TRUE(committed) << committed.error().message();
  EXPECT_EQ(committed->duplicates, 2u);
  EXPECT_EQ(committed->fresh, 0u);
}

}  // namespace
}  // namespace flash::upgrade
