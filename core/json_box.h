// Purpose: a JSON value as a member of a struct whose header does not parse nlohmann/json.hpp, which takes a
// second of every file that includes it. Who looks into the value includes json.hpp itself.
// Ownership: a box owns its value; a copy is a deep copy; never empty.
// Thread rule: a value.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace flash {

class JsonBox {
 public:
  JsonBox();  // an empty object
  JsonBox(const JsonBox& other);
  JsonBox(JsonBox&& other) noexcept;  // `other` may only be assigned to or destroyed then
  JsonBox& operator=(JsonBox other) noexcept;
  ~JsonBox();

  nlohmann::json& operator*() { return *value_; }
  const nlohmann::json& operator*() const { return *value_; }
  nlohmann::json* operator->() { return value_.get(); }
  const nlohmann::json* operator->() const { return value_.get(); }
  /// The member `key`, made null if there is none. REQUIRES: an object.
  nlohmann::json& operator[](std::string_view key);
  /// REQUIRES: there is one.
  const nlohmann::json& operator[](std::string_view key) const;

 private:
  std::unique_ptr<nlohmann::json> value_;
};

}  // namespace flash
