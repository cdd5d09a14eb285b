// A steering vector (Turner et al. 2023): what the residual stream has for a queen and not for a king, added at every
// position while a story about a child is told.

#include <cstdio>
#include <driftless/driftless.hpp>

using driftless::Index, driftless::Point, driftless::RowVector;

constexpr Index kLayer = 5;

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);

  // The last token's residual stream after the layer, of one text minus that of the other, over a few pairs.
  const auto ofLastToken = [&](const char* text) -> RowVector<float> {
    return driftless::capture({Point::resid_post}, tokenizer.encode(text), weights)
        .at(Point::resid_post, kLayer)
        .bottomRows(1);
  };
  const std::vector<std::pair<const char*, const char*>> pairs = {{"The queen", "The king"},
                                                                  {"The princess", "The prince"},
                                                                  {"The old woman", "The old man"},
                                                                  {"The mother", "The father"},
                                                                  {"The girl", "The boy"}};
  RowVector<float> direction = RowVector<float>::Zero(weights.config.n_embd);
  for (const auto& [she, he] : pairs)
    direction += (ofLastToken(she) - ofLastToken(he)) / static_cast<float>(pairs.size());

  const std::string prompt = "One day the child took";
  driftless::Workspace<> workspace;
  for (const float strength : {-1.0f, 0.0f, 1.0f}) {
    const driftless::Observer<> steer = {.points = {Point::resid_post}, .visit = [&](driftless::PointValues<float>& x) {
                                           if (x.layer == kLayer) x.values.rowwise() += strength * direction;
                                         }};
    std::printf("%+.0f  %s", static_cast<double>(strength), prompt.c_str());
    driftless::ModelCache cache(weights);
    RowVector<float> logits = driftless::prefill(tokenizer.encode(prompt), weights, cache, workspace, steer);
    for (int n = 0; n < 30; ++n) {
      const int id = driftless::argmax(logits);
      std::printf("%s", tokenizer.decode({&id, 1}).c_str());
      logits = driftless::decodeStep(id, cache.length(), weights, cache, workspace, steer);
    }
    std::printf("\n");
  }
}
