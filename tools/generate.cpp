#include "driftless/generate.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/error.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "requests.hpp"
#include "results.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

struct TimedGeneration {
  Generation generation;
  double prefill_seconds = 0;  ///< up to the choice of the first token
  double decode_seconds = 0;   ///< from there to the last
};

/// A model, and what runs its prompts.
struct Generator {
  Weights<float> weights;
  ModelTokenizer tokenizer;
  GenerateOptions options = {};
  Workspace<float> workspace = Workspace<float>(weights.threads);

  /// As many prompts at a time as `batch` says. `onFinish` is called with the prompts in their order: with each as
  /// soon as it and all before it have ended.
  std::vector<TimedGeneration> generate(
      const std::vector<std::vector<int>>& prompts, const BatchOptions& batch,
      const std::function<void(int id)>& onToken,
      const std::function<void(std::size_t prompt, const TimedGeneration&)>& onFinish = {}) {
    std::vector<TimedGeneration> timed(prompts.size());
    const Stopwatch watch;
    std::vector<bool> has_begun(prompts.size(), false), has_ended(prompts.size(), false);
    std::size_t next = 0;
    const auto takeTime = [&](std::size_t prompt, int id) {
      const double now = watch.seconds();
      if (!has_begun[prompt]) timed[prompt].prefill_seconds = now;
      has_begun[prompt] = true;
      timed[prompt].decode_seconds = now - timed[prompt].prefill_seconds;
      if (onToken) onToken(id);
      return true;
    };
    const auto takeResult = [&](std::size_t prompt, const Generation& generation) {
      if (!has_begun[prompt]) timed[prompt].prefill_seconds = watch.seconds();
      timed[prompt].generation = generation;
      has_ended[prompt] = true;
      for (; next < prompts.size() && has_ended[next]; ++next)
        if (onFinish) onFinish(next, timed[next]);
    };
    generateTokens(prompts, options, weights, workspace, batch, takeTime, takeResult);
    return timed;
  }
};

void reportPart(const char* name, std::size_t tokens, std::size_t steps, double seconds) {
  std::cerr << std::left << std::setw(10) << name << std::right << std::setw(5) << tokens << " tokens" << std::fixed
            << std::setw(9) << std::setprecision(3) << seconds << " s";
  if (seconds > 0)
    std::cerr << std::setw(10) << std::setprecision(1) << static_cast<double>(steps) / seconds << " tokens/s";
}

void report(std::size_t prompt_tokens, const TimedGeneration& timed) {
  const std::size_t tokens = timed.generation.output_ids.size();
  const std::size_t steps = tokens == 0 ? 0 : tokens - 1;  // the first token comes with the prefill
  reportPart("prompt", prompt_tokens, prompt_tokens, timed.prefill_seconds);
  std::cerr << "\n";
  reportPart("generated", tokens, steps, timed.decode_seconds);
  std::cerr << "  (" << nameOf(timed.generation.finish_reason) << ")" << std::endl;
}

/// Prompts that are run together are prefilled and decoded at the same time: one figure for everything.
void report(const std::vector<std::vector<int>>& prompts, const std::vector<TimedGeneration>& timed, double seconds) {
  std::size_t prompt_tokens = 0, tokens = 0;
  for (const std::vector<int>& prompt : prompts) prompt_tokens += prompt.size();
  for (const TimedGeneration& one : timed) tokens += one.generation.output_ids.size();
  std::cerr << prompts.size() << " prompts, " << prompt_tokens << " tokens\n";
  reportPart("generated", tokens, tokens, seconds);
  std::cerr << std::endl;
}

using Json = nlohmann::ordered_json;

std::string json(const std::vector<int>& ids, const TimedGeneration& timed, const Tokenizer* tokenizer) {
  const Generation& generation = timed.generation;
  Json object{{"prompt_ids", ids},
              {"output_ids", generation.output_ids},
              {"text", jsonText(generation.output_ids, tokenizer)},
              {"finish_reason", nameOf(generation.finish_reason)},
              {"prefill_seconds", timed.prefill_seconds},
              {"decode_seconds", timed.decode_seconds}};
  if (generation.finish_reason == FinishReason::error) object["error"] = generation.error;
  return jsonLine(object);  // tokens can end within a character
}

Generator load(const GenerateCommand& command) {
  Generator generator{.weights = loadWeights(openModel(command.model), loadOptions(command.model)),
                      .tokenizer = ModelTokenizer(command.model.path)};
  generator.options = generateOptions(command.generation, command.model.path, generator.tokenizer);
  generator.options.use_cache = !command.recomputes;
  return generator;
}

/// One prompt; its text is written while it is generated.
void writeOne(const GenerateCommand& command, Generator& generator) {
  const std::vector<int> ids = encodePrompt(command.prompt, generator.tokenizer);
  const std::string output = command.output.value_or("text");
  std::optional<StreamingDecoder> decoder;
  if (output == "text")
    decoder.emplace(generator.tokenizer.require("expected --output ids or --output json, got text"));
  const auto writeToken = [&](int id) {
    if (decoder) writeOutput(decoder->push(id));
  };
  const TimedGeneration timed = generator.generate({ids}, batchOptions(command.model, 1), writeToken).front();
  const Generation& generation = timed.generation;
  if (decoder) writeOutput(decoder->finish());
  if (generation.finish_reason == FinishReason::error) throw ArgumentError(generation.error);
  if (decoder) std::cerr << "\n";  // standard output is the continuation alone, which seldom ends a line
  if (output == "ids") writeOutput(idsText(generation.output_ids) + "\n");
  if (output == "json") writeOutput(json(ids, timed, findForJson(generator.tokenizer)));
  report(ids.size(), timed);
}

/// A file of prompts. Its results are written in their order, each as soon as all before it are.
void writeLines(const GenerateCommand& command, Generator& generator) {
  if (command.output.value_or("json") != "json")
    throw ArgumentError("--prompts writes JSON Lines: expected --output json or none, got " + *command.output);
  GenerateOptions none;
  none.max_tokens = 0;
  const auto check = [&](const std::vector<int>& ids) {  // as generating will, but before any prompt is run
    generateTokens({ids}, none, generator.weights, generator.workspace);
  };
  const std::vector<std::vector<int>> prompts = readPrompts(*command.prompts, generator.tokenizer, check);
  const Tokenizer* const tokenizer = findForJson(generator.tokenizer);
  std::string failure;
  std::size_t failures = 0;
  const Stopwatch watch;
  const std::vector<TimedGeneration> timed = generator.generate(
      prompts, batchOptions(command.model, command.batch), {}, [&](std::size_t prompt, const TimedGeneration& result) {
        writeOutput(json(prompts[prompt], result, tokenizer));
        if (result.generation.finish_reason != FinishReason::error) return;
        if (++failures == 1) failure = "line " + std::to_string(prompt + 1) + ": " + result.generation.error;
      });
  report(prompts, timed, watch.seconds());
  if (failures == 0) return;
  throw ArgumentError(promptsName(*command.prompts) + ": " + failure + "; in all, " + std::to_string(failures) +
                      " of " + std::to_string(prompts.size()) + " prompts failed");
}

}  // namespace

void GenerateCommand::run() const {
  Generator generator = load(*this);
  return prompts ? writeLines(*this, generator) : writeOne(*this, generator);
}

}  // namespace driftless::cli
