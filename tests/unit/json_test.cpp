#include "driftless/detail/files/json.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using doctest::Contains;
using driftless::FileError;
using driftless::detail::JsonDocument;
using driftless::detail::JsonKind;
using driftless::detail::JsonValue;

namespace {

/// The same value as its plain type holds it.
nlohmann::json copyOf(const JsonValue& value) {
  if (value.is(JsonKind::null)) return nullptr;
  if (value.is(JsonKind::boolean)) return value.isTrue();
  if (value.is(JsonKind::string)) return value.string();
  if (const auto whole = value.wholeNumber()) return *whole;
  if (const auto number = value.number()) return *number;
  nlohmann::json copy = value.is(JsonKind::object) ? nlohmann::json::object() : nlohmann::json::array();
  for (const JsonValue child : value) {
    if (value.is(JsonKind::object)) {
      copy[child.key()] = copyOf(child);
    } else {
      copy.push_back(copyOf(child));
    }
  }
  return copy;
}

std::optional<nlohmann::json> read(const std::string& text) {
  try {
    const JsonDocument document(text, "file", 20);
    return copyOf(JsonValue(document));
  } catch (const FileError&) {
    return std::nullopt;
  }
}

/// By nlohmann/json itself, which takes a key that stands twice.
std::optional<nlohmann::json> readByOther(const std::string& text) {
  std::vector<std::set<std::string>> keys;
  bool stands_twice = false;
  const auto look = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) keys.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) keys.pop_back();
    if (event == nlohmann::json::parse_event_t::key)
      stands_twice = !keys.back().insert(parsed.get<std::string>()).second || stands_twice;
    return true;
  };
  // It takes a zero byte for the end of the text.
  if (text.find('\0') != std::string::npos) return std::nullopt;
  nlohmann::json json = nlohmann::json::parse(text, look, false);
  return json.is_discarded() || stands_twice ? std::nullopt : std::optional(std::move(json));
}

std::string nameAt(const std::string& text, const std::vector<std::string>& path) {
  const JsonDocument document(text, "file", 20);
  JsonValue value(document);
  for (const std::string& step : path) {
    if (value.is(JsonKind::object)) {
      value = value[step];
    } else {
      auto element = value.begin();
      for (int i = std::stoi(step); i > 0; --i) ++element;
      value = *element;
    }
  }
  return value.name();
}

}  // namespace

TEST_CASE("json: any text is taken for what nlohmann/json takes it for, except that no key stands twice") {
  const std::vector<std::string> sound = {
      R"({"a": [1, -2, 3.5, 1e3, -0, 0.0, 1E-2, 18446744073709551615, 18446744073709551616], "b": {"c": {}, "d": []}})",
      R"(["\u0041\u00e9\u20AC\ud83d\ude42 \"\\\/\b\f\n\r\t", "é€🙂", "", true, false, null])",
      "\xEF\xBB\xBF \t\r\n{\"a\" : 1 , \"\\u0062\" : [ ] }\n",
      R"({"model":{"vocab":{"ab":256,"\u0120a":257},"merges":["a b",["\u0120","a"]]},"dropout":null})",
  };
  constexpr std::string_view kPieces[] = {
      "{", "}",       "[",    "]",    ",",        ":",        "\"",           "\\",   "0",   "1",       "-",
      "+", ".",       "e",    " ",    "\n",       "t",        "true",         "null", "\\u", "\\ud8",   "00",
      "b", "\"a\":1", "\x1F", "\x7F", "\xC3\xA9", "\xE2\x82", "\xED\xA0\x80", "\xFF", "/",   "[[[[[[[["};
  std::mt19937 random(1);
  std::size_t sound_ones = 0;
  for (int i = 0; i < 40'000; ++i) {
    std::string text = sound[random() % sound.size()];
    for (auto changes = random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % (text.size() + 1);
      text.replace(at, random() % 3, random() % 3 == 0 ? "" : kPieces[random() % std::size(kPieces)]);
    }
    const auto expected = readByOther(text);
    sound_ones += expected.has_value() ? 1 : 0;
    const auto found = read(text);
    if (found == expected) continue;
    CAPTURE(text);
    CHECK(found.has_value() == expected.has_value());
    CHECK(found.value_or(nullptr) == expected.value_or(nullptr));
  }
  CHECK(sound_ones > 10'000);
}

TEST_CASE("json: an error says where and what is wrong") {
  const std::pair<std::string, std::string> cases[] = {
      {"", "file: it is empty"},
      {" ", "file: bad JSON: "},
      {"{\n \"a\": ?}", "line 2, column 7"},
      {"[1 2]", "column 4"},
      {"1e309", "number overflow"},
      {std::string("[1]\0junk", 8), "file: line 1: expected text in UTF-8, found the byte 0"},
      {"[[[[[]]]]]", "expected at most 4 levels of nesting"},
      {std::string(1'000'000, '['), "expected at most 4 levels of nesting"},
      {R"(["[[[[[", "\"[[[[[", [[[[]]]]])", "expected at most 4 levels of nesting"},
      {R"({"a":{"b":1,"\u0062":2}})", "the key \"b\" stands twice in one object"},
  };
  for (const auto& each : cases) {
    CHECK_THROWS_WITH_AS(JsonDocument(each.first, "file", 4), Contains(each.second.c_str()), FileError);
  }
  CHECK_NOTHROW(JsonDocument(R"(["[[[[[", "\"[[[[[", [[[]]]])", "file", 4));
}

TEST_CASE("json: a value is named by its place") {
  const std::string text = R"({"model": {"vocab": {"ab": 1, "": 2}, "merges": [[0], ["a", "b"]]}, "x": [[]]})";
  CHECK(nameAt(text, {}) == "file");
  CHECK(nameAt(text, {"model"}) == "file: key 'model'");
  CHECK(nameAt(text, {"model", "none"}) == "file: key 'model.none'");
  CHECK(nameAt(text, {"model", "vocab", ""}) == "file: key 'model.vocab[\"\"]'");
  CHECK(nameAt(text, {"model", "merges", "1", "1"}) == "file: key 'model.merges[1][1]'");
  CHECK(nameAt(text, {"x", "0"}) == "file: key 'x[0]'");
  CHECK(nameAt("[1]", {"0"}) == "file: key '[0]'");
}

TEST_CASE("messages: a path is UTF-8, also of characters and halves that are no text") {
  using driftless::detail::utf8Text;
  CHECK(utf8Text(std::string_view("a/\xff")) == "a/\xff");
  CHECK(utf8Text(std::u16string_view(u"C:\\m\u00F6del\\\u4E2D\U0001F600")) == "C:\\m\u00F6del\\\u4E2D\U0001F600");
  CHECK(utf8Text(std::u16string_view(u"")) == "");
  const char16_t halves[] = {u'a', 0xD800, u'b', 0xDC00, 0xDBFF, 0xDFFF, 0xDC00, 0xD800};
  CHECK(utf8Text(std::u16string_view(halves, 8)) == "a\uFFFDb\uFFFD\U0010FFFF\uFFFD\uFFFD");
  CHECK(driftless::detail::pathText(std::filesystem::path("some") / "where") ==
        (std::filesystem::path("some") / "where").string());
}
