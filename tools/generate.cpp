#include "driftless/generate.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/error.hpp"
#include "models.hpp"
#include "prompts.hpp"
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
  std::optional<Tokenizer> tokenizer;
  GenerateOptions options = {};
  Workspace<float> workspace = Workspace<float>(weights.threads);

  /// As many prompts at a time as there are caches.
  std::vector<TimedGeneration> generate(const std::vector<std::vector<int>>& prompts,
                                        std::vector<ModelCache<float>> caches,
                                        const std::function<void(int id)>& onToken = {}) {
    std::vector<TimedGeneration> timed(prompts.size());
    const Stopwatch watch;
    std::vector<bool> has_begun(prompts.size(), false);
    const auto takeTime = [&](std::size_t prompt, int id) {
      const double now = watch.seconds();
      if (!has_begun[prompt]) timed[prompt].prefill_seconds = now;
      has_begun[prompt] = true;
      timed[prompt].decode_seconds = now - timed[prompt].prefill_seconds;
      if (onToken) onToken(id);
      return true;
    };
    std::vector<Generation> generations = generateTokens(prompts, options, weights, caches, workspace, takeTime);
    for (std::size_t prompt = 0; prompt < prompts.size(); ++prompt) {
      if (!has_begun[prompt]) timed[prompt].prefill_seconds = watch.seconds();
      timed[prompt].generation = std::move(generations[prompt]);
    }
    return timed;
  }
};

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
  }
  return "";
}

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

std::string json(const std::vector<int>& ids, const TimedGeneration& timed, const std::optional<Tokenizer>& tokenizer) {
  const std::vector<int>& output_ids = timed.generation.output_ids;
  using Json = nlohmann::ordered_json;
  const Json object{{"prompt_ids", ids},
                    {"output_ids", output_ids},
                    {"text", tokenizer ? Json(tokenizer->decode(output_ids)) : Json()},
                    {"finish_reason", nameOf(timed.generation.finish_reason)},
                    {"prefill_seconds", timed.prefill_seconds},
                    {"decode_seconds", timed.decode_seconds}};
  // Tokens can end within a character: such bytes become U+FFFD.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int endOfText(const GenerateCommand& command, const std::optional<Tokenizer>& tokenizer) {
  if (!tokenizer || !tokenizer->endOfText())
    throw ArgumentError("--stop-at-eos: expected tokenizer files with <|endoftext|> in " + command.model.path +
                        ", found none");
  return *tokenizer->endOfText();
}

Generator load(const GenerateCommand& command) {
  // Token ids in and out work with a tokenizer that is missing, damaged or not supported.
  const bool needs_tokenizer = command.output != "ids" || command.prompt.text || command.stops_at_eos;
  Generator generator{.weights = loadWeights(command.model.path, loadOptions(command.model)),
                      .tokenizer = needs_tokenizer ? loadTokenizerOf(command.model.path) : std::nullopt};
  GenerateOptions& options = generator.options;
  options.max_tokens = command.max_tokens;
  if (command.stops_at_eos) options.stop_ids = {endOfText(command, generator.tokenizer)};
  options.sampling = {command.temperature, command.top_k, command.top_p, command.seed};
  options.use_cache = !command.recomputes;
  return generator;
}

/// One prompt; its text is written while it is generated.
void writeOne(const GenerateCommand& command, Generator& generator) {
  const std::optional<Tokenizer>& tokenizer = generator.tokenizer;
  const std::vector<int> ids = encodePrompt(command.prompt, tokenizer);
  const bool is_text = command.output.value_or("text") == "text";
  if (is_text && !tokenizer)
    throw ArgumentError("the model has no tokenizer files: expected --output ids or --output json, got text");
  std::optional<StreamingDecoder> decoder;
  if (is_text) decoder.emplace(*tokenizer);
  const TimedGeneration timed = generator
                                    .generate({ids}, emptyCaches(command.model, generator.weights, 1),
                                              [&](int id) {
                                                if (decoder) writeOutput(decoder->push(id));
                                              })
                                    .front();
  if (is_text) {
    writeOutput(decoder->finish());
    std::cerr << "\n";  // standard output is the continuation alone, which seldom ends a line
  } else {
    writeOutput((command.output == "ids" ? idsText(timed.generation.output_ids) : json(ids, timed, tokenizer)) + "\n");
  }
  report(ids.size(), timed);
}

/// A file of prompts, whose results are written when all have ended.
void writeLines(const GenerateCommand& command, Generator& generator) {
  if (command.output.value_or("json") != "json")
    throw ArgumentError("--prompts writes JSON Lines: expected --output json or none, got " + *command.output);
  std::vector<ModelCache<float>> unused = emptyCaches(command.model, generator.weights, 1);
  GenerateOptions none;
  none.max_tokens = 0;
  const auto check = [&](const std::vector<int>& ids) {  // as generating will, but before any prompt is run
    generateTokens({ids}, none, generator.weights, unused, generator.workspace);
  };
  const std::vector<std::vector<int>> prompts = readPrompts(*command.prompts, generator.tokenizer, check);
  std::vector<ModelCache<float>> caches =
      emptyCaches(command.model, generator.weights, std::min(command.batch, prompts.size()));
  const Stopwatch watch;
  const std::vector<TimedGeneration> timed = generator.generate(prompts, std::move(caches));
  const double seconds = watch.seconds();
  for (std::size_t i = 0; i < prompts.size(); ++i) writeOutput(json(prompts[i], timed[i], generator.tokenizer) + "\n");
  report(prompts, timed, seconds);
}

}  // namespace

void GenerateCommand::run() const {
  Generator generator = load(*this);
  return prompts ? writeLines(*this, generator) : writeOne(*this, generator);
}

}  // namespace driftless::cli
