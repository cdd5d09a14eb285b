#include <driftless/driftless.hpp>
#include <vector>

int main() {
  driftless::Config config;
  config.vocab_size = config.n_positions = config.n_embd = 4;
  config.n_layer = config.n_head = 1;
  const driftless::Weights<float> weights(driftless::randomParameters<float>(config, 1));
  return driftless::generateTokens(std::vector<int>{1}, 2, weights).size() == 2 ? 0 : 1;
}
