#include "link/sqlite.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

namespace flash::link::sqlite {
namespace {

std::errc code_of(int rc, int system) {
  switch (rc & 0xff) {
    case SQLITE_FULL:
      return std::errc::no_space_on_device;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      if (system == ENOSPC || system == EDQUOT) return std::errc::no_space_on_device;
      if (system == EACCES || system == EROFS || system == EPERM) return std::errc::permission_denied;
      return std::errc::io_error;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // our SQL fits our schema: somebody changed the file under us
    case SQLITE_SCHEMA:
      return std::errc::bad_message;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return std::errc::permission_denied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return std::errc::device_or_resource_busy;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
      // The schema and this program agree on what is possible; a row that breaks a rule was not written by
      // us.
      return std::errc::bad_message;
    default:
      return std::errc::io_error;
  }
}

Error error_of(std::string_view what, sqlite3* db, int rc, std::string_view doing) {
  std::string message = std::string(what) + ": " + std::string(doing) + ": ";
  message += db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  const int system = db ? sqlite3_system_errno(db) : 0;
  const bool files = (rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN;
  if (files && system) message += std::string(" (") + std::strerror(system) + ")";
  return Error(code_of(rc, system), std::move(message));
}

}  // namespace

// --- queries --------------------------------------------------------------------------------------------

Query::Query(Query&& other) noexcept
    : what_(other.what_),
      db_(other.db_),
      statement_(std::exchange(other.statement_, nullptr)),
      next_(other.next_) {}

Query::~Query() {
  if (!statement_) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query& Query::bind(std::int64_t v) {
  sqlite3_bind_int64(statement_, next_++, v);
  return *this;
}

Query& Query::bind(double v) {
  sqlite3_bind_double(statement_, next_++, v);
  return *this;
}

Query& Query::bind(std::string_view v) {
  sqlite3_bind_text64(statement_, next_++, v.data() ? v.data() : "", v.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Query& Query::bind(const std::vector<float>& v) {
  return bind_blob({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)});
}

Query& Query::bind_blob(std::string_view v) {
  if (v.empty())
    sqlite3_bind_zeroblob(statement_, next_++, 0);
  else
    sqlite3_bind_blob64(statement_, next_++, v.data(), v.size(), SQLITE_STATIC);
  return *this;
}

Query& Query::count(std::size_t v) {
  return bind(static_cast<std::int64_t>(std::min<std::size_t>(v, INT64_MAX)));
}

Result<bool> Query::row() {
  const int rc = sqlite3_step(statement_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return error_of(what_, db_, sqlite3_extended_errcode(db_), sqlite3_sql(statement_));
}

Result<void> Query::run() {
  FLASH_TRY(bool more, row());
  (void)more;
  return {};
}

std::int64_t Query::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Query::real(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::string Query::text(int column) const {
  const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return p ? std::string(p, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : "";
}

std::string Query::blob(int column) const {
  const auto* p = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return p ? std::string(p, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))) : "";
}

std::vector<float> Query::floats(int column) const {
  const std::string bytes = blob(column);
  std::vector<float> v(bytes.size() / sizeof(float));
  if (!v.empty()) std::memcpy(v.data(), bytes.data(), v.size() * sizeof(float));
  return v;
}

// --- the file -------------------------------------------------------------------------------------------

Error Database::damaged(std::string_view what) const {
  return Error(std::errc::bad_message, std::string(schema_.what) + ": " + std::string(what));
}

void Database::close() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  statements_.clear();
  sqlite3_close(db_);
  db_ = nullptr;
}

Result<void> Database::connect(int flags) {
  const int rc = sqlite3_open_v2(path_.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  if (rc != SQLITE_OK)
    return error_of(schema_.what, db_, db_ ? sqlite3_extended_errcode(db_) : rc, "open " + path_);
  sqlite3_extended_result_codes(db_, 1);
  sqlite3_busy_timeout(db_, 2000);
  // The file may be anybody's until it is known: its schema runs nothing.
  for (int option : {SQLITE_DBCONFIG_DEFENSIVE})
    sqlite3_db_config(db_, option, 1, static_cast<int*>(nullptr));
  for (int option :
       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW})
    sqlite3_db_config(db_, option, 0, static_cast<int*>(nullptr));
  return exec(
      "PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA cache_size=-2048; PRAGMA temp_store=MEMORY;");
}

/// true: an empty file, not ours yet.
Result<bool> Database::check_owner() {
  FLASH_TRY(std::int64_t tables, number("SELECT count(*) FROM sqlite_schema"));
  FLASH_TRY(std::int64_t application, number("PRAGMA application_id"));
  FLASH_TRY(std::int64_t version, number("PRAGMA user_version"));
  if (tables == 0 && application == 0 && version == 0) return true;
  if (application != schema_.application_id) return damaged("this is a database of another program");
  if (version > schema_.version)
    return Error(std::errc::protocol_not_supported,
                 path_ + " has schema " + std::to_string(version) + ", this " + std::string(schema_.program) +
                     " knows " + std::to_string(schema_.version) +
                     ": a newer one wrote it; install that, or move the file away");
  if (version < 1) return damaged("schema " + std::to_string(version) + " never existed");
  return false;
}

/// Only our tables, word for word: their constraints are what later code relies on. How many there are.
Result<int> Database::check_tables() {
  FLASH_TRY(Query q,
            query("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'"));
  int ours = 0;
  while (true) {
    FLASH_TRY(bool there, q.row());
    if (!there) break;
    if (schema_.sql.find(q.text(1) + ";") == std::string_view::npos)
      return damaged("'" + q.text(0) + "' is not as this schema has it");
    ++ours;
  }
  return ours;
}

Result<void> Database::all_tables() {
  FLASH_TRY(const int tables, check_tables());
  if (tables != schema_.tables) return damaged("a table is missing");
  return {};
}

/// What later versions have added.
Result<void> Database::upgrade() {
  FLASH_TRY(const std::int64_t version, number("PRAGMA user_version"));
  std::string sql;
  for (const Schema::Added& added : schema_.added_by) {
    if (added.version <= version) continue;
    const auto begin = schema_.sql.find("CREATE TABLE " + std::string(added.table) + "(");
    const auto end = schema_.sql.find(';', begin);
    sql.append(schema_.sql.substr(begin, end - begin)).append(";");
  }
  if (sql.empty()) return {};
  sql += "PRAGMA user_version=" + std::to_string(schema_.version) + ";";
  return transaction([&] { return exec(sql.c_str()); });
}

Result<void> Database::open_file() {
  FLASH_CHECK(connect(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  FLASH_TRY(const bool fresh, check_owner());
  if (fresh) FLASH_CHECK(exec("PRAGMA auto_vacuum=INCREMENTAL"));
  FLASH_CHECK(
      exec("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=OFF;"
           "PRAGMA wal_autocheckpoint=2000; PRAGMA journal_size_limit=16777216;"));
  FLASH_CHECK(exec(schema_.synced ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  if (fresh) {
    const std::string sql = std::string(schema_.sql) +
                            "PRAGMA application_id=" + std::to_string(schema_.application_id) +
                            "; PRAGMA user_version=" + std::to_string(schema_.version) + ";";
    return transaction([&] { return exec(sql.c_str()); });
  }
  FLASH_CHECK(check_tables());
  {
    FLASH_TRY(Query check, query("PRAGMA quick_check(1)"));
    FLASH_TRY(bool said, check.row());
    if (!said || check.text(0) != "ok")
      return damaged("quick_check: " + (said ? check.text(0) : "no answer"));
  }
  FLASH_CHECK(upgrade());
  return all_tables();
}

Result<std::string> Database::move_aside() {
  // What is in the WAL stays in the WAL, for whoever wants to save something.
  if (db_) sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, static_cast<int*>(nullptr));
  close();
  std::string aside;
  for (int n = 1;; ++n) {
    aside = path_ + ".damaged-" + std::to_string(n);
    if (access(aside.c_str(), F_OK) != 0) break;
  }
  if (rename(path_.c_str(), aside.c_str()) != 0) return Error::from_errno(errno, "rename " + path_);
  for (const char* part : {"-wal", "-shm"}) {
    if (rename((path_ + part).c_str(), (aside + part).c_str()) != 0 && errno != ENOENT)
      return Error::from_errno(errno, "rename " + path_ + part);
  }
  return aside;
}

Result<void> Database::open(const std::string& path, std::string* note) {
  path_ = path;
  Result<void> opened = open_file();
  if (opened || !opened.error().is(std::errc::bad_message)) return opened;
  return replace(opened.error().message(), note);
}

Result<void> Database::open_to_read(const std::string& path) {
  path_ = path;
  if (access(path.c_str(), F_OK) != 0) return Error::from_errno(errno, path);
  FLASH_CHECK(connect(SQLITE_OPEN_READONLY));
  FLASH_TRY(const bool fresh, check_owner());
  if (fresh) return damaged("there is nothing in it yet");
  return all_tables();
}

Result<void> Database::replace(const std::string& reason, std::string* note) {
  FLASH_TRY(std::string aside, move_aside());
  if (note) *note = reason + "; moved to " + aside + ", a new one was begun";
  return open_file();
}

Result<Query> Database::query(std::string_view sql) {
  auto found = statements_.find(sql);
  if (found == statements_.end()) {
    sqlite3_stmt* statement = nullptr;
    const int rc = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (rc != SQLITE_OK) return error_of(schema_.what, db_, sqlite3_extended_errcode(db_), "prepare");
    found = statements_.emplace(std::string(sql), statement).first;
  }
  return Query(schema_.what, db_, found->second);
}

Result<void> Database::exec(const char* sql) {
  char* text = nullptr;
  const int rc = sqlite3_exec(db_, sql, nullptr, nullptr, &text);
  sqlite3_free(text);
  if (rc != SQLITE_OK) return error_of(schema_.what, db_, sqlite3_extended_errcode(db_), sql);
  return {};
}

Result<std::int64_t> Database::number(std::string_view sql) {
  FLASH_TRY(Query q, query(sql));
  FLASH_TRY(bool there, q.row());
  return there ? q.integer(0) : 0;
}

std::uint64_t Database::changes() const {
  return static_cast<std::uint64_t>(sqlite3_changes(db_));
}

Result<void> Database::transaction(const std::function<Result<void>()>& body) {
  FLASH_CHECK(exec("BEGIN IMMEDIATE"));
  Result<void> done = body();
  if (done) done = exec("COMMIT");
  if (!done && !sqlite3_get_autocommit(db_)) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<void> Database::checkpoint() {
  const int rc = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
    return error_of(schema_.what, db_, sqlite3_extended_errcode(db_), "checkpoint");
  return {};
}

}  // namespace flash::link::sqlite
