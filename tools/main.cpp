#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/config.hpp"
#include "driftless/error.hpp"
#include "driftless/generate.hpp"
#include "driftless/version.hpp"
#include "named_policies.hpp"
#include "prompts.hpp"
#include "requests.hpp"
#include "streams.hpp"

// All arguments that the program takes, and what becomes of errors.

namespace driftless::cli {

std::string version() {
  return "driftless " + std::to_string(DRIFTLESS_VERSION_MAJOR) + "." + std::to_string(DRIFTLESS_VERSION_MINOR) + "." +
         std::to_string(DRIFTLESS_VERSION_PATCH);
}

namespace {

constexpr int kFailure = 2;

template <class Number>
std::optional<Number> parseNumber(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// A decimal number from `least` to `most`; its value so far, if it has one, is the default. CLI11's own conversion
/// takes 010 for eight and -1 for a large unsigned number, and lets NaN pass its range check.
template <class Number, class Value>
CLI::Option* addNumber(CLI::App& command, const std::string& name, Value& value, Number least, Number most,
                       const std::string& expected, const std::string& description) {
  const auto set = [&value](const std::string& text) { value = *parseNumber<Number>(text); };
  const auto check = [=](const std::string& text) -> std::string {
    const std::optional<Number> number = parseNumber<Number>(text);
    return number && *number >= least && *number <= most ? "" : "expected " + expected + ", got " + text;
  };
  CLI::Option* option = command.add_option_function<std::string>(name, set, description)->type_name("N")->check(check);
  if constexpr (std::is_same_v<Value, Number>) {
    std::array<char, 32> text;
    option->default_str({text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr});
  }
  return option;
}

template <class Number, class Value>
CLI::Option* addWholeNumber(CLI::App& command, const std::string& name, Value& value, Number least,
                            const std::string& description, Number most = std::numeric_limits<Number>::max()) {
  const std::string expected = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  return addNumber(command, name, value, least, most, expected, description);
}

/// CLI11 drops an argument `++`, which it takes for the end of a subcommand, and takes `[a,b]` for a list. With a zero
/// byte, which no argument can have, at their end they are arguments like others.
std::string marked(std::string argument) {
  if (argument == "++" || (argument.starts_with('[') && argument.ends_with(']'))) argument += '\0';
  return argument;
}

std::string unmarked(std::string argument) {
  if (argument.ends_with('\0')) argument.pop_back();
  return argument;
}

/// A text. CLI11 itself would take an empty one for none.
template <class Value>
CLI::Option* addText(CLI::App& command, const std::string& name, Value& value, const std::string& description) {
  return command.add_option_function<std::string>(
      name, [&value](const std::string& text) { value = unmarked(text); }, description);
}

/// Texts, one each time that the option is given. Positional ones may follow each other.
CLI::Option* addTexts(CLI::App& command, const std::string& name, std::vector<std::string>& texts,
                      const std::string& description) {
  const auto set = [&texts](const std::vector<std::string>& values) {
    std::ranges::transform(values, std::back_inserter(texts), unmarked);
  };
  return command.add_option_function<std::vector<std::string>>(name, set, description)
      ->allow_extra_args(!name.starts_with('-'));
}

CLI::Option* addModel(CLI::App& command, std::string& path) {
  return addText(command, "-m,--model", path, "A Hugging Face directory, or a .safetensors file beside its config.json")
      ->type_name("DIR")
      ->default_str("that of the program");
}

CLI::Option* addPreset(CLI::App& command, std::optional<std::string>& name, CLI::Option* model) {
  return addText(command, "--preset", name, "Seeded random weights of a published shape in place of a model")
      ->check(CLI::IsMember(presetNames()))
      ->excludes(model);
}

void addStoredTypes(CLI::App& command, ModelOptions& model) {
  command.add_option("--weights", model.weights, "What weights are stored as")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8", "int4"}));
  command
      .add_option("--compute", model.compute,
                  "What products with weights are computed in; int8, for weights of int8 and int4, rounds what enters "
                  "them to 8 bits as well")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "int8"}));
  command.add_option("--cache", model.cache, "What keys and values are stored as")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
}

void addPolicy(CLI::App& command, ModelOptions& model) {
  CLI::Option* policy = addText(command, "--policy", model.policy,
                                "Which positions the cache keeps: " + policyNames() + " (docs/cache-policies.md)")
                            ->type_name("NAME");
  CLI::Option* budget = addWholeNumber(command, "--cache-budget", model.cache_budget, Index{1},
                                       "How many positions it keeps of each head")
                            ->needs(policy);
  policy->needs(budget);
  command
      .add_flag("--past-context", model.past_context,
                "Go on after n_positions, by numbering positions anew, for which the model was not trained")
      ->needs(policy);
}

void addFileOptions(CLI::App& command, ModelOptions& model) {
  command.add_flag("!--no-mmap", model.maps_files,
                   "Read tensor files as a whole instead of mapping them: slower, but safe if they change meanwhile");
  command.add_flag("--ignore-extra", model.ignores_extra,
                   "Leave out tensors that a GPT-2 does not have, such as further heads, and name them");
}

void addThreads(CLI::App& command, std::optional<int>& count) {
  addWholeNumber(command, "-t,--threads", count, 1,
                 "Threads that compute (default: one per physical core that the process may use)", 1024);
}

const std::string kTextFrom =
    "; - takes standard input, without the newline at its end and without a byte order mark; after --, text can begin "
    "with a dash";

void addPrompt(CLI::App& command, Prompt& prompt) {
  CLI::Option* text =
      addText(command, "PROMPT,-p,--prompt", prompt.text, "The text to continue" + kTextFrom)->type_name("TEXT");
  addText(command, "--ids", prompt.ids, "Token ids to continue, such as 1,2,3; - takes standard input")
      ->type_name("IDS")
      ->excludes(text);
}

CLI::Option* addIds(CLI::App& command, const std::string& name, std::vector<int>& ids, const std::string& description) {
  const auto set = [&ids, name](const std::string& text) { ids = parseIds(name, text); };
  return command.add_option_function<std::string>(name, set, description)->type_name("IDS");
}

CLI::Option* addRealNumber(CLI::App& command, const std::string& name, double& value, const std::string& description) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return addNumber(command, name, value, -kMost, kMost, "a number", description)->type_name("X");
}

/// A share of what there is, not 0.
CLI::Option* addShare(CLI::App& command, const std::string& name, double& value, const std::string& description) {
  return addNumber(command, name, value, std::numeric_limits<double>::min(), 1.0, "a number above 0 and up to 1",
                   description)
      ->type_name("P");
}

/// ID+BIAS or ID-BIAS.
std::optional<LogitBias> parseBias(const std::string& text) {
  const std::size_t sign = std::min(text.find_first_of("+-"), text.size());
  const auto id = parseNumber<int>(text.substr(0, sign));
  const auto amount = parseNumber<double>(text.substr(std::min(sign + 1, text.size())));
  if (!id || !amount || !(*amount >= 0)) return std::nullopt;
  return LogitBias{*id, text[sign] == '-' ? -*amount : *amount};
}

void addLogitBias(CLI::App& command, std::vector<LogitBias>& biases) {
  const auto set = [&biases](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) biases.push_back(*parseBias(text));
  };
  const auto check = [](const std::string& text) -> std::string {
    return parseBias(text) ? "" : "expected a token id with what is added to its logit, such as 11-1.5, got " + text;
  };
  command
      .add_option_function<std::vector<std::string>>(
          "-l,--logit-bias", set, "Add to the logit of a token, such as 11+2 or 11-1.5; can be given several times")
      ->type_name("ID+X")
      ->allow_extra_args(false)
      ->check(check);
}

/// What changes the choice of a token, in the order in which it does.
void addChoiceFlags(CLI::App& command, GenerateOptions& options) {
  addLogitBias(command, options.rules.logit_bias);
  addNumber(command, "--repetition-penalty,--repeat-penalty", options.rules.repetition_penalty,
            std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), "a number above 0",
            "Above 1, tokens that occur in the prompt or the output become less likely; 1 changes nothing")
      ->type_name("X");
  addRealNumber(command, "--frequency-penalty", options.rules.frequency_penalty,
                "Subtract this from a token's logit as often as the output has the token");
  addRealNumber(command, "--presence-penalty", options.rules.presence_penalty,
                "Subtract this once if the output has the token");
  addWholeNumber(command, "--no-repeat-ngram-size", options.rules.no_repeat_ngram_size, Index{0},
                 "No run of N tokens comes up twice; 0: any may");
  addIds(command, "--suppress-tokens", options.rules.suppress_tokens, "Token ids that are never chosen, such as 1,2");
  Sampling& sampling = options.sampling;
  addNumber(command, "--temperature", sampling.temperature, 0.0, std::numeric_limits<double>::max(),
            "a number of 0 or more", "0 takes the likeliest token; above, one is drawn, the more freely the higher")
      ->type_name("X");
  addWholeNumber(command, "--top-k", sampling.top_k, 0, "Draw from the K likeliest tokens only; 0: from all")
      ->type_name("K");
  addShare(command, "--top-p", sampling.top_p, "Draw from the likeliest tokens up to a total probability of P only");
  addNumber(command, "--min-p", sampling.min_p, 0.0, 1.0, "a number from 0 to 1",
            "Draw from tokens at least P times as likely as the likeliest only")
      ->type_name("P");
  addShare(command, "--typical-p,--typical", sampling.typical_p,
           "Draw from the most typical tokens up to a total probability of P only");
  addWholeNumber(command, "--seed", sampling.seed, std::uint64_t{0}, "The same seed draws the same tokens everywhere");
}

void addGenerationFlags(CLI::App& command, GenerationFlags& flags) {
  GenerateOptions& options = flags.options;
  addWholeNumber(command, "-n,--max-tokens", options.max_tokens, Index{0}, "Tokens to generate at most");
  addWholeNumber(command, "--min-tokens", options.min_tokens, Index{0}, "Do not stop before so many");
  addTexts(command, "--stop", options.stop_strings, "End the text before this; can be given several times")
      ->type_name("TEXT");
  addIds(command, "--stop-ids", options.stop_ids, "Stop before any of these token ids, such as 1,2");
  command.add_flag("--stop-at-eos", flags.stops_at_eos,
                   "Stop before an eos_token_id of generation_config.json or config.json, or else <|endoftext|>");
  addWholeNumber(command, "--samples", options.samples, Index{1},
                 "Continuations of each prompt; the i-th draws with seed + i, i from 0; of a beam search, the best N",
                 kMostSamples);
  addWholeNumber(command, "--num-beams", options.num_beams, Index{1},
                 "Search for the likeliest continuation as a whole, with N of them at a time; 1 does not");
  addRealNumber(command, "--length-penalty", options.length_penalty,
                "Its log-probability is divided by its length to this power: above 0, longer ones win more easily");
  command.add_flag("--early-stopping", options.early_stopping,
                   "End the search as soon as there are as many that have stopped as beams");
  addWholeNumber(command, "--logprobs", options.log_probabilities, Index{0},
                 "Add each token's log-probability to the JSON, and the N likeliest tokens in its place");
  command.add_flag("--prompt-logprobs", options.prompt_log_probabilities,
                   "Add those of the prompt's tokens to the JSON");
  CLI::Option* lookup = addWholeNumber(
      command, "--prompt-lookup-num-tokens", flags.prompt_lookup_tokens, Index{1},
      "Guess up to N tokens at a time from earlier text: the same output, sooner if it repeats what was there");
  addText(command, "--model-draft", flags.draft_model,
          "Guess tokens by a smaller model of the same vocabulary: the same output, often sooner")
      ->type_name("DIR")
      ->excludes(lookup);

  CLI::OptionDefaults& defaults = *command.option_defaults();
  const std::string group = defaults.get_group();
  defaults.group("How a token is chosen; what is given applies in this order");
  addChoiceFlags(command, options);
  defaults.group(group);
}

void addGenerate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  auto options = std::make_shared<GenerateCommand>();
  addPrompt(*command, options->prompt);
  CLI::Option* prompts =
      addText(
          *command, "--prompts", options->prompts,
          "A file of prompts to continue, - for standard input: one text per line, or one JSON object per line, "
          "{\"ids\": [1, 2]} or {\"prompt\": \"text\"}; in UTF-8. Writes JSON Lines in the same order, each as soon as "
          "it and all before it have ended; prefill_seconds count from the start of all. If a line is not as it "
          "should be, no prompt is run. A prompt for which no token can be chosen has finish_reason \"error\" and an "
          "error; the others go on, and the exit status is 2 at the end")
          ->type_name("FILE")
          ->excludes(command->get_option("--prompt"), command->get_option("--ids"));
  addWholeNumber(*command, "--batch", options->batch, std::size_t{1}, "Prompts of --prompts to run together")
      ->needs(prompts);
  addModel(*command, options->model.path);
  addGenerationFlags(*command, options->generation);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addPolicy(*command, options->model);
  addThreads(*command, options->model.threads);
  addText(*command, "--output", options->output, "What to write: the continuation's text as it comes, its ids, or JSON")
      ->default_str("text")
      ->check(CLI::IsMember({"text", "ids", "json"}));
  command->add_flag("!--no-cache", options->generation.options.use_cache,
                    "Recompute everything for every token, to see the difference");
  addText(*command, "--save-cache", options->save_cache,
          "Write the cache to FILE when all is generated, for --load-cache: it holds prompt and output (if the context "
          "is full, all but the last token)")
      ->type_name("FILE");
  addText(*command, "--load-cache", options->load_cache,
          "Go on from a cache that the same model saved: with a prompt, which becomes tokens by itself, or, without "
          "one, where the text ended, as if it had not been interrupted. The seed begins anew, and --stop, "
          "--min-tokens, --presence-penalty and --frequency-penalty look at what is generated from there on")
      ->type_name("FILE")
      ->excludes(command->get_option("--cache"));
  command->callback([=] {
    // Elsewhere such options turn sampling on.
    const bool searches = command->count("--num-beams") > 0;
    for (const char* option : {"--top-k", "--top-p", "--min-p", "--typical-p", "--seed", "--samples"})
      if (command->count(option) > 0 && command->count("--temperature") == 0 &&
          !(searches && option == std::string_view("--samples")))
        throw ArgumentError(std::string(option) +
                            " has no effect at temperature 0, which takes the likeliest token: expected --temperature "
                            "too, such as --temperature 0.8");
    options->run();
  });
}

/// One line, whatever the text holds.
void complain(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char byte) { return std::iscntrl(byte) != 0; }, ' ');
  std::cerr << "driftless: " << text << std::endl;
}

void addBatch(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("batch", "Run a file of requests, one JSON object per line");
  command->footer(
      "A request has prompt, a text, or ids; an id, a string or a number, which is the number of its line, from 1, if "
      "absent; and what differs from the options here: max_tokens, min_tokens, stop (a text or a list of them), "
      "stop_ids (besides those of --stop-ids and --stop-at-eos), temperature, top_k, top_p, min_p, typical_p, seed, n "
      "(samples), "
      "repetition_penalty, presence_penalty, frequency_penalty, logit_bias ({\"11\": -1.5}), suppress_tokens, "
      "no_repeat_ngram_size, logprobs (how many of the likeliest tokens besides the chosen one), prompt_logprobs, "
      "prompt_lookup_num_tokens, num_beams, length_penalty, early_stopping. Its result has id, text, ids, "
      "finish_reason and usage; choices in their place if n is "
      "more than 1; or id and error if something is wrong with the request: the others go on. Empty lines are skipped, "
      "and counted. A result depends on the model and its request alone, and so does the file, byte for byte. A job "
      "that was killed goes on with --resume, and ends with the same file. Exit status: 1 if requests failed; 2 if the "
      "job itself could not go on.");
  auto options = std::make_shared<BatchCommand>();
  addText(*command, "IN", options->input, "The file of requests; - takes standard input")->required()->type_name("IN");
  addText(*command, "-o,--output", options->output, "The file to write the results to; - for standard output")
      ->type_name("OUT")
      ->default_str(options->output);
  CLI::Option* resume =
      command->add_flag("--resume", options->resumes,
                        "Keep the complete lines of OUT, which must be results of this IN, and add what is missing");
  command->add_flag("--overwrite", options->overwrites, "Replace what is in OUT")->excludes(resume);
  command->add_flag("--unordered", options->is_unordered, "Write results as they come, not in the order of requests");
  addWholeNumber(*command, "--batch", options->batch, std::size_t{1}, "Sequences to run together", std::size_t{1024});
  constexpr Index kMostMib = Index{1} << 40;
  addWholeNumber(*command, "--cache-mb", options->cache_mib, Index{1},
                 "The most that caches of running sequences may take, in MiB (default: no limit)", kMostMib);
  addWholeNumber(*command, "--prefix-cache-mb", options->prefix_cache_mib, Index{0},
                 "What may be kept of prompts for others that begin alike, in MiB; 0: nothing", kMostMib);
  addModel(*command, options->model.path);
  addGenerationFlags(*command, options->generation);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->callback([options, &status] {
    const std::string failures = options->run();
    if (failures.empty()) return;
    complain(failures);
    status = 1;
  });
}

void addScore(CLI::App& app) {
  CLI::App* command = app.add_subcommand("score", "Say how likely a text is, token by token: its perplexity");
  command->footer(
      "Every token but the first, which has nothing before it, is scored by those before it; <|endoftext|> at the "
      "beginning of a text has its first word scored too. log-probability is the sum of natural logarithms, per token "
      "their mean, perplexity e to minus that; bits/byte is minus the sum in bits for each byte of what was scored. "
      "JSON has ids, the log_probabilities of all but the first of them, and null for what is not finite or has no "
      "text.");
  auto options = std::make_shared<ScoreCommand>();
  CLI::Option* text = addText(*command, "TEXT", options->text.text, "The text to score" + kTextFrom)->type_name("");
  CLI::Option* ids =
      addText(*command, "--ids", options->text.ids, "Token ids to score, such as 1,2,3; - takes standard input")
          ->type_name("IDS")
          ->excludes(text);
  CLI::Option* file = addText(*command, "--file", options->file,
                              "A file to score as one text, all of it, with the newline at its end; in UTF-8")
                          ->type_name("FILE")
                          ->excludes(text, ids);
  addText(
      *command, "--lines", options->lines,
      "A file of texts to score, - for standard input: one per line, or one JSON object per line, {\"text\": "
      "\"text\"} or {\"ids\": [1, 2]}, which can have an \"id\" too; in UTF-8. If a line is not as it should be, no "
      "text is scored")
      ->type_name("FILE")
      ->excludes(text, ids, file);
  addModel(*command, options->model.path);
  addWholeNumber(*command, "--max-length", options->max_length, std::ptrdiff_t{2},
                 "Tokens that are looked at together at most (default: the model's context)");
  addWholeNumber(*command, "--stride", options->stride, std::ptrdiff_t{1},
                 "How many tokens apart the windows are in which longer texts are looked at: the less, the better "
                 "informed and the slower (default: half of --max-length)");
  CLI::Option* tokens = command->add_flag("--tokens", options->shows_tokens, "Show each token's log-probability too");
  CLI::Option* json =
      command->add_flag("--json", options->is_json, "One object for each text, on a line of its own")->excludes(tokens);
  addWholeNumber(*command, "--top", options->top, std::ptrdiff_t{0},
                 "With --json, the N likeliest tokens in each one's place")
      ->needs(json);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->callback([options] { options->run(); });
}

void addRank(CLI::App& app) {
  CLI::App* command = app.add_subcommand("rank", "Say which of several continuations of a prompt is the likeliest");
  command->footer(
      "Prompt and candidates become tokens each by itself: a candidate that begins with a word mostly begins with a "
      "space. log-probability is the sum of the natural logarithms over a candidate's tokens, per token their mean; "
      "share is the candidate's probability among all of them, by the sum.");
  auto options = std::make_shared<RankCommand>();
  addPrompt(*command, options->prompt);
  CLI::Option* candidates = addTexts(*command, "CANDIDATE", options->candidates, "Texts that may follow the prompt");
  addText(
      *command, "--candidates", options->candidates_file,
      "A file of them, - for standard input: one text per line, or one JSON object per line, {\"text\": \"text\"} or "
      "{\"ids\": [1, 2]}, which can have an \"id\" too; in UTF-8")
      ->type_name("FILE")
      ->excludes(candidates);
  addModel(*command, options->model.path);
  command->add_option("--by", options->by, "What the best has most of: the log-probability in total, or per token")
      ->capture_default_str()
      ->check(CLI::IsMember({"total", "mean"}));
  command->add_flag("--json", options->is_json, "One object, with each candidate's place in the order given as index");
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->callback([options] { options->run(); });
}

void addCapture(CLI::App& app) {
  CLI::App* command = app.add_subcommand("capture", "Write what the model computes for a text, as NumPy reads it");
  command->footer(
      "One file for each point, NAME.npy in float32: [tokens, width]; of heads [tokens, heads, width]; attention "
      "scores and patterns [heads, tokens, tokens]. tokens.json has the ids, the texts of the tokens, null where there "
      "is none, and the shape of each point that was written; it is there when all files are. --point '*' takes "
      "everything, and a name that does not exist has the program list those that do.");
  auto options = std::make_shared<CaptureCommand>();
  CLI::Option* text = addText(*command, "TEXT", options->text.text, "The text to look at" + kTextFrom)->type_name("");
  addText(*command, "--ids", options->text.ids, "Token ids to look at, such as 1,2,3; - takes standard input")
      ->type_name("IDS")
      ->excludes(text);
  addTexts(*command, "--point", options->points,
           "What to write, by TransformerLens's name; * stands for any part of one, and several can be given (default: "
           "residual streams, patterns and logits)")
      ->type_name("NAME");
  addText(*command, "-o,--output", options->output, "The directory to write to; it is created if it is not there")
      ->required()
      ->type_name("DIR");
  command->add_flag("--overwrite", options->overwrites,
                    "Write to a directory with files in it, and replace those of the same names");
  addModel(*command, options->model.path);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->callback([options] { options->run(); });
}

void addExplain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Write a web page that shows what the model does with a text");
  command->footer(
      "The page is one file that loads nothing: each token's surprise, what every layer and head attends to, what "
      "would "
      "come next after each layer, how the cache fills up, and the numbers of one token's way through the model. The "
      "text is continued by the likeliest tokens. Text and continuation have " +
      std::to_string(kMostExplainedTokens) + " tokens at most.");
  auto options = std::make_shared<ExplainCommand>();
  addPrompt(*command, options->prompt);
  addText(*command, "-o,--output", options->output, "The file to write the page to; - for standard output")
      ->required()
      ->type_name("FILE");
  addWholeNumber(*command, "-n,--max-tokens", options->max_tokens, std::size_t{0},
                 "Tokens to generate at most, fewer if the context fills up");
  addModel(*command, options->model.path);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->callback([options] { options->run(); });
}

void addVerify(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("verify", "Prove over a greedy generation that the cache does not drift");
  command->footer(
      "At every step the cached logits are compared with those of a prefill from scratch, bit for bit, and with the "
      "uncached reference: |a - b| <= 1e-3 + 1e-2 |b|, where max abs is the largest |a - b| and max rel the largest "
      "|a - b| / max(|b|, 0.1). JSON has null for a difference that is not finite. Exit status: 1 if one bit differs "
      "or, with weights and cache in f32, the tolerance is exceeded; 2 for any error. Other types are compared with "
      "themselves bit for bit; what they lose in rounding shows as a difference from the reference, and is no failure. "
      "Without a prompt, three token ids are continued.");
  auto options = std::make_shared<VerifyCommand>();
  addPrompt(*command, options->prompt);
  CLI::Option* model = addModel(*command, options->model.path);
  addPreset(*command, options->model.preset, model);
  addWholeNumber(*command, "-n,--max-tokens", options->max_tokens, 1, "Steps at most");
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->add_flag("--json", options->is_json, "One object with steps, differing_bits, max_abs and max_rel");
  command->callback([options, &status] { status = options->run() ? 0 : 1; });
}

void addBench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure a model's speed against the machine's limits");
  command->footer(
      "Every repeat measures the model and, on the same threads, the machine: how fast it reads a buffer of the "
      "weights' size, and how many multiply-adds it does between registers. decode_over_bandwidth: the bytes that a "
      "step must read (weights once, keys and values of every sequence) per second over the first; prefill_over_peak: "
      "floating-point operations per second over the second. load_seconds of random weights is for packing alone, and "
      "their peak memory includes the largest tensor in f16. Repeats end after a minute.");
  auto options = std::make_shared<BenchCommand>();
  CLI::Option* model = addModel(*command, options->model.path);
  const std::string preset = "gpt2";
  addPreset(*command, options->model.preset, model)->default_str(preset);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  addWholeNumber(*command, "--prompt-tokens", options->prompt_tokens, std::ptrdiff_t{1},
                 "Tokens of each prompt (default: half of the context, 512 at most)");
  addWholeNumber(*command, "-n,--max-tokens", options->max_tokens, std::ptrdiff_t{1}, "Tokens to generate after each");
  addWholeNumber(*command, "--batch", options->batch, std::size_t{1}, "Sequences together", std::size_t{4096});
  addWholeNumber(*command, "--repeats", options->repeats, std::size_t{1}, "How often everything is measured");
  command->add_flag("--curve", options->draws_curve,
                    "Also measure a token's cost at positions over the whole context, cached and recomputed");
  command->add_flag("--json", options->is_json, "One object; a figure of every repeat has median, min and max");
  addText(*command, "--against", options->against,
          "Compare with an earlier run of the same settings, of which FILE has the JSON: ratios, and what fell")
      ->type_name("FILE");
  command->callback([=] {
    if (model->count() == 0 && !options->model.preset) options->model.preset = preset;
    options->run();
  });
}

/// An empty text is one empty part.
std::vector<std::string> splitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream rest(text + ",");
  for (std::string part; std::getline(rest, part, ',');) parts.push_back(part);
  return parts;
}

/// Numbers, and ranges of them such as 0.1..1, in steps of 0.1; nothing if one is not above 0 and up to 1.
std::optional<std::vector<double>> parseBudgets(const std::string& text) {
  std::vector<double> budgets;
  for (const std::string& part : splitAtCommas(text)) {
    const std::size_t dots = std::min(part.find(".."), part.size());
    const auto first = parseNumber<double>(part.substr(0, dots));
    const auto last = dots == part.size() ? first : parseNumber<double>(part.substr(dots + 2));
    if (!first || !last || !(*first > 0 && *first <= *last && *last <= 1)) return std::nullopt;
    // Not by adding up, which would make 0.30000000000000004 of three steps.
    for (int step = 0; *first + step / 10.0 < *last + 1e-9; ++step)
      budgets.push_back(std::round((*first + step / 10.0) * 1e9) / 1e9);
  }
  return budgets;
}

void addCacheStudy(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("cache-study", "Compare caches that keep less with the full one, row by row of logits");
  command->footer(
      "Policies: full, " + policyNames() +
      "; f16, bf16 and int8 keep every position, stored as that type. The text is cut into windows, each of which "
      "begins with an empty cache; a budget is the share of a window's positions that every head keeps, rounded up. "
      "The first row is the full cache beside another full one: what differs is 0. bytes are those of the cache at the "
      "end of the first window; perplexity is of all tokens but each window's first; KL is the mean over all positions "
      "of the divergence from the full cache's probabilities, in nats, by position in JSON; agreement is how often "
      "the likeliest token is the same. The last 64 tokens of each window are decoded one by one: their tokens/s.");
  auto options = std::make_shared<CacheStudyCommand>();
  CLI::Option* text = addText(*command, "--text", options->file, "A file with the text, in UTF-8; - for standard input")
                          ->type_name("FILE");
  addText(*command, "--ids", options->ids, "Token ids in its place, such as 1,2,3; - takes standard input")
      ->type_name("IDS")
      ->excludes(text);
  command
      ->add_option_function<std::string>(
          "--policy", [options](const std::string& names) { options->policies = splitAtCommas(unmarked(names)); },
          "Names of policies, such as window,h2o (default: all)")
      ->type_name("NAME,...");
  const auto isBudget = [](const std::string& budgets) -> std::string {
    return parseBudgets(budgets) ? ""
                                 : "expected numbers above 0 and up to 1, such as 0.1,0.25 or 0.1..1, got " + budgets;
  };
  options->budgets = *parseBudgets("0.1..1");
  command
      ->add_option_function<std::string>(
          "--budget", [options](const std::string& budgets) { options->budgets = *parseBudgets(budgets); },
          "Shares of the positions to keep, such as 0.1,0.25; 0.1..1 is in steps of 0.1")
      ->type_name("P,...")
      ->default_str("0.1..1")
      ->check(isBudget);
  addWholeNumber(*command, "--max-length", options->max_length, Index{2},
                 "Tokens of a window at most (default: the model's context)");
  addModel(*command, options->model.path);
  addFileOptions(*command, options->model);
  addStoredTypes(*command, options->model);
  addThreads(*command, options->model.threads);
  command->add_flag("--json", options->is_json, "One object with a list of rows");
  command->callback([options] { options->run(); });
}

void addTokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids on one line, or ids into text");
  auto options = std::make_shared<TokenizeCommand>();
  addModel(*command, options->model)->description("A directory with the tokenizer's files");
  CLI::Option* text =
      addText(*command, "TEXT", options->text, "- takes standard input, every byte of it")->type_name("");
  command->add_flag("--plain", options->is_plain, "Take <|endoftext|> as ordinary text, not as the special token");
  addText(*command, "--decode", options->ids, "Write the bytes of token ids such as 1,2,3; - takes standard input")
      ->type_name("IDS")
      ->excludes(text);
  command->callback([options] { options->run(); });
}

void addInfo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Describe a model: its config, tensors and sizes");
  auto options = std::make_shared<InfoCommand>();
  addModel(*command, options->model.path);
  addFileOptions(*command, options->model);
  command->callback([options] { options->run(); });
}

/// Where to read on about the arguments that were given.
std::string helpCommand(const CLI::App& app) {
  std::string command = "driftless";
  for (const CLI::App* subcommand : app.get_subcommands()) command += " " + subcommand->get_name();
  return command + " --help";
}

/// Runs the command that is asked for, and returns the program's exit status.
int run(int argc, char** argv) {
  CLI::App app("GPT-2 with a cache that never drifts.", "driftless");
  app.set_version_flag("--version", version());
  app.set_help_all_flag("--help-all", "Print the help of all commands and exit");
  app.require_subcommand(0, 1);  // CLI11's error for none would hide the one for a subcommand that does not exist
  int status = 0;
  addGenerate(app);
  addBatch(app, status);
  addScore(app);
  addRank(app);
  addCapture(app);
  addExplain(app);
  addVerify(app, status);
  addBench(app);
  addCacheStudy(app);
  addTokenize(app);
  addInfo(app);
  try {
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    std::ranges::transform(arguments, arguments.begin(), marked);
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(std::move(arguments));
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::Success& request) {  // --help and --version
    std::ostringstream text;
    app.exit(request, text, text);
    writeOutput(text.str());
  } catch (const CLI::ParseError& error) {
    throw ArgumentError(std::string(error.what()) + "; see " + helpCommand(app));
  }
  return status;
}

int fail(const std::string& text) {
  complain(text);
  return kFailure;
}

}  // namespace
}  // namespace driftless::cli

int main(int argc, char** argv) {
  using namespace driftless::cli;
  try {
    return run(argc, argv);
  } catch (const OutputClosed&) {
    return kFailure;
  } catch (const std::bad_alloc&) {
    return fail("expected more memory than there is");
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
