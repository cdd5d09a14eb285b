// From a prompt to text.

#include <driftless/driftless.hpp>
#include <iostream>

int main(int, char** argv) {
  const auto weights = driftless::loadWeights(argv[1]);
  const auto tokenizer = driftless::Tokenizer::load(argv[1]);

  const std::string prompt = "Once upon a time";
  const std::vector<int> ids = driftless::generateTokens(tokenizer.encode(prompt), 40, weights);
  std::cout << prompt << tokenizer.decode(ids) << '\n';
}
