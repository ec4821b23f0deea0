#include "coordinator/identity_store.h"

#include <utility>

#include "coordinator/durable_file.h"
#include "link/sqlite.h"

namespace flash::coordinator {

using link::sqlite::Database;
using link::sqlite::Query;

namespace {

constexpr link::sqlite::Schema kSchema{.what = "coordinator's identities",
                                       .program = "flash-coordinator",
                                       .application_id = 0x464c4349,  // "FLCI"
                                       .version = 1,
                                       .sql = R"sql(
CREATE TABLE tokens(
  key TEXT PRIMARY KEY, node TEXT NOT NULL, issued INTEGER NOT NULL, expires INTEGER NOT NULL,
  used_by TEXT NOT NULL DEFAULT '', void INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE credentials(
  key TEXT PRIMARY KEY, node TEXT NOT NULL, enrolled INTEGER NOT NULL, issued INTEGER NOT NULL,
  expires INTEGER NOT NULL, revoked INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE counts(
  id INTEGER PRIMARY KEY, enrolled INTEGER NOT NULL, renewed INTEGER NOT NULL, refused INTEGER NOT NULL) STRICT;
)sql",
                                       .tables = 3,
                                       .synced = true};

Error refused(const std::string& why) {
  return {std::errc::permission_denied, why};
}

}  // namespace

struct IdentityStore::Impl {
  Database db{kSchema};

  Result<void> use_token(const std::string& token, const NodeCredentials& c);
  Result<void> keep(const NodeCredentials& c);
};

IdentityStore::IdentityStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
IdentityStore::IdentityStore(IdentityStore&&) noexcept = default;
IdentityStore& IdentityStore::operator=(IdentityStore&&) noexcept = default;
IdentityStore::~IdentityStore() = default;

Result<IdentityStore> IdentityStore::open(const std::string& path, std::string* note) {
  // Two that make it at once would each take the other's beginning for a damaged file.
  FLASH_TRY(const FileLock lock, FileLock::of(path + ".lock"));
  auto impl = std::make_unique<Impl>();
  FLASH_CHECK(impl->db.open(path, note));
  FLASH_CHECK(impl->db.exec("INSERT OR IGNORE INTO counts VALUES(1, 0, 0, 0)"));
  return IdentityStore(std::move(impl));
}

Result<IdentityStore> IdentityStore::open_to_read(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  FLASH_CHECK(impl->db.open_to_read(path));
  return IdentityStore(std::move(impl));
}

Result<void> IdentityStore::add(const IssuedToken& t) {
  FLASH_TRY(Query q, impl_->db.query("INSERT INTO tokens(key, node, issued, expires) VALUES(?, ?, ?, ?)"));
  return q.bind(t.key).bind(t.node).bind(t.issued).bind(t.expires).run();
}

Result<void> IdentityStore::Impl::use_token(const std::string& token, const NodeCredentials& c) {
  FLASH_TRY(Query q, db.query("SELECT node, expires, used_by, void FROM tokens WHERE key = ?"));
  q.bind(token);
  FLASH_TRY(const bool known, q.row());
  if (!known) return refused("the token is not known");
  if (q.text(0) != c.node) return refused("the token is another node's");
  if (q.integer(3) != 0) return refused("the token is void: " + c.node + " was revoked after it was made");
  if (q.integer(1) <= c.issued) return refused("the token has expired");
  const std::string used_by = q.text(2);
  if (!used_by.empty() && used_by != c.key) return refused("the token was used already");
  FLASH_TRY(Query use, db.query("UPDATE tokens SET used_by = ? WHERE key = ?"));
  return use.bind(c.key).bind(token).run();
}

Result<void> IdentityStore::Impl::keep(const NodeCredentials& c) {
  FLASH_TRY(Query q,
            db.query("INSERT INTO credentials(key, node, enrolled, issued, expires) VALUES(?, ?, ?, ?, ?) "
                     "ON CONFLICT(key) DO UPDATE SET issued = excluded.issued, expires = excluded.expires "
                     "WHERE node = excluded.node AND revoked = 0"));
  FLASH_CHECK(q.bind(c.key).bind(c.node).bind(c.issued).bind(c.issued).bind(c.expires).run());
  return db.changes() == 1 ? Result<void>() : refused("the key is another node's, or revoked");
}

Result<void> IdentityStore::enroll(const std::string& token, const NodeCredentials& c) {
  return impl_->db.transaction([&]() -> Result<void> {
    FLASH_CHECK(impl_->use_token(token, c));
    FLASH_CHECK(impl_->keep(c));
    return impl_->db.exec("UPDATE counts SET enrolled = enrolled + 1");
  });
}

Result<void> IdentityStore::renew(const NodeCredentials& c) {
  return impl_->db.transaction([&]() -> Result<void> {
    FLASH_TRY(Query q, impl_->db.query("UPDATE credentials SET issued = ?, expires = ? "
                                       "WHERE key = ? AND node = ? AND revoked = 0"));
    FLASH_CHECK(q.bind(c.issued).bind(c.expires).bind(c.key).bind(c.node).run());
    if (impl_->db.changes() != 1) return refused(c.node + " has no such key, or it is revoked");
    return impl_->db.exec("UPDATE counts SET renewed = renewed + 1");
  });
}

Result<void> IdentityStore::count_refused() {
  return impl_->db.exec("UPDATE counts SET refused = refused + 1");
}

Result<std::vector<std::string>> IdentityStore::revoke(const std::string& node, std::int64_t now) {
  std::vector<std::string> keys;
  FLASH_CHECK(impl_->db.transaction([&]() -> Result<void> {
    FLASH_TRY(Query good, impl_->db.query("SELECT key FROM credentials WHERE node = ? AND revoked = 0"));
    good.bind(node);
    while (true) {
      FLASH_TRY(const bool more, good.row());
      if (!more) break;
      keys.push_back(good.text(0));
    }
    FLASH_TRY(Query q, impl_->db.query("UPDATE credentials SET revoked = ? WHERE node = ? AND revoked = 0"));
    FLASH_CHECK(q.bind(now).bind(node).run());
    FLASH_TRY(Query tokens, impl_->db.query("UPDATE tokens SET void = 1 WHERE node = ? AND used_by = ''"));
    return tokens.bind(node).run();
  }));
  return keys;
}

Result<std::vector<NodeCredentials>> IdentityStore::credentials() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT key, node, enrolled, issued, expires, revoked FROM credentials "
                                     "ORDER BY node, enrolled, key"));
  std::vector<NodeCredentials> all;
  while (true) {
    FLASH_TRY(const bool more, q.row());
    if (!more) return all;
    all.push_back({q.text(0), q.text(1), q.integer(2), q.integer(3), q.integer(4), q.integer(5)});
  }
}

Result<std::vector<IssuedToken>> IdentityStore::tokens() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT key, node, issued, expires, used_by FROM tokens "
                                     "WHERE used_by = '' AND void = 0 ORDER BY node, issued"));
  std::vector<IssuedToken> all;
  while (true) {
    FLASH_TRY(const bool more, q.row());
    if (!more) return all;
    all.push_back({q.text(0), q.text(1), q.integer(2), q.integer(3), q.text(4)});
  }
}

Result<IdentityCounts> IdentityStore::counts() const {
  FLASH_TRY(Query q, impl_->db.query("SELECT enrolled, renewed, refused FROM counts"));
  FLASH_TRY(const bool there, q.row());
  if (!there) return IdentityCounts{};
  const auto count = [&](int column) { return static_cast<std::uint64_t>(q.integer(column)); };
  return IdentityCounts{count(0), count(1), count(2)};
}

}  // namespace flash::coordinator
