#include "driftless/generate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "model.hpp"
#include "options.hpp"
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

std::vector<TimedGeneration> generateTimed(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                           Model& model, const std::function<void(int id)>& onToken) {
  std::vector<TimedGeneration> timed(prompts.size());
  const Stopwatch watch;
  std::vector<bool> has_begun(prompts.size(), false);
  std::vector<Generation> generations = model.generate(prompts, options, [&](std::size_t prompt, int id) {
    const double now = watch.seconds();
    if (!has_begun[prompt]) timed[prompt].prefill_seconds = now;
    has_begun[prompt] = true;
    timed[prompt].decode_seconds = now - timed[prompt].prefill_seconds;
    onToken(id);
    return true;
  });
  for (std::size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    if (!has_begun[prompt]) timed[prompt].prefill_seconds = watch.seconds();
    timed[prompt].generation = std::move(generations[prompt]);
  }
  return timed;
}

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

struct GenerateCommand {
  std::string model = DRIFTLESS_DEFAULT_MODEL_DIR;
  StoredTypes types;
  std::optional<int> threads;
  Prompt prompt;
  std::string prompts;
  std::size_t batch = 16;
  GenerateOptions generate;
  bool stops_at_eos = false;
  bool recomputes = false;
  std::string output = "text";
  CLI::Option* prompts_option = nullptr;
  CLI::Option* output_option = nullptr;

  void run() const {
    const std::unique_ptr<Model> loaded = loadModel(model, types, makeThreads(threads));
    loaded->setSequences(1);
    const std::optional<Tokenizer> tokenizer = needsTokenizer() ? loadTokenizerOf(model) : std::nullopt;
    GenerateOptions options = generate;
    options.use_cache = !recomputes;
    if (stops_at_eos) options.stop_ids = {endOfText(tokenizer)};
    if (prompts_option->count() > 0) return writeLines(options, *loaded, tokenizer);
    const std::vector<int> ids = encodePrompt(prompt, tokenizer);
    if (output == "text") return writeText(ids, options, *loaded, tokenizer);
    const TimedGeneration timed = generateTimed({ids}, options, *loaded, [](int) {}).front();
    const std::vector<int>& output_ids = timed.generation.output_ids;
    writeOutput((output == "ids" ? idsText(output_ids) : json(ids, timed, tokenizer)) + "\n");
    report(ids.size(), timed);
  }

 private:
  /// Token ids in and out work with a tokenizer that is missing, damaged or not supported.
  bool needsTokenizer() const { return output != "ids" || prompt.hasText() || stops_at_eos; }

  int endOfText(const std::optional<Tokenizer>& tokenizer) const {
    if (!tokenizer || !tokenizer->endOfText())
      throw ArgumentError("--stop-at-eos: expected tokenizer files with <|endoftext|> in " + model + ", found none");
    return *tokenizer->endOfText();
  }

  void writeText(const std::vector<int>& ids, const GenerateOptions& options, Model& loaded,
                 const std::optional<Tokenizer>& tokenizer) const {
    if (!tokenizer)
      throw ArgumentError("the model has no tokenizer files: expected --output ids or --output json, got text");
    StreamingDecoder decoder(*tokenizer);
    const TimedGeneration timed =
        generateTimed({ids}, options, loaded, [&](int id) { writeOutput(decoder.push(id)); }).front();
    writeOutput(decoder.finish());
    // Standard output is the continuation alone, which seldom ends a line.
    std::cerr << "\n";
    report(ids.size(), timed);
  }

  void writeLines(const GenerateOptions& options, Model& loaded, const std::optional<Tokenizer>& tokenizer) const {
    if (output_option->count() > 0 && output != "json")
      throw ArgumentError("--prompts writes JSON Lines: expected --output json or none, got " + output);
    const std::vector<std::vector<int>> list =
        readPrompts(prompts, tokenizer, [&](std::span<const int> ids) { loaded.checkPrompt(ids); });
    loaded.setSequences(std::min(batch, list.size()));
    const Stopwatch watch;
    const std::vector<TimedGeneration> timed = generateTimed(list, options, loaded, [](int) {});
    const double seconds = watch.seconds();
    for (std::size_t i = 0; i < list.size(); ++i) writeOutput(json(list[i], timed[i], tokenizer) + "\n");
    report(list, timed, seconds);
  }

  static std::string json(const std::vector<int>& ids, const TimedGeneration& timed,
                          const std::optional<Tokenizer>& tokenizer) {
    using Json = nlohmann::ordered_json;
    const std::vector<int>& output_ids = timed.generation.output_ids;
    const Json object{{"prompt_ids", ids},
                      {"output_ids", output_ids},
                      {"text", tokenizer ? Json(tokenizer->decode(output_ids)) : Json()},
                      {"finish_reason", nameOf(timed.generation.finish_reason)},
                      {"prefill_seconds", timed.prefill_seconds},
                      {"decode_seconds", timed.decode_seconds}};
    // Tokens can end within a character: such bytes become U+FFFD.
    return object.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
};

}  // namespace

void addGenerate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  auto options = std::make_shared<GenerateCommand>();
  GenerateOptions& generate = options->generate;
  Sampling& sampling = generate.sampling;
  addPrompt(*command, options->prompt);
  options->prompts_option =
      command
          ->add_option("--prompts", options->prompts,
                       "A file of prompts to continue, - for standard input: one text a line, or one JSON object a "
                       "line, {\"ids\": [1, 2]} or {\"prompt\": \"text\"}. Writes JSON Lines in the same order; "
                       "prefill_seconds count from the start of all")
          ->type_name("FILE")
          ->excludes(options->prompt.text_option, options->prompt.ids_option);
  command->add_option("--batch", options->batch, "Prompts of --prompts to run together")
      ->type_name("N")
      ->capture_default_str()
      ->transform(wholeNumber<std::size_t>(1))
      ->needs(options->prompts_option);
  addModel(*command, options->model);
  command->add_option("-n,--max-tokens", generate.max_tokens, "Tokens to generate at most")
      ->type_name("N")
      ->capture_default_str()
      ->transform(wholeNumber<int>(0));
  command->add_flag("--stop-at-eos", options->stops_at_eos, "Stop before <|endoftext|>");
  command
      ->add_option("--temperature", sampling.temperature,
                   "0 takes the likeliest token; above, one is drawn, the more freely the higher")
      ->type_name("X")
      ->capture_default_str()
      ->transform(number(0.0, std::numeric_limits<double>::max(), "a number of 0 or more"));
  command->add_option("--top-k", sampling.top_k, "Draw from the K likeliest tokens only; 0: from all")
      ->type_name("K")
      ->capture_default_str()
      ->transform(wholeNumber<int>(0));
  command->add_option("--top-p", sampling.top_p, "Draw from the likeliest tokens up to a total probability of P only")
      ->type_name("P")
      ->capture_default_str()
      ->transform(number(std::numeric_limits<double>::min(), 1.0, "a number above 0 and up to 1"));
  command->add_option("--seed", sampling.seed, "The same seed draws the same tokens everywhere")
      ->type_name("N")
      ->capture_default_str()
      ->transform(wholeNumber<std::uint64_t>(0));
  addStoredTypes(*command, options->types);
  addThreads(*command, options->threads);
  options->output_option = command
                               ->add_option("--output", options->output,
                                            "What to write: the continuation's text as it comes, its ids, or JSON")
                               ->capture_default_str()
                               ->check(CLI::IsMember({"text", "ids", "json"}));
  command->add_flag("--no-cache", options->recomputes, "Recompute everything for every token, to see the difference");
  command->callback([options] { options->run(); });
}

}  // namespace driftless::cli
