// One model and four threads of your own, each of which continues a prompt. Weights never change, so they need no lock;
// each thread has a cache and a workspace of its own.

#include <driftless/driftless.hpp>
#include <iostream>
#include <thread>

namespace {

std::vector<int> continuation(const std::vector<int>& prompt, const driftless::Weights<>& weights,
                              const driftless::Threads& threads) {
  driftless::ModelCache cache(weights);
  driftless::Workspace<> workspace(threads);
  std::vector<int> ids{driftless::argmax(driftless::prefill(prompt, weights, cache, workspace))};
  while (ids.size() < 20)
    ids.push_back(driftless::argmax(driftless::decodeStep(ids.back(), cache.length(), weights, cache, workspace)));
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
      const driftless::Threads alone(1);  // the steps run on this thread only
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
