// A model without a file: weights set by hand in Eigen matrices, so that it counts.

#include <driftless/driftless.hpp>
#include <iostream>

int main() {
  driftless::Config config;
  config.vocab_size = config.n_embd = 10;
  config.n_layer = config.n_head = 1;
  config.n_positions = 20;

  // Everything is zero except what the model needs to count.
  auto parameters = driftless::emptyParameters<float>(config, true);
  driftless::forEachTensor(parameters, [](const std::string&, auto& tensor, driftless::Index rows,
                                          driftless::Index cols) { tensor.setZero(rows, cols); });
  parameters.wte.setIdentity();  // token t is the t-th unit vector, and goes through the blocks unchanged
  parameters.ln_f.weight.setOnes();
  for (int id = 0; id < 10; ++id) (*parameters.lm_head)((id + 1) % 10, id) = 1;  // after t, t + 1 scores highest

  const driftless::Weights<> weights(parameters);
  const std::vector<int> prompt = {7};
  for (const int id : driftless::generateTokens(prompt, 12, weights)) std::cout << id << ' ';
  std::cout << '\n';
}
