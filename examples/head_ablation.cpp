// What each attention head is good for: the loss on a text when it alone is silent, head after head.

#include <cstdio>
#include <driftless/driftless.hpp>

using driftless::Index, driftless::Matrix, driftless::Point;

const char* const kText =
    "Once upon a time there was a king who had three sons. The eldest was called John, the second was called Peter, "
    "and the youngest was called Simpleton. One day the king said to his sons, \"Whoever brings me the golden bird "
    "shall have my kingdom.\" Then the eldest son set out, and when he came to a forest he met an old man, who said to "
    "him, \"Good day, my son, whither are you going?\"";

int main(int argc, char** argv) {
  const auto model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const std::vector<int> ids = driftless::Tokenizer::load(model).encode(kText);
  driftless::ModelCache cache(weights);
  driftless::Workspace<> workspace;

  // Minus the mean log-probability of the text's tokens, in a run that is changed by an observer.
  const auto loss = [&](const driftless::Observer<>& observer) {
    cache.reset();
    const Matrix<float> logits = driftless::prefillLogits(ids, weights, cache, workspace, observer);
    double sum = 0;
    for (std::size_t t = 1; t < ids.size(); ++t)
      sum -= driftless::logProbability(logits.row(static_cast<Index>(t) - 1), ids[t]);
    return sum / static_cast<double>(ids.size() - 1);
  };

  const double whole = loss({});
  std::printf(
      "The whole model's loss is %.4f nats per token.\nWithout one head it changes by, in thousandths:\n\nlayer",
      whole);
  for (Index head = 0; head < weights.config.n_head; ++head) std::printf("  head %d", static_cast<int>(head));
  double worst = 0;
  Index worst_layer = 0, worst_head = 0;
  for (Index layer = 0; layer < weights.config.n_layer; ++layer) {
    std::printf("\n%5d", static_cast<int>(layer));
    for (Index head = 0; head < weights.config.n_head; ++head) {
      const double harm = loss({.points = {Point::z},
                                .visit =
                                    [=](driftless::PointValues<float>& z) {
                                      if (z.layer == layer && z.head == head) z.values.setZero();
                                    }}) -
                          whole;
      std::printf("%8.1f", 1000 * harm);
      if (harm > worst) worst = harm, worst_layer = layer, worst_head = head;
    }
  }
  // The smallest numbers are as real as the largest: there is no noise for a head's effect to hide in.
  std::printf("\n\nThe loss grows most, by %.4f, without head %d of layer %d.\n", worst, static_cast<int>(worst_head),
              static_cast<int>(worst_layer));
  std::printf("A run in which nothing is changed differs by %g.\n", loss({}) - whole);
}
