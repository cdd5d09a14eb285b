#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/block.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/generate.hpp"
#include "support/fixtures.hpp"
#include "support/random_models.hpp"
#include "support/tolerance.hpp"

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr int kRequestVocabulary = 60;  // small, so that n-grams come up again

const Weights<float>& requestWeights() {
  static const Weights<float> made(livelyParameters(smallConfig(24, 2, 20, kRequestVocabulary, 131, 2)));
  return made;
}

std::vector<int> requestPrompt(Index length, int salt) {
  std::vector<int> ids = someIds(length, kRequestVocabulary);
  for (int& id : ids) id = (id + 7 * salt) % kRequestVocabulary;
  return ids;
}

Generation generateAlone(const Request& request) {
  return generateTokens(request.ids, request.options, requestWeights());
}

void checkSameGeneration(const Generation& actual, const Generation& expected) {
  CHECK(actual.output_ids == expected.output_ids);
  CHECK(actual.finish_reason == expected.finish_reason);
  CHECK(actual.error == expected.error);
  for (const auto scores : {&Generation::scores, &Generation::prompt_scores}) {
    REQUIRE((actual.*scores).size() == (expected.*scores).size());
    for (std::size_t i = 0; i < (actual.*scores).size(); ++i) {
      const TokenScore& a = (actual.*scores)[i];
      const TokenScore& b = (expected.*scores)[i];
      CHECK(a.log_probability == b.log_probability);
      REQUIRE(a.top.size() == b.top.size());
      for (std::size_t k = 0; k < a.top.size(); ++k) {
        CHECK(a.top[k].id == b.top[k].id);
        CHECK(a.top[k].log_probability == b.top[k].log_probability);
      }
    }
  }
}

/// Many kinds at once.
std::vector<Request> mixedRequests() {
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request& request = requests.emplace_back(Request{requestPrompt(1 + i * 13 % 125, i)});
    GenerateOptions& options = request.options;
    options.max_tokens = i % 5 == 0 ? 0 : i;
    options.sampling.temperature = i % 3 == 0 ? 0 : 0.5 + 0.1 * i;
    options.sampling.seed = static_cast<std::uint64_t>(i);
    options.stop_ids = {i, i + 1};
    options.min_tokens = i % 7;
    if (i % 2 == 0) options.log_probabilities = i % 4;
    options.prompt_log_probabilities = i % 4 < 2;
    if (i % 3 == 1) options.drafter = promptLookup();
    options.use_cache = i % 8 != 7;
  }
  return requests;
}

}  // namespace

TEST_CASE("requests: each has its own options, and yields what it yields alone") {
  const std::vector<Request> requests = mixedRequests();
  std::vector<Generation> expected;
  for (const Request& request : requests) expected.push_back(generateAlone(request));
  Workspace<float> workspace(Threads(2));
  for (const BatchOptions& batch :
       {BatchOptions{}, BatchOptions{.sequences = 1}, BatchOptions{.prompt_rows = 1},
        BatchOptions{.sequences = 5, .prompt_rows = 7}, BatchOptions{.sequences = 100, .cache_bytes = 100000},
        BatchOptions{.prefix_bytes = 50000}}) {
    std::vector<std::vector<int>> told(requests.size());
    const std::vector<Generation> generations =
        generateTokens(std::span(requests), requestWeights(), workspace, batch, [&](std::size_t sequence, int id) {
          told[sequence].push_back(id);
          return true;
        });
    REQUIRE(generations.size() == requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CAPTURE(i);
      checkSameGeneration(generations[i], expected[i]);
      CHECK(told[i] == expected[i].output_ids);
    }
  }
}

TEST_CASE("requests: one that cannot be run is refused before any is") {
  Workspace<float> workspace(Threads(1));
  const auto refuses = [&](const Request& request, const std::string& text, const BatchOptions& batch = {}) {
    const std::vector<Request> requests = {{{1, 2}, {}}, request};
    bool has_begun = false;
    CHECK_THROWS_WITH_AS(generateTokens(std::span(requests), requestWeights(), workspace, batch,
                                        [&](std::size_t, int) { return has_begun = true; }),
                         text.c_str(), ArgumentError);
    CHECK_FALSE(has_begun);
  };
  refuses({{1}, {.max_tokens = -1}}, "expected max_tokens of 0 or more, got -1");
  refuses({{1}, {.min_tokens = -2}}, "expected min_tokens of 0 or more, got -2");
  refuses({{1}, {.samples = 0}}, "expected samples from 1 to 65536, got 0");
  refuses({{1}, {.min_tokens = 1, .stop_ids = {2, 60}}}, "stop_ids: expected token ids from 0 to 59, got 60");
  refuses({{1}, {.stop_ids = {-1}}}, "stop_ids: expected token ids from 0 to 59, got -1");
  refuses({{1}, {.samples = Index{1} << 40}}, "expected samples from 1 to 65536, got 1099511627776");
  refuses({{1}, {.num_beams = Index{1} << 40}}, "expected num_beams from 1 to 65536, got 1099511627776");
  refuses({{1}, {.log_probabilities = -1}}, "expected log_probabilities of 0 or more, got -1");
  refuses({{1}, {.draft_tokens = -1}}, "expected draft_tokens of 0 or more, got -1");
  refuses({{1}, {.stop_strings = {"a"}}}, "stop_strings: expected a tokenizer, got none");
  const Index bytes = 2 * ModelCache<float>(requestWeights()).layer(0).bytesFor(101);
  refuses({{1}, {}},
          "expected a request whose cache takes at most cache_bytes, 5, got one of up to " + std::to_string(bytes),
          {.cache_bytes = 5});
}

TEST_CASE("requests: samples of a prompt are those of its seed and the next ones, and share its prefill") {
  for (const Index length : {1, 2, 64, 65, 100}) {
    Request request{requestPrompt(length, 3)};
    request.options.max_tokens = 20;
    request.options.sampling = {.temperature = 1, .seed = 41};
    request.options.log_probabilities = 2;
    request.options.prompt_log_probabilities = length % 2 == 0;
    std::vector<Generation> expected;
    for (std::uint64_t sample = 0; sample < 5; ++sample) {
      expected.push_back(generateAlone(request));
      ++request.options.sampling.seed;
    }
    CHECK(expected[0].output_ids != expected[1].output_ids);
    request.options.sampling.seed = 41;
    request.options.samples = 5;
    const std::vector<Request> requests = {{{3, 2}, {.max_tokens = 3}}, request, {{1}, {.max_tokens = 2}}};
    for (const bool use_cache : {true, false})
      for (const Index together : {1, 2, 16}) {
        std::vector<Request> now = requests;
        now[1].options.use_cache = use_cache;
        Workspace<float> workspace(Threads(1));
        const auto generations = generateTokens(std::span<const Request>(now), requestWeights(), workspace,
                                                {.sequences = together, .prompt_rows = 9});
        REQUIRE(generations.size() == 7);
        for (std::size_t sample = 0; sample < 5; ++sample)
          checkSameGeneration(generations[1 + sample], expected[sample]);
        checkSameGeneration(generations[6], generateAlone(requests[2]));
      }
  }
  // The first sample reads the prompt alone, 5 rows a step; in the step after it, all others have a token.
  const std::vector<Request> requests = {{{3, 2}, {.max_tokens = 30}},
                                         {requestPrompt(50, 1), {.max_tokens = 4, .samples = 3}}};
  std::vector<std::size_t> order;
  Workspace<float> workspace(Threads(1));
  generateTokens(std::span(requests), requestWeights(), workspace, {.sequences = 4, .prompt_rows = 5},
                 [&](std::size_t sequence, int) {
                   order.push_back(sequence);
                   return true;
                 });
  const auto first = std::ranges::find(order, 1);
  CHECK(std::vector(first, first + 5) == std::vector<std::size_t>{1, 0, 1, 2, 3});
}

TEST_CASE("requests: samples of a prompt without a next token all end with the error") {
  Parameters<float> parameters = livelyParameters(smallConfig(24, 2, 20, kRequestVocabulary, 131, 2), true);
  parameters.wte(5, 3) = std::numeric_limits<float>::quiet_NaN();
  const Weights<float> broken(parameters);
  Workspace<float> workspace(Threads(1));
  for (const bool scores_prompt : {false, true})
    for (const std::vector<int>& prompt : {std::vector{1, 2, 5}, std::vector{5, 2, 1}}) {
      const std::vector<Request> requests = {
          {prompt, {.max_tokens = 4, .samples = 3, .prompt_log_probabilities = scores_prompt}}};
      for (const Generation& generation : generateTokens(std::span(requests), broken, workspace)) {
        CHECK(generation.finish_reason == FinishReason::error);
        CHECK(generation.error.ends_with("not all numbers are finite in wte.weight"));
      }
    }
}

TEST_CASE("requests: generating goes on from what a cache holds, and leaves it ready for more") {
  Workspace<float> workspace(Threads(1));
  const std::vector<int> prompt = requestPrompt(70, 2);
  for (const StoredType stored : {StoredType::full, StoredType::f16, StoredType::int8})
    for (const bool has_drafts : {false, true}) {
      GenerateOptions options{.max_tokens = 40};
      ModelCache<float> whole(requestWeights(), stored);
      const std::vector<int> expected = generateTokens(prompt, options, requestWeights(), whole, workspace).output_ids;
      CHECK(whole.length() == 109);
      if (has_drafts) options.drafter = promptLookup();
      ModelCache<float> cache(requestWeights(), stored);
      prefill(std::span(prompt).first(33), requestWeights(), cache, workspace);
      std::vector<int> output, next(prompt.begin() + 33, prompt.end());
      for (const Index tokens : {1, 7, 20, 12}) {
        options.max_tokens = tokens;
        const auto more = generateTokens(next, options, requestWeights(), cache, workspace).output_ids;
        output.insert(output.end(), more.begin(), more.end());
        next = {output.back()};
      }
      CHECK(output == expected);
      CHECK(cache.ids() == whole.ids());
      for (Index layer = 0; layer < 2; ++layer) {
        CHECK(cache.layer(layer).keys() == whole.layer(layer).keys());
        CHECK(cache.layer(layer).values() == whole.layer(layer).values());
      }
    }
  ModelCache<float> cache(requestWeights());
  CHECK_THROWS_WITH_AS(generateTokens({1}, {.samples = 2}, requestWeights(), cache, workspace),
                       "expected samples of 1 on a cache that goes on, got 2", ArgumentError);
  CHECK_THROWS_AS(generateTokens({kRequestVocabulary}, {}, requestWeights(), cache, workspace), ArgumentError);
  CHECK(cache.length() == 0);
  prefill(requestPrompt(130, 0), requestWeights(), cache, workspace);
  CHECK(generateTokens({1}, {}, requestWeights(), cache, workspace).finish_reason == FinishReason::context_full);
  CHECK_THROWS_AS(generateTokens({1}, {}, requestWeights(), cache, workspace), ContextFull);
}

TEST_CASE("requests: guesses change no id, no score and no end, whatever they are worth") {
  std::mt19937 random(5);
  const std::vector<int> prompt = requestPrompt(11, 4);
  const Weights<float> small(livelyParameters(smallConfig(12, 2, 9, kRequestVocabulary, 50, 1)));
  std::size_t guessed = 0;
  for (const double temperature : {0.0, 0.7})
    for (const Index max_tokens : {1, 2, 3, 50, 400})
      for (const bool use_cache : {true, false}) {
        if (!use_cache && max_tokens > 50) continue;
        GenerateOptions options{.max_tokens = max_tokens, .log_probabilities = 1, .use_cache = use_cache};
        options.sampling.temperature = temperature;
        const Generation expected = generateTokens(prompt, options, requestWeights());
        std::vector<int> all = prompt;
        all.insert(all.end(), expected.output_ids.begin(), expected.output_ids.end());
        const Drafter perfect = [&](TokenIds ids, Index most) {
          std::vector<int> guess(all.begin() + static_cast<std::ptrdiff_t>(ids.size()), all.end());
          guess.resize((std::min)(guess.size(), static_cast<std::size_t>(most)));
          guessed += guess.size();
          return guess;
        };
        const Drafter often_right = [&](TokenIds ids, Index most) {
          std::vector<int> guess = perfect(ids, most);
          for (int& id : guess)
            if (random() % 4 == 0) id = static_cast<int>(random() % kRequestVocabulary);
          return guess;
        };
        const Drafter nonsense = [&](TokenIds, Index) {
          std::vector<int> guess;
          for (int i = 0; i < 30; ++i) guess.push_back(static_cast<int>(random()));
          guess[0] = static_cast<int>(random() % kRequestVocabulary);
          return guess;
        };
        for (const Drafter& drafter : {perfect, often_right, nonsense, promptLookup(), promptLookup(1),
                                       draftModel(small), draftModel(requestWeights())}) {
          options.drafter = drafter;
          for (const Index draft_tokens : {0, 1, 10, 1000}) {
            options.draft_tokens = draft_tokens;
            checkSameGeneration(generateTokens(prompt, options, requestWeights()), expected);
          }
        }
      }
  CHECK(guessed > 100);
}

TEST_CASE("requests: a smaller model guesses nothing after ids that it lacks") {
  const Weights<float> small(livelyParameters(smallConfig(12, 2, 9, kRequestVocabulary - 5, 50, 1)));
  const Drafter fresh = draftModel(small);
  const std::vector<int> expected = fresh(TokenIds({1, 2, 3}), 4);
  REQUIRE(expected.size() == 4);
  Drafter drafter = draftModel(small);
  for (const int lacking : {-1, kRequestVocabulary - 5, kRequestVocabulary - 1, std::numeric_limits<int>::max()})
    for (const std::vector<int>& ids :
         {std::vector{lacking}, std::vector{lacking, 1}, std::vector{1, 2, 3, lacking}, std::vector{1, lacking, 3}}) {
      CHECK(drafter(ids, 4).empty());
      CHECK(drafter(TokenIds({1, 2, 3}), 4) == expected);
    }
  CHECK(drafter({1, 2, 3, kRequestVocabulary - 6}, 4).size() == 4);

  std::vector<int> prompt = requestPrompt(30, 4);
  prompt[10] = kRequestVocabulary - 1;
  GenerateOptions options{.max_tokens = 20};
  const Generation alone = generateTokens(prompt, options, requestWeights());
  options.drafter = drafter;
  checkSameGeneration(generateTokens(prompt, options, requestWeights()), alone);
}

TEST_CASE("requests: a stop id among guesses ends the sequence there") {
  const std::vector<int> prompt = requestPrompt(11, 4);
  GenerateOptions options{.max_tokens = 60};
  const std::vector<int> all = generateTokens(prompt, options, requestWeights()).output_ids;
  for (const std::size_t end : {0u, 1u, 5u, 20u}) {
    options.stop_ids = {all[end]};
    options.drafter = {};
    const Generation expected = generateTokens(prompt, options, requestWeights());
    options.drafter = [&](TokenIds ids, Index most) {
      std::vector<int> guess(all.begin() + static_cast<std::ptrdiff_t>(ids.size() - prompt.size()), all.end());
      guess.resize((std::min)(guess.size(), static_cast<std::size_t>(most)));
      return guess;
    };
    std::vector<int> told;
    const Generation guessed = generateTokens(prompt, options, requestWeights(), [&](int id) {
      told.push_back(id);
      return true;
    });
    checkSameGeneration(guessed, expected);
    CHECK(told == expected.output_ids);
  }
}

TEST_CASE("requests: prompt lookup guesses what followed the longest run that comes up again, the last time it did") {
  const Drafter drafter = promptLookup(3);
  CHECK(drafter({1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}, 10) == std::vector{4, 9, 2, 3, 5, 1, 2, 3});
  CHECK(drafter({1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}, 2) == std::vector{4, 9});
  CHECK(drafter({7, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}, 1) == std::vector{5});
  CHECK(promptLookup(1)({3, 1, 3, 2, 3}, 1) == std::vector{2});
  CHECK(drafter({1, 2, 3}, 5).empty());
  CHECK(drafter({1}, 5).empty());
  CHECK(drafter({4, 4}, 5) == std::vector{4});
  CHECK_THROWS_WITH_AS(promptLookup(0), "promptLookup: expected an ngram of 1 or more, got 0", ArgumentError);
}

TEST_CASE("requests: scores are the model's log-probabilities, to the bit, of the prompt and of what is generated") {
  const std::vector<int> prompt = requestPrompt(100, 1);
  GenerateOptions options{.max_tokens = 20, .log_probabilities = 3, .prompt_log_probabilities = true};
  options.sampling.temperature = 2;
  const Generation generation = generateTokens(prompt, options, requestWeights());
  std::vector<int> ids = prompt;
  ids.insert(ids.end(), generation.output_ids.begin(), generation.output_ids.end());
  std::vector<TokenScore> scores = generation.prompt_scores;
  REQUIRE(scores.size() == 99);
  scores.insert(scores.end(), generation.scores.begin(), generation.scores.end());
  REQUIRE(scores.size() == ids.size() - 1);
  ModelCache<float> cache(requestWeights());
  const Matrix<float> logits = prefillLogits(ids, requestWeights(), cache);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto row = logits.row(static_cast<Index>(i));
    CHECK(scores[i].log_probability == logProbability(row, ids[i + 1]));
    const auto top = topLogProbabilities(row, 3);
    REQUIRE(scores[i].top.size() == 3);
    for (std::size_t k = 0; k < 3; ++k) CHECK(scores[i].top[k].id == top[k].id);
    for (std::size_t k = 0; k < 3; ++k) CHECK(scores[i].top[k].log_probability == top[k].log_probability);
  }
  options.max_tokens = 0;
  const Generation prompt_only = generateTokens(prompt, options, requestWeights());
  CHECK(prompt_only.output_ids.empty());
  CHECK(prompt_only.prompt_scores.size() == 99);
}

TEST_CASE("requests: min_tokens keeps stop ids from being chosen, and only until then") {
  const std::vector<int> prompt = requestPrompt(11, 4);
  GenerateOptions options{.max_tokens = 30};
  options.stop_ids = {generateTokens(prompt, 1, requestWeights()).front()};
  CHECK(generateTokens(prompt, options, requestWeights()).output_ids.empty());
  for (const Index min_tokens : {1, 2, 9, 30}) {
    options.min_tokens = min_tokens;
    const Generation generation = generateTokens(prompt, options, requestWeights());
    CHECK(static_cast<Index>(generation.output_ids.size()) >= min_tokens);
    CHECK(std::ranges::find(generation.output_ids, options.stop_ids[0]) == generation.output_ids.end());
    // Each of them is the likeliest of the others.
    std::vector<int> ids = prompt;
    ids.insert(ids.end(), generation.output_ids.begin(), generation.output_ids.end());
    ModelCache<float> cache(requestWeights());
    Matrix<float> logits = prefillLogits(ids, requestWeights(), cache).bottomRows(generation.output_ids.size() + 1);
    for (std::size_t i = 0; i < generation.output_ids.size(); ++i) {
      if (static_cast<Index>(i) < min_tokens)
        logits(static_cast<Index>(i), options.stop_ids[0]) = -std::numeric_limits<float>::infinity();
      CHECK(argmax(logits.row(static_cast<Index>(i))) == generation.output_ids[i]);
    }
  }
  for (int id = 0; id < kRequestVocabulary; ++id) options.stop_ids.push_back(id);
  CHECK_THROWS_WITH_AS(
      generateTokens(prompt, options, requestWeights()),
      "the rules leave no token at position 10: expected a largest logit that is finite, got 0 times NaN and 60 times "
      "minus infinity",
      ArgumentError);
}

TEST_CASE("requests: a text ends before a stop string, of whatever tokens that is made, and a stream shows no more") {
  const std::filesystem::path model = fixturePath("tales-gpt2");
  const Weights<float> storyteller = loadWeights(model);
  const Tokenizer tokenizer = Tokenizer::load(model);
  const std::vector<int> prompt = tokenizer.encode("Once upon a time");
  GenerateOptions options{.max_tokens = 50, .log_probabilities = 0};
  const Generation whole = generateTokens(prompt, options, storyteller);
  const std::string text = tokenizer.decode(whole.output_ids);
  options.tokenizer = &tokenizer;
  std::size_t inside_tokens = 0;
  for (std::size_t begin = 0; begin + 9 < text.size(); begin += 7)
    for (const std::size_t length : {1u, 4u, 9u}) {
      const std::string stop = text.substr(begin, length);
      CAPTURE(stop);
      options.stop_strings = {"never there", stop};
      options.drafter = begin % 2 == 0 ? promptLookup() : Drafter();
      std::vector<int> told;
      const Generation stopped = generateTokens(prompt, options, storyteller, [&](int id) {
        told.push_back(id);
        return true;
      });
      CHECK(stopped.finish_reason == FinishReason::stop);
      CHECK(tokenizer.decode(stopped.output_ids) == text.substr(0, text.find(stop)));
      CHECK(told == stopped.output_ids);
      REQUIRE(stopped.scores.size() <= stopped.output_ids.size());
      const auto chosen = static_cast<std::ptrdiff_t>(stopped.scores.size());
      CHECK(std::equal(stopped.output_ids.begin(), stopped.output_ids.begin() + chosen, whole.output_ids.begin()));
      if (stopped.scores.size() < stopped.output_ids.size()) ++inside_tokens;
    }
  CHECK(inside_tokens > 5);

  options.stop_strings = {text.substr(0, 3), tokenizer.tokenBytes(whole.output_ids[20])};
  options.min_tokens = 20;
  const Generation later = generateTokens(prompt, options, storyteller);
  CHECK(later.output_ids.size() >= 20);
  CHECK(std::equal(later.output_ids.begin(), later.output_ids.begin() + 20, whole.output_ids.begin()));
  CHECK(later.finish_reason == FinishReason::stop);

  options = {.max_tokens = 50, .stop_strings = {"there is no such text"}, .tokenizer = &tokenizer};
  CHECK(generateTokens(prompt, options, storyteller).output_ids == whole.output_ids);
  std::vector<int> told;
  const Generation refused = generateTokens(prompt, options, storyteller, [&](int id) {
    told.push_back(id);
    return told.size() < 7;
  });
  CHECK(refused.finish_reason == FinishReason::callback);
  CHECK(refused.output_ids == told);
}

TEST_CASE("requests: rules apply to each next token, by the prompt and what has come so far") {
  const std::vector<int> prompt = requestPrompt(20, 4);
  GenerateOptions options{.max_tokens = 40, .min_tokens = 5, .stop_ids = {3, 4}};
  options.rules = {.logit_bias = {{7, 0.5}, {9, -2}},
                   .repetition_penalty = 1.2,
                   .presence_penalty = 0.3,
                   .frequency_penalty = 0.1,
                   .no_repeat_ngram_size = 2,
                   .suppress_tokens = {1, 2}};
  for (const double temperature : {0.0, 1.0}) {
    options.sampling.temperature = temperature;
    std::vector<int> ids = prompt;
    std::mt19937_64 engine(options.sampling.seed);
    ModelCache<float> cache(requestWeights());
    Workspace<float> workspace(Threads(1));
    for (std::span<const int> next = ids; ids.size() < prompt.size() + 40; next = std::span(ids).last(1)) {
      RowVector<float> logits = prefill(next, requestWeights(), cache, workspace);
      applyRules(logits, options.rules, ids, prompt.size(), workspace);
      if (ids.size() < prompt.size() + 5)
        for (const int id : options.stop_ids) logits[id] = -std::numeric_limits<float>::infinity();
      const int id = sample(logits, options.sampling, engine);
      if (id == 3 || id == 4) break;
      ids.push_back(id);
    }
    for (const bool has_drafts : {false, true}) {
      options.drafter = has_drafts ? promptLookup(1) : Drafter();
      std::vector<int> output = generateTokens(prompt, options, requestWeights()).output_ids;
      output.insert(output.begin(), prompt.begin(), prompt.end());
      CHECK(output == ids);

      // Rules see what a cache holds.
      ModelCache<float> held(requestWeights());
      prefill(std::span(prompt).first(19), requestWeights(), held, workspace);
      std::vector<int> gone_on =
          generateTokens(std::span(prompt).last(1), options, requestWeights(), held, workspace).output_ids;
      gone_on.insert(gone_on.begin(), prompt.begin(), prompt.end());
      CHECK(gone_on == ids);
    }
  }
}

TEST_CASE("requests: what throws in a callback or a drafter leaves the cache with what is certain") {
  const std::vector<int> prompt = requestPrompt(20, 2);
  GenerateOptions options{.max_tokens = 60};
  const std::vector<int> all = generateTokens(prompt, options, requestWeights()).output_ids;
  Workspace<float> workspace(Threads(1));
  for (const std::size_t good : {0u, 1u, 5u, 30u})
    for (const bool is_callback : {true, false}) {
      ModelCache<float> cache(requestWeights());
      prefill(std::span(prompt).first(7), requestWeights(), cache, workspace);
      std::size_t told = 0;
      options.drafter = [&](TokenIds ids, Index most) {
        if (!is_callback && told > good) throw std::runtime_error("enough");
        // Right at first, then wrong.
        const std::size_t done = ids.size() - prompt.size();
        std::vector<int> guess(all.begin() + static_cast<std::ptrdiff_t>(done), all.end());
        guess.resize((std::min)(guess.size(), static_cast<std::size_t>(most)));
        if (guess.size() > 2) guess.back() = (guess.back() + 1) % kRequestVocabulary;
        return guess;
      };
      const auto onToken = [&](int) {
        if (is_callback && told == good) throw std::runtime_error("enough");
        ++told;
        return true;
      };
      CHECK_THROWS_WITH(
          generateTokens(std::span(prompt).subspan(7), options, requestWeights(), cache, workspace, onToken), "enough");
      REQUIRE(cache.length() >= 20);
      std::vector<int> ids = prompt;
      ids.insert(ids.end(), all.begin(), all.end());
      CHECK(std::equal(cache.ids().begin(), cache.ids().end(), ids.begin()));
      ModelCache<float> expected(requestWeights());
      prefill(cache.ids(), requestWeights(), expected, workspace);
      CHECK(cache.layer(1).keys() == expected.layer(1).keys());
    }
  ModelCache<float> unknown(requestWeights());
  for (Index layer = 0; layer < 2; ++layer)
    blockStep<float>(Matrix<float>::Ones(3, 24), requestWeights().h[static_cast<std::size_t>(layer)],
                     unknown.layer(layer));
  for (const GenerateOptions& needing : {GenerateOptions{.rules = {.suppress_tokens = {1}}}, {.use_cache = false}})
    CHECK_THROWS_AS(generateTokens({1}, needing, requestWeights(), unknown, workspace), ArgumentError);
  CHECK(unknown.length() == 3);
  generateTokens({1}, {.max_tokens = 2, .drafter = promptLookup()}, requestWeights(), unknown, workspace);
  CHECK(unknown.length() == 5);
}

namespace {

/// A drafter that guesses nothing, and throws when it is copied for the time that is said, or called.
struct FaultyDrafter {
  int copies_left;
  bool is_callable;

  FaultyDrafter(int copies, bool callable) : copies_left(copies), is_callable(callable) {}
  FaultyDrafter(const FaultyDrafter& other) : copies_left(other.copies_left - 1), is_callable(other.is_callable) {
    if (copies_left < 0) throw std::runtime_error("no copy");
  }
  std::vector<int> operator()(TokenIds, Index) const {
    if (!is_callable) throw std::runtime_error("no guess");
    return {};
  }
};

}  // namespace

TEST_CASE("requests: one that fails ends alone") {
  Request good{requestPrompt(9, 1), {.max_tokens = 60}};
  Request faulty{requestPrompt(5, 2), {.max_tokens = 50, .samples = 2}};
  int copied = 0;
  for (int copies = 1; copies < 12; ++copies)
    for (const bool is_callable : {true, false}) {
      std::vector<Request> requests = {good};
      try {
        faulty.options.drafter = FaultyDrafter(copies, is_callable);
        requests.push_back(faulty);
      } catch (const std::runtime_error&) {  // these copies are the test's own
        continue;
      }
      Workspace<float> workspace(Threads(1));
      const auto generations = generateTokens(std::span<const Request>(requests), requestWeights(), workspace);
      CHECK(generations[0].output_ids == generateAlone(good).output_ids);
      for (std::size_t sample = 1; sample < 3; ++sample) {
        const std::string& error = generations[sample].error;
        if (!is_callable) CHECK((error == "no copy" || error == "no guess"));
        if (error == "no copy") ++copied;
        CHECK((generations[sample].finish_reason == FinishReason::error) == !error.empty());
      }
    }
  CHECK(copied > 0);
}

TEST_CASE("requests: sequences that get tokens wait for no more rows of prompts than is said, scored ones too") {
  Request scored{requestPrompt(130, 1), {.max_tokens = 3, .prompt_log_probabilities = true}};
  const std::vector<Request> requests = {scored, {{1}, {.max_tokens = 40}}, {requestPrompt(128, 2), {.max_tokens = 3}}};
  std::vector<std::size_t> order;
  Workspace<float> workspace(Threads(1));
  generateTokens(std::span(requests), requestWeights(), workspace, {.prompt_rows = 8}, [&](std::size_t sequence, int) {
    order.push_back(sequence);
    return true;
  });
  // The first step has 64 rows of the first prompt and whole others. Then the first one's other 66 take nine steps.
  CHECK(std::vector(order.begin(), order.begin() + 4) == std::vector<std::size_t>{1, 2, 1, 2});
  const auto first = std::ranges::find(order, 0);
  CHECK(std::count(order.begin(), first, 1) == 9);
}
