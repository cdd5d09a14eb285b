// The logit lens (nostalgebraist, 2020): what the model would say if it ended after each of its layers. Its last
// LayerNorm and its output weights are applied to the residual stream of the last token.

#include <cmath>
#include <cstdio>
#include <driftless/driftless.hpp>

using driftless::Index, driftless::Matrix, driftless::Point;

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  const std::string prompt = "Once upon a time there was a king who had a beautiful";
  const std::vector<int> ids = tokenizer.encode(prompt);

  const auto captured = driftless::capture({Point::resid_post, Point::logits}, ids, weights);
  const Matrix<float> logits = captured.at(Point::logits).bottomRows(1);
  const int answer = driftless::argmax(logits.row(0));
  std::printf("%s ...%s\n\nafter layer  p(%s)  likeliest\n", prompt.c_str(), tokenizer.decode({&answer, 1}).c_str(),
              tokenizer.decode({&answer, 1}).c_str());

  Matrix<float> lens;
  for (Index layer = 0; layer < weights.config.n_layer; ++layer) {
    const Matrix<float> x = captured.at(Point::resid_post, layer).bottomRows(1);
    lens = driftless::unembed(driftless::layerNorm(x, weights.ln_f), weights);
    std::printf("%11d  %11.4f  ", static_cast<int>(layer), std::exp(driftless::logProbability(lens.row(0), answer)));
    for (const auto& token : driftless::topLogProbabilities(lens.row(0), 4))
      std::printf("\"%s\" ", tokenizer.decode({&token.id, 1}).c_str());
    std::printf("\n");
  }

  const bool is_model = lens == logits;  // after the last layer, the lens is the model: not one bit may differ
  std::printf("\nThe last row has %s of the model's own logits.\n", is_model ? "the bits" : "other bits than those");
  return is_model ? 0 : 1;
}
