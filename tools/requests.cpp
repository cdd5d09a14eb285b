#include "requests.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "driftless/error.hpp"
#include "prompts.hpp"

namespace driftless::cli {
namespace {

constexpr std::size_t kRequestDepth = 8;

using detail::JsonKind;
using detail::JsonValue;

template <class Number>
Number wholeNumber(const JsonValue& value) {
  constexpr Number kMost = std::numeric_limits<Number>::max();
  const std::optional<std::uint64_t> number = value.wholeNumber();
  if (!number || *number > static_cast<std::uint64_t>(kMost))
    value.fail("a whole number from 0 to " + std::to_string(kMost));
  return static_cast<Number>(*number);
}

double realNumber(const JsonValue& value) {
  const std::optional<double> number = value.number();
  if (!number) value.fail("a number");
  return *number;
}

std::vector<int> idList(const JsonValue& value) {
  std::vector<int> ids;
  for (const JsonValue id : value.array()) ids.push_back(wholeNumber<int>(id));
  return ids;
}

using SetOption = void (*)(const JsonValue&, GenerateOptions&);

/// The keys of a request apart from id, prompt and ids.
const std::map<std::string_view, SetOption> kOptions = {
    {"max_tokens", [](const JsonValue& value, auto& options) { options.max_tokens = wholeNumber<Index>(value); }},
    {"stop_ids",
     [](const JsonValue& value, auto& options) {
       for (const int id : idList(value)) options.stop_ids.push_back(id);  // after those of --stop-at-eos
     }},
    {"temperature", [](const JsonValue& value, auto& options) { options.sampling.temperature = realNumber(value); }},
    {"top_k", [](const JsonValue& value, auto& options) { options.sampling.top_k = wholeNumber<int>(value); }},
    {"top_p", [](const JsonValue& value, auto& options) { options.sampling.top_p = realNumber(value); }},
    {"seed", [](const JsonValue& value, auto& options) { options.sampling.seed = wholeNumber<std::uint64_t>(value); }},
};

/// What --stop-at-eos stops at.
std::vector<int> endOfTextIds(const std::string& model, ModelTokenizer& tokenizer) {
  std::vector<int> ids = readEosIds(model);
  if (ids.empty() && tokenizer.find() != nullptr && tokenizer.find()->endOfText())
    ids.push_back(*tokenizer.find()->endOfText());
  if (ids.empty())
    throw ArgumentError(
        "--stop-at-eos: expected eos_token_id in generation_config.json or config.json, or tokenizer "
        "files with <|endoftext|>, in " +
        model + ", found none");
  return ids;
}

}  // namespace

GenerateOptions generateOptions(const GenerationFlags& flags, const std::string& model, ModelTokenizer& tokenizer) {
  GenerateOptions options;
  options.max_tokens = flags.max_tokens;
  if (flags.stops_at_eos) options.stop_ids = endOfTextIds(model, tokenizer);
  options.sampling.temperature = flags.temperature;
  options.sampling.top_k = flags.top_k;
  options.sampling.top_p = flags.top_p;
  options.sampling.seed = flags.seed;
  return options;
}

RequestLine::RequestLine(std::string_view text, std::size_t number) : id_(number) {
  try {
    document_.emplace(text, "request", kRequestDepth);
  } catch (const FileError& error) {
    error_ = error.what();
    return;
  }
  const detail::Json& root = document_->root;
  if (!root.is_object()) return;
  if (const auto id = root.find("id"); id != root.end() && (id->is_string() || id->is_number())) id_ = *id;
}

Request RequestLine::request(const GenerateOptions& defaults, ModelTokenizer& tokenizer) const {
  if (!document_) throw FileError(error_);
  const JsonValue object = JsonValue(*document_).object();
  Request request{{}, defaults};
  for (const JsonValue value : object) {
    const std::string& key = value.key();
    if (const auto option = kOptions.find(key); option != kOptions.end()) {
      option->second(value, request.options);
    } else if (key == "id") {
      if (!value.is(JsonKind::string) && !value.number()) value.fail("a string or a number");
    } else if (key == "ids") {
      request.ids = idList(value);
    } else if (key == "prompt") {
      request.ids = encodeText(value.string(), tokenizer);
    } else {
      std::string known = "id, prompt, ids";
      for (const auto& [name, set] : kOptions) known.append(", ").append(name);
      throw ArgumentError("request: unknown key " + detail::quotedName(key) + ": expected one of " + known);
    }
  }
  if (object["ids"].isThere() == object["prompt"].isThere())
    throw ArgumentError(std::string("request: expected either prompt or ids, found ") +
                        (object["ids"].isThere() ? "both" : "neither"));
  return request;
}

}  // namespace driftless::cli
