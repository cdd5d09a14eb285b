#include "results.hpp"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>

#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

Json tokenJson(int id, double log_probability) { return {{"id", id}, {"logprob", log_probability}}; }

Json scoreJson(int id, const TokenScore& score) {
  Json token = tokenJson(id, score.log_probability);
  Json& top = token["top"] = Json::array();
  for (const TokenLogProbability& one : score.top) top.push_back(tokenJson(one.id, one.log_probability));
  return token;
}

/// What one sample adds to an object.
void addChoice(Json& object, const char* ids_key, const Request& request, const Generation& generation,
               const Tokenizer* tokenizer) {
  object["text"] = jsonText(generation.output_ids, tokenizer);
  object[ids_key] = generation.output_ids;
  object["finish_reason"] = nameOf(generation.finish_reason);
  if (request.options.num_beams > 1) object["beam_score"] = generation.beam_score;
  if (!request.options.log_probabilities) return;
  Json& scores = object["logprobs"] = Json::array();
  for (std::size_t i = 0; i < generation.scores.size(); ++i)
    scores.push_back(scoreJson(generation.output_ids[i], generation.scores[i]));
}

}  // namespace

const char* nameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::stop:
      return "stop";
    case FinishReason::callback:
      return "callback";
    case FinishReason::context_full:
      return "context_full";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "";
}

Json jsonText(const std::vector<int>& ids, const Tokenizer* tokenizer) {
  const std::optional<std::string> text = textOf(ids, tokenizer);
  return text ? Json(*text) : Json();
}

const Tokenizer* findForJson(ModelTokenizer& tokenizer) {
  const Tokenizer* const found = tokenizer.find();
  if (found == nullptr && tokenizer.hasFiles()) std::cerr << "text is null: " << tokenizer.whyNot() << std::endl;
  return found;
}

void addGenerations(Json& object, const char* ids_key, const Request& request,
                    const std::vector<Generation>& generations, const Tokenizer* tokenizer) {
  if (generations.size() == 1) {
    addChoice(object, ids_key, request, generations.front(), tokenizer);
  } else {
    Json& choices = object["choices"] = Json::array();
    for (const Generation& generation : generations)
      addChoice(choices.emplace_back(Json::object()), ids_key, request, generation, tokenizer);
  }
  if (request.options.prompt_log_probabilities) {
    Json& scores = object["prompt_logprobs"] = Json::array({Json()});
    const std::vector<TokenScore>& known = generations.front().prompt_scores;
    for (std::size_t i = 0; i < known.size(); ++i) scores.push_back(scoreJson(request.ids[i + 1], known[i]));
  }
  const std::string error = firstError(generations);
  if (!error.empty()) object["error"] = error;
}

std::size_t countTokens(const std::vector<Generation>& generations) {
  std::size_t tokens = 0;
  for (const Generation& generation : generations) tokens += generation.output_ids.size();
  return tokens;
}

std::string firstError(const std::vector<Generation>& generations) {
  const auto failed = std::ranges::find(generations, FinishReason::error, &Generation::finish_reason);
  return failed == generations.end() ? "" : failed->error;
}

std::string resultLine(const Json& id, const Request& request, const std::vector<Generation>& generations,
                       const Tokenizer* tokenizer) {
  Json object{{"id", id}};
  addGenerations(object, "ids", request, generations, tokenizer);
  object["usage"] = {{"prompt_tokens", request.ids.size()}, {"completion_tokens", countTokens(generations)}};
  return jsonLine(object);
}

std::string errorLine(const Json& id, const std::string& error) { return jsonLine(Json{{"id", id}, {"error", error}}); }

}  // namespace driftless::cli
