// Prints text as it is generated, until the first sentence is complete.

#include <driftless/driftless.hpp>
#include <iostream>

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "fixtures/tales-gpt2";
  const auto weights = driftless::loadWeights(model);
  const auto tokenizer = driftless::Tokenizer::load(model);
  driftless::StreamingDecoder decoder(tokenizer);

  driftless::GenerateOptions options;
  options.max_tokens = 200;
  options.sampling = {.temperature = 0.7, .top_k = 40, .top_p = 0.95, .seed = 2};

  const std::vector<int> prompt = tokenizer.encode("The wolf said to the fox,");
  const driftless::Generation generation = driftless::generateTokens(prompt, options, weights, [&](int id) {
    const std::string text = decoder.push(id);  // holds back bytes until a character is complete
    std::cout << text << std::flush;
    return text.find('.') == std::string::npos;  // false ends it
  });
  std::cout << decoder.finish() << '\n';
  if (generation.finish_reason == driftless::FinishReason::callback)
    std::cout << "(stopped after the first sentence, after " << generation.output_ids.size() << " tokens)\n";
}
