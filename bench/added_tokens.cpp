#include "driftless/detail/text/added_tokens.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

// Building the automaton of added tokens, and cutting 100 kB of text at them. They begin as ordinary words do, so that
// ordinary text leads far into the automaton.

namespace {

using driftless::detail::AddedTokens;

std::string randomWord(std::mt19937& random) {
  constexpr std::string_view kLetters = "eeeeeetttttaaaaoooiiinnnssshhrrdlu";
  std::string word;
  for (auto size = 3 + random() % 8; size > 0; --size) word += kLetters[random() % kLetters.size()];
  return word;
}

std::map<std::string, int> randomTokens(benchmark::State& state) {
  std::mt19937 random(1);
  std::map<std::string, int> ids;
  for (int id = 0; id < state.range(0); ++id) ids.emplace(randomWord(random), id);
  return ids;
}

void buildAddedTokens(benchmark::State& state) {
  const std::map<std::string, int> ids = randomTokens(state);
  for (auto _ : state) benchmark::DoNotOptimize(AddedTokens(ids));
}
BENCHMARK(buildAddedTokens)->RangeMultiplier(16)->Range(1, 65536)->ArgName("tokens")->Unit(benchmark::kMillisecond);

void cut(benchmark::State& state, const std::string& text) {
  const AddedTokens tokens(randomTokens(state));
  std::size_t count = 0;
  for (auto _ : state)
    tokens.cut(
        text, [&](std::string_view) { ++count; }, [&](int) { ++count; });
  benchmark::DoNotOptimize(count);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

std::string randomWords() {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < 100'000) text += randomWord(random) + " ";
  return text;
}

void cutWords(benchmark::State& state) { cut(state, randomWords()); }
void cutOneLetter(benchmark::State& state) { cut(state, std::string(100'000, 'e')); }
BENCHMARK(cutWords)->RangeMultiplier(16)->Range(1, 65536)->ArgName("tokens")->Unit(benchmark::kMillisecond);
BENCHMARK(cutOneLetter)->RangeMultiplier(16)->Range(1, 65536)->ArgName("tokens")->Unit(benchmark::kMillisecond);

}  // namespace
