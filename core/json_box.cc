#include "core/json_box.h"

#include <string>
#include <utility>
#include "core/json.h"

namespace flash {

JsonBox::JsonBox() : value_(std::make_unique<nlohmann::json>(nlohmann::json::object())) {}
JsonBox::JsonBox(const JsonBox& other) : value_(std::make_unique<nlohmann::json>(*other.value_)) {}
JsonBox::JsonBox(JsonBox&& other) noexcept = default;
JsonBox& JsonBox::operator=(JsonBox other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
JsonBox::~JsonBox() = default;

nlohmann::json& JsonBox::operator[](std::string_view key) {
  return (*value_)[std::string(key)];
}

const nlohmann::json& JsonBox::operator[](std::string_view key) const {
  return value_->at(std::string(key));
}

}  // namespace flash
