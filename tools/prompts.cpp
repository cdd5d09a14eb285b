#include "prompts.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

#include "driftless/detail/files/json.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/error.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

constexpr int kLargestId = std::numeric_limits<int>::max();
constexpr std::size_t kJsonDepth = 8;

/// Nothing unless this is a list of numbers that can be token ids.
std::optional<std::vector<int>> idsOf(const detail::JsonValue& list) {
  if (!list.is(detail::JsonKind::array)) return std::nullopt;
  std::vector<int> ids;
  for (const detail::JsonValue element : list) {
    const std::optional<std::uint64_t> id = element.wholeNumber();
    if (!id || *id > kLargestId) return std::nullopt;
    ids.push_back(static_cast<int>(*id));
  }
  return ids;
}

/// Lines without their ends, LF or CR LF, of which the last line needs none.
std::vector<std::string> linesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool isJson(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

std::vector<int> encodeObject(const std::string& line, ModelTokenizer& tokenizer) {
  const detail::JsonDocument document(line, "the object", kJsonDepth);
  const detail::JsonValue object(document);
  if (object.is(detail::JsonKind::object) && object.size() == 1) {
    if (const auto ids = idsOf(object["ids"])) return *ids;
    if (const auto text = object["prompt"]; text.is(detail::JsonKind::string))
      return encodeText(text.string(), tokenizer);
  }
  throw ArgumentError("expected {\"ids\": [1, 2]} or {\"prompt\": \"text\"} and no other keys, got " + object.shown());
}

LabelledText labelledObject(const std::string& line, ModelTokenizer& tokenizer) {
  const detail::JsonDocument document(line, "the object", kJsonDepth);
  const detail::JsonValue object(document);
  if (object.is(detail::JsonKind::object)) {
    const detail::JsonValue id = object["id"], text = object["text"];
    const bool is_number = id.wholeNumber().has_value(), is_string = id.is(detail::JsonKind::string);
    if (object.size() == (id.isThere() ? 2 : 1) && id.isThere() == (is_number || is_string)) {
      const std::string label = is_number   ? std::to_string(*id.wholeNumber())
                                : is_string ? jsonString(id.string())
                                            : "";
      if (const auto ids = idsOf(object["ids"])) return {label, *ids};
      if (text.is(detail::JsonKind::string)) return {label, encodeText(text.string(), tokenizer)};
    }
  }
  throw ArgumentError(
      "expected {\"text\": \"text\"} or {\"ids\": [1, 2]}, perhaps with an \"id\" that is a string or a whole number, "
      "and "
      "no other keys, got " +
      object.shown());
}

/// Calls a function with every line of a file of `what`, and whether they are JSON. Errors name the line.
void forEachLine(const std::string& path, const std::string& what,
                 const std::function<void(const std::string& line, bool is_json)>& take) {
  const std::string name = promptsName(path);
  const std::string bytes = path == "-" ? readInput() : readFile(path);
  const std::string_view text = detail::readText(bytes, name);
  const std::vector<std::string> lines = linesOf(text);
  const bool is_json = isJson(text);
  for (const std::string& line : lines) {
    try {
      if (line.empty()) throw ArgumentError("expected " + what + ", found an empty line");
      take(line, is_json);
    } catch (const Error& error) {
      throw ArgumentError(name + ": line " + std::to_string(&line - lines.data() + 1) + ": " + error.what());
    }
  }
}

}  // namespace

std::vector<int> parseIds(const std::string& option, const std::string& text) {
  try {
    const std::string json = "[" + text + "]";
    const detail::JsonDocument document(json, option, kJsonDepth);
    if (const auto ids = idsOf(detail::JsonValue(document))) return *ids;
  } catch (const FileError&) {  // no JSON: the message for other lists will do
  }
  throw ArgumentError(option + ": expected token ids separated by commas, such as 1,2,3, each from 0 to " +
                      std::to_string(kLargestId) + ", got " + detail::quotedName(text));
}

std::vector<int> readIds(const std::string& option, const std::string& text) {
  if (text != "-") return parseIds(option, text);
  const std::string input = readInput();
  return parseIds(option, std::string(detail::skipByteOrderMark(input, kInputName)));
}

std::string idsText(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::vector<int> encodePrompt(const Prompt& prompt, ModelTokenizer& tokenizer) {
  if (prompt.ids) return readIds("--ids", *prompt.ids);
  if (!prompt.text) throw ArgumentError("expected a prompt: text, - for standard input, or --ids");
  const Tokenizer& encoder = tokenizer.require("expected the prompt as token ids, --ids 1,2,3, got text");
  std::string input;
  std::string_view text = *prompt.text;
  if (text == "-") {
    input = readInput();
    text = detail::skipByteOrderMark(input, kInputName);
    if (text.find('\0') != std::string_view::npos)  // no text has one, but UTF-16 does
      throw ArgumentError(std::string(kInputName) + ": expected text in UTF-8, found a zero byte");
    // Whoever pipes `echo` or a file into the program does not mean its last newline, after which a model starts
    // afresh.
    if (text.ends_with('\n')) text.remove_suffix(text.ends_with("\r\n") ? 2 : 1);
  }
  if (text.empty()) throw ArgumentError("expected at least one token, found an empty text");
  return encoder.encode(text);
}

std::vector<int> encodeText(const std::string& text, ModelTokenizer& tokenizer) {
  return tokenizer.require("expected {\"ids\": [1, 2]}, got text").encode(text);
}

std::string promptsName(const std::string& path) { return path == "-" ? kInputName : path; }

std::vector<std::vector<int>> readPrompts(const std::string& path, ModelTokenizer& tokenizer,
                                          const std::function<void(const std::vector<int>&)>& check) {
  std::vector<std::vector<int>> prompts;
  forEachLine(path, "a prompt", [&](const std::string& line, bool is_json) {
    prompts.push_back(is_json ? encodeObject(line, tokenizer) : encodeText(line, tokenizer));
    check(prompts.back());
  });
  return prompts;
}

std::vector<LabelledText> readTexts(const std::string& path, ModelTokenizer& tokenizer,
                                    const std::function<void(const std::vector<int>&)>& check) {
  std::vector<LabelledText> texts;
  forEachLine(path, "a text", [&](const std::string& line, bool is_json) {
    texts.push_back(is_json ? labelledObject(line, tokenizer) : LabelledText{"", encodeText(line, tokenizer)});
    check(texts.back().ids);
  });
  return texts;
}

}  // namespace driftless::cli
