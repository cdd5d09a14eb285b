#include "requests.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "driftless/drafts.hpp"
#include "driftless/error.hpp"
#include "prompts.hpp"

namespace driftless::cli {
namespace {

constexpr std::size_t kRequestDepth = 8;

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

bool trueOrFalse(const JsonValue& value) {
  if (!value.is(JsonKind::boolean)) value.fail("true or false");
  return value.isTrue();
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
       for (const int id : idList(value)) options.stop_ids.push_back(id);  // after those of the options
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
     [](const JsonValue& value, auto& options) { options.prompt_log_probabilities = trueOrFalse(value); }},
    {"num_beams", [](const JsonValue& value, auto& options) { options.num_beams = wholeNumber<Index>(value, 1); }},
    {"length_penalty", [](const JsonValue& value, auto& options) { options.length_penalty = realNumber(value); }},
    {"early_stopping", [](const JsonValue& value, auto& options) { options.early_stopping = trueOrFalse(value); }},
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

/// The first id that does not stand for the same bytes in both.
std::optional<int> firstDifference(const Tokenizer& one, const Tokenizer& other) {
  for (int id = 0; id < std::max(one.vocabSize(), other.vocabSize()); ++id)
    if (one.has(id) != other.has(id) || (one.has(id) && one.tokenBytes(id) != other.tokenBytes(id))) return id;
  return std::nullopt;
}

/// A drafter that owns its model, which is stored and computed as the one whose tokens it guesses.
Drafter loadDraftModel(const std::string& path, ModelOptions model, const Weights<float>& weights,
                       ModelTokenizer& tokenizer) {
  model.path = path;
  LoadOptions options = loadOptions(model);
  options.threads = weights.threads;
  const auto draft = std::make_shared<const Weights<float>>(loadWeights(openModel(model), options));
  const std::string expected = "--model-draft: " + path + ": expected the vocabulary of the model, ";
  if (draft->config.vocab_size != weights.config.vocab_size)
    throw ArgumentError(expected + "a vocab_size of " + std::to_string(weights.config.vocab_size) + ", found " +
                        std::to_string(draft->config.vocab_size));
  ModelTokenizer draft_tokenizer(path);
  if (tokenizer.find() != nullptr && draft_tokenizer.find() != nullptr)
    if (const std::optional<int> id = firstDifference(*tokenizer.find(), *draft_tokenizer.find()))
      throw ArgumentError(expected + "found a tokenizer with another token " + std::to_string(*id));
  return [draft, drafter = draftModel(*draft)](TokenIds ids, Index most) mutable { return drafter(ids, most); };
}

}  // namespace

GenerateOptions generateOptions(const GenerationFlags& flags, const ModelOptions& model, const Weights<float>& weights,
                                ModelTokenizer& tokenizer) {
  GenerateOptions options = flags.options;
  if (flags.stops_at_eos)
    for (const int id : endOfTextIds(model.path, tokenizer)) options.stop_ids.push_back(id);
  if (!options.stop_strings.empty()) options.tokenizer = &tokenizer.require("expected --stop-ids, got --stop");
  if (flags.prompt_lookup_tokens) {
    options.draft_tokens = *flags.prompt_lookup_tokens;
    options.drafter = promptLookup();
  }
  if (flags.draft_model) options.drafter = loadDraftModel(*flags.draft_model, model, weights, tokenizer);

  GenerateOptions nothing = options;  // which checks the options, and runs no step
  nothing.max_tokens = 0;
  nothing.prompt_log_probabilities = false;
  const std::vector<std::vector<int>> prompts = {{0}};
  generateTokens(prompts, nothing, weights);
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
