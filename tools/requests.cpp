#include "requests.hpp"

#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "driftless/drafts.hpp"
#include "driftless/error.hpp"
#include "prompts.hpp"

namespace driftless::cli {
namespace {

constexpr std::size_t kRequestDepth = 8;

/// A request's samples are written together, and are all in memory until then.
constexpr Index kMostSamples = 4096;

using detail::JsonKind;
using detail::JsonValue;

template <class Number>
Number wholeNumber(const JsonValue& value, Number least = 0, Number most = std::numeric_limits<Number>::max()) {
  const std::optional<std::uint64_t> number = value.wholeNumber();
  if (!number || *number < static_cast<std::uint64_t>(least) || *number > static_cast<std::uint64_t>(most))
    value.fail("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
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

std::vector<std::string> stringOrStrings(const JsonValue& value) {
  if (value.is(JsonKind::string)) return {value.string()};
  if (!value.is(JsonKind::array)) value.fail("a string or an array of strings");
  std::vector<std::string> strings;
  for (const JsonValue string : value) strings.push_back(string.string());
  return strings;
}

/// An object whose keys are token ids.
std::vector<LogitBias> biases(const JsonValue& value) {
  std::vector<LogitBias> biases;
  for (const JsonValue bias : value.object()) {
    const std::string& key = bias.key();
    int id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || std::to_string(id) != key)
      bias.fail("a token id as the key");
    biases.push_back({id, realNumber(bias)});
  }
  return biases;
}

using SetOption = void (*)(const JsonValue&, GenerateOptions&);

/// The keys of a request apart from id, prompt and ids.
const std::map<std::string_view, SetOption> kOptions = {
    {"max_tokens", [](const JsonValue& value, auto& options) { options.max_tokens = wholeNumber<Index>(value); }},
    {"min_tokens", [](const JsonValue& value, auto& options) { options.min_tokens = wholeNumber<Index>(value); }},
    {"stop", [](const JsonValue& value, auto& options) { options.stop_strings = stringOrStrings(value); }},
    {"stop_ids",
     [](const JsonValue& value, auto& options) {
       for (const int id : idList(value)) options.stop_ids.push_back(id);  // after those of --stop-at-eos
     }},
    {"temperature", [](const JsonValue& value, auto& options) { options.sampling.temperature = realNumber(value); }},
    {"top_k", [](const JsonValue& value, auto& options) { options.sampling.top_k = wholeNumber<int>(value); }},
    {"top_p", [](const JsonValue& value, auto& options) { options.sampling.top_p = realNumber(value); }},
    {"min_p", [](const JsonValue& value, auto& options) { options.sampling.min_p = realNumber(value); }},
    {"typical_p", [](const JsonValue& value, auto& options) { options.sampling.typical_p = realNumber(value); }},
    {"seed", [](const JsonValue& value, auto& options) { options.sampling.seed = wholeNumber<std::uint64_t>(value); }},
    {"n", [](const JsonValue& value, auto& options) { options.samples = wholeNumber<Index>(value, 1, kMostSamples); }},
    {"repetition_penalty",
     [](const JsonValue& value, auto& options) { options.rules.repetition_penalty = realNumber(value); }},
    {"presence_penalty",
     [](const JsonValue& value, auto& options) { options.rules.presence_penalty = realNumber(value); }},
    {"frequency_penalty",
     [](const JsonValue& value, auto& options) { options.rules.frequency_penalty = realNumber(value); }},
    {"logit_bias", [](const JsonValue& value, auto& options) { options.rules.logit_bias = biases(value); }},
    {"suppress_tokens", [](const JsonValue& value, auto& options) { options.rules.suppress_tokens = idList(value); }},
    {"no_repeat_ngram_size",
     [](const JsonValue& value, auto& options) { options.rules.no_repeat_ngram_size = wholeNumber<Index>(value); }},
    {"logprobs", [](const JsonValue& value, auto& options) { options.log_probabilities = wholeNumber<Index>(value); }},
    {"prompt_logprobs",
     [](const JsonValue& value, auto& options) {
       if (!value.is(JsonKind::boolean)) value.fail("true or false");
       options.prompt_log_probabilities = value.isTrue();
     }},
    {"prompt_lookup_num_tokens",
     [](const JsonValue& value, auto& options) {
       options.draft_tokens = wholeNumber<Index>(value);
       options.drafter = promptLookup();
     }},
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
  if (!request.options.stop_strings.empty())
    request.options.tokenizer = &tokenizer.require("expected stop_ids, got stop");
  return request;
}

}  // namespace driftless::cli
