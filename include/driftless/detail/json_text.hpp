#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"
#include "driftless/error.hpp"

namespace driftless::inline DRIFTLESS_ABI::detail {

/// Text from a file, for an error message: not longer than a line can bear.
inline std::string shortened(std::string text) {
  constexpr std::size_t kMost = 200;
  if (text.size() > kMost) text.replace(kMost, std::string::npos, "...");
  return text;
}

/// A name from a file, for an error message: in quotes, short, control characters escaped.
inline std::string quotedName(std::string_view name) {
  using Json = nlohmann::json;
  return Json(shortened(std::string(name))).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A value from a file, for an error message.
inline std::string shown(const nlohmann::json& value) { return shortened(value.dump()); }

/// Reads through a JSON document and throws FileError where it is malformed, nests too deep or has a key twice.
class JsonInspector : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `where` stands before every error's text.
  JsonInspector(std::string where, std::size_t max_depth) : where_(std::move(where)), max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      fail("the key " + quotedName(name) + " stands twice in one object");
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    fail(shortened(error.what()));
  }

  [[noreturn]] void fail(const std::string& reason) const { throw FileError(where_ + ": bad JSON: " + reason); }

 private:
  bool enter() {
    if (keys_.size() == max_depth_) fail("expected at most " + std::to_string(max_depth_) + " levels of nesting");
    keys_.emplace_back();
    return true;
  }

  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::string where_;
  std::size_t max_depth_;
  std::vector<std::set<std::string>> keys_;  ///< of each open object; none for an array
};

/// Parses one JSON document whose arrays and objects nest at most `max_depth` deep and in which no object has a key
/// twice. Throws FileError otherwise; its text begins with `where`.
inline nlohmann::json parseJson(std::string_view text, const std::string& where, std::size_t max_depth) {
  {
    JsonInspector inspector(where, max_depth);
    // The parser takes a zero byte for the end of its input, and would not see what follows.
    if (text.find('\0') != std::string_view::npos) inspector.fail("it contains a zero byte");
    nlohmann::json::sax_parse(text.begin(), text.end(), &inspector);
  }
  // Not in the same pass: the parser's own callbacks take quadratic time for many objects side by side.
  return nlohmann::json::parse(text.begin(), text.end());
}

}  // namespace driftless::inline DRIFTLESS_ABI::detail
