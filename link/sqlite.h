// Purpose: SQLite as this project uses it: one file with one program's own schema, WAL, transactions,
// statements kept prepared; a file that is damaged or somebody else's is moved aside, never deleted.
// Ownership: Database owns the connection and its statements; a Query borrows both.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace flash::link::sqlite {

struct Schema {
  std::string_view what;     // "trajectory store": every error begins with it
  std::string_view program;  // whose schema it is: "flash-learner"
  int application_id = 0;    // a database of somebody else is not ours to write to
  int version = 1;
  std::string_view sql;  // CREATE TABLE statements, as sqlite_schema keeps them
  int tables = 0;
  /// A commit is on the disk when it returns. Without: consistent, but a power cut may take the last ones.
  bool synced = false;
  /// Tables that a later version than the first has added. A file of an earlier one gets them, empty, when it is opened.
  struct Added {
    int version;
    std::string_view table;
  };
  std::span<const Added> added_by = {};
};

/// A prepared statement in use; resets it when it goes.
class Query {
 public:
  Query(std::string_view what, sqlite3* db, sqlite3_stmt* statement)
      : what_(what), db_(db), statement_(statement) {}
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;
  ~Query();

  Query& bind(std::int64_t v);
  Query& bind(double v);
  // The text or array outlives the query: not copied.
  Query& bind(std::string_view v);
  Query& bind(const std::vector<float>& v);
  Query& bind_blob(std::string_view v);
  Query& count(std::size_t v);

  /// true: a row is there.
  Result<bool> row();
  Result<void> run();

  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::string blob(int column) const;
  std::vector<float> floats(int column) const;

 private:
  std::string_view what_;
  sqlite3* db_;
  sqlite3_stmt* statement_;
  int next_ = 1;
};

class Database {
 public:
  explicit Database(Schema schema) : schema_(schema) {}
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() { close(); }

  /// Creates what is missing. EPROTONOSUPPORT: the file is of a newer schema (the reason names both). ENOSPC,
  /// EIO, EACCES as they are. A damaged or foreign file is moved aside to PATH.damaged-N; `note` says so.
  Result<void> open(const std::string& path, std::string* note);
  /// What is there, to look at while its owner writes. ENOENT, and EBADMSG where it is not ours.
  Result<void> open_to_read(const std::string& path);
  /// After EBADMSG: moves the file aside as open() does and starts a new one.
  Result<void> replace(const std::string& reason, std::string* note);

  Result<Query> query(std::string_view sql);
  Result<void> exec(const char* sql);
  /// The first column of the first row; 0: there is none.
  Result<std::int64_t> number(std::string_view sql);
  /// Rows that the last INSERT, UPDATE or DELETE touched.
  std::uint64_t changes() const;
  /// Runs `body` as one transaction; undone as a whole when it or the commit fails.
  Result<void> transaction(const std::function<Result<void>()>& body);
  /// WAL into the file, without waiting for readers.
  Result<void> checkpoint();
  /// EBADMSG with these words.
  Error damaged(std::string_view what) const;

 private:
  Result<void> connect(int flags);
  Result<bool> check_owner();
  Result<int> check_tables();
  Result<void> all_tables();
  Result<void> upgrade();
  Result<void> open_file();
  Result<std::string> move_aside();
  void close();

  Schema schema_;
  std::string path_;
  sqlite3* db_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

}  // namespace flash::link::sqlite
