#include "sync/outbox.h"

#include <utility>

#include "coordinator/messages.h"
#include "link/sqlite.h"

namespace flash::sync {

using link::sqlite::Query;

namespace {

constexpr link::sqlite::Schema kSchema{.what = "outbox",
                                       .program = "flash-sync",
                                       .application_id = 0x464c534f,  // "FLSO"
                                       .version = 1,
                                       .sql = R"sql(
CREATE TABLE records(seq INTEGER PRIMARY KEY AUTOINCREMENT, episode BLOB NOT NULL) STRICT;
CREATE TABLE state(
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, number INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0, confirmed INTEGER NOT NULL DEFAULT 0, thinned INTEGER NOT NULL DEFAULT 0) STRICT;
)sql",
                                       .tables = 2,
                                       .synced = true};

}  // namespace

struct Outbox::Impl {
  link::sqlite::Database db{kSchema};
  std::size_t max_records = 0;
  std::string run;
  std::int64_t epoch = 0, number = 0;  // of flashd's last episode that was taken
  OutboxCounts counts;

  Result<void> load(const std::string& fresh_run);
  Result<void> insert(const Item& item);
  Result<void> thin();
  Result<void> save();
  Result<void> change(const std::function<Result<void>()>& body);
};

Outbox::Outbox(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Outbox::Outbox(Outbox&&) noexcept = default;
Outbox& Outbox::operator=(Outbox&&) noexcept = default;
Outbox::~Outbox() = default;

Result<void> Outbox::Impl::load(const std::string& fresh_run) {
  FLASH_TRY(Query make, db.query("INSERT OR IGNORE INTO state(id, run) VALUES(1, ?)"));
  FLASH_CHECK(make.bind(fresh_run).run());
  FLASH_TRY(Query q, db.query("SELECT run, epoch, number, taken, confirmed, thinned, "
                              "(SELECT count(*) FROM records) FROM state"));
  FLASH_TRY(const bool there, q.row());
  if (!there) return db.damaged("it has no state");
  run = q.text(0);
  epoch = q.integer(1);
  number = q.integer(2);
  counts.taken = static_cast<std::uint64_t>(q.integer(3));
  counts.confirmed = static_cast<std::uint64_t>(q.integer(4));
  counts.thinned = static_cast<std::uint64_t>(q.integer(5));
  counts.waiting = static_cast<std::uint64_t>(q.integer(6));
  return {};
}

Result<void> Outbox::Impl::save() {
  FLASH_TRY(Query q,
            db.query("UPDATE state SET epoch = ?, number = ?, taken = ?, confirmed = ?, thinned = ?"));
  q.bind(epoch).bind(number).count(counts.taken).count(counts.confirmed).count(counts.thinned);
  return q.run();
}

/// One transaction; where it fails, memory says what the disk says.
Result<void> Outbox::Impl::change(const std::function<Result<void>()>& body) {
  const auto before = std::tuple(epoch, number, counts);
  Result<void> done = db.transaction([&]() -> Result<void> {
    FLASH_CHECK(body());
    return save();
  });
  if (!done) std::tie(epoch, number, counts) = before;
  return done;
}

Result<void> Outbox::Impl::insert(const Item& item) {
  const auto item_epoch = static_cast<std::int64_t>(item.epoch);
  const auto item_number = static_cast<std::int64_t>(item.episode.number);
  if (item_epoch == epoch && item_number <= number) return {};
  const std::string bytes = coordinator::encode_episode(item.episode.episode);
  FLASH_TRY(Query q, db.query("INSERT INTO records(episode) VALUES(?)"));
  FLASH_CHECK(q.bind_blob(bytes).run());
  epoch = item_epoch;
  number = item_number;
  ++counts.taken;
  ++counts.waiting;
  return {};
}

Result<void> Outbox::Impl::thin() {
  if (counts.waiting <= max_records) return {};
  FLASH_TRY(Query q, db.query("DELETE FROM records WHERE seq IN (SELECT seq FROM "
                              "(SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM records) "
                              "WHERE n <= ? AND n % 2 = 0)"));
  FLASH_CHECK(q.count(max_records / 2).run());
  counts.thinned += db.changes();
  counts.waiting -= db.changes();
  return {};
}

Result<Outbox> Outbox::open(const std::string& path, const std::string& fresh_run, std::size_t max_records,
                            std::string* note) {
  auto impl = std::make_unique<Impl>();
  impl->max_records = max_records;
  FLASH_CHECK(impl->db.open(path, note));
  FLASH_CHECK(impl->load(fresh_run));
  return Outbox(std::move(impl));
}

const std::string& Outbox::run() const {
  return impl_->run;
}

const OutboxCounts& Outbox::counts() const {
  return impl_->counts;
}

Result<void> Outbox::add(std::span<const Item> items) {
  if (items.empty()) return {};
  return impl_->change([&]() -> Result<void> {
    for (const Item& item : items) FLASH_CHECK(impl_->insert(item));
    return impl_->thin();
  });
}

Result<std::vector<Outbox::Row>> Outbox::after(std::uint64_t seq, std::size_t most) const {
  FLASH_TRY(Query before, impl_->db.query("SELECT max(seq) FROM records WHERE seq <= ?"));
  FLASH_TRY(const bool any, before.count(seq).row());
  std::uint64_t prev = any ? static_cast<std::uint64_t>(before.integer(0)) : 0;
  FLASH_TRY(Query q, impl_->db.query("SELECT seq, episode FROM records WHERE seq > ? ORDER BY seq LIMIT ?"));
  q.count(seq).count(most);
  std::vector<Row> rows;
  while (true) {
    FLASH_TRY(const bool there, q.row());
    if (!there) return rows;
    rows.push_back({static_cast<std::uint64_t>(q.integer(0)), prev, q.blob(1)});
    prev = rows.back().seq;
  }
}

Result<void> Outbox::confirm(std::uint64_t seq) {
  return impl_->change([&]() -> Result<void> {
    FLASH_TRY(Query q, impl_->db.query("DELETE FROM records WHERE seq <= ?"));
    FLASH_CHECK(q.count(seq).run());
    impl_->counts.confirmed += impl_->db.changes();
    impl_->counts.waiting -= impl_->db.changes();
    return {};
  });
}

}  // namespace flash::sync
