#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/error.hpp"
#include "driftless/scoring.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Candidate {
  LabelledText text;
  std::size_t index;  ///< in the order given
  Score score;
  double share = 0;  ///< of the probability of all
};

std::vector<LabelledText> readCandidates(const RankCommand& command, ModelTokenizer& tokenizer, std::size_t prompt,
                                         const Config& config) {
  const auto check = [&](const std::vector<int>& ids) {
    checkIds(ids, config);
    const Index left = config.n_positions - static_cast<Index>(prompt);
    if (static_cast<Index>(ids.size()) > left)
      throw ContextFull("expected at most " + std::to_string(left) + " tokens after the prompt's " +
                        std::to_string(prompt) + " (n_positions is " + std::to_string(config.n_positions) + "), got " +
                        std::to_string(ids.size()));
  };
  if (command.candidates_file) return readTexts(*command.candidates_file, tokenizer, check);
  if (command.candidates.empty())
    throw ArgumentError("expected candidates: CANDIDATE..., or a file of them, --candidates");
  const Tokenizer& encoder =
      tokenizer.require("expected a file of candidates as {\"ids\": [1, 2]}, --candidates, got text");
  std::vector<LabelledText> texts;
  for (const std::string& candidate : command.candidates) {
    texts.push_back({"", encoder.encode(candidate)});
    try {
      check(texts.back().ids);
    } catch (const Error& error) {
      throw ArgumentError("candidate " + std::to_string(texts.size()) + ": " + error.what());
    }
  }
  return texts;
}

/// e^(total - largest) over the sum of all of these.
void setShares(std::vector<Candidate>& candidates) {
  double largest = candidates.front().score.total;
  for (const Candidate& candidate : candidates) largest = std::max(largest, candidate.score.total);
  double sum = 0;
  for (Candidate& candidate : candidates) sum += candidate.share = std::exp(candidate.score.total - largest);
  for (Candidate& candidate : candidates) candidate.share /= sum;
}

std::string table(const std::vector<Candidate>& candidates, const Tokenizer* tokenizer) {
  std::ostringstream out;
  out << "log-probability  per token  tokens    share  candidate\n" << std::fixed;
  for (const Candidate& candidate : candidates) {
    const std::optional<std::string> text = textOf(candidate.text.ids, tokenizer);
    out << std::setprecision(4) << std::setw(15) << candidate.score.total << "  " << std::setw(9)
        << candidate.score.mean() << "  " << std::setw(6) << candidate.text.ids.size() << "  " << std::setprecision(2)
        << std::setw(6) << 100 * candidate.share << "%  "
        << (!candidate.text.id.empty() ? candidate.text.id
            : text                     ? jsonString(*text)
                                       : idsText(candidate.text.ids))
        << "\n";
  }
  return out.str();
}

std::string json(const std::vector<int>& prompt, const std::vector<Candidate>& candidates, const Tokenizer* tokenizer) {
  Json object{{"prompt_ids", prompt}, {"candidates", Json::array()}};
  for (const Candidate& candidate : candidates) {
    const std::optional<std::string> text = textOf(candidate.text.ids, tokenizer);
    Json one{{"index", candidate.index}};
    if (!candidate.text.id.empty()) one["id"] = Json::parse(candidate.text.id);
    one["text"] = text ? Json(*text) : Json();
    one["ids"] = candidate.text.ids;
    one["log_probability"] = candidate.score.total;
    one["mean"] = candidate.score.mean();
    one["share"] = candidate.share;
    one["log_probabilities"] = candidate.score.log_probabilities;
    object["candidates"].push_back(std::move(one));
  }
  return jsonLine(object);
}

}  // namespace

void RankCommand::run() const {
  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer tokenizer(model.path);
  const std::vector<int> prompt_ids = encodePrompt(prompt, tokenizer);
  const std::vector<LabelledText> texts = readCandidates(*this, tokenizer, prompt_ids.size(), weights.config);
  std::vector<std::vector<int>> continuations;
  for (const LabelledText& text : texts) continuations.push_back(text.ids);
  std::vector<ModelCache<float>> caches = emptyCaches(model, weights, 1);
  Workspace<float> workspace(weights.threads);
  std::vector<Score> scores = scoreContinuations(prompt_ids, continuations, weights, caches.front(), workspace);

  std::vector<Candidate> ranked;
  for (std::size_t i = 0; i < texts.size(); ++i) ranked.push_back({texts[i], i, std::move(scores[i])});
  setShares(ranked);
  const auto merit = [&](const Candidate& candidate) {
    return by == "mean" ? candidate.score.mean() : candidate.score.total;
  };
  std::ranges::stable_sort(ranked, std::ranges::greater(), merit);
  writeOutput(is_json ? json(prompt_ids, ranked, tokenizer.find()) : table(ranked, tokenizer.find()));
}

}  // namespace driftless::cli
