// The trajectory store's file as somebody left it: whatever is in it, opening ends with a store that works or
// with an error, and the file is never deleted. An input that begins with 0xff is the file; any other patches
// a good one, three bytes each: where (in 16 bytes) and what.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "fuzz/require.h"
#include "learner/trajectory_store.h"

namespace {

using namespace flash;
namespace fs = std::filesystem;

link::Announce agent() {
  link::Announce a;
  a.agent = "limits_1";
  a.key = "resource-limits:/web";
  a.layout.state = {"a", "b"};
  a.layout.actions = {"cpu-limit"};
  return a;
}

void live(TrajectoryStore& store, std::uint64_t steps) {
  auto run = store.begin_run(agent(), 7);
  if (!run) return;
  for (std::uint64_t i = 1; i <= steps; ++i) {
    link::Step s;
    s.agent = "limits_1";
    s.seq = run->last_seq + i;
    s.episode = s.seq / 10;
    s.end_of_episode = s.seq % 10 == 9;
    s.state = {1, 2};
    s.action = {0.5F};
    s.state_trusted = s.reward_given = s.reward_trusted = true;
    const std::vector<TrajectoryStore::Entry> entries = {{run->id, &s}};
    if (!store.append(entries)) return;
  }
}

struct Folder {
  std::string path;
  Folder() {
    std::string pattern =
        (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) / "flash-fuzz-XXXXXX";
    FUZZ_REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

const std::string& good_file() {
  static const std::string bytes = [] {
    Folder folder;
    {
      auto store = TrajectoryStore::open(folder.path + "/t", nullptr);
      FUZZ_REQUIRE(store);
      live(*store, 40);
    }
    std::ifstream file(folder.path + "/t", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes;
  if (size > 0 && data[0] == 0xff) {
    bytes.assign(reinterpret_cast<const char*>(data + 1), size - 1);
  } else {
    bytes = good_file();
    for (std::size_t i = 0; i + 3 <= size; i += 3)
      bytes[(data[i] * 256U + data[i + 1]) * 16U % bytes.size() + data[i + 2] % 16U] =
          static_cast<char>(data[i + 2]);
  }
  Folder folder;
  const std::string path = folder.path + "/t";
  std::ofstream(path, std::ios::binary) << bytes;
  std::string note;
  auto store = TrajectoryStore::open(path, &note);
  if (!store) return 0;
  FUZZ_REQUIRE(note.empty() || fs::exists(path + ".damaged-1"));
  live(*store, 3);
  // Whatever they say, they say it.
  (void)store->last_seq("resource-limits:/web", 7, "limits_1");
  (void)store->recent_rewards("resource-limits:/web", 100);
  (void)store->recent_transitions("resource-limits:/web", 100, agent().layout);
  if (auto selection = store->select_trajectories("resource-limits:/web", agent().layout, 4))
    for (const EpisodeSummary& e : selection->best) (void)store->trajectory(e.id);
  (void)store->counts();
  (void)store->verify();
  (void)store->retain(0.001, 1, 1'000'000);
  return 0;
}
