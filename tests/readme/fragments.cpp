#include <driftless/driftless.hpp>
#include <iostream>

namespace {

/// Whether the README's claims about its own lines hold.
int check(bool holds, const char* claim) {
  if (!holds) std::cerr << "README.md: it does not hold that " << claim << '\n';
  return holds ? 0 : 1;
}

}  // namespace

int main() {
  const auto weights = driftless::loadWeights("fixtures/tales-gpt2");
  const auto tokenizer = driftless::Tokenizer::load("fixtures/tales-gpt2");
  const auto prompt = tokenizer.encode("Once upon a time");

#include "fragments.inc"

  const auto C = weights.config.n_embd, V = weights.config.vocab_size;
  const auto positions = static_cast<driftless::Index>(prompt.size()) + 1;
  return check(logits.size() == V, "logits are [V]") +
         check(cache.length() == positions, "a decode step follows the prefill") +
         check(keys.rows() == positions && keys.cols() == C, "keys are [positions, C]") +
         check(branch.length() == positions && branch.layer(0).keys() == keys, "a clone holds the same");
}
