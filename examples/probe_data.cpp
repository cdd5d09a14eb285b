// Training data for a linear probe, as NumPy reads it: does the model know whether somebody is speaking? It tells some
// stories, and every token's residual stream is labelled by whether quotation marks are open after it.
//
//   probe_data MODEL DIR    writes DIR/activations.npy [tokens, C], DIR/labels.npy [tokens], DIR/stories.npy [tokens]

#include <algorithm>
#include <cstdio>
#include <driftless/driftless.hpp>

using driftless::Index, driftless::Matrix, driftless::Point;

constexpr Index kLayer = 11;
constexpr int kStories = 6;

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const std::filesystem::path directory = argc > 2 ? argv[2] : ".";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);

  const std::vector<int> prompt = tokenizer.encode("Once upon a time");
  driftless::GenerateOptions options{.max_tokens = 300, .sampling = {.temperature = 0.8, .top_p = 0.95}};
  std::vector<float> activations, labels, stories;  // a row of C numbers, one number, one number for every token
  for (int story = 0; story < kStories; ++story) {
    options.sampling.seed = static_cast<std::uint64_t>(story);
    std::vector<int> ids = prompt;
    for (const int id : driftless::generateTokens(prompt, options, weights).output_ids) ids.push_back(id);
    const auto captured = driftless::capture({Point::resid_post}, ids, weights);
    const Matrix<float>& x = captured.at(Point::resid_post, kLayer);
    activations.insert(activations.end(), x.data(), x.data() + x.size());
    bool is_speech = false;
    for (const int id : ids) {
      if (std::ranges::count(tokenizer.decode({&id, 1}), '"') % 2 == 1) is_speech = !is_speech;
      labels.push_back(is_speech ? 1.0f : 0.0f);
      stories.push_back(static_cast<float>(story));  // to be split by: tokens of one story are too much alike
    }
  }
  const auto tokens = static_cast<Index>(labels.size());
  driftless::writeNpy(directory / "activations.npy", activations, {tokens, weights.config.n_embd});
  driftless::writeNpy(directory / "labels.npy", labels, {tokens});
  driftless::writeNpy(directory / "stories.npy", stories, {tokens});
  std::printf("%d tokens of %d stories, %d of them in speech\n", static_cast<int>(tokens), kStories,
              static_cast<int>(std::ranges::count(labels, 1.0f)));
}
