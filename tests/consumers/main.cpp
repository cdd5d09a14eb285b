// consumer DIRECTORY ID...: prints the first ids that the model there generates from <|endoftext|>, and fails unless
// they are those given.

#include <driftless/driftless.hpp>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string> expected(argv + 2, argv + argc);
  const auto weights = driftless::loadWeights(argv[1]);
  const std::vector<int> prompt = {2047};
  std::vector<std::string> generated;
  for (const int id : driftless::generateTokens(prompt, static_cast<driftless::Index>(expected.size()), weights)) {
    generated.push_back(std::to_string(id));
    std::cout << id << '\n';
  }
  return generated == expected ? 0 : 1;
}
