// Two continuations of one prompt that is computed only once: a cache can be cloned, and cut back.

#include <cstring>
#include <driftless/driftless.hpp>
#include <iostream>

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  const auto bytes = static_cast<std::size_t>(weights.config.vocab_size) * sizeof(float);

  driftless::ModelCache cache(weights);
  driftless::prefill(tokenizer.encode("The old king had two sons."), weights, cache);
  const driftless::Index branching = cache.length();

  driftless::ModelCache branch = cache.clone();
  const auto elder = driftless::prefill(tokenizer.encode(" The elder was"), weights, cache);
  const auto younger = driftless::prefill(tokenizer.encode(" The younger was"), weights, branch);
  std::cout << "The elder was" << tokenizer.decode(std::vector{driftless::argmax(elder)}) << " ...\n"
            << "The younger was" << tokenizer.decode(std::vector{driftless::argmax(younger)}) << " ...\n";

  cache.truncate(branching);  // back to where the prompt ended
  const auto again = driftless::prefill(tokenizer.encode(" The younger was"), weights, cache);
  const bool same = std::memcmp(again.data(), younger.data(), bytes) == 0;
  std::cout << (same ? "the cut cache gives the same bits as the clone\n" : "the bits differ\n");
  return same ? 0 : 1;
}
