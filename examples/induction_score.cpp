// Which heads are induction heads (Olsson et al. 2022)? Random tokens are followed by the same ones again: such a head
// attends from a token to the one that came after it the first time.

#include <algorithm>
#include <cstdio>
#include <driftless/driftless.hpp>
#include <random>

using driftless::Index, driftless::Point;

int main(int argc, char** argv) {
  const auto weights = driftless::loadWeights(argc > 1 ? argv[1] : "fixtures/tales-gpt2");
  constexpr Index kPeriod = 50, kTexts = 8;

  struct Head {
    Index layer, head;
    double score;
  };
  std::vector<Head> heads;
  for (Index layer = 0; layer < weights.config.n_layer; ++layer)
    for (Index head = 0; head < weights.config.n_head; ++head) heads.push_back({layer, head, 0});

  std::mt19937 random(1);
  for (Index text = 0; text < kTexts; ++text) {
    std::vector<int> ids;
    for (Index i = 0; i < kPeriod; ++i) ids.push_back(static_cast<int>(random() % 2000));
    for (Index i = 0; i < kPeriod; ++i) ids.push_back(ids[static_cast<std::size_t>(i)]);
    const auto captured = driftless::capture({Point::pattern}, ids, weights);
    for (Head& h : heads)  // the mean weight of the key that is kPeriod - 1 tokens back
      h.score +=
          static_cast<double>(captured.at(Point::pattern, h.layer, h.head).diagonal(1 - kPeriod).tail(kPeriod).mean()) /
          kTexts;
  }

  const double uniform = 1.0 / (1.5 * kPeriod);  // what a head would have that attends to everything alike
  std::ranges::sort(heads, std::greater(), &Head::score);
  std::printf("weight on the token after the same token, mean over %d texts; uniform attention has %.3f\n\n",
              static_cast<int>(kTexts), uniform);
  for (std::size_t i = 0; i < 8; ++i)
    std::printf("layer %2d, head %d  %.3f  %s\n", static_cast<int>(heads[i].layer), static_cast<int>(heads[i].head),
                heads[i].score, std::string(static_cast<std::size_t>(100 * heads[i].score), '#').c_str());
}
