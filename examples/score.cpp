// How likely a sentence is to a model: the log-probability of each of its tokens, and the perplexity.

#include <cmath>
#include <cstdio>
#include <driftless/driftless.hpp>

double perplexity(const std::string& sentence, const driftless::Weights<>& weights,
                  const driftless::Tokenizer& tokenizer) {
  const std::vector<int> ids = tokenizer.encode(sentence);
  driftless::ModelCache cache(weights);
  const auto logits = driftless::prefillLogits(ids, weights, cache);  // [T, V], row t for what follows ids[t]

  double total = 0;
  for (std::size_t t = 1; t < ids.size(); ++t) {
    const auto row = logits.row(static_cast<driftless::Index>(t) - 1).cast<double>();
    const double largest = row.maxCoeff();
    const double log_probability = row[ids[t]] - largest - std::log((row.array() - largest).exp().sum());
    std::printf("%8.3f  %s\n", log_probability, tokenizer.decode({&ids[t], 1}).c_str());
    total += log_probability;
  }
  return std::exp(-total / static_cast<double>(ids.size() - 1));
}

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);

  const double tale = perplexity("The king had a daughter who was very beautiful.", weights, tokenizer);
  std::printf("perplexity %.1f\n\n", tale);
  const double nonsense = perplexity("The daughter very a king who beautiful had was.", weights, tokenizer);
  std::printf("perplexity %.1f\n", nonsense);
  return tale < nonsense ? 0 : 1;
}
