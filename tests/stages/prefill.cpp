#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "adapters.hpp"
#include "support/diagnosis.hpp"
#include "support/fixtures.hpp"
#include "support/tolerance.hpp"

using namespace driftless::test;
using driftless::Index;

namespace {

constexpr char kPrefillHint[] =
    "hint: positions are absolute: the first token of a chunk stands at the cache's length, not at 0. Every layer has "
    "a cache of its own, and its rows are c_attn's K and V with bias, unscaled. Row t of a chunk sees what was cached "
    "before plus rows 0 to t of the chunk: the mask is offset by the cached length. The logits are the last token's, "
    "after ln_f.";

adapters::Prefilled prefillOf(const std::string& model, const std::vector<int>& ids,
                              const std::vector<Index>& chunk_sizes, const std::string& what) {
  return graded(what, [&] { return adapters::runPrefill(fixtureParameters(model), ids, chunk_sizes); });
}

/// What to call if `prefilled` is wrong.
OnFailure diagnoseWith(Diagnosis& diagnosis, const std::string& what, const adapters::Prefilled& prefilled,
                       const std::string& model, const std::vector<int>& ids, const std::vector<Index>& chunk_sizes) {
  return diagnosis.of(
      what, fixtureParameters(model), prefilled, [=] { return prefillOf(model, ids, chunk_sizes, what); },
      [=](const PlainModel& plain) { return plain.prefill(ids, chunk_sizes); });
}

void checkRows(const std::string& model, const RowsCase& golden, const std::vector<Index>& chunk_sizes,
               const std::string& what, Diagnosis& diagnosis) {
  const adapters::Prefilled prefilled = prefillOf(model, golden.ids, chunk_sizes, what);
  const OnFailure diagnose = diagnoseWith(diagnosis, what, prefilled, model, golden.ids, chunk_sizes);
  for (const RowsCase::Layer& expected : golden.layers) {
    const std::size_t layer = static_cast<std::size_t>(expected.layer);
    if (layer >= std::min(prefilled.keys.size(), prefilled.values.size())) diagnose();
    REQUIRE(layer < prefilled.keys.size());
    REQUIRE(layer < prefilled.values.size());
    const std::string where = what + ", layer " + std::to_string(layer);
    checkClose(prefilled.keys[layer], expected.keys, where + ", keys", diagnose);
    checkClose(prefilled.values[layer], expected.values, where + ", values", diagnose);
  }
  checkClose(prefilled.logits, golden.last_logits, what + ", last logits", diagnose);
}

void checkLastLogits(const std::string& model, const LogitsCase& golden, const std::vector<Index>& chunk_sizes,
                     const std::string& what, Diagnosis& diagnosis) {
  const adapters::Prefilled prefilled = prefillOf(model, golden.prompt_ids, chunk_sizes, what);
  checkClose(prefilled.logits, golden.prefill_logits, what,
             diagnoseWith(diagnosis, what, prefilled, model, golden.prompt_ids, chunk_sizes));
}

/// Calls check(chunk sizes, in words) for all ways to cut `size` rows in two, and for single rows.
template <class Check>
void forEverySplit(Index size, Check check) {
  for (Index first = 1; first < size; ++first)
    check({first, size - first}, "chunks of " + std::to_string(first) + " and " + std::to_string(size - first));
  check(std::vector<Index>(static_cast<std::size_t>(size), 1), "token by token");
}

}  // namespace

TEST_SUITE("prefill") {
  TEST_CASE("keys, values and last logits agree with the float64 goldens") {
    Diagnosis diagnosis;
    INFO(kPrefillHint);
    for (const std::string& model : kFixtureModels) {
      const RowsCase golden = rowsCase(model);
      checkRows(model, golden, {static_cast<Index>(golden.ids.size())}, model, diagnosis);
    }
  }

  TEST_CASE("last logits agree with the float64 goldens, up to a prompt that fills the context") {
    Diagnosis diagnosis;
    INFO(kPrefillHint);
    for (const std::string& model : kFixtureModels)
      for (const LogitsCase& golden : logitsCases(model))
        checkLastLogits(model, golden, {static_cast<Index>(golden.prompt_ids.size())}, golden.name, diagnosis);
  }

  TEST_CASE("cut at any point, a prompt leaves the same keys, values and last logits") {
    Diagnosis diagnosis;
    INFO(kPrefillHint);
    for (const std::string& model : kFixtureModels) {
      const RowsCase golden = rowsCase(model);
      forEverySplit(static_cast<Index>(golden.ids.size()),
                    [&](const std::vector<Index>& sizes, const std::string& how) {
                      checkRows(model, golden, sizes, model + ", " + how, diagnosis);
                    });
    }
  }

  TEST_CASE("cut at any point, a prompt of 40 tokens gives the same last logits") {
    Diagnosis diagnosis;
    INFO(kPrefillHint);
    const LogitsCase golden = logitsCases("tales-gpt2").at(4);
    REQUIRE(golden.prompt_ids.size() == 40);
    forEverySplit(40, [&](const std::vector<Index>& sizes, const std::string& how) {
      checkLastLogits("tales-gpt2", golden, sizes, golden.name + ", " + how, diagnosis);
    });
  }
}
