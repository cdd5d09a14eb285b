#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "driftless/generate.hpp"
#include "models.hpp"

namespace driftless::cli {

const char* nameOf(FinishReason reason);

/// Null without a tokenizer, and if one of the ids has no text: a model can have more ids than its tokenizer.
nlohmann::ordered_json jsonText(const std::vector<int>& ids, const Tokenizer* tokenizer);

/// The tokenizer for JSON's text, which is null without one: why, if there are files of one, goes to standard error.
const Tokenizer* findForJson(ModelTokenizer& tokenizer);

/// Adds what came of a request, one generation for each of its samples: `text`, the ids under the key `ids_key`, and
/// `finish_reason`, or `choices` with these if there are several samples. `logprobs` and `prompt_logprobs`, if they
/// were asked for, have for each token an object with `id`, `logprob` and `top`, a list of the likeliest; null is for
/// the prompt's first token, which nothing comes before, and for a logprob of minus infinity. An `error` is there if no
/// token could be chosen.
void addGenerations(nlohmann::ordered_json& object, const char* ids_key, const Request& request,
                    const std::vector<Generation>& generations, const Tokenizer* tokenizer);

/// Of all samples.
std::size_t countTokens(const std::vector<Generation>& generations);

/// Of the first sample that has one; else empty.
std::string firstError(const std::vector<Generation>& generations);

/// A line for a request: its `id`, what addGenerations adds, and `usage`.
std::string resultLine(const nlohmann::ordered_json& id, const Request& request,
                       const std::vector<Generation>& generations, const Tokenizer* tokenizer);

/// What is written in place of the result of a request that could not be run.
std::string errorLine(const nlohmann::ordered_json& id, const std::string& error);

}  // namespace driftless::cli
