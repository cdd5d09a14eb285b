// One model, four threads of your own, each with a sequence of its own. Weights never change, so they need no lock.

#include <driftless/driftless.hpp>
#include <iostream>
#include <thread>

namespace {

std::vector<int> continuation(const std::vector<int>& prompt, const driftless::Weights<>& weights,
                              const driftless::Threads& threads) {
  driftless::ModelCache cache(weights, threads);
  std::vector<int> ids{driftless::argmax(driftless::prefill(prompt, weights, cache))};
  while (ids.size() < 20)
    ids.push_back(driftless::argmax(driftless::decodeStep(ids.back(), cache.length(), weights, cache)));
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  const std::vector<std::string> prompts = {"Once upon a time", "The princess", "\"Open the door,\"", "In the forest"};

  std::vector<std::vector<int>> together(prompts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    threads.emplace_back([&, i] {
      const driftless::Threads alone(1);  // each computes on its own thread only
      together[i] = continuation(tokenizer.encode(prompts[i]), weights, alone);
    });
  for (std::thread& thread : threads) thread.join();

  bool same = true;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::cout << prompts[i] << tokenizer.decode(together[i]) << '\n';
    same = same && together[i] == continuation(tokenizer.encode(prompts[i]), weights, weights.threads);
  }
  std::cout << (same ? "the same as one after the other\n" : "not the same as one after the other\n");
  return same ? 0 : 1;
}
