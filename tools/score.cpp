#include <cmath>
#include <cstddef>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/error.hpp"
#include "driftless/scoring.hpp"
#include "models.hpp"
#include "progress.hpp"
#include "prompts.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

/// One line of the table: of a text, or of all of them.
struct ScoreSum {
  std::size_t tokens = 0;
  double total = 0;
  std::optional<std::size_t> bytes = 0;  ///< of the tokens' text, if all have one

  void operator+=(const ScoreSum& other) {
    tokens += other.tokens;
    total += other.total;
    bytes = bytes && other.bytes ? std::optional(*bytes + *other.bytes) : std::nullopt;
  }

  double mean() const { return total / static_cast<double>(tokens); }
  double bitsPerByte() const {
    return bytes ? -total * std::numbers::log2e / static_cast<double>(*bytes) : std::nan("");
  }
};

ScoreSum sumOf(const std::vector<int>& ids, const Score& score, const Tokenizer* tokenizer) {
  const std::optional<std::string> text = textOf({ids.begin() + 1, ids.end()}, tokenizer);
  return {score.log_probabilities.size(), score.total, text ? std::optional(text->size()) : std::nullopt};
}

/// Right-aligned in a column; - for a number that there is not.
std::string cell(int width, double number) {
  std::ostringstream out;
  out << std::setw(width) << std::fixed << std::setprecision(4);
  if (std::isnan(number))
    out << "-";
  else
    out << number;
  return out.str();
}

const std::string kHeading = "tokens  log-probability  per token  bits/byte  perplexity";

std::string row(const ScoreSum& sum) {
  std::ostringstream out;
  out << std::setw(6) << sum.tokens << cell(17, sum.total) << cell(11, sum.mean()) << cell(11, sum.bitsPerByte())
      << cell(12, std::exp(-sum.mean()));
  return out.str();
}

/// A token of the text, or what can stand for it.
std::string shownToken(int id, const Tokenizer* tokenizer) {
  const std::optional<std::string> text = textOf({id}, tokenizer);
  return text ? jsonString(*text) : std::to_string(id);
}

std::string tokenRows(const std::vector<int>& ids, const Score& score, const Tokenizer* tokenizer) {
  std::string rows;
  for (std::size_t i = 0; i < ids.size(); ++i)
    rows +=
        cell(10, i == 0 ? std::nan("") : score.log_probabilities[i - 1]) + "  " + shownToken(ids[i], tokenizer) + "\n";
  return rows;
}

Json jsonTop(const std::vector<TokenLogProbability>& tokens, const Tokenizer* tokenizer) {
  Json list = Json::array();
  for (const TokenLogProbability& token : tokens) {
    const std::optional<std::string> text = textOf({token.id}, tokenizer);
    list.push_back(
        {{"id", token.id}, {"text", text ? Json(*text) : Json()}, {"log_probability", token.log_probability}});
  }
  return list;
}

/// nlohmann/json writes null for a number that is not finite.
std::string json(const LabelledText& text, const Score& score, const Tokenizer* tokenizer) {
  const ScoreSum sum = sumOf(text.ids, score, tokenizer);
  Json object;
  if (!text.id.empty()) object["id"] = Json::parse(text.id);
  object["ids"] = text.ids;
  object["tokens"] = sum.tokens;
  object["bytes"] = sum.bytes ? Json(*sum.bytes) : Json();
  object["log_probability"] = score.total;
  object["mean"] = score.mean();
  object["bits_per_byte"] = sum.bitsPerByte();
  object["perplexity"] = score.perplexity();
  object["log_probabilities"] = score.log_probabilities;
  if (!score.top.empty()) {
    object["top"] = Json::array();
    for (const auto& tokens : score.top) object["top"].push_back(jsonTop(tokens, tokenizer));
  }
  return jsonLine(object);
}

/// Which of the texts it is, in the table: its own name, or else the line's number.
std::string nameOf(const LabelledText& text, std::size_t index) {
  return text.id.empty() ? std::to_string(index + 1) : text.id;
}

std::vector<LabelledText> readAll(const ScoreCommand& command, ModelTokenizer& tokenizer, const Config& config) {
  const auto check = [&](const std::vector<int>& ids) { checkIds(ids, config); };
  if (command.lines) return readTexts(*command.lines, tokenizer, check);
  if (!command.file) {
    if (!command.text.text && !command.text.ids)
      throw ArgumentError("expected a text: TEXT, - for standard input, --ids, --file or --lines");
    return {{"", encodePrompt(command.text, tokenizer)}};
  }
  const std::string bytes = readFile(*command.file);
  const std::string_view text = detail::readText(bytes, *command.file);
  return {{"", tokenizer.require("expected --ids 1,2,3, got text").encode(text)}};
}

}  // namespace

void ScoreCommand::run() const {
  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer model_tokenizer(model.path);
  const std::vector<LabelledText> texts = readAll(*this, model_tokenizer, weights.config);
  const Tokenizer* const tokenizer = model_tokenizer.find();
  ModelCache<float> cache = std::move(emptyCaches(model, weights, 1).front());
  Workspace<float> workspace(weights.threads);
  const ScoreOptions options{max_length, stride, top};

  ScoreSum all;
  std::size_t tokens = 0;
  for (const LabelledText& one : texts) tokens += one.ids.size();
  std::size_t tokens_before = 0;
  Progress progress("texts", true);
  progress.show(0, 0, 0.0);
  const Stopwatch watch;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const LabelledText& one = texts[i];
    const auto show = [&](std::size_t scored) {
      const std::size_t done = tokens_before + scored;
      progress.show(i, done, static_cast<double>(done) / static_cast<double>(tokens));
    };
    const Score score = scoreTokens(one.ids, weights, cache, workspace, options, show);
    tokens_before += one.ids.size();
    const ScoreSum sum = sumOf(one.ids, score, tokenizer);
    all += sum;
    if (is_json) {
      writeOutput(json(one, score, tokenizer));
      continue;
    }
    if (shows_tokens) writeOutput(tokenRows(one.ids, score, tokenizer));
    if (i == 0 || shows_tokens) writeOutput(kHeading + (lines ? "  text\n" : "\n"));
    writeOutput(row(sum) + (lines ? "  " + nameOf(one, i) : "") + "\n");
  }
  const double seconds = watch.seconds();
  progress.clear();
  if (texts.size() > 1 && !is_json) writeOutput(row(all) + "  all\n");
  std::cerr << "scored " << all.tokens << " tokens" << std::fixed << std::setprecision(3) << "  " << seconds << " s";
  if (seconds > 0)
    std::cerr << std::setprecision(1) << "  " << static_cast<double>(all.tokens) / seconds << " tokens/s";
  std::cerr << std::endl;
}

}  // namespace driftless::cli
