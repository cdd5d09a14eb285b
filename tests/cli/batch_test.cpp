#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driftless/checkpoint.hpp"
#include "driftless/generate.hpp"
#include "driftless/tokenizer.hpp"
#include "driftless/weights.hpp"
#include "support/checkpoint_writer.hpp"
#include "support/fixtures.hpp"
#include "support/program_output.hpp"
#include "support/run_program.hpp"
#include "support/temporary_directory.hpp"

using namespace driftless;
using namespace driftless::test;
using nlohmann::json;

namespace {

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> sortedLinesOf(const std::string& text) {
  std::vector<std::string> lines = linesOf(text);
  std::ranges::sort(lines);
  return lines;
}

/// A job's files.
class Job {
 public:
  explicit Job(const std::string& requests) { writeFile(in(), requests); }

  std::string in() const { return (directory_.path() / "in.jsonl").string(); }
  std::string out() const { return (directory_.path() / "out.jsonl").string(); }
  ProgramStreams streams() const {
    return {"", (directory_.path() / "stdout").string(), (directory_.path() / "stderr").string()};
  }

  Words arguments(const Words& more) const {
    Words words = {"batch", in(), "-o", out()};
    words.insert(words.end(), more.begin(), more.end());
    if (std::ranges::find(more, "-n") == more.end()) words.insert(words.end(), {"-n", "6"});
    return words;
  }
  ProgramRun run(const Words& more = {}) const { return runProgram(arguments(more)); }
  std::string result() const { return readWholeFile(out()); }

 private:
  TemporaryDirectory directory_;
};

/// What the job writes if nothing disturbs it.
std::string undisturbed(const std::string& requests, const Words& more = {}, int status = 0) {
  const Job job(requests);
  const ProgramRun run = job.run(more);
  INFO(run.err);
  REQUIRE(run.status == status);
  return job.result();
}

void checkRefused(const ProgramRun& run, const std::string& expected) {
  INFO("expected in the error: " << expected);
  INFO("standard error: " << run.err);
  CHECK(run.status == 2);
  CHECK(run.err.starts_with("driftless: "));
  CHECK(std::ranges::count(run.err, '\n') == 1);
  CHECK(run.err.find(expected) != std::string::npos);
}

/// Requests of many kinds and lengths: named and not, bad, empty lines, with several samplings.
std::string manyRequests(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const std::string ids = "\"ids\":[" + std::to_string(i) + ",7]";
    switch (i % 8) {
      case 0:
        text += "{" + ids + "}\n";
        break;
      case 1:
        text += "{\"id\":\"r" + std::to_string(i) + "\",\"prompt\":\"Once upon\",\"max_tokens\":30}\n";
        break;
      case 2:
        text += "{" + ids + ",\"temperature\":0.9,\"seed\":" + std::to_string(i) + "}\n";
        break;
      case 3:
        text += "{" + ids + ",\"top_p\":7}\n";
        break;
      case 4:
        text += "\n{\"id\":\"again\"," + ids + "}\n";  // the same id time and again
        break;
      case 5:
        text += "no JSON\n";
        break;
      case 6:
        text += "{" + ids + ",\"temperature\":1,\"n\":3,\"logprobs\":1,\"stop\":\"the\"}\n";
        break;
      default:
        text += "{" + ids + ",\"max_tokens\":0}\r\n";
    }
  }
  return text;
}

}  // namespace

TEST_SUITE("batch") {
  TEST_CASE("results come in the order of requests, each as generate's, with the line's number as id if it has none") {
    const json& golden = fixtureJson("tales-gpt2/goldens/greedy.json").at("cases").at(0);
    json first = {{"ids", golden.at("prompt_ids")}, {"max_tokens", golden.at("max_tokens")}};
    const std::string out = undisturbed(first.dump() + "\n{\"id\":\"b\",\"prompt\":\"Once upon\"}\n" +
                                        "{\"id\":-2.5,\"ids\":[1,2],\"temperature\":1.5,\"seed\":3}");
    const std::vector<json> lines = jsonLines(out);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].at("id") == 1);
    CHECK(lines[0].at("ids") == golden.at("output_ids"));
    CHECK(lines[0].at("usage").at("prompt_tokens") == golden.at("prompt_ids").size());
    CHECK(lines[0].at("usage").at("completion_tokens") == golden.at("output_ids").size());
    CHECK(lines[1].at("id") == "b");
    CHECK(lines[2].at("id") == -2.5);
    CHECK(lines[1].at("finish_reason") == "length");
    const std::array<Words, 2> alone = {Words{"Once upon"},
                                        Words{"--ids", "1,2", "--temperature", "1.5", "--seed", "3"}};
    for (std::size_t i = 0; i < alone.size(); ++i) {
      Words words = {"generate", "-n", "6", "--output", "json"};
      words.insert(words.end(), alone[i].begin(), alone[i].end());
      const json expected = json::parse(runProgram(words).out);
      CHECK(lines[i + 1].at("ids") == expected.at("output_ids"));
      CHECK(lines[i + 1].at("text") == expected.at("text"));
    }
  }

  TEST_CASE("options are defaults, which a request may override") {
    const std::string out =
        undisturbed("{\"ids\":[5]}\n{\"ids\":[5],\"temperature\":0,\"max_tokens\":3}\n",
                    {"--temperature", "1.2", "--seed", "9", "--top-k", "50", "--top-p", "0.95", "-n", "4"});
    const std::vector<json> lines = jsonLines(out);
    REQUIRE(lines.size() == 2);
    const Words words = {"generate", "--ids",  "5", "--output", "json", "--temperature",
                         "1.2",      "--seed", "9", "--top-k",  "50",   "--top-p",
                         "0.95",     "-n",     "4"};
    CHECK(lines[0].at("ids") == json::parse(runProgram(words).out).at("output_ids"));
    const Words greedy = {"generate", "--ids", "5", "--output", "json", "-n", "3"};
    CHECK(lines[1].at("ids") == json::parse(runProgram(greedy).out).at("output_ids"));
  }

  TEST_CASE("every key of a request does what the library's option does") {
    const Weights<float> weights = loadWeights<float>(Checkpoint(fixturePath("tales-gpt2")), {});
    const Tokenizer tokenizer = Tokenizer::load(fixturePath("tales-gpt2"));
    struct Key {
      const char* json;
      void (*set)(GenerateOptions& options);
      bool changes = true;  // what comes out without it
    };
    const std::vector<Key> keys = {
        {R"("max_tokens":3)", [](auto& o) { o.max_tokens = 3; }},
        {R"("stop_ids":[11])", [](auto& o) { o.stop_ids = {11}; }},
        {R"("stop_ids":[11],"min_tokens":4)", [](auto& o) { o.stop_ids = {11}, o.min_tokens = 4; }},
        {R"("stop":"me, w")", [](auto& o) { o.stop_strings = {"me, w"}; }},
        {R"("stop":["never","when"])",
         [](auto& o) {
           o.stop_strings = {"never", "when"};
         }},
        {R"("temperature":1.5)", [](auto& o) { o.sampling.temperature = 1.5; }},
        {R"("temperature":1.5,"seed":7)", [](auto& o) { o.sampling.temperature = 1.5, o.sampling.seed = 7; }},
        {R"("temperature":3,"top_k":2)", [](auto& o) { o.sampling.temperature = 3, o.sampling.top_k = 2; }},
        {R"("temperature":3,"top_p":0.5)", [](auto& o) { o.sampling.temperature = 3, o.sampling.top_p = 0.5; }},
        {R"("temperature":3,"min_p":0.5)", [](auto& o) { o.sampling.temperature = 3, o.sampling.min_p = 0.5; }},
        {R"("temperature":3,"typical_p":0.5)", [](auto& o) { o.sampling.temperature = 3, o.sampling.typical_p = 0.5; }},
        {R"("temperature":1.5,"n":3)", [](auto& o) { o.sampling.temperature = 1.5, o.samples = 3; }},
        {R"("repetition_penalty":5)", [](auto& o) { o.rules.repetition_penalty = 5; }},
        {R"("presence_penalty":20)", [](auto& o) { o.rules.presence_penalty = 20; }},
        {R"("frequency_penalty":9)", [](auto& o) { o.rules.frequency_penalty = 9; }},
        {R"("logit_bias":{"5":99.5,"0":-1})",
         [](auto& o) {
           o.rules.logit_bias = {{5, 99.5}, {0, -1}};
         }},
        {R"("suppress_tokens":[258,11])",
         [](auto& o) {
           o.rules.suppress_tokens = {258, 11};
         }},
        {R"("no_repeat_ngram_size":1)", [](auto& o) { o.rules.no_repeat_ngram_size = 1; }},
        {R"("logprobs":0)", [](auto& o) { o.log_probabilities = 0; }, false},
        {R"("logprobs":2,"n":2)", [](auto& o) { o.log_probabilities = 2, o.samples = 2; }, false},
        {R"("logprobs":1,"prompt_logprobs":true)",
         [](auto& o) { o.log_probabilities = 1, o.prompt_log_probabilities = true; }, false},
        {R"("prompt_logprobs":true)", [](auto& o) { o.prompt_log_probabilities = true; }, false},
        {R"("prompt_lookup_num_tokens":4)", [](auto&) {}, false},
    };
    std::string requests;
    for (const Key& key : keys) requests += std::string("{\"prompt\":\"Once upon\",") + key.json + "}\n";
    const std::vector<json> lines = jsonLines(undisturbed(requests, {"-n", "24"}));
    REQUIRE(lines.size() == keys.size());
    const std::vector<int> prompt = tokenizer.encode("Once upon");
    Workspace<float> workspace(weights.threads);
    const auto run = [&](const GenerateOptions& options) {
      const std::vector<Request> one = {{prompt, options}};
      return generateTokens(std::span<const Request>(one), weights, workspace);
    };
    GenerateOptions defaults;
    defaults.max_tokens = 24;
    defaults.tokenizer = &tokenizer;
    const std::vector<int> unchanged = run(defaults).front().output_ids;
    const auto checkScores = [](const json& found, const std::vector<TokenScore>& scores, const std::vector<int>& ids,
                                std::size_t first) {
      REQUIRE(found.size() == first + scores.size());
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const json& score = found.at(first + i);
        CHECK(score.at("id") == ids.at(first + i));
        CHECK(score.at("logprob") == scores[i].log_probability);
        REQUIRE(score.at("top").size() == scores[i].top.size());
        for (std::size_t j = 0; j < scores[i].top.size(); ++j) {
          CHECK(score.at("top").at(j).at("id") == scores[i].top[j].id);
          CHECK(score.at("top").at(j).at("logprob") == scores[i].top[j].log_probability);
        }
      }
    };
    for (std::size_t i = 0; i < keys.size(); ++i) {
      INFO(keys[i].json);
      const json& line = lines[i];
      INFO(line.dump());
      GenerateOptions options = defaults;
      keys[i].set(options);
      const std::vector<Generation> generations = run(options);
      CHECK((generations.front().output_ids != unchanged) == keys[i].changes);
      REQUIRE(line.contains("choices") == (generations.size() > 1));
      if (generations.size() > 1) REQUIRE(line.at("choices").size() == generations.size());
      std::size_t tokens = 0;
      for (std::size_t sample = 0; sample < generations.size(); ++sample) {
        const json& choice = generations.size() > 1 ? line.at("choices").at(sample) : line;
        const Generation& generation = generations[sample];
        CHECK(choice.at("ids") == generation.output_ids);
        CHECK(choice.at("text") == tokenizer.decode(generation.output_ids));
        CHECK(choice.at("finish_reason") == (generation.finish_reason == FinishReason::stop ? "stop" : "length"));
        REQUIRE(choice.contains("logprobs") == options.log_probabilities.has_value());
        if (options.log_probabilities) {
          CHECK(generation.scores.size() == generation.output_ids.size());
          checkScores(choice.at("logprobs"), generation.scores, generation.output_ids, 0);
        }
        tokens += generation.output_ids.size();
      }
      CHECK(line.at("usage").at("completion_tokens") == tokens);
      REQUIRE(line.contains("prompt_logprobs") == options.prompt_log_probabilities);
      if (options.prompt_log_probabilities) {
        CHECK(line.at("prompt_logprobs").size() == prompt.size());
        CHECK(line.at("prompt_logprobs").at(0).is_null());
        checkScores(line.at("prompt_logprobs"), generations.front().prompt_scores, prompt, 1);
      }
    }
  }

  TEST_CASE("stop_ids of a request are added to those of --stop-at-eos") {
    // Greedily, "Once upon" goes on with 258, 535, 11.
    const std::string out =
        undisturbed("{\"prompt\":\"Once upon\",\"stop_ids\":[11]}\n{\"prompt\":\"Once upon\"}\n", {"--stop-at-eos"});
    const std::vector<json> lines = jsonLines(out);
    CHECK(lines.at(0).at("ids") == json({258, 535}));
    CHECK(lines.at(0).at("finish_reason") == "stop");
    CHECK(lines.at(1).at("ids").size() == 6);
  }

  TEST_CASE("the bytes do not depend on the batch, threads, prefix cache or order of ending") {
    const std::string requests = manyRequests(60);
    const std::string expected = undisturbed(requests, {}, 1);
    CHECK(expected == undisturbed(requests, {"--batch", "1", "--prefix-cache-mb", "0"}, 1));
    CHECK(expected == undisturbed(requests, {"--batch", "64", "-t", "2", "--cache-mb", "64"}, 1));
    CHECK(sortedLinesOf(expected) == sortedLinesOf(undisturbed(requests, {"--unordered"}, 1)));
  }

  TEST_CASE("standard streams take the place of files") {
    const std::string requests = manyRequests(8);
    const ProgramRun run = runProgram({"batch", "-", "-n", "6"}, requests);
    CHECK(run.status == 1);
    CHECK(run.out == undisturbed(requests, {}, 1));
    checkRefused(runProgram({"batch", "-", "--resume"}, requests), "--resume: expected a file, -o OUT");
    checkRefused(runProgram({"batch", "-", "--overwrite"}, requests), "--overwrite: expected a file, -o OUT");
  }

  TEST_CASE("a byte order mark, CR LF and empty lines change nothing but the numbers of lines") {
    const std::string out = undisturbed("\xEF\xBB\xBF{\"ids\":[1]}\r\n\r\n \t\n{\"ids\":[2]}\n\n{\"ids\":[3]}");
    const std::vector<json> lines = jsonLines(out);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].at("id") == 1);
    CHECK(lines[1].at("id") == 4);
    CHECK(lines[2].at("id") == 6);
    CHECK(undisturbed("").empty());
    CHECK(undisturbed("\xEF\xBB\xBF").empty());
    CHECK(undisturbed("\n\n").empty());
    const Job utf16(std::string("\xFF\xFE{\0", 4));
    checkRefused(utf16.run(), utf16.in() + ": it is UTF-16");
  }

  TEST_CASE("a line that is wrong yields an error in its place, and the others go on") {
    struct Bad {
      std::string line;
      std::string error;
      json id = 2;
    };
    const std::vector<Bad> bads = {
        {"{\"ids\":[1]", "bad JSON"},
        {"{\"ids\":[1]} 2", "bad JSON"},
        {"[1]", "expected an object, found [1]"},
        {"\"text\"", "expected an object, found \"text\""},
        {"{}", "expected either prompt or ids, found neither"},
        {"{\"ids\":[1],\"prompt\":\"a\"}", "expected either prompt or ids, found both"},
        {"{\"ids\":[1],\"id\":null}", "key 'id': expected a string or a number, found null"},
        {"{\"ids\":[1],\"id\":[1]}", "key 'id': expected a string or a number, found [1]"},
        {"{\"id\":\"q\",\"ids\":[]}", "expected", "q"},
        {"{\"id\":\"q\",\"prompt\":\"\"}", "expected", "q"},
        {"{\"id\":\"q\",\"prompt\":5}", "key 'prompt': expected a string, found 5", "q"},
        {"{\"ids\":\"1\"}", "key 'ids': expected an array, found \"1\""},
        {"{\"ids\":[1,-2]}", "key 'ids[1]': expected a whole number from 0 to 2147483647, found -2"},
        {"{\"ids\":[1.5]}", "key 'ids[0]': expected a whole number from 0 to 2147483647, found 1.5"},
        {"{\"ids\":[4294967297]}", "key 'ids[0]': expected a whole number from 0 to 2147483647, found 4294967297"},
        {"{\"id\":\"q\",\"ids\":[2048]}", "expected token ids from 0 to 2047, got 2048", "q"},
        {"{\"ids\":[1],\"max_tokens\":-1}", "key 'max_tokens': expected a whole number from 0 to"},
        {"{\"ids\":[1],\"max_tokens\":1e2}", "key 'max_tokens': expected a whole number from 0 to"},
        {"{\"ids\":[1],\"max_tokens\":\"9\"}", "key 'max_tokens': expected a whole number from 0 to"},
        {"{\"ids\":[1],\"max_tokens\":null}", "key 'max_tokens': expected a whole number from 0 to"},
        {"{\"ids\":[1],\"stop_ids\":3}", "key 'stop_ids': expected an array, found 3"},
        {"{\"ids\":[1],\"temperature\":true}", "key 'temperature': expected a number, found true"},
        {"{\"ids\":[1],\"temperature\":-1}", "expected a temperature of 0 or more, got -1"},
        {"{\"ids\":[1],\"temperature\":1e999}", "bad JSON"},
        {"{\"ids\":[1],\"temperature\":NaN}", "bad JSON"},
        {"{\"ids\":[1],\"min_tokens\":2,\"stop_ids\":[2000000000]}",
         "stop_ids: expected token ids from 0 to 2047, got 2000000000"},
        {"{\"ids\":[1],\"top_k\":-1}", "key 'top_k': expected a whole number from 0 to 2147483647, found -1"},
        {"{\"ids\":[1],\"top_p\":0}", "expected a top_p above 0 and up to 1, got 0"},
        {"{\"ids\":[1],\"seed\":-1}", "key 'seed': expected a whole number from 0 to 18446744073709551615, found -1"},
        {"{\"ids\":[1],\"n\":0}", "key 'n': expected a whole number from 1 to 4096, found 0"},
        {"{\"ids\":[1],\"n\":4097}", "key 'n': expected a whole number from 1 to 4096, found 4097"},
        {"{\"ids\":[1],\"min_p\":2}", "min_p"},
        {"{\"ids\":[1],\"typical_p\":\"1\"}", "key 'typical_p': expected a number, found \"1\""},
        {"{\"ids\":[1],\"repetition_penalty\":0}", "repetition_penalty"},
        {"{\"ids\":[1],\"presence_penalty\":[]}", "key 'presence_penalty': expected a number, found []"},
        {"{\"ids\":[1],\"stop\":3}", "key 'stop': expected a string or an array of strings, found 3"},
        {"{\"ids\":[1],\"stop\":[\"a\",3]}", "key 'stop[1]': expected a string, found 3"},
        {"{\"ids\":[1],\"stop\":\"\"}", "expected strings with at least one byte"},
        {"{\"ids\":[1],\"logit_bias\":[1]}", "key 'logit_bias': expected an object, found [1]"},
        {"{\"ids\":[1],\"logit_bias\":{\"07\":1}}", "key 'logit_bias[\"07\"]': expected a token id as the key"},
        {"{\"ids\":[1],\"logit_bias\":{\"7\":\"1\"}}", "key 'logit_bias[\"7\"]': expected a number, found \"1\""},
        {"{\"ids\":[1],\"logit_bias\":{\"-1\":1}}", "logit_bias"},
        {"{\"ids\":[1],\"logit_bias\":{\"2048\":1}}", "logit_bias"},
        {"{\"ids\":[1],\"suppress_tokens\":[2048]}", "suppress_tokens"},
        {"{\"ids\":[1],\"logprobs\":true}", "key 'logprobs': expected a whole number from 0 to"},
        {"{\"ids\":[1],\"prompt_logprobs\":1}", "key 'prompt_logprobs': expected true or false, found 1"},
        {"{\"ids\":[1],\"prompt_lookup_num_tokens\":-1}", "key 'prompt_lookup_num_tokens': expected a whole number"},
        {"{\"ids\":[1],\"maxtokens\":1}", "unknown key \"maxtokens\": expected one of id, prompt, ids"},
        {"{\"ids\":[1],\"seed\":1,\"seed\":1}", "the key \"seed\" stands twice"},
        {"{\"ids\":[1],\"x\":[[[[[[[[[[1]]]]]]]]]]}", "levels of nesting"},
        {"{\"prompt\":\"\xC3\"}", "expected text in UTF-8, found the byte 195"},
        {"{\"prompt\":\"\xED\xA0\x80\"}", "expected text in UTF-8, found the byte 237"},
        {std::string("{\"prompt\":\"a\0\"}", 14), "expected text in UTF-8, found the byte 0"},
        {"{\"prompt\":\"\\ud800\"}", "bad JSON"},
    };
    std::string requests;
    for (const Bad& bad : bads) requests += "{\"ids\":[1,2]}\n" + bad.line + "\n";
    const Job job(requests);
    const ProgramRun run = job.run();
    CHECK(run.status == 1);
    CHECK(std::ranges::count(run.err, '\n') == 1);
    CHECK(run.err.starts_with("driftless: " + job.in() + ": line 2: request: bad JSON"));
    CHECK(run.err.ends_with("; in all, " + std::to_string(bads.size()) + " of " + std::to_string(2 * bads.size()) +
                            " requests failed\n"));
    const std::vector<json> lines = jsonLines(job.result());
    REQUIRE(lines.size() == 2 * bads.size());
    for (std::size_t i = 0; i < bads.size(); ++i) {
      INFO(bads[i].line);
      json good = lines[2 * i];
      CHECK(good.at("id") == 2 * i + 1);
      good["id"] = 1;
      CHECK(good == lines[0]);
      const json& error = lines[2 * i + 1];
      INFO(error.dump());
      CHECK(error.size() == 2);
      CHECK(error.at("id") == (bads[i].id == 2 ? json(2 * i + 2) : bads[i].id));
      CHECK(error.at("error").get<std::string>().find(bads[i].error) != std::string::npos);
    }
  }

  TEST_CASE("a prompt that is too long is one error, and one that fills the context is none") {
    const std::string full = json(std::vector<int>(512, 1)).dump(), longer = json(std::vector<int>(513, 1)).dump();
    const std::vector<json> lines = jsonLines(undisturbed("{\"ids\":" + longer + "}\n{\"ids\":" + full + "}\n", {}, 1));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("error").get<std::string>().find("513") != std::string::npos);
    CHECK(lines[1].at("finish_reason") == "context_full");
    CHECK(lines[1].at("ids").size() == 1);
  }

  TEST_CASE("without a tokenizer text is null, and a prompt an error") {
    const std::vector<json> lines =
        jsonLines(undisturbed("{\"ids\":[1]}\n{\"prompt\":\"a\"}\n", {"-m", fixturePath("odd-gpt2").string()}, 1));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("text").is_null());
    CHECK(lines[0].at("ids").size() == 6);
    CHECK(lines[1].at("error").get<std::string>().find("no tokenizer files") != std::string::npos);
  }

  TEST_CASE("logits that are not numbers fail their request alone") {
    const TemporaryDirectory directory;
    const CheckpointShape shape;
    std::vector<WrittenTensor> tensors = gpt2Tensors(shape);
    const auto wte = std::ranges::find(tensors, "wte.weight", &WrittenTensor::name);
    REQUIRE(wte != tensors.end());
    tensors.push_back(f32Tensor("lm_head.weight", {shape.V, shape.C}, 77));
    const auto spoilt = std::ranges::find(tensors, "wte.weight", &WrittenTensor::name);
    spoilt->bytes.replace(0, sizeof(float), f32Bytes({std::numeric_limits<float>::quiet_NaN()}));  // of token 0
    writeCheckpoint(directory.path(), tensors, configJson(shape, R"("tie_word_embeddings": false)"));
    const Job job("{\"ids\":[1]}\n{\"ids\":[0]}\n{\"ids\":[1]}\n");
    const ProgramRun run = job.run({"-m", directory.path().string()});
    CHECK(run.status == 1);
    CHECK(run.err.find("line 2: logits at position 0") != std::string::npos);
    const std::vector<json> lines = jsonLines(job.result());
    REQUIRE(lines.size() == 3);
    CHECK(lines[1].at("finish_reason") == "error");
    CHECK(lines[1].at("error").get<std::string>().find("wte.weight") != std::string::npos);
    CHECK(!lines[0].contains("error"));
    CHECK(lines[0].at("ids") == lines[2].at("ids"));
    const ProgramRun again = job.run({"-m", directory.path().string(), "--resume"});
    CHECK(again.status == 1);
    CHECK(again.err == run.err);
  }

  TEST_CASE("a job that cannot be done is one error, and exit status 2") {
    const Job job("{\"ids\":[1]}\n");
    checkRefused(runProgram({"batch", job.in() + "x", "-o", job.out()}), job.in() + "x: cannot be read");
    CHECK(!std::filesystem::exists(job.out()));
    checkRefused(runProgram({"batch", job.in(), "-o", job.out() + "/x"}), job.out() + "/x: cannot be written");
    checkRefused(runProgram({"batch", job.in(), "-o", std::filesystem::temp_directory_path().string()}),
                 "cannot be written");
    checkRefused(runProgram({"batch", job.in(), "-o", job.in()}), "expected another file for the results");
    checkRefused(runProgram({"batch", job.in(), "-o", job.in(), "--overwrite"}), "expected another file");
    checkRefused(runProgram({"batch"}), "IN is required");
    checkRefused(job.run({"--resume", "--overwrite"}), "excludes");
    checkRefused(job.run({"--batch", "0"}), "--batch: expected a whole number from 1 to 1024, got 0");
    CHECK(readWholeFile(job.in()) == "{\"ids\":[1]}\n");
  }

  TEST_CASE("results are not lost: an output with something in it needs --resume or --overwrite") {
    const Job job("{\"ids\":[1]}\n");
    writeFile(job.out(), "precious");
    checkRefused(job.run(), job.out() + ": there is something in it: expected --resume to go on, or --overwrite");
    checkRefused(job.run({"--resume"}), job.out() + ": line 1: expected the start of a result, found \"precious\"");
    checkRefused(job.run({"--overwrite", "-m", job.in()}), "");  // no such model
    CHECK(job.result() == "precious");
    CHECK(job.run({"--overwrite"}).status == 0);
    CHECK(job.result() == undisturbed("{\"ids\":[1]}\n"));
  }

  TEST_CASE("another input's output is refused by name, and stays as it is") {
    const std::string requests = "{\"id\":\"a\",\"ids\":[1]}\n{\"id\":\"b\",\"ids\":[2]}\n{\"id\":\"c\",\"ids\":[3]}\n";
    const std::string expected = undisturbed(requests);
    const std::vector<std::string> lines = linesOf(expected);
    const auto check = [&](const std::string& output, const std::string& error, const Words& more = {}) {
      const Job job(requests);
      writeFile(job.out(), output);
      Words words = {"--resume"};
      words.insert(words.end(), more.begin(), more.end());
      checkRefused(job.run(words), job.out() + ": line " + error);
      CHECK(job.result() == output);
    };
    check(lines[0] + "\n" + lines[2] + "\n", "2: expected the id of line 2");
    check(lines[1] + "\n", "1: expected the id of line 1");
    check(expected + lines[0] + "\n", "4: expected no more results");
    check(expected + lines[0] + "\n", "4: expected no more results", {"--unordered"});
    check("{\"id\":\"d\"}\n", "1: expected the id of a request", {"--unordered"});
    check(lines[0] + "\n{}\n", "2: key 'id': expected a string or a number");
    check(lines[0] + "\n\n", "2: bad JSON");
    check("{\"id\":1}\n{\"i", "1: expected the id of line 1");
    check(lines[0] + "\n{\"name", "2: expected the start of a result");
    check(lines[0] + "\n7\n", "2: expected an object");
  }

  TEST_CASE("a finished job that is resumed does nothing, and says the same of bad lines") {
    const Job job(manyRequests(20));
    const ProgramRun first = job.run();
    const std::string result = job.result();
    const auto written = std::filesystem::last_write_time(job.out());
    const ProgramRun again = job.run({"--resume"});
    CHECK(again.status == 1);
    CHECK(again.err == first.err);
    CHECK(job.result() == result);
    CHECK(std::filesystem::last_write_time(job.out()) == written);
  }

  TEST_CASE("cut off anywhere, a job ends with the same bytes") {
    const std::string requests = manyRequests(10);
    const std::string expected = undisturbed(requests, {}, 1);
    std::vector<std::size_t> cuts = {0, 1, 5, 6, 7, expected.find('\n'), expected.find('\n') + 1, expected.size() - 1};
    for (std::size_t cut = 40; cut < expected.size(); cut += 97) cuts.push_back(cut);
    const Job job(requests);
    for (const std::size_t cut : cuts) {
      INFO(cut);
      writeFile(job.out(), expected.substr(0, cut));
      CHECK(job.run({"--resume"}).status == 1);
      CHECK(job.result() == expected);
    }
  }

  TEST_CASE("an unordered job goes on from any of its orders") {
    const std::string requests = manyRequests(40);
    std::vector<std::string> lines = linesOf(undisturbed(requests, {}, 1));
    const std::vector<std::string> expected = sortedLinesOf(undisturbed(requests, {}, 1));
    std::mt19937 random(1);
    for (const std::size_t kept : {1u, 13u, 39u}) {
      // Requests with the same id end in their order.
      std::ranges::shuffle(lines, random);
      std::vector<std::string> again;
      for (const std::string& line : linesOf(undisturbed(requests, {}, 1)))
        if (json::parse(line).at("id") == "again") again.push_back(line);
      auto next = again.begin();
      for (std::string& line : lines)
        if (json::parse(line).at("id") == "again") line = *next++;
      std::string output;
      for (std::size_t i = 0; i < kept; ++i) output += lines[i] + "\n";
      const Job job(requests);
      writeFile(job.out(), output + lines[kept].substr(0, 9));
      const ProgramRun run = job.run({"--resume", "--unordered"});
      INFO(run.err);
      CHECK(run.status == 1);
      CHECK(job.result().starts_with(output));
      CHECK(sortedLinesOf(job.result()) == expected);
    }
  }

  TEST_CASE("killed again and again at any moment, a job ends with the same bytes") {
    const std::string requests = manyRequests(300);
    std::mt19937 random(20);
    for (const bool is_unordered : {false, true}) {
      const Words order = is_unordered ? Words{"--unordered"} : Words{};
      const auto start = std::chrono::steady_clock::now();
      const std::string expected = undisturbed(requests, order, 1);
      const auto whole = std::chrono::steady_clock::now() - start;
      const Job job(requests);
      Words words = {"--resume"};
      words.insert(words.end(), order.begin(), order.end());
      int killed = 0, within = 0;
      while (killed < 20) {
        const pid_t child = startProgram(job.arguments(words), job.streams());
        std::this_thread::sleep_for(whole * std::uniform_real_distribution<double>(0, 0.5)(random));
        kill(child, SIGKILL);
        const bool was_killed = waitForProgram(child) == 128 + SIGKILL;
        killed += was_killed;
        const std::string now = job.result();
        within += was_killed && !now.empty() && now.size() < expected.size();
        if (was_killed) continue;
        CHECK(sortedLinesOf(now) == sortedLinesOf(expected));
        std::filesystem::remove(job.out());  // and from the start again
      }
      MESSAGE(within << " of 20 times in the middle of the results");
      CHECK(within > 0);
      CHECK(job.run(words).status == 1);
      if (is_unordered)
        CHECK(sortedLinesOf(job.result()) == sortedLinesOf(expected));
      else
        CHECK(job.result() == expected);
    }
  }

  TEST_CASE("a result is there as soon as it can be, while the input is still open") {
    const TemporaryDirectory directory;
    const ProgramStreams files{(directory.path() / "pipe").string(), (directory.path() / "out").string(),
                               (directory.path() / "err").string()};
    REQUIRE(mkfifo(files.in.c_str(), 0600) == 0);
    std::fstream pipe(files.in);  // both ends, so that nobody waits
    const pid_t child = startProgram({"batch", "-", "-n", "2"}, files);
    pipe << "{\"ids\":[1]}\n" << std::flush;
    for (int i = 0; i < 2000 && !readWholeFile(files.out).ends_with('\n'); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(std::ranges::count(readWholeFile(files.out), '\n') == 1);
    kill(child, SIGKILL);
    waitForProgram(child);
  }

  TEST_CASE("two jobs do not write one file") {
    const Job job("{\"ids\":[1]}\n");
    const TemporaryDirectory directory;
    const ProgramStreams files{(directory.path() / "pipe").string(), (directory.path() / "out").string(),
                               (directory.path() / "err").string()};
    REQUIRE(mkfifo(files.in.c_str(), 0600) == 0);
    std::fstream pipe(files.in);
    const pid_t child = startProgram({"batch", "-", "-n", "6", "-o", job.out()}, files);
    pipe << "{\"ids\":[1]}\n" << std::flush;
    for (int i = 0; i < 2000 && !job.result().ends_with('\n'); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    checkRefused(job.run({"--resume"}), job.out() + ": another job is writing it");
    kill(child, SIGKILL);
    waitForProgram(child);
    CHECK(job.run({"--resume"}).status == 0);
    CHECK(job.result() == undisturbed("{\"ids\":[1]}\n"));
  }

  TEST_CASE("a full disk is an error that names the file, and the job can be resumed") {
    if (std::filesystem::exists("/dev/full"))
      for (const Words& order : {Words{}, Words{"--unordered"}}) {
        const Job job(manyRequests(3000));  // more than wait for a result
        Words words = {"batch", job.in(), "-o", "/dev/full", "-n", "2"};
        words.insert(words.end(), order.begin(), order.end());
        checkRefused(runProgram(words), "/dev/full: cannot be written: No space left on device");
      }
    const std::string requests = manyRequests(60);
    const std::string expected = undisturbed(requests, {}, 1);
    const Job job(requests);
    rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const rlimit small{2000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const ProgramRun run = job.run();
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    checkRefused(run, job.out() + ": cannot be written: File too large");
    CHECK(job.result() == expected.substr(0, 2000));
    CHECK(job.run({"--resume"}).status == 1);
    CHECK(job.result() == expected);
  }

  TEST_CASE("an output that nobody reads any more ends the job without a word") {
    const auto handler = signal(SIGPIPE, SIG_IGN);  // which the program inherits
    const TemporaryDirectory directory;
    const std::string pipe = (directory.path() / "pipe").string();
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    std::string requests;
    for (int i = 0; i < 3000; ++i) requests += "{\"ids\":[1]}\n";
    const Job job(requests);
    ProgramStreams files = job.streams();
    const pid_t child = startProgram({"batch", job.in(), "-o", pipe, "-n", "1"}, files);
    {
      std::ifstream reader(pipe);
      std::string line;
      CHECK(std::getline(reader, line));
    }
    CHECK(waitForProgram(child) == 2);
    CHECK(readWholeFile(files.err).empty());
    signal(SIGPIPE, handler);
  }

  TEST_CASE("a terminal shows how far the job is, and nothing else does") {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
      MESSAGE("[skipped] there are no terminals");
      return;
    }
    const Job job(manyRequests(4));
    ProgramStreams files = job.streams();
    files.err = ptsname(terminal);
    const int other_end = open(files.err.c_str(), O_RDWR | O_NOCTTY);  // keeps what the program has written
    const auto shown = [&](const Words& arguments) {
      waitForProgram(startProgram(arguments, files));
      std::array<char, 65536> bytes;
      const ssize_t count = read(terminal, bytes.data(), bytes.size());
      return std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    };
    const std::string of_batch = shown(job.arguments({})), of_score = shown({"score", "Once upon a time"});
    INFO(of_batch);
    INFO(of_score);
    CHECK(of_batch.starts_with("\r  0 % [--------------------] 0 requests, 0.0 tokens/s\x1b[K"));
    CHECK(of_batch.find("\r\x1b[Kdriftless: ") != std::string::npos);  // cleared before the summary
    CHECK(of_score.starts_with("\r  0 % [--------------------] 0 texts, 0.0 tokens/s\x1b[K"));
    CHECK(of_score.find("\r\x1b[Kscored ") != std::string::npos);
    files.out = files.err;  // results go there too
    CHECK(shown({"score", "Once upon a time"}).find("\x1b[K") == std::string::npos);
    close(other_end);
    close(terminal);
    CHECK(runProgram({"batch", job.in(), "-o", job.out(), "--overwrite"}).err.find('\r') == std::string::npos);
  }
}
