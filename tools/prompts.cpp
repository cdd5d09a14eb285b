#include "prompts.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "driftless/detail/json_text.hpp"
#include "driftless/error.hpp"
#include "options.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

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

std::vector<int> encode(const std::string& text, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer) throw ArgumentError("the model has no tokenizer files: expected {\"ids\": [1, 2]}, got text");
  return tokenizer->encode(text);
}

std::vector<int> idsOfObject(const nlohmann::json& object, const std::optional<Tokenizer>& tokenizer) {
  if (object.is_object() && object.size() == 1) {
    const auto member = object.begin();
    if (member.key() == "ids" && areIds(*member)) return member->get<std::vector<int>>();
    if (member.key() == "prompt" && member->is_string()) return encode(member->get<std::string>(), tokenizer);
  }
  throw ArgumentError("expected {\"ids\": [1, 2]} or {\"prompt\": \"text\"} and no other keys, got " +
                      detail::shown(object));
}

}  // namespace

std::vector<std::vector<int>> readPrompts(const std::string& path, const std::optional<Tokenizer>& tokenizer,
                                          const std::function<void(std::span<const int>)>& check) {
  constexpr std::size_t kJsonDepth = 8;
  const bool is_input = path == "-";
  const std::string name = is_input ? "standard input" : path;
  const std::string text = is_input ? readInput() : readFile(path);
  const std::vector<std::string> lines = linesOf(text);
  if (lines.empty()) throw ArgumentError(name + ": expected a prompt a line, found no line");
  const bool is_json = isJson(text);
  const auto idsOf = [&](const std::string& line) {
    if (line.empty()) throw ArgumentError("expected a prompt, found an empty line");
    return is_json ? idsOfObject(detail::parseJson(line, "the object", kJsonDepth), tokenizer)
                   : encode(line, tokenizer);
  };
  std::vector<std::vector<int>> prompts;
  for (const std::string& line : lines) {
    try {
      prompts.push_back(idsOf(line));
      check(prompts.back());
    } catch (const Error& error) {
      throw ArgumentError(name + ": line " + std::to_string(&line - lines.data() + 1) + ": " + error.what());
    }
  }
  return prompts;
}

}  // namespace driftless::cli
