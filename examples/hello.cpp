// From a prompt to text.

#include <driftless/driftless.hpp>
#include <iostream>

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);

  const std::string prompt = "Once upon a time";
  const std::vector<int> ids = driftless::generateTokens(tokenizer.encode(prompt), 40, weights);
  std::cout << prompt << tokenizer.decode(ids) << '\n';
}
