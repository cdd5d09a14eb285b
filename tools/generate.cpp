#include "driftless/generate.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/cache_file.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/error.hpp"
#include "driftless/forward.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "requests.hpp"
#include "results.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

/// What came of a prompt, and when.
struct TimedGenerations {
  std::vector<Generation> generations = {};  ///< of its samples
  bool has_begun = false;
  double prefill_seconds = 0;  ///< up to the choice of the first token
  double decode_seconds = 0;   ///< from there to the last

  /// A token has come.
  void takeTime(const Stopwatch& watch) {
    const double now = watch.seconds();
    if (!has_begun) prefill_seconds = now;
    has_begun = true;
    decode_seconds = now - prefill_seconds;
  }
};

/// A model, and what runs its prompts.
struct Generator {
  Weights<float> weights;
  ModelTokenizer tokenizer;
  GenerateOptions options = {};
  Workspace<float> workspace = Workspace<float>(weights.threads);

  /// One sample, from what a cache holds.
  TimedGenerations generate(const std::vector<int>& ids, ModelCache<float>& cache,
                            const std::function<void(int id)>& onToken) {
    TimedGenerations timed;
    const Stopwatch watch;
    timed.generations.push_back(generateTokens(ids, options, weights, cache, workspace, [&](int id) {
      timed.takeTime(watch);
      onToken(id);
      return true;
    }));
    if (!timed.has_begun) timed.takeTime(watch);
    return timed;
  }

  /// As many sequences at a time as `batch` says. `onFinish` is called with the prompts in their order: with each as
  /// soon as all samples of it and of those before it have ended.
  std::vector<TimedGenerations> generate(
      const std::vector<std::vector<int>>& prompts, const BatchOptions& batch,
      const std::function<void(std::size_t prompt, const TimedGenerations&)>& onFinish = {}) {
    const auto samples = static_cast<std::size_t>(options.samples);
    std::vector<TimedGenerations> timed(prompts.size());
    for (TimedGenerations& one : timed) one.generations.resize(samples);
    std::vector<std::size_t> ended(prompts.size(), 0);  // of the samples of each
    std::size_t next = 0;
    const Stopwatch watch;
    const auto takeTime = [&](std::size_t sequence, int) {
      timed[sequence / samples].takeTime(watch);
      return true;
    };
    const auto takeResult = [&](std::size_t sequence, const Generation& generation) {
      TimedGenerations& one = timed[sequence / samples];
      if (!one.has_begun) one.takeTime(watch);
      one.generations[sequence % samples] = generation;
      ++ended[sequence / samples];
      for (; next < prompts.size() && ended[next] == samples; ++next)
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

void report(std::size_t prompt_tokens, const TimedGenerations& timed) {
  const std::vector<Generation>& generations = timed.generations;
  const std::size_t tokens = countTokens(generations);
  const auto begun = static_cast<std::size_t>(
      std::ranges::count_if(generations, [](const Generation& one) { return !one.output_ids.empty(); }));
  reportPart("prompt", prompt_tokens, prompt_tokens, timed.prefill_seconds);
  std::cerr << "\n";
  reportPart("generated", tokens, tokens - begun, timed.decode_seconds);  // a first token comes with the prefill
  if (generations.size() == 1) std::cerr << "  (" << nameOf(generations.front().finish_reason) << ")";
  std::cerr << std::endl;
}

/// Prompts that are run together are prefilled and decoded at the same time: one figure for everything.
void report(const std::vector<std::vector<int>>& prompts, const std::vector<TimedGenerations>& timed, double seconds) {
  std::size_t prompt_tokens = 0, tokens = 0;
  for (const std::vector<int>& prompt : prompts) prompt_tokens += prompt.size();
  for (const TimedGenerations& one : timed) tokens += countTokens(one.generations);
  std::cerr << prompts.size() << " prompts, " << prompt_tokens << " tokens\n";
  reportPart("generated", tokens, tokens, seconds);
  std::cerr << std::endl;
}

std::string json(const std::vector<int>& ids, const GenerateOptions& options, const TimedGenerations& timed,
                 const Tokenizer* tokenizer) {
  nlohmann::ordered_json object{{"prompt_ids", ids}};
  addGenerations(object, "output_ids", {ids, options}, timed.generations, tokenizer);
  object["prefill_seconds"] = timed.prefill_seconds;
  object["decode_seconds"] = timed.decode_seconds;
  return jsonLine(object);  // tokens can end within a character
}

Generator load(const GenerateCommand& command) {
  Generator generator{.weights = loadWeights(openModel(command.model), loadOptions(command.model)),
                      .tokenizer = ModelTokenizer(command.model.path)};
  generator.options = generateOptions(command.generation, command.model, generator.weights, generator.tokenizer);
  return generator;
}

/// The tokenizer for --output text.
const Tokenizer& requireTokenizer(Generator& generator) {
  return generator.tokenizer.require("expected --output ids or --output json, got text");
}

/// Several samples of one prompt, or what a beam search finds. Their texts come one after the other, when all are
/// there.
void writeSamples(const GenerateCommand& command, Generator& generator) {
  const std::vector<int> ids = encodePrompt(command.prompt, generator.tokenizer);
  const std::string output = command.output.value_or("text");
  const Tokenizer* const decoder = output == "text" ? &requireTokenizer(generator) : nullptr;
  const TimedGenerations timed =
      generator
          .generate({ids}, batchOptions(command.model,
                                        std::max(command.batch, static_cast<std::size_t>(generator.options.num_beams))))
          .front();
  const std::vector<Generation>& generations = timed.generations;
  if (const std::string error = firstError(generations); !error.empty()) throw ArgumentError(error);
  for (const Generation& generation : generations) {
    if (output == "ids") writeOutput(idsText(generation.output_ids) + "\n");
    if (decoder == nullptr) continue;
    std::cerr << "sample " << &generation - generations.data() + 1 << " of " << generations.size() << " ("
              << nameOf(generation.finish_reason) << "):" << std::endl;
    writeOutput(decoder->decode(generation.output_ids) + "\n");
  }
  if (output == "json") writeOutput(json(ids, generator.options, timed, findForJson(generator.tokenizer)));
  report(ids.size(), timed);
}

/// What a generation that has ended goes on with: the last id again, whose position the cache gives up.
std::vector<int> takeBackLast(ModelCache<float>& cache, const std::string& path) {
  if (cache.length() == 0)
    throw ArgumentError("--load-cache: " + path + ": expected a prompt to go on with, as the cache is empty, got none");
  const int last = cache.ids().back();
  cache.truncate(cache.length() - 1);
  return {last};
}

/// Makes the cache hold `ids`, as far as there are positions, of which it holds some of the first ones, and perhaps
/// others after these that are no longer part of the text.
void hold(const std::vector<int>& ids, ModelCache<float>& cache, Generator& generator) {
  const std::vector<int>& held = cache.ids();
  cache.truncate(std::ranges::mismatch(held, ids).in1 - held.begin());
  const auto positions = std::min(ids.size(), static_cast<std::size_t>(cache.capacity()));
  const auto missing = std::span(ids).first(positions).subspan(static_cast<std::size_t>(cache.length()));
  if (!missing.empty()) prefill(missing, generator.weights, cache, generator.workspace);
}

/// One prompt; its text is written while it is generated.
void writeOne(const GenerateCommand& command, Generator& generator) {
  ModelCache<float> cache = command.load_cache ? loadCache(*command.load_cache, generator.weights)
                                               : std::move(emptyCaches(command.model, generator.weights, 1).front());
  const bool has_prompt = command.prompt.text || command.prompt.ids || !command.load_cache;
  const std::vector<int> ids =
      has_prompt ? encodePrompt(command.prompt, generator.tokenizer) : takeBackLast(cache, *command.load_cache);
  std::vector<int> all = cache.ids();
  all.insert(all.end(), ids.begin(), ids.end());
  const std::string output = command.output.value_or("text");
  std::optional<StreamingDecoder> decoder;
  if (output == "text") decoder.emplace(requireTokenizer(generator));
  const auto writeToken = [&](int id) {
    if (decoder) writeOutput(decoder->push(id));
  };
  const TimedGenerations timed = generator.generate(ids, cache, writeToken);
  const std::vector<int>& output_ids = timed.generations.front().output_ids;
  if (decoder) writeOutput(decoder->finish());
  if (decoder) std::cerr << "\n";  // standard output is the continuation alone, which seldom ends a line
  if (output == "ids") writeOutput(idsText(output_ids) + "\n");
  if (output == "json") writeOutput(json(all, generator.options, timed, findForJson(generator.tokenizer)));
  if (command.save_cache) {
    all.insert(all.end(), output_ids.begin(), output_ids.end());
    hold(all, cache, generator);
    saveCache(cache, *command.save_cache, generator.weights);
  }
  report(ids.size(), timed);
}

/// A file of prompts. Its results are written in their order, each as soon as all before it are.
void writeLines(const GenerateCommand& command, Generator& generator) {
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
  const std::vector<TimedGenerations> timed = generator.generate(
      prompts,
      batchOptions(command.model, std::max(command.batch, static_cast<std::size_t>(generator.options.num_beams))),
      [&](std::size_t prompt, const TimedGenerations& result) {
        writeOutput(json(prompts[prompt], generator.options, result, tokenizer));
        const std::string error = firstError(result.generations);
        if (error.empty()) return;
        if (++failures == 1) failure = "line " + std::to_string(prompt + 1) + ": " + error;
      });
  report(prompts, timed, watch.seconds());
  if (failures == 0) return;
  throw ArgumentError(promptsName(*command.prompts) + ": " + failure + "; in all, " + std::to_string(failures) +
                      " of " + std::to_string(prompts.size()) + " prompts failed");
}

/// Refuses options that contradict each other, before anything is loaded.
void check(const GenerateCommand& command) {
  const GenerateOptions& options = command.generation.options;
  const std::string output = command.output.value_or(command.prompts ? "json" : "text");
  if (command.prompts && output != "json")
    throw ArgumentError("--prompts writes JSON Lines: expected --output json or none, got " + output);
  const auto needsJson = [&](const char* option) {
    if (output != "json") throw ArgumentError(std::string(option) + ": expected --output json, got " + output);
  };
  if (options.log_probabilities) needsJson("--logprobs");
  if (options.prompt_log_probabilities) needsJson("--prompt-logprobs");
  if (!command.load_cache && !command.save_cache) return;
  const std::string option = command.load_cache ? "--load-cache" : "--save-cache";
  const auto refuse = [&](bool is_there, const char* other) {
    if (is_there) throw ArgumentError(option + ": expected no " + other + ", got both");
  };
  refuse(command.prompts.has_value(), "--prompts");
  refuse(options.samples > 1, "--samples above 1");
  refuse(options.num_beams > 1, "--num-beams above 1");
  refuse(!options.use_cache, "--no-cache");
  refuse(command.model.policy.has_value(), "--policy");
  // The tokens that are in the cache already cannot be scored.
  refuse(command.load_cache && options.prompt_log_probabilities, "--prompt-logprobs");
}

}  // namespace

void GenerateCommand::run() const {
  check(*this);
  Generator generator = load(*this);
  if (prompts) return writeLines(*this, generator);
  if (generator.options.samples > 1 || generator.options.num_beams > 1) return writeSamples(*this, generator);
  writeOne(*this, generator);
}

}  // namespace driftless::cli
