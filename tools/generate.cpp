#include "driftless/generate.hpp"

#include <chrono>
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
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "options.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

struct TimedGeneration {
  Generation generation;
  double prefill_seconds = 0;  ///< up to the choice of the first token
  double decode_seconds = 0;   ///< from there on
};

TimedGeneration generateTimed(std::span<const int> ids, const GenerateOptions& options, const Weights<>& weights,
                              const std::function<void(int id)>& onToken) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  std::optional<Clock::time_point> first;
  TimedGeneration timed;
  const Clock::time_point start = Clock::now();
  timed.generation = generateTokens(ids, options, weights, [&](int id) {
    if (!first) first = Clock::now();
    onToken(id);
    return true;
  });
  const Clock::time_point end = Clock::now();
  timed.prefill_seconds = seconds(first.value_or(end) - start);
  timed.decode_seconds = seconds(end - first.value_or(end));
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
  // The first token comes with the prefill, and the id that stops a generation costs a step without being counted.
  const bool has_stopped = timed.generation.finish_reason == FinishReason::stop;
  const std::size_t steps = tokens == 0 || has_stopped ? tokens : tokens - 1;
  reportPart("prompt", prompt_tokens, prompt_tokens, timed.prefill_seconds);
  std::cerr << "\n";
  reportPart("generated", tokens, steps, timed.decode_seconds);
  std::cerr << "  (" << nameOf(timed.generation.finish_reason) << ")" << std::endl;
}

struct GenerateCommand {
  std::string model = DRIFTLESS_DEFAULT_MODEL_DIR;
  std::optional<int> threads;
  Prompt prompt;
  GenerateOptions generate;
  bool stops_at_eos = false;
  bool recomputes = false;
  std::string output = "text";

  void run() const {
    const Weights<> weights = loadWeights(model, makeThreads(threads));
    const std::optional<Tokenizer> tokenizer = needsTokenizer() ? loadTokenizerOf(model) : std::nullopt;
    const std::vector<int> ids = encodePrompt(prompt, tokenizer);
    GenerateOptions options = generate;
    options.use_cache = !recomputes;
    if (stops_at_eos) options.stop_ids = {endOfText(tokenizer)};
    if (output == "text") {
      writeText(ids, options, weights, tokenizer);
    } else {
      const TimedGeneration timed = generateTimed(ids, options, weights, [](int) {});
      const std::vector<int>& output_ids = timed.generation.output_ids;
      writeOutput((output == "ids" ? idsText(output_ids) : json(ids, timed, tokenizer)) + "\n");
      report(ids.size(), timed);
    }
  }

 private:
  /// Token ids in and out work with a tokenizer that is missing, damaged or not supported.
  bool needsTokenizer() const { return output != "ids" || prompt.hasText() || stops_at_eos; }

  int endOfText(const std::optional<Tokenizer>& tokenizer) const {
    if (!tokenizer || !tokenizer->endOfText())
      throw ArgumentError("--stop-at-eos: expected tokenizer files with <|endoftext|> in " + model + ", found none");
    return *tokenizer->endOfText();
  }

  void writeText(const std::vector<int>& ids, const GenerateOptions& options, const Weights<>& weights,
                 const std::optional<Tokenizer>& tokenizer) const {
    if (!tokenizer)
      throw ArgumentError("the model has no tokenizer files: expected --output ids or --output json, got text");
    StreamingDecoder decoder(*tokenizer);
    const TimedGeneration timed = generateTimed(ids, options, weights, [&](int id) { writeOutput(decoder.push(id)); });
    writeOutput(decoder.finish());
    // Standard output is the continuation alone, which seldom ends a line.
    std::cerr << "\n";
    report(ids.size(), timed);
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
  addThreads(*command, options->threads);
  command
      ->add_option("--output", options->output, "What to write: the continuation's text as it comes, its ids, or JSON")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "ids", "json"}));
  command->add_flag("--no-cache", options->recomputes, "Recompute everything for every token, to see the difference");
  command->callback([options] { options->run(); });
}

}  // namespace driftless::cli
