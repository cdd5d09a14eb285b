#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "driftless/cache_file.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/weights.hpp"
#include "support/checkpoint_writer.hpp"
#include "support/fixtures.hpp"
#include "support/program_output.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"

// The options of `generate` beyond what the stages grade.

using namespace driftless::test;
using nlohmann::json;
using Ids = std::vector<int>;

namespace {

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json resultOf(const Words& arguments) { return jsonOf(arguments + Words{"--output", "json"}); }

/// The ids before an output and its own.
Ids allIds(const json& result) {
  Ids ids = result.at("prompt_ids");
  for (const int id : result.at("output_ids")) ids.push_back(id);
  return ids;
}

/// Checks that generate's object says what batch's does.
void checkSame(const json& generated, const json& result) {
  INFO(generated.dump());
  INFO(result.dump());
  for (const char* key : {"text", "finish_reason", "logprobs", "prompt_logprobs"})
    CHECK(generated.value(key, json()) == result.value(key, json()));
  REQUIRE(generated.contains("output_ids") == result.contains("ids"));
  if (generated.contains("output_ids")) CHECK(generated.at("output_ids") == result.at("ids"));
  REQUIRE(generated.contains("choices") == result.contains("choices"));
  if (!generated.contains("choices")) return;
  REQUIRE(generated.at("choices").size() == result.at("choices").size());
  for (std::size_t i = 0; i < generated.at("choices").size(); ++i)
    checkSame(generated.at("choices").at(i), result.at("choices").at(i));
}

const Words kOnceUpon = {"generate", "Once upon", "-n", "24"};

/// A cache file in a directory of its own.
class CacheFile {
 public:
  std::string path() const { return (directory_.path() / "cache").string(); }
  std::string bytes() const { return readWholeFile(path()); }
  Words save() const { return {"--save-cache", path()}; }
  Words load() const { return {"--load-cache", path()}; }
  /// How many files there are beside it, itself counted.
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(directory_.path()), std::filesystem::directory_iterator());
  }

 private:
  TemporaryDirectory directory_;
};

/// A small model with random weights and the vocabulary's size of the embedded one.
void writeDraftModel(const std::filesystem::path& directory) {
  CheckpointShape shape;
  shape.V = 2048;
  writeCheckpoint(directory, gpt2Tensors(shape), configJson(shape));
}

}  // namespace

TEST_SUITE("generate options") {
  TEST_CASE("every option does what the key of a request does, alone and as a default of batch") {
    struct Option {
      Words words;
      std::string keys;
      bool changes = true;  // what comes out without it
    };
    const std::vector<Option> options = {
        {{"-n", "3"}, R"("max_tokens":3)"},
        {{"--stop", "me, w"}, R"("stop":"me, w")"},
        {{"--stop", "never", "--stop", "when"}, R"("stop":["never","when"])"},
        {{"--stop", "[x]", "--stop", "++", "--stop=-x"}, R"("stop":["[x]","++","-x"])", false},
        {{"--stop-ids", "11,2"}, R"("stop_ids":[11,2])"},
        {{"--stop-ids", "11", "--min-tokens", "4"}, R"("stop_ids":[11],"min_tokens":4)"},
        {{"-l", "5+99.5", "--logit-bias", "0-1"}, R"("logit_bias":{"5":99.5,"0":-1})"},
        {{"-l", "258-3", "-l", "258-99.5"}, R"("logit_bias":{"258":-102.5})"},
        {{"--repetition-penalty", "5"}, R"("repetition_penalty":5)"},
        {{"--repeat-penalty", "5"}, R"("repetition_penalty":5)"},
        {{"--frequency-penalty", "9"}, R"("frequency_penalty":9)"},
        {{"--presence-penalty", "20"}, R"("presence_penalty":20)"},
        {{"--presence-penalty", "-9"}, R"("presence_penalty":-9)"},
        {{"--no-repeat-ngram-size", "1"}, R"("no_repeat_ngram_size":1)"},
        {{"--suppress-tokens", "258,11"}, R"("suppress_tokens":[258,11])"},
        {{"--num-beams", "3"}, R"("num_beams":3)"},
        {{"--num-beams", "12", "--samples", "2"}, R"("num_beams":12,"n":2)"},
        {{"--num-beams", "3", "--stop-ids", "11", "--length-penalty", "-2"},
         R"("num_beams":3,"stop_ids":[11],"length_penalty":-2)"},
        {{"--num-beams", "3", "--stop-ids", "11", "--early-stopping"},
         R"("num_beams":3,"stop_ids":[11],"early_stopping":true)"},
        {{"--temperature", "3", "--top-k", "2"}, R"("temperature":3,"top_k":2)"},
        {{"--temperature", "3", "--top-p", "0.5"}, R"("temperature":3,"top_p":0.5)"},
        {{"--temperature", "3", "--min-p", "0.5"}, R"("temperature":3,"min_p":0.5)"},
        {{"--temperature", "3", "--typical-p", "0.5"}, R"("temperature":3,"typical_p":0.5)"},
        {{"--temperature", "3", "--typical", "0.5"}, R"("temperature":3,"typical_p":0.5)"},
        {{"--temperature", "1.5", "--seed", "7", "--samples", "3"}, R"("temperature":1.5,"seed":7,"n":3)"},
        {{"--logprobs", "0"}, R"("logprobs":0)", false},
        {{"--logprobs", "2", "--prompt-logprobs"}, R"("logprobs":2,"prompt_logprobs":true)", false},
        {{"--temperature", "1", "--samples", "2", "--logprobs", "1"}, R"("temperature":1,"n":2,"logprobs":1)"},
        {{"--prompt-lookup-num-tokens", "4"}, R"("prompt_lookup_num_tokens":4)", false},
    };
    std::string requests;
    for (const Option& option : options) requests += "{\"prompt\":\"Once upon\"," + option.keys + "}\n";
    const std::vector<json> results = jsonLinesOf({"batch", "-", "-n", "24"}, requests);
    REQUIRE(results.size() == options.size());
    const json unchanged = resultOf(kOnceUpon);
    for (std::size_t i = 0; i < options.size(); ++i) {
      INFO(options[i].keys);
      CHECK(results[i].contains("error") == false);
      Words words = options[i].words;
      if (words.front() != "-n") words = words + Words{"-n", "24"};
      const json generated = resultOf(Words{"generate", "Once upon"} + words);
      checkSame(generated, results[i]);
      const json& first = generated.contains("choices") ? generated.at("choices").at(0) : generated;
      CHECK((first.at("output_ids") != unchanged.at("output_ids")) == options[i].changes);
      checkSame(generated, jsonLinesOf(Words{"batch", "-"} + words, "{\"prompt\":\"Once upon\"}\n").at(0));
    }
  }

  TEST_CASE("stop ids are added to those of --stop-at-eos, and a request's to both") {
    // Greedily, "Once upon" goes on with 258, 535, 11.
    CHECK(outputOf(kOnceUpon + Words{"--stop-at-eos", "--stop-ids", "535", "--output", "ids"}) == "258\n");
    const std::vector<json> results =
        jsonLinesOf({"batch", "-", "-n", "6", "--stop-at-eos", "--stop-ids", "11"},
                    "{\"prompt\":\"Once upon\"}\n{\"prompt\":\"Once upon\",\"stop_ids\":[535]}\n");
    CHECK(results.at(0).at("ids") == json({258, 535}));
    CHECK(results.at(1).at("ids") == json({258}));
  }

  TEST_CASE("a stop string is not part of the text that comes as it is generated") {
    const json result = resultOf(kOnceUpon + Words{"--stop", "me, w"});
    CHECK(result.at("text") == " a ti");
    CHECK(result.at("finish_reason") == "stop");
    CHECK(outputOf(kOnceUpon + Words{"--stop", "me, w"}) == " a ti");
  }

  TEST_CASE("several samples come one after the other") {
    const Words words = kOnceUpon + Words{"--samples", "3", "--temperature", "1.2", "--seed", "5"};
    std::string texts, ids;
    for (int i = 0; i < 3; ++i) {
      const json alone = resultOf(kOnceUpon + Words{"--temperature", "1.2", "--seed", std::to_string(5 + i)});
      texts += alone.at("text").get<std::string>() + "\n";
      ids += commaSeparated(alone.at("output_ids")) + "\n";
    }
    const ProgramRun run = runProgram(words);
    CHECK(run.status == 0);
    CHECK(run.out == texts);
    for (const char* line : {"sample 1 of 3 (length):\n", "sample 3 of 3 (length):\n", "72 tokens"})
      CHECK(run.err.find(line) != std::string::npos);
    CHECK(outputOf(words + Words{"--output", "ids"}) == ids);
  }

  TEST_CASE("--prompts takes the options of generation too") {
    const Words words = {"-n",
                         "9",
                         "--samples",
                         "2",
                         "--temperature",
                         "1",
                         "--stop",
                         "man",
                         "--top-p",
                         ".9",
                         "--logprobs",
                         "1",
                         "--prompt-logprobs",
                         "--repetition-penalty",
                         "1.1"};
    const std::string prompts = "Once upon\nThe king\n";
    const std::vector<json> lines = jsonLinesOf(Words{"generate", "--prompts", "-"} + words, prompts);
    const std::vector<json> results =
        jsonLinesOf(Words{"batch", "-"} + words, "{\"prompt\":\"Once upon\"}\n{\"prompt\":\"The king\"}\n");
    REQUIRE(lines.size() == 2);
    for (std::size_t i = 0; i < lines.size(); ++i) checkSame(lines[i], results.at(i));
    CHECK(lines[0].at("choices").size() == 2);
  }

  TEST_CASE("--model-draft changes no token, and must have the same vocabulary") {
    const std::string greedy = outputOf(kOnceUpon);
    const TemporaryDirectory draft;
    writeDraftModel(draft.path());
    for (const std::string& path : {draft.path().string(), fixturePath("tales-gpt2").string()}) {
      CHECK(outputOf(kOnceUpon + Words{"--model-draft", path}) == greedy);
      const Words sampled = {"--temperature", "1", "--samples", "2"};
      CHECK(outputOf(kOnceUpon + sampled + Words{"--model-draft", path}) == outputOf(kOnceUpon + sampled));
      CHECK(jsonLinesOf({"batch", "-", "-n", "24", "--model-draft", path}, "{\"prompt\":\"Once upon\"}\n")
                .at(0)
                .at("text") == greedy);
    }
    SmallTokenizer().writeVocabularyAndMerges(draft.path());
    checkRefused(kOnceUpon + Words{"--model-draft", draft.path().string()},
                 "--model-draft: " + draft.path().string() +
                     ": expected the vocabulary of the model, found a tokenizer with another token 0");
    checkRefused(kOnceUpon + Words{"--model-draft", fixturePath("odd-gpt2").string()},
                 "odd-gpt2: expected the vocabulary of the model, a vocab_size of 2048, found 259");
    checkRefused(kOnceUpon + Words{"--model-draft", "nowhere"}, "nowhere");
    checkRefused(kOnceUpon + Words{"--model-draft", "x", "--prompt-lookup-num-tokens", "3"}, "excludes");
  }

  TEST_CASE("what an option cannot be is refused by name") {
    struct Bad {
      Words words;
      std::string error;
    };
    const std::vector<Bad> bads = {
        {{"--min-tokens", "-1"}, "--min-tokens: expected a whole number"},
        {{"--stop", ""}, "stop_strings: expected strings with at least one byte"},
        {{"--stop-ids", "1,x"}, "--stop-ids: expected token ids separated by commas"},
        {{"--stop-ids", "-"}, "--stop-ids: expected token ids separated by commas"},
        {{"--stop-ids", "2048"}, "stop_ids: expected token ids from 0 to 2047, got 2048"},
        {{"--suppress-tokens", "1;2"}, "--suppress-tokens: expected token ids"},
        {{"--suppress-tokens", "2048"}, "suppress_tokens: expected token ids from 0 to 2047, got 2048"},
        {{"-l", "11"}, "--logit-bias: expected a token id with what is added to its logit, such as 11-1.5, got 11"},
        {{"-l", "11+-1"}, "got 11+-1"},
        {{"-l", "+1"}, "got +1"},
        {{"-l", "1+"}, "got 1+"},
        {{"-l", "1-nan"}, "got 1-nan"},
        {{"-l", "1-inf"}, "expected a logit_bias that is finite as a float, got -inf"},
        {{"-l", "2048+1"}, "logit_bias: expected token ids from 0 to 2047, got 2048"},
        {{"--repetition-penalty", "0"}, "--repetition-penalty: expected a number above 0, got 0"},
        {{"--presence-penalty", "1e300"}, "expected a presence_penalty that is finite as a float"},
        {{"--frequency-penalty", "nan"}, "--frequency-penalty: expected a number, got nan"},
        {{"--no-repeat-ngram-size", "-2"}, "--no-repeat-ngram-size: expected a whole number"},
        {{"--num-beams", "0"}, "--num-beams: expected a whole number from 1"},
        {{"--num-beams", "2", "--samples", "3"}, "expected samples of at most num_beams, 2, got 3"},
        {{"--num-beams", "2", "--length-penalty", "11"}, "expected a length_penalty from -10 to 10, got 11"},
        {{"--prompt-lookup-num-tokens", "0"}, "--prompt-lookup-num-tokens: expected a whole number from 1"},
        {{"--temperature", "1", "--min-p", "1.5"}, "--min-p: expected a number from 0 to 1, got 1.5"},
        {{"--temperature", "1", "--typical-p", "0"}, "--typical-p: expected a number above 0 and up to 1, got 0"},
        {{"--temperature", "1", "--samples", "0"}, "--samples: expected a whole number from 1 to 4096"},
    };
    for (const Bad& bad : bads) {
      checkRefused(kOnceUpon + bad.words, bad.error);
      checkRefused(Words{"batch", "-"} + bad.words, bad.error, "{\"ids\":[1]}\n");
    }
    for (const Words& words : std::vector<Words>{{"--min-p", ".1"}, {"--typical", ".5"}, {"--samples", "2"}})
      checkRefused(kOnceUpon + words, "has no effect at temperature 0");
    checkRefused(kOnceUpon + Words{"--logprobs", "1"}, "--logprobs: expected --output json, got text");
    checkRefused(kOnceUpon + Words{"--prompt-logprobs", "--output", "ids"},
                 "--prompt-logprobs: expected --output json, got ids");
    checkRefused({"generate", "-m", fixturePath("odd-gpt2").string(), "--ids", "1", "--stop", "a", "--output", "ids"},
                 "expected --stop-ids, got --stop");
  }

  TEST_CASE("the help says in which order the options apply") {
    const std::string help = outputOf({"generate", "--help"});
    std::size_t at = help.find("How a token is chosen; what is given applies in this order");
    REQUIRE(at != std::string::npos);
    for (const char* option :
         {"--logit-bias", "--repetition-penalty", "--frequency-penalty", "--presence-penalty", "--no-repeat-ngram-size",
          "--suppress-tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--typical-p"}) {
      INFO(option);
      at = help.find(option, at);
      REQUIRE(at != std::string::npos);
    }
  }

  TEST_CASE("a saved cache goes on as if nothing had come between") {
    const json& cases = fixtureJson("tales-gpt2/goldens/greedy.json").at("cases");
    const auto golden = std::ranges::find_if(cases, [](const json& one) { return one.at("name") == "princess"; });
    REQUIRE(golden != cases.end());
    const Ids prompt = golden->at("prompt_ids"), output = golden->at("output_ids");
    const CacheFile file;
    const json first = resultOf(Words{"generate", "--ids", commaSeparated(prompt), "-n", "15"} + file.save());
    CHECK(first.at("output_ids") == json(Ids(output.begin(), output.begin() + 15)));
    const json second = resultOf(Words{"generate", "-n", "25"} + file.load() + file.save());
    CHECK(second.at("prompt_ids") == json(allIds(first)));
    CHECK(second.at("output_ids") == json(Ids(output.begin() + 15, output.begin() + 40)));
    const json third = resultOf(Words{"generate", "-n", "60"} + file.load());
    CHECK(third.at("output_ids") == json(Ids(output.begin() + 40, output.begin() + 100)));
    CHECK(file.files() == 1);
  }

  TEST_CASE("a saved cache keeps its type, and its text comes in two parts") {
    const std::string whole = outputOf({"generate", "The queen", "-n", "40", "--cache", "int8"});
    const CacheFile file;
    const std::string first = outputOf(Words{"generate", "The queen", "-n", "15", "--cache", "int8"} + file.save());
    CHECK(first + outputOf(Words{"generate", "-n", "25"} + file.load()) == whole);
    CHECK(file.bytes().size() < 100000);  // 17 positions
  }

  TEST_CASE("a prompt for a loaded cache follows its ids, which rules see") {
    const CacheFile file;
    const json first = resultOf(Words{"generate", "Once upon", "-n", "12", "--stop", "me, w"} + file.save());
    CHECK(first.at("text") == " a ti");  // its last token is not one that was chosen
    Ids all = allIds(first);
    const Ids more = resultOf({"generate", "ger said", "-n", "0"}).at("prompt_ids");
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<Words> options = {{},
                                        {"--no-repeat-ngram-size", "1"},
                                        {"--repetition-penalty", "1.5"},
                                        {"--presence-penalty", "3"},
                                        {"--temperature", "1", "--seed", "4"},
                                        {"--prompt-lookup-num-tokens", "5"},
                                        {"--logprobs", "2"}};
    for (const Words& option : options) {
      const Words words = Words{"-n", "20"} + option;
      const json expected = resultOf(Words{"generate", "--ids", commaSeparated(all)} + words);
      const json found = resultOf(Words{"generate", "ger said"} + words + file.load());
      for (const char* key : {"prompt_ids", "output_ids", "text", "finish_reason"})
        CHECK(found.at(key) == expected.at(key));
      CHECK(found.value("logprobs", json()) == expected.value("logprobs", json()));
    }
    const CacheFile read;  // which nothing but a prompt has gone into
    outputOf(Words{"generate", "The king", "-n", "0"} + read.save());
    CHECK(outputOf(Words{"generate", "-n", "9"} + read.load()) == outputOf({"generate", "The king", "-n", "9"}));
  }

  TEST_CASE("a full context is saved but for the last token, which comes again") {
    const CacheFile file;
    const Words generate = {"generate", "-m", fixturePath("odd-gpt2").string(), "-n", "40"};
    const json first = resultOf(generate + Words{"--ids", "1,2,3"} + file.save());
    CHECK(first.at("finish_reason") == "context_full");
    const json again = resultOf(generate + file.load());
    CHECK(again.at("prompt_ids").size() == 16);
    CHECK(again.at("output_ids") == json::array({first.at("output_ids").back()}));
    CHECK(again.at("finish_reason") == "context_full");
    checkRefused(generate + Words{"--ids", "5", "--output", "ids"} + file.load(), "at most 0");
  }

  TEST_CASE("a cache that cannot be gone on from, or be saved, is refused by name") {
    const CacheFile file;
    const std::string odd = fixturePath("odd-gpt2").string();
    checkRefused(Words{"generate"} + file.load(), file.path() + ": cannot be read");
    outputOf(Words{"generate", "-m", odd, "--ids", "1,2", "-n", "3", "--output", "ids"} + file.save());
    const std::string saved = file.bytes();
    checkRefused(Words{"generate"} + file.load(), file.path() + ": n_layer: expected");
    checkRefused(Words{"generate", "-m", odd, "--output", "ids", "--weights", "f16"} + file.load(),
                 file.path() + ": fingerprint of the weights: expected");

    const Words go_on = Words{"generate", "-m", odd, "--output", "ids", "-n", "2"} + file.load();
    writeFile(file.path(), saved.substr(0, saved.size() - 3));
    checkRefused(go_on, file.path() + ": expected");
    std::string damaged = saved;
    damaged[damaged.size() / 2] ^= 1;
    writeFile(file.path(), damaged);
    checkRefused(go_on, file.path() + ": it is damaged");
    writeFile(file.path(), "a text");
    checkRefused(go_on, file.path() + ": not a saved cache");
    const auto weights = driftless::loadWeights<float>(driftless::Checkpoint(fixturePath("odd-gpt2")), {});
    saveCache(driftless::ModelCache<float>(weights), file.path(), weights);
    checkRefused(go_on, file.path() + ": expected a prompt to go on with, as the cache is empty");

    // What is saved stays as it is when nothing can take its place.
    writeFile(file.path(), saved);
    checkRefused(go_on + Words{"--ids", "259"} + file.save(), "expected token ids from 0 to 258");
    CHECK(file.bytes() == saved);
    const ProgramRun run = runProgram({"generate", "a", "-n", "1", "--save-cache", file.path() + "/no/such"});
    CHECK(run.status == 2);
    CHECK(run.err.find(file.path() + "/no/such: cannot be written") != std::string::npos);
    CHECK(file.bytes() == saved);
    CHECK(file.files() == 1);
  }

  TEST_CASE("caches are for one sample of one prompt") {
    const CacheFile file;
    const Words load = {"generate", "a", "--output", "json"};
    for (const std::string option : {"--save-cache", "--load-cache"}) {
      const Words cache = {option, file.path()};
      checkRefused(Words{"generate", "--prompts", "-"} + cache, option + ": expected no --prompts");
      checkRefused(load + cache + Words{"--samples", "2", "--temperature", "1"}, option + ": expected no --samples");
      checkRefused(load + cache + Words{"--no-cache"}, option + ": expected no --no-cache");
    }
    checkRefused(load + file.load() + Words{"--prompt-logprobs"}, "--load-cache: expected no --prompt-logprobs");
    checkRefused(load + file.load() + Words{"--cache", "f16"}, "--cache excludes --load-cache");
    CHECK(file.files() == 0);
  }
}
