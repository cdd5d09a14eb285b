#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace driftless::cli {

/// Text in quotes. Bytes that are not UTF-8, such as those of a token that ends within a character, become U+FFFD.
std::string jsonText(std::string_view text);

/// The fewest digits that read back as the same number; null for what is not finite.
std::string jsonText(double number);

template <std::integral Number>
std::string jsonText(Number number) {
  return std::to_string(number);
}

template <class Value>
std::string jsonText(const std::optional<Value>& value) {
  return value ? jsonText(*value) : "null";
}

template <class Value>
std::string jsonText(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ",") + jsonText(value);
  return "[" + text + "]";
}

/// A JSON object with its members in the order in which they were added.
class JsonObject {
 public:
  template <class Value>
  JsonObject& add(std::string_view key, const Value& value) {
    return addMember(key, jsonText(value));
  }

  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonObject& addMember(std::string_view key, std::string_view json);

  std::string members_;
};

inline std::string jsonText(const JsonObject& object) { return object.text(); }

}  // namespace driftless::cli
