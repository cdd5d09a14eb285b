// How likely a sentence is to a model: the log-probability of each of its tokens, and the perplexity; and which of
// several continuations is the likeliest.

#include <cstdio>
#include <driftless/driftless.hpp>

double perplexity(const std::string& sentence, const driftless::Weights<>& weights,
                  const driftless::Tokenizer& tokenizer) {
  const std::vector<int> ids = tokenizer.encode(sentence);
  const driftless::Score score = driftless::scoreTokens(ids, weights);
  for (std::size_t t = 1; t < ids.size(); ++t)  // the first has nothing before it
    std::printf("%8.3f  %s\n", score.log_probabilities[t - 1], tokenizer.tokenBytes(ids[t]).c_str());
  std::printf("perplexity %.1f\n\n", score.perplexity());
  return score.perplexity();
}

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);

  const double tale = perplexity("The king had a daughter who was very beautiful.", weights, tokenizer);
  const double nonsense = perplexity("The daughter very a king who beautiful had was.", weights, tokenizer);

  const auto scores = driftless::scoreContinuations(
      tokenizer.encode("The king had a"), {tokenizer.encode(" daughter"), tokenizer.encode(" window")}, weights);
  std::printf("%8.3f   daughter\n%8.3f   window\n", scores[0].total, scores[1].total);
  return tale < nonsense && scores[0].total > scores[1].total ? 0 : 1;
}
