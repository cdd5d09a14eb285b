#include "results.hpp"

#include <algorithm>
#include <cstddef>
#include <iostream>

#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What one sample adds to an object.
void addChoice(Json& object, const Generation& generation, const Tokenizer* tokenizer) {
  object["text"] = jsonText(generation.output_ids, tokenizer);
  object["ids"] = generation.output_ids;
  object["finish_reason"] = nameOf(generation.finish_reason);
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
    case FinishReason::error:
      return "error";
  }
  return "";
}

Json jsonText(const std::vector<int>& ids, const Tokenizer* tokenizer) {
  const bool is_text = tokenizer != nullptr && std::ranges::all_of(ids, [&](int id) { return tokenizer->has(id); });
  return is_text ? Json(tokenizer->decode(ids)) : Json();
}

const Tokenizer* findForJson(ModelTokenizer& tokenizer) {
  const Tokenizer* const found = tokenizer.find();
  if (found == nullptr && tokenizer.hasFiles()) std::cerr << "text is null: " << tokenizer.whyNot() << std::endl;
  return found;
}

std::string resultLine(const Json& id, std::size_t prompt_tokens, const std::vector<Generation>& generations,
                       const Tokenizer* tokenizer) {
  Json object{{"id", id}};
  if (generations.size() == 1) {
    addChoice(object, generations.front(), tokenizer);
  } else {
    Json& choices = object["choices"] = Json::array();
    for (const Generation& generation : generations)
      addChoice(choices.emplace_back(Json::object()), generation, tokenizer);
  }
  std::size_t completion_tokens = 0;
  for (const Generation& generation : generations) completion_tokens += generation.output_ids.size();
  object["usage"] = {{"prompt_tokens", prompt_tokens}, {"completion_tokens", completion_tokens}};
  const auto failed = std::ranges::find(generations, FinishReason::error, &Generation::finish_reason);
  if (failed != generations.end()) object["error"] = failed->error;
  return jsonLine(object);
}

std::string errorLine(const Json& id, const std::string& error) { return jsonLine(Json{{"id", id}, {"error", error}}); }

}  // namespace driftless::cli
