#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/detail/model/generate.hpp"
#include "driftless/forward.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/scheduler.hpp"
#include "support/fixtures.hpp"
#include "support/random_models.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace driftless;
using namespace driftless::test;

namespace {

constexpr int kBeamVocabulary = 60;

const Weights<float>& beamWeights() {
  static const Weights<float> made(livelyParameters(smallConfig(24, 2, 20, kBeamVocabulary, 131, 2)));
  return made;
}

std::vector<int> beamPrompt(Index length, int salt) {
  std::vector<int> ids = someIds(length, kBeamVocabulary);
  for (int& id : ids) id = (id + 7 * salt) % kBeamVocabulary;
  return ids;
}

std::vector<Generation> search(const std::vector<Request>& requests, const Weights<float>& model,
                               const BatchOptions& batch = {}, const OnToken& onToken = {}, int threads = 1) {
  Workspace<float> workspace{Threads(threads)};
  return generateTokens(std::span(requests), model, workspace, batch, onToken);
}

void checkSameBeams(const Generation& actual, const Generation& expected) {
  CHECK(actual.output_ids == expected.output_ids);
  CHECK(actual.finish_reason == expected.finish_reason);
  CHECK(actual.error == expected.error);
  CHECK(actual.beam_score == expected.beam_score);
  for (const auto scores : {&Generation::scores, &Generation::prompt_scores}) {
    REQUIRE((actual.*scores).size() == (expected.*scores).size());
    for (std::size_t i = 0; i < (actual.*scores).size(); ++i)
      CHECK((actual.*scores)[i].log_probability == (expected.*scores)[i].log_probability);
  }
}

Request searchOf(const nlohmann::json& json) {
  Request request{json.at("prompt_ids")};
  GenerateOptions& options = request.options;
  options.num_beams = json.at("num_beams");
  options.samples = json.at("samples");
  options.length_penalty = json.at("length_penalty");
  options.early_stopping = json.at("early_stopping");
  options.max_tokens = json.at("max_tokens");
  options.min_tokens = json.at("min_tokens");
  options.stop_ids = json.at("stop_ids").get<std::vector<int>>();
  const nlohmann::json& rules = json.at("rules");
  options.rules.repetition_penalty = rules.value("repetition_penalty", 1.0);
  options.rules.no_repeat_ngram_size = rules.value("no_repeat_ngram_size", Index{0});
  options.rules.suppress_tokens = rules.value("suppress_tokens", std::vector<int>());
  for (const nlohmann::json& bias : rules.value("logit_bias", nlohmann::json::array()))
    options.rules.logit_bias.push_back({bias.at("id"), bias.at("bias")});
  return request;
}

/// Searches of many kinds, and other requests between them.
std::vector<Request> mixedSearches() {
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request& request = requests.emplace_back(Request{beamPrompt(1 + i * 13 % 125, i)});
    GenerateOptions& options = request.options;
    options.max_tokens = i % 7 == 6 ? 0 : 2 * i;
    options.stop_ids = {i, i + 3, 2 * i};
    options.min_tokens = i % 4;
    if (i % 2 == 0) options.log_probabilities = i % 3;
    options.prompt_log_probabilities = i % 5 < 2;
    if (i % 3 == 0) {
      options.sampling = {.temperature = 0.8, .seed = 5};
      options.samples = 1 + i % 2;
      continue;
    }
    options.num_beams = 2 + i % 4;
    options.samples = 1 + i % 3 % options.num_beams;
    options.length_penalty = 0.5 * (i % 6 - 2);
    options.early_stopping = i % 4 == 1;
    if (i % 4 == 2) options.rules = {.repetition_penalty = 1.2, .frequency_penalty = 0.3, .no_repeat_ngram_size = 3};
  }
  return requests;
}

struct Continuation {
  std::vector<int> ids;  // without the stop id
  double score;
};

/// All continuations by up to `left` ids, with their scores, by the plain definition.
void listContinuations(const std::vector<int>& prompt, const std::vector<int>& output, double sum,
                       const GenerateOptions& options, const Weights<float>& model, std::vector<Continuation>& all) {
  std::vector<int> ids = prompt;
  ids.insert(ids.end(), output.begin(), output.end());
  ModelCache<float> cache(model);
  Workspace<float> workspace{Threads(1)};
  const RowVector<float> logits = prefill(ids, model, cache, workspace);
  const double length = static_cast<double>(output.size() + 1);
  for (int id = 0; id < static_cast<int>(logits.size()); ++id) {
    double log_probability = logProbability(logits, id);
    const bool has_been = std::find(ids.begin(), ids.end(), id) != ids.end();
    if (has_been) log_probability *= options.rules.repetition_penalty;
    const bool is_stop = id == options.stop_ids.at(0);
    std::vector<int> next = output;
    if (!is_stop) next.push_back(id);
    if (is_stop || static_cast<Index>(next.size()) == options.max_tokens)
      all.push_back({next, (sum + log_probability) / std::pow(length, options.length_penalty)});
    else
      listContinuations(prompt, next, sum + log_probability, options, model, all);
  }
}

}  // namespace

TEST_CASE("beams: ids, ends and scores are those of transformers") {
  const nlohmann::json& cases = fixtureJson("beams.json").at("cases");
  std::vector<Request> requests;
  for (const nlohmann::json& json : cases) requests.push_back(searchOf(json));
  CHECK(requests.size() > 100);
  const Weights<float> tales(fixtureParameters("tales-gpt2"));
  const std::vector<Generation> generations = search(requests, tales, {.sequences = 40});
  auto generation = generations.begin();
  for (const nlohmann::json& json : cases) {
    CAPTURE(json.dump());
    for (const nlohmann::json& expected : json.at("generations")) {
      REQUIRE(generation != generations.end());
      CHECK(generation->output_ids == expected.at("output_ids").get<std::vector<int>>());
      CHECK(generation->finish_reason == (expected.at("is_stopped") ? FinishReason::stop : FinishReason::length));
      CHECK(generation->beam_score == doctest::Approx(expected.at("beam_score").get<double>()).epsilon(2e-5));
      ++generation;
    }
  }
  CHECK(generation == generations.end());
}

TEST_CASE("beams: a full context ends a search as max_tokens would, and is said to") {
  const Weights<float> tales(fixtureParameters("tales-gpt2"));
  std::size_t full = 0;
  for (const nlohmann::json& json : fixtureJson("beams.json").at("cases")) {
    Request request = searchOf(json);
    if (request.ids.size() != 500) continue;
    request.options.max_tokens = 100;
    const std::vector<Generation> generations = search({request}, tales);
    for (std::size_t i = 0; i < generations.size(); ++i) {
      const nlohmann::json& expected = json.at("generations").at(i);
      CHECK(generations[i].output_ids == expected.at("output_ids").get<std::vector<int>>());
      if (expected.at("is_stopped")) continue;
      CHECK(generations[i].finish_reason == FinishReason::context_full);
      ++full;
    }
  }
  CHECK(full > 0);
}

TEST_CASE("beams: enough of them find all continuations there are, in the order of their scores") {
  const Weights<float> tiny(livelyParameters(smallConfig(8, 2, 9, 5, 20, 2)));
  for (const double length_penalty : {1.0, 0.0, -1.5, 2.0})
    for (const double repetition_penalty : {1.0, 1.5}) {
      GenerateOptions options{.max_tokens = 4, .stop_ids = {2}};
      options.length_penalty = length_penalty;
      options.rules.repetition_penalty = repetition_penalty;
      options.num_beams = 400;
      options.samples = 400;
      const std::vector<int> prompt = {1, 3};
      std::vector<Continuation> expected;
      listContinuations(prompt, {}, 0, options, tiny, expected);
      REQUIRE(expected.size() == 1 + 4 + 16 + 64 * 5);
      std::stable_sort(expected.begin(), expected.end(),
                       [](const Continuation& a, const Continuation& b) { return a.score > b.score; });
      const std::vector<Generation> found = search({{prompt, options}}, tiny, {.sequences = 400});
      REQUIRE(found.size() == 400);
      std::map<std::vector<int>, double> scores;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(found[i].beam_score == doctest::Approx(expected[i].score).epsilon(1e-12));
        CHECK(found[i].output_ids == expected[i].ids);
      }
      for (std::size_t i = expected.size(); i < found.size(); ++i) {
        CHECK(found[i].finish_reason == FinishReason::error);
        CHECK(found[i].error == "expected 400 continuations, found 341: no others have a probability above zero");
      }
    }
}

TEST_CASE("beams: of equal scores, the lower beam goes first, then the lower id") {
  Parameters<float> parameters = livelyParameters(smallConfig(8, 2, 9, 7, 20, 1), true);
  parameters.lm_head->setZero();
  const Weights<float> indifferent(parameters);
  GenerateOptions options{.max_tokens = 3, .samples = 3, .num_beams = 3};
  std::vector<std::vector<int>> found;
  for (const Generation& generation : search({{{1}, options}}, indifferent)) found.push_back(generation.output_ids);
  CHECK(found == std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}});
}

TEST_CASE("beams: a search yields what it yields alone, whatever runs with it") {
  const std::vector<Request> requests = mixedSearches();
  std::vector<Generation> expected;
  for (const Request& request : requests)
    for (Generation& generation : search({request}, beamWeights())) expected.push_back(std::move(generation));
  for (const int threads : {1, 2})
    for (const BatchOptions& batch :
         {BatchOptions{}, BatchOptions{.sequences = 5}, BatchOptions{.sequences = 7, .prompt_rows = 3},
          BatchOptions{.sequences = 100, .cache_bytes = 500000}, BatchOptions{.prefix_bytes = 50000}}) {
      std::vector<std::vector<int>> told(expected.size());
      const std::vector<Generation> generations = search(
          requests, beamWeights(), batch,
          [&](std::size_t sequence, int id) {
            told[sequence].push_back(id);
            return true;
          },
          threads);
      REQUIRE(generations.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        checkSameBeams(generations[i], expected[i]);
        CHECK(told[i] == expected[i].output_ids);
      }
    }
}

TEST_CASE("beams: a prompt alone can be searched from too, by more beams than a batch would have") {
  GenerateOptions options{.max_tokens = 9, .num_beams = 20};
  const std::vector<int> prompt = beamPrompt(7, 1);
  std::vector<int> told;
  const Generation generation = generateTokens(prompt, options, beamWeights(), [&](int id) {
    told.push_back(id);
    return true;
  });
  checkSameBeams(generation, search({{prompt, options}}, beamWeights(), {.sequences = 20}).front());
  CHECK(told == generation.output_ids);
  ModelCache<float> cache(beamWeights());
  Workspace<float> workspace{Threads(1)};
  CHECK_THROWS_WITH_AS(generateTokens(prompt, options, beamWeights(), cache, workspace),
                       "expected num_beams of 1 on a cache that goes on, got 20", ArgumentError);
  CHECK(cache.length() == 0);
}

TEST_CASE("beams: what cannot be searched for is refused, naming the option") {
  const auto refuses = [&](const GenerateOptions& options, const std::string& text, const BatchOptions& batch = {}) {
    CHECK_THROWS_WITH_AS(search({{{1, 2}, {}}, {{1}, options}}, beamWeights(), batch), text.c_str(), ArgumentError);
  };
  refuses({.num_beams = 0}, "expected num_beams from 1 to 65536, got 0");
  refuses({.num_beams = -3}, "expected num_beams from 1 to 65536, got -3");
  refuses({.length_penalty = 11}, "expected a length_penalty from -10 to 10, got 11");
  refuses({.length_penalty = std::numeric_limits<double>::quiet_NaN()},
          "expected a length_penalty from -10 to 10, got nan");
  refuses({.samples = 4, .num_beams = 3}, "expected samples of at most num_beams, 3, got 4");
  refuses({.sampling = {.temperature = 0.5}, .num_beams = 3},
          "num_beams above 1: expected a temperature of 0, got 0.5");
  refuses({.stop_strings = {"a", "b"}, .num_beams = 2}, "num_beams above 1: expected no stop_strings, got 2");
  refuses({.drafter = promptLookup(), .num_beams = 2}, "num_beams above 1: expected no drafter, got one");
  refuses({.use_cache = false, .num_beams = 2}, "num_beams above 1: expected use_cache to be true, got false");
  refuses({.num_beams = 17}, "expected num_beams of at most the batch's sequences, 16, got 17");
  const Index bytes = 2 * ModelCache<float>(beamWeights()).layer(0).bytesFor(21);
  refuses({.max_tokens = 20, .num_beams = 3},
          "expected a request whose cache takes at most cache_bytes, " + std::to_string(3 * bytes - 1) +
              ", got one of up to " + std::to_string(3 * bytes),
          {.cache_bytes = 3 * bytes - 1});
  refuses({.num_beams = 65537}, "expected num_beams from 1 to 65536, got 65537");
}

TEST_CASE("beams: a callback sees the ids at the end, and can end each continuation") {
  const Request request{beamPrompt(20, 2), {.max_tokens = 8, .samples = 3, .log_probabilities = 0, .num_beams = 4}};
  const std::vector<Generation> whole = search({request}, beamWeights());
  std::vector<std::size_t> order;
  const std::vector<Generation> cut = search({request}, beamWeights(), {}, [&](std::size_t sequence, int) {
    order.push_back(sequence);
    return sequence != 1 || std::count(order.begin(), order.end(), std::size_t{1}) < 3;
  });
  checkSameBeams(cut[0], whole[0]);
  checkSameBeams(cut[2], whole[2]);
  CHECK(cut[1].finish_reason == FinishReason::callback);
  CHECK(cut[1].output_ids == std::vector(whole[1].output_ids.begin(), whole[1].output_ids.begin() + 3));
  CHECK(cut[1].scores.size() == 3);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(order.size() == 8 + 3 + 8);
}

TEST_CASE("beams: log-probabilities are the model's, before rules") {
  for (const double repetition_penalty : {1.0, 1.3}) {
    GenerateOptions options{.max_tokens = 12, .samples = 4, .log_probabilities = 2, .num_beams = 4};
    options.prompt_log_probabilities = true;
    options.rules.repetition_penalty = repetition_penalty;
    const std::vector<int> prompt = beamPrompt(70, 3);
    for (const Generation& generation : search({{prompt, options}}, beamWeights())) {
      CHECK(generation.prompt_scores.size() == 69);
      REQUIRE(generation.scores.size() == 12);
      std::vector<int> ids = prompt;
      double sum = 0;
      for (std::size_t i = 0; i < 12; ++i) {
        ModelCache<float> cache(beamWeights());
        Workspace<float> workspace{Threads(1)};
        const RowVector<float> logits = prefill(ids, beamWeights(), cache, workspace);
        CHECK(generation.scores[i].log_probability == logProbability(logits, generation.output_ids[i]));
        CHECK(generation.scores[i].top.size() == 2);
        CHECK(generation.scores[i].top[0].id == topLogProbabilities(logits, 1)[0].id);
        sum += generation.scores[i].log_probability;
        ids.push_back(generation.output_ids[i]);
      }
      const bool is_sum = std::abs(generation.beam_score - sum / 12) < 1e-12;
      CHECK(is_sum == (repetition_penalty == 1));
    }
  }
}

TEST_CASE("beams: a search that no id can go on from ends with the error, all of it") {
  Parameters<float> parameters = livelyParameters(smallConfig(24, 2, 20, kBeamVocabulary, 131, 2));
  parameters.wpe(50, 3) = std::numeric_limits<float>::quiet_NaN();
  const Weights<float> broken(parameters);
  const GenerateOptions options{.max_tokens = 9, .samples = 3, .num_beams = 4};
  // Position 50 is the prompt's last, the search's first, and one within it.
  for (const Index length : {51, 50, 46}) {
    const std::vector<Generation> generations = search({{beamPrompt(length, 1), options}, {{1}, options}}, broken);
    REQUIRE(generations.size() == 6);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(generations[i].finish_reason == FinishReason::error);
      CHECK(generations[i].error.starts_with("logits at position 50: "));
      CHECK(generations[i].output_ids.empty());
      CHECK(generations[3 + i].finish_reason == FinishReason::length);
    }
  }
  GenerateOptions nothing = options;
  for (int id = 0; id < kBeamVocabulary; ++id) nothing.rules.suppress_tokens.push_back(id);
  for (const Generation& generation : search({{{1}, nothing}}, beamWeights())) {
    CHECK(generation.finish_reason == FinishReason::error);
    CHECK(generation.error == "expected 3 continuations, found 0: no others have a probability above zero");
  }
}

TEST_CASE("beams: a batch that fails or is cancelled tells of every continuation, once") {
  for (const Index num_beams : {1, 4})
    for (const int steps : {1, 5, 12})
      for (const bool is_cancelled : {false, true}) {
        Workspace<float> workspace{Threads(1)};
        detail::Batch<float> batch(beamWeights(), workspace, {.prompt_rows = 3});
        const Request request{beamPrompt(20, 1), {.max_tokens = 30, .samples = 3, .num_beams = num_beams}};
        const Request other{{2}, {.max_tokens = 100}};  // so that the request's prompt is read 3 rows a step
        detail::Job<float> job(request), other_job(other);
        std::vector<int> ended(3, 0);
        job.on_finish = [&](std::size_t sample, const Generation& generation) {
          ++ended[sample];
          CHECK(generation.finish_reason == (is_cancelled ? FinishReason::cancelled : FinishReason::error));
          if (!is_cancelled) CHECK(generation.error == "no memory");
        };
        other_job.on_finish = [](std::size_t, const Generation&) {};
        batch.add(other_job.place);
        batch.step();
        batch.add(job.place);
        for (int step = 0; step < steps; ++step) batch.step();
        if (is_cancelled)
          batch.cancel(job);
        else
          batch.fail("no memory");
        while (batch.step()) {
        }
        CHECK(ended == std::vector<int>{1, 1, 1});
      }
}

TEST_CASE("threads: a scheduler runs and cancels searches") {
  const Request request{beamPrompt(30, 4), {.max_tokens = 20, .samples = 2, .num_beams = 3}};
  const std::vector<Generation> expected = search({request}, beamWeights());
  std::vector<Generation> finished, cancelled;
  Scheduler<float> scheduler(beamWeights(), {.sequences = 3});
  Request longer = request;
  longer.options.max_tokens = 100;
  scheduler.add(request, [&](auto, std::vector<Generation> generations) { finished = std::move(generations); });
  const auto id =
      scheduler.add(longer, [&](auto, std::vector<Generation> generations) { cancelled = std::move(generations); });
  scheduler.cancel(id);
  scheduler.wait();
  REQUIRE(finished.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) checkSameBeams(finished[i], expected[i]);
  REQUIRE(cancelled.size() == 2);
  for (const Generation& generation : cancelled) {
    CHECK(generation.finish_reason == FinishReason::cancelled);
    CHECK(generation.output_ids.empty());
  }
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
TEST_CASE("beams: the caches of beams that are given up are given back") {
  const Weights<float> wide(livelyParameters(smallConfig(64, 2, 20, kBeamVocabulary, 300, 4)));
  const auto bytesInUse = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<Index>(info.uordblks + info.hblkhd);
  };
  Workspace<float> workspace{Threads(1)};
  // What a workspace takes stays with it.
  const Request request{beamPrompt(100, 1), {.max_tokens = 200, .num_beams = 4}};
  generateTokens(std::span(&request, 1), wide, workspace);
  detail::Batch<float> batch(wide, workspace, {});
  detail::Job<float> job(request);
  std::size_t ended = 0;
  job.on_finish = [&](std::size_t, const Generation&) { ++ended; };
  const Index before = bytesInUse();
  batch.add(job.place);
  Index most = 0;
  while (batch.step()) most = (std::max)(most, bytesInUse() - before);
  CHECK(ended == 1);
  // The first 64 positions are the same for all; the rest are at most each beam's own.
  const ModelCache<float> cache(wide);
  const auto bytesFor = [&](Index positions) { return cache.layers() * cache.layer(0).bytesFor(positions); };
  CHECK(most < bytesFor(64) + 4 * (bytesFor(299) - bytesFor(64)) + 100000);
  CHECK(bytesInUse() - before < 20000);
}
#endif
