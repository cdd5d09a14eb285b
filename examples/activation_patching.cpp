// Activation patching between two prompts that differ in one word: which values decide? Each residual vector of the one
// in turn is put into the run of the other, and the answer looked at.

#include <cmath>
#include <cstdio>
#include <driftless/driftless.hpp>

using driftless::Index, driftless::Matrix, driftless::Point;

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  const std::vector<int> queen = tokenizer.encode("The queen went into the forest and lost");
  const std::vector<int> king = tokenizer.encode("The king went into the forest and lost");
  const int her = tokenizer.encode(" her").front(), his = tokenizer.encode(" his").front();
  if (queen.size() != king.size()) return std::puts("the prompts must have as many tokens"), 1;

  driftless::ModelCache cache(weights);
  driftless::Workspace<> workspace;
  // How much more the model expects " her" than " his", in a run that is changed by an observer.
  const auto answer = [&](const std::vector<int>& ids, const driftless::Observer<>& observer) {
    cache.reset();
    const auto& logits = driftless::prefill(ids, weights, cache, workspace, observer);
    return static_cast<double>(logits[her] - logits[his]);
  };

  const auto source = driftless::capture({Point::resid_pre}, queen, weights);
  const double of_queen = answer(queen, {}), of_king = answer(king, {});
  std::printf("logit of \" her\" minus that of \" his\": %.2f for the queen, %.2f for the king\n", of_queen, of_king);
  std::printf(
      "\nThe king's run with one vector of the queen's, before each layer:\n"
      "0 %% is the king's answer, 100 %% the queen's\n\nlayer ");
  for (const int id : king) std::printf("%8s", tokenizer.decode({&id, 1}).c_str());
  for (Index layer = 0; layer < weights.config.n_layer; ++layer) {
    std::printf("\n%5d ", static_cast<int>(layer));
    for (Index position = 0; position < static_cast<Index>(king.size()); ++position) {
      const auto patch = [&](driftless::PointValues<float>& x) {
        if (x.layer == layer) x.values.row(position) = source.at(Point::resid_pre, layer).row(position);
      };
      const double patched = answer(king, {.points = {Point::resid_pre}, .visit = patch});
      // Before they differ, a patch changes nothing, not even a bit: exactly 0 is printed as a dot.
      if (patched == of_king)
        std::printf("%8s", ".");
      else
        std::printf("%6ld %%", std::lround(100 * (patched - of_king) / (of_queen - of_king)));
    }
  }
  std::printf("\n\nA dot is a patch that changes no bit of the answer.\n");
}
