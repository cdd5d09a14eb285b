// What goes on inside: one layer's attention, and how the residual stream grows from block to block.

#include <cstdio>
#include <driftless/driftless.hpp>

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  const std::vector<int> ids = tokenizer.encode("The prince asked the old woman, and she said");
  const auto T = static_cast<driftless::Index>(ids.size());

  constexpr driftless::Index kLayer = 5;
  driftless::Matrix<float> attention = driftless::Matrix<float>::Zero(T, T);  // mean over the heads of kLayer
  const float head_share = 1.0f / static_cast<float>(weights.config.n_head);

  driftless::Observer<> observer;
  observer.attention_weights = [&](const driftless::AttentionWeights<float>& row) {
    if (row.layer != kLayer) return;
    for (driftless::Index key = 0; key <= row.position; ++key)
      attention(row.position, key) += head_share * row.weights[static_cast<std::size_t>(key)];
  };
  observer.hidden_states = [](const driftless::HiddenStates<float>& states) {
    std::printf("into block %2d: mean length of a row %6.2f\n", static_cast<int>(states.layer),
                static_cast<double>(states.x.rowwise().norm().mean()));
  };

  // Attention weights come from all threads of the workspace at once. With a single one, sums need no lock.
  driftless::Workspace<> workspace(driftless::Threads(1));
  driftless::ModelCache cache(weights);
  driftless::prefill(ids, weights, cache, workspace, observer);

  std::printf("\nin layer %d, the last token attends to\n", static_cast<int>(kLayer));
  for (driftless::Index key = 0; key < T; ++key)
    std::printf("%5.1f %%  %s\n", 100.0 * static_cast<double>(attention(T - 1, key)),
                tokenizer.decode({&ids[static_cast<std::size_t>(key)], 1}).c_str());
}
