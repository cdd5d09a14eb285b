#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/checkpoint_writer.hpp"
#include "support/fixtures.hpp"
#include "support/program_output.hpp"
#include "support/small_tokenizer.hpp"
#include "support/temporary_directory.hpp"

// The program as a person runs it; what is graded is the file DRIFTLESS_PROGRAM.

using namespace driftless::test;
using nlohmann::json;
using Ids = std::vector<int>;

namespace {

constexpr const char* kHint =
    "hint: (1) standard output is the result and nothing else: the text without the prompt and without a newline at "
    "its end; reports go to standard error; (2) without options the generation is greedy, and goes on after "
    "<|endoftext|>; (3) <|endoftext|> in a prompt is the special token; (4) any error is one line on standard error "
    "and exit status 2. If the ids are wrong, see the stage greedy-decode first.";

const json& goldenNamed(const std::string& name) {
  const json& cases = fixtureJson("tales-gpt2/goldens/greedy.json").at("cases");
  return *std::ranges::find_if(cases, [&](const json& golden) { return golden.at("name") == name; });
}

std::string maxTokens(const json& golden) { return std::to_string(golden.at("max_tokens").get<int>()); }

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A small model without a tokenizer whose output weights are its own, one of whose tensors has a number that is not
/// finite at `index`.
void writeSpoiltModel(const std::filesystem::path& directory, const std::string& name, std::size_t index,
                      float number) {
  const CheckpointShape shape;
  std::vector<WrittenTensor> tensors = gpt2Tensors(shape);
  tensors.push_back(f32Tensor("lm_head.weight", {shape.V, shape.C}, 77));
  const auto tensor = std::ranges::find(tensors, name, &WrittenTensor::name);
  REQUIRE(tensor != tensors.end());
  tensor->bytes.replace(index * sizeof(float), sizeof(float), f32Bytes({number}));
  writeCheckpoint(directory, tensors, configJson(shape, R"("tie_word_embeddings": false)"));
}

/// A copy of a fixture that a test may add to and damage.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& fixture) {
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy(fixturePath(fixture) / file, directory_.path() / file);
  }
  const std::filesystem::path& path() const { return directory_.path(); }
  std::string text() const { return path().string(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_SUITE("generate-cli") {
  TEST_CASE("text in, text out: the greedy goldens, byte for byte") {
    INFO(kHint);
    for (const json& golden : fixtureJson("tales-gpt2/goldens/greedy.json").at("cases")) {
      INFO("case " << golden.at("name"));
      CHECK(outputOf({"generate", golden.at("prompt"), "--max-tokens", maxTokens(golden)}) == golden.at("output_text"));
    }
  }

  TEST_CASE("ids in, ids out: the greedy goldens, integer for integer") {
    INFO(kHint);
    for (const std::string model : {"odd-gpt2", "odd-gpt2-untied", "odd-gpt2-ties"}) {
      for (const GreedyCase& golden : greedyCases(model)) {
        INFO(golden.name);
        CHECK(outputOf({"generate", "-m", fixturePath(model).string(), "--ids", commaSeparated(golden.prompt_ids), "-n",
                        std::to_string(golden.max_tokens), "--output", "ids"}) ==
              commaSeparated(golden.output_ids) + "\n");
      }
    }
  }

  TEST_CASE("the prompt can be an argument, an option or standard input") {
    INFO(kHint);
    const json& golden = goldenNamed("max_tokens_2");
    const std::string prompt = golden.at("prompt");
    const std::string text = golden.at("output_text");
    CHECK(outputOf({"generate", "-n", "2", prompt}) == text);
    CHECK(outputOf({"generate", "-p", prompt, "-n", "2"}) == text);
    CHECK(outputOf({"generate", "--prompt=" + prompt, "--max-tokens=2"}) == text);
    CHECK(outputOf({"generate", "-", "-n", "2"}, prompt) == text);
    CHECK(outputOf({"generate", "--ids", "-", "-n", "2"}, commaSeparated(golden.at("prompt_ids")) + "\n") == text);
    CHECK(outputOf({"generate", "-n", "2", "-m", fixturePath("tales-gpt2/model.safetensors").string(), prompt}) ==
          text);
  }

  TEST_CASE("one newline at the end of standard input is not part of the prompt") {
    const json& golden = goldenNamed("newlines");
    const Words arguments = {"generate", "-", "-n", maxTokens(golden), "--output", "json"};
    const json result = jsonOf(arguments, golden.at("prompt").get<std::string>() + "\n");
    CHECK(result.at("prompt_ids") == golden.at("prompt_ids"));
    CHECK(result.at("output_ids") == golden.at("output_ids"));
  }

  TEST_CASE("standard input is text as it was meant: CR LF at its end, a byte order mark, no other encoding") {
    const auto idsOf = [](const std::string& input) {
      return jsonOf({"generate", "-", "-n", "1", "--output", "json"}, input).at("prompt_ids");
    };
    const json once = {1526, 323};
    for (const std::string input : {"Once", "Once\n", "Once\r\n", "\xEF\xBB\xBFOnce\r\n"}) CHECK(idsOf(input) == once);
    for (const std::string input : {"Once\r", "Once\n\n", "Once\r\n\r\n", "Once\xEF\xBB\xBF", "Once\xE9"})
      CHECK(idsOf(input) != once);
    CHECK(jsonOf({"generate", "--ids", "-", "-n", "1", "--output", "json"},
                 "\xEF\xBB\xBF"
                 "1526,323\r\n")
              .at("prompt_ids") == once);
    for (const char* command : {"generate", "verify"}) {
      checkError(runProgram({command, "-"}, std::string("\xFE\xFF\0O", 4)),
                 "standard input: it is UTF-16: save it as UTF-8");
      checkError(runProgram({command, "-"}, std::string("O\0n\0", 4)),
                 "standard input: expected text in UTF-8, found a zero byte");
      checkError(runProgram({command, "--ids", "-"}, std::string("\xFF\xFE"
                                                                 "1\0",
                                                                 4)),
                 "UTF-16");
    }
  }

  TEST_CASE("token ids end where their text ends") {
    const std::string rest("1,2]\0junk", 9);
    checkError(runProgram({"generate", "--ids", "-"}, rest), "--ids: expected token ids separated by commas");
    checkError(runProgram({"tokenize", "--decode", "-"}, rest), "--decode: expected token ids separated by commas");
    checkError(runProgram({"generate", "--prompts", "-"}, "{\"ids\": [" + rest + "]}"), "standard input: line 1: ");
    for (const std::string ids :
         {"1,2]", "[1,2", "1],[2", "1,2]//", "1,2 3", "0x1", "1e2", "1.0", "+1", "01", "\"1\"", "null"}) {
      INFO(ids);
      checkError(runProgram({"generate", "--ids", ids}), "--ids: expected token ids separated by commas");
      checkError(runProgram({"generate", "--ids", "-"}, ids), "--ids: expected token ids separated by commas");
      checkError(runProgram({"generate", "--prompts", "-"}, "{\"ids\": [" + ids + "]}"), "standard input: line 1: ");
    }
  }

  TEST_CASE("an input that cannot be read is an error") {
    const std::string directory = std::filesystem::temp_directory_path().string();
    for (const Words& arguments : std::vector<Words>{{"tokenize", "-"},
                                                     {"tokenize", "--decode", "-"},
                                                     {"generate", "-"},
                                                     {"generate", "--ids", "-"},
                                                     {"generate", "--prompts", "-"},
                                                     {"verify", "-"}})
      for (const std::string& input : {directory, std::string()})
        checkError(runProgramOn(input, arguments), "standard input: cannot be read: ");
    checkError(runProgram({"generate", "--prompts", directory}), directory + ": cannot be read: ");
  }

  TEST_CASE("text arrives whole, whatever it looks like") {
    for (const std::string text : {"++", "-", "--", "-n", "--help", "-x", "+", "+++", "", "--prompt", "generate",
                                   "[a,b]", "\"a\"", "'a'", "%%", "/h", "@a"}) {
      INFO(text);
      const std::string ids = outputOf({"tokenize", "-"}, text);
      if (text != "-") CHECK(outputOf({"tokenize", "--", text}) == ids);
      if (!text.starts_with("-")) CHECK(outputOf({"tokenize", text}) == ids);
      if (text.empty() || text == "-") continue;
      const Words generate = {"generate", "-n", "1", "--output", "json"};
      const json expected = json::parse("[" + ids + "]");
      CHECK(jsonOf(generate + Words{"--", text}).at("prompt_ids") == expected);
      CHECK(jsonOf(generate + Words{"--prompt=" + text}).at("prompt_ids") == expected);
      CHECK(jsonOf(generate + Words{"-p", text}).at("prompt_ids") == expected);
    }
    checkError(runProgram({"generate", "hi", "++"}), "not expected: ++");
    checkError(runProgram({"tokenize", "++", "++"}), "not expected: ++");
    checkError(runProgram({"tokenize", "a", "--", "b"}), "not expected: b");
  }

  TEST_CASE("JSON output is one object with ids, text, reason and times") {
    INFO(kHint);
    const json& golden = goldenNamed("unicode_latin");
    const json result = jsonOf({"generate", golden.at("prompt"), "-n", maxTokens(golden), "--output", "json"});
    CHECK(result.at("prompt_ids") == golden.at("prompt_ids"));
    CHECK(result.at("output_ids") == golden.at("output_ids"));
    CHECK(result.at("text") == golden.at("output_text"));
    CHECK(result.at("finish_reason") == "length");
    CHECK(result.at("prefill_seconds") > 0);
    CHECK(result.at("decode_seconds") > 0);
    CHECK(result.size() == 6);
  }

  TEST_CASE("text that ends within characters stays those bytes, and is still JSON") {
    const ModelCopy model("odd-gpt2");
    SmallTokenizer().writeVocabularyAndMerges(model.path());  // each of its tokens is the byte of the same number
    const GreedyCase golden = greedyCases("odd-gpt2").at(0);
    const std::string prompt(golden.prompt_ids.begin(), golden.prompt_ids.end());
    const std::string text(golden.output_ids.begin(), golden.output_ids.end());
    const Words arguments = {"generate", "-m", model.text(), "-n", std::to_string(golden.max_tokens), "-"};
    CHECK(outputOf(arguments, prompt) == text);
    Words json_arguments = arguments;
    json_arguments.insert(json_arguments.end(), {"--output", "json"});
    const json result = jsonOf(json_arguments, prompt);
    CHECK(result.at("output_ids") == json(golden.output_ids));
    CHECK(result.at("text").get<std::string>().find("\xEF\xBF\xBD") != std::string::npos);
  }

  TEST_CASE("a model without tokenizer files takes and gives ids only") {
    const std::string model = fixturePath("odd-gpt2").string();
    CHECK(jsonOf({"generate", "-m", model, "--ids", "1,2", "-n", "2", "--output", "json"}).at("text").is_null());
    checkError(runProgram({"generate", "-m", model, "--ids", "1,2"}), "--output ids");
    checkError(runProgram({"generate", "-m", model, "text", "--output", "ids"}), "--ids");
  }

  TEST_CASE("further tensors are ignored on request, and named; a file can be read instead of mapped") {
    const TemporaryDirectory directory;
    std::vector<WrittenTensor> tensors = gpt2Tensors({}, "_orig_mod.transformer.");
    tensors.push_back(f32Tensor("_orig_mod.v_head.weight", {1, 20}, 1));
    writeCheckpoint(directory.path(), tensors, configJson({}));
    const Words at = {"-m", directory.path().string()};
    for (const Words& command : std::vector<Words>{{"info"},
                                                   {"generate", "--ids", "1,2", "-n", "2", "--output", "ids"},
                                                   {"verify", "--ids", "1,2", "-n", "2"},
                                                   {"bench", "--prompt-tokens", "2", "-n", "2", "--repeats", "1"}}) {
      checkError(runProgram(command + at), "tensor \"_orig_mod.v_head.weight\" is not one of a GPT-2");
      const ProgramRun run = runProgram(command + at + Words{"--ignore-extra", "--no-mmap"});
      CHECK(run.status == 0);
      CHECK(run.err.find("ignored: " + (directory.path() / "model.safetensors").string() +
                         ": tensor \"_orig_mod.v_head.weight\"\n") != std::string::npos);
      if (command[0] != "bench") CHECK(run.out == runProgram(command + at + Words{"--ignore-extra"}).out);
    }
  }

  TEST_CASE("JSON of a model whose path is not UTF-8 has U+FFFD in its place") {
    const TemporaryDirectory directory;
    const std::filesystem::path model = directory.path() / "caf\xE9";
    std::filesystem::create_directory(model);
    writeCheckpoint(model, gpt2Tensors({}), configJson({}));
    const json result =
        jsonOf({"bench", "--json", "-m", model.string(), "--prompt-tokens", "2", "-n", "2", "--repeats", "1"});
    CHECK(result.at("model") == (directory.path() / "caf\xEF\xBF\xBD").string());
  }

  TEST_CASE("logits that are not numbers are the same error for every command and stored type") {
    const TemporaryDirectory directory;
    const std::string model = directory.path().string();
    const auto check = [&](const std::string& expected) {
      for (const std::string weights : {"f32", "f16", "bf16", "int8", "int4"}) {
        const std::string cache = weights == "int4" ? "int8" : weights;
        const Words options = {"-m", model, "--weights", weights, "--cache", cache, "-n", "3"};
        const Words generate = Words{"generate", "--ids", "1,2", "--output", "ids"} + options;
        const std::string error = "logits at position 1: " + expected;
        checkError(runProgram(generate), error);
        checkError(runProgram(generate + Words{"--temperature", "1"}), error);
        checkError(runProgram(generate + Words{"--no-cache"}), error);
        const ProgramRun verify = runProgram(Words{"verify", "--ids", "1,2", "--json"} + options);
        CHECK(verify.status == 1);
        CHECK(json::parse(verify.out).at("max_abs").is_null());
        CHECK(verify.err.find(error) != std::string::npos);
        const ProgramRun bench = runProgram(Words{"bench", "--prompt-tokens", "4", "--json"} + options);
        CHECK(bench.status == 2);
        CHECK(bench.out.empty());
        CHECK(bench.err.find("logits at position 3: " + expected) != std::string::npos);
      }
    };
    writeSpoiltModel(directory.path(), "ln_f.bias", 3, std::numeric_limits<float>::infinity());
    check("expected a largest logit that is finite, got infinity for token id ");
    writeSpoiltModel(directory.path(), "h.1.ln_1.weight", 0, std::numeric_limits<float>::quiet_NaN());
    check(
        "expected a largest logit that is finite, got 259 times NaN and 0 times minus infinity; not all numbers are "
        "finite in h.1.ln_1.weight");
  }

  TEST_CASE("--prompts: a prompt whose logits are not numbers fails by its line, and the others are as if alone") {
    const TemporaryDirectory directory;
    const std::string model = directory.path().string();
    writeSpoiltModel(directory.path(), "wte.weight", 258 * 20, std::numeric_limits<float>::quiet_NaN());
    const Words options = {"-m", model, "-n", "3", "--temperature", "1", "--seed", "1"};
    for (const std::string batch : {"1", "2", "16"}) {
      const ProgramRun run = runProgram(Words{"generate", "--prompts", "-", "--batch", batch} + options,
                                        "{\"ids\": [1, 2]}\n{\"ids\": [258]}\n{\"ids\": [7]}\n{\"ids\": [3, 258]}\n");
      INFO(run.err);
      CHECK(run.status == 2);
      const std::string fault =
          ": expected a largest logit that is finite, got 259 times NaN and 0 times minus infinity; not all numbers "
          "are "
          "finite in wte.weight";
      CHECK(run.err.ends_with("driftless: standard input: line 2: logits at position 0" + fault +
                              "; in all, 2 of 4 prompts failed\n"));
      const std::vector<json> lines = jsonLines(run.out);
      REQUIRE(lines.size() == 4);
      for (const std::size_t i : {1u, 3u}) {
        CHECK(lines[i].at("finish_reason") == "error");
        CHECK(lines[i].at("error") == "logits at position " + std::to_string(i == 1 ? 0 : 1) + fault);
        CHECK(lines[i].at("output_ids").empty());
      }
      for (const std::size_t i : {0u, 2u}) {
        const json alone = jsonOf(Words{"generate", "--ids", i == 0 ? "1,2" : "7", "--output", "json"} + options);
        CHECK(lines[i].at("output_ids") == alone.at("output_ids"));
        CHECK(lines[i].at("finish_reason") == "length");
        CHECK(!lines[i].contains("error"));
      }
    }
  }

  TEST_CASE("--prompts writes a result as soon as it and all before it are there") {
    const TemporaryDirectory directory;
    const ProgramStreams files{(directory.path() / "in").string(), (directory.path() / "out").string(),
                               (directory.path() / "err").string()};
    // The context is full after one token of the first prompt; recomputing all tokens of the second takes seconds.
    writeFile(files.in, "{\"ids\": [" + commaSeparated(Ids(512, 1)) + "]}\n{\"ids\": [1]}\n");
    const pid_t child = startProgram({"generate", "--prompts", "-", "-n", "512", "--no-cache", "-t", "1"}, files);
    int status = 0;
    pid_t ended = 0;
    while (readWholeFile(files.out).find('\n') == std::string::npos && (ended = waitpid(child, &status, WNOHANG)) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (ended == 0) ended = waitpid(child, &status, WNOHANG);
    CHECK(ended == 0);
    if (ended != 0) return;
    kill(child, SIGINT);
    CHECK(waitForProgram(child) == 128 + SIGINT);
    const std::vector<json> lines = jsonLines(readWholeFile(files.out));
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].at("finish_reason") == "context_full");
  }

  TEST_CASE("an id that has no text keeps the ids, and the JSON text is null") {
    const ModelCopy model("odd-gpt2");
    SmallTokenizer().writeVocabularyAndMerges(model.path());  // 256 tokens; the model has 259
    const Words arguments = {"generate", "-m", model.text(), "-n", "2"};
    const json result = jsonOf(arguments + Words{"--ids", "1,2", "--output", "json"});
    CHECK(result.at("output_ids") == json({257, 257}));
    CHECK(result.at("text").is_null());
    const std::vector<json> lines =
        jsonLines(outputOf(arguments + Words{"--prompts", "-"}, "{\"ids\": [2]}\n{\"ids\": [1, 2]}\n"));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("text").is_string());
    CHECK(lines[1].at("output_ids") == json({257, 257}));
    CHECK(lines[1].at("text").is_null());
  }

  TEST_CASE("a tokenizer that is damaged or not supported stops only what needs text") {
    const ModelCopy model("odd-gpt2");
    writeFile(model.path() / "tokenizer.json", "{\"version\": \"7\"}");
    const std::string why = "tokenizer.json: key 'version': expected \"1.0\", found \"7\"";
    const Words at = {"-m", model.text()};
    CHECK(outputOf(Words{"info"} + at).find(why) != std::string::npos);
    CHECK(outputOf(Words{"verify", "--ids", "1,2", "-n", "2"} + at).find("0 differing bits") != std::string::npos);
    const Words generate = Words{"generate", "-n", "2", "--stop-at-eos"} + at;
    CHECK(outputOf(generate + Words{"--ids", "1,2", "--output", "ids"}) == "257,257\n");
    const ProgramRun with_json = runProgram(generate + Words{"--ids", "1,2", "--output", "json"});
    CHECK(with_json.status == 0);
    CHECK(json::parse(with_json.out).at("text").is_null());
    CHECK(with_json.err.find("text is null: ") != std::string::npos);
    CHECK(with_json.err.find(why) != std::string::npos);
    CHECK(jsonOf(generate + Words{"--prompts", "-"}, "{\"ids\": [1, 2]}\n").at("text").is_null());
    checkError(runProgram(generate + Words{"text"}), why);
    checkError(runProgram(generate + Words{"--ids", "1,2"}), why);
    checkError(runProgram(generate + Words{"--prompts", "-"}, "{\"ids\": [1]}\n{\"prompt\": \"a\"}\n"),
               "standard input: line 2: ");
    checkError(runProgram(Words{"verify", "text"} + at), why);
    checkError(runProgram(Words{"tokenize", "text"} + at), why);
  }

  TEST_CASE("a full context ends the generation, and says so") {
    INFO("hint: with n_positions = N, a prompt of N tokens yields one next id and then ends.");
    const std::string model = fixturePath("odd-gpt2").string();
    for (const GreedyCase& golden : greedyCases("odd-gpt2")) {
      const json result =
          jsonOf({"generate", "-m", model, "--ids", commaSeparated(golden.prompt_ids), "-n", "40", "--output", "json"});
      CHECK(result.at("finish_reason") == "context_full");
      CHECK(result.at("output_ids").size() == 16 - golden.prompt_ids.size() + 1);
    }
    const Ids too_long(17, 1);
    checkError(runProgram({"generate", "-m", model, "--output", "ids", "--ids", commaSeparated(too_long)}),
               "expected at most 16");
  }

  TEST_CASE("--stop-at-eos ends the generation before <|endoftext|>") {
    const json& golden = goldenNamed("title_prompt_2");
    const Ids ids = golden.at("output_ids");
    const Ids until_end(ids.begin(), std::ranges::find(ids, 2047));
    REQUIRE(until_end.size() < ids.size());
    const json result = jsonOf({"generate", golden.at("prompt"), "-n", "150", "--stop-at-eos", "--output", "json"});
    CHECK(result.at("output_ids") == json(until_end));
    CHECK(result.at("finish_reason") == "stop");
  }

  TEST_CASE("--stop-at-eos stops at the ids of generation_config.json, or else of config.json") {
    const ModelCopy model("odd-gpt2");
    const Words arguments = {"generate", "-m", model.text(), "--ids", "1,2", "-n", "3", "--output", "json"};
    CHECK(jsonOf(arguments).at("output_ids") == json({257, 257, 257}));
    const auto reasonWith = [&](const std::string& generation_config) {
      writeFile(model.path() / "generation_config.json", generation_config);
      return jsonOf(arguments + Words{"--stop-at-eos"}).at("finish_reason");
    };
    CHECK(reasonWith("{\"eos_token_id\": 257}") == "stop");
    CHECK(reasonWith("{\"eos_token_id\": [3, 257]}") == "stop");
    CHECK(reasonWith("{\"eos_token_id\": 3}") == "length");
    CHECK(reasonWith("{}") == "length");
    writeFile(model.path() / "generation_config.json", "{\"eos_token_id\": 259}");
    checkError(runProgram(arguments + Words{"--stop-at-eos"}),
               "generation_config.json: eos_token_id: expected token ids from 0 to 258, found 259");
    std::filesystem::remove(model.path() / "generation_config.json");
    json config = json::parse(readWholeFile(model.path() / "config.json"));
    for (const json& eos : {json(257), json({5, 257})}) {
      config["eos_token_id"] = eos;
      writeFile(model.path() / "config.json", config.dump());
      CHECK(jsonOf(arguments + Words{"--stop-at-eos"}).at("finish_reason") == "stop");
    }
    config["eos_token_id"] = nullptr;
    writeFile(model.path() / "config.json", config.dump());
    checkError(runProgram(arguments + Words{"--stop-at-eos"}), "<|endoftext|>");
    SmallTokenizer({"<|endoftext|>"}).writeVocabularyAndMerges(model.path());
    CHECK(jsonOf(arguments + Words{"--stop-at-eos"}).at("finish_reason") == "length");
  }

  TEST_CASE("--max-tokens 0 generates nothing") {
    const json result = jsonOf({"generate", "The king", "-n", "0", "--output", "json"});
    CHECK(result.at("output_ids").empty());
    CHECK(result.at("text") == "");
    CHECK(outputOf({"generate", "The king", "-n", "0"}).empty());
  }

  TEST_CASE("--no-cache and --threads change the time and nothing else") {
    INFO("hint: logits depend on the tokens alone, bit for bit; see the stage per-step-identity.");
    const Words arguments = {"generate", "The queen", "-n", "30", "--temperature", "1", "--seed", "5"};
    const std::string text = outputOf(arguments);
    for (const Words& further : std::vector<Words>{{"--no-cache"}, {"-t", "1"}, {"-t", "3"}}) {
      Words all = arguments;
      all.insert(all.end(), further.begin(), further.end());
      CHECK(outputOf(all) == text);
    }
  }

  TEST_CASE("a seed gives the same text again, and another seed another text") {
    const auto draw = [](const std::string& seed) {
      return outputOf({"generate", "The queen", "-n", "30", "--temperature", "0.9", "--top-k", "200", "--top-p", ".95",
                       "--seed", seed});
    };
    const std::string text = draw("1");
    CHECK(draw("1") == text);
    CHECK(draw("18446744073709551615") != text);
  }

  TEST_CASE("a temperature of 0, or the likeliest token alone, is greedy") {
    const json& golden = goldenNamed("once_upon");
    const Words arguments = {"generate", golden.at("prompt"), "-n", maxTokens(golden), "--seed", "3"};
    for (const Words& further : std::vector<Words>{{"--temperature", "0"}, {"--temperature", "2", "--top-k", "1"}}) {
      Words all = arguments;
      all.insert(all.end(), further.begin(), further.end());
      CHECK(outputOf(all) == golden.at("output_text"));
    }
  }

  TEST_CASE("token counts and speed are on standard error") {
    const ProgramRun run = runProgram({"generate", "The king said to the", "-n", "3"});
    CHECK(run.err.find("5 tokens") != std::string::npos);
    CHECK(run.err.find("3 tokens") != std::string::npos);
    CHECK(run.err.find("tokens/s") != std::string::npos);
  }

  TEST_CASE("--weights and --cache: f16 weights keep the text of a model in f16, coarser ones go on in words") {
    const json& golden = goldenNamed("once_upon");
    const Words arguments = {"generate", golden.at("prompt"), "-n", maxTokens(golden)};
    const auto outputWith = [&](const std::string& weights, const std::string& cache) {
      Words all = arguments;
      all.insert(all.end(), {"--weights", weights, "--cache", cache});
      return outputOf(all);
    };
    CHECK(outputWith("f32", "f32") == golden.at("output_text"));
    CHECK(outputWith("f16", "f32") == golden.at("output_text"));
    for (const std::string weights : {"bf16", "int8", "int4"})
      for (const std::string cache : {"f16", "bf16", "int8"}) CHECK(!outputWith(weights, cache).empty());
  }

  TEST_CASE("--prompts: every line's output is that of a run alone, in the order of the lines") {
    INFO("hint: a sequence's ids do not depend on its company; each draws from an engine of its own.");
    const Words prompts = {"Once upon a time", "The king", "\"Where are you?\" said the", "x", "The queen and the fox"};
    std::string lines, objects;
    for (const std::string& prompt : prompts) {
      lines += prompt + "\n";
      objects += json{{"prompt", prompt}}.dump() + "\r\n";
    }
    const Words options = {"-n", "25", "--temperature", "0.9", "--seed", "3", "--weights", "int8", "--cache", "f16"};
    std::vector<json> alone;
    for (const std::string& prompt : prompts) {
      Words arguments = {"generate", prompt, "--output", "json"};
      arguments.insert(arguments.end(), options.begin(), options.end());
      alone.push_back(jsonOf(arguments));
    }
    const auto check = [&](Words arguments, const std::string& input) {
      arguments.insert(arguments.begin(), {"generate", "--prompts", "-"});
      arguments.insert(arguments.end(), options.begin(), options.end());
      std::istringstream out(outputOf(arguments, input));
      std::string line;
      for (const json& expected : alone) {
        REQUIRE(std::getline(out, line));
        json result = json::parse(line);
        CHECK(result.size() == 6);
        for (const char* key : {"prompt_ids", "output_ids", "text", "finish_reason"})
          CHECK(result.at(key) == expected.at(key));
        CHECK(result.at("prefill_seconds") > 0);
        CHECK(result.at("decode_seconds") > 0);
      }
      CHECK(!std::getline(out, line));
    };
    check({}, lines);
    check({"--batch", "2", "--threads", "1", "--output", "json"}, lines);
    check({"--batch", "1", "--no-cache"}, lines.substr(0, lines.size() - 1));
    check({"--batch", "3"}, objects);
    std::string ids;
    for (const json& one : alone) ids += json{{"ids", one.at("prompt_ids")}}.dump() + "\n";
    check({"--batch", "4", "--threads", "3"}, ids);
  }

  TEST_CASE("--prompts reads a file, and ids need no tokenizer") {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "prompts").string();
    const std::string model = fixturePath("odd-gpt2").string();
    std::string lines;
    for (const GreedyCase& golden : greedyCases("odd-gpt2")) lines += json{{"ids", golden.prompt_ids}}.dump() + "\n";
    writeFile(file, lines);
    std::istringstream out(outputOf({"generate", "-m", model, "--prompts", file, "-n", "3"}));
    std::string line;
    for (const GreedyCase& golden : greedyCases("odd-gpt2")) {
      REQUIRE(std::getline(out, line));
      Ids first = golden.output_ids;
      first.resize(std::min<std::size_t>(first.size(), 3));
      CHECK(json::parse(line).at("output_ids") == json(first));
      CHECK(json::parse(line).at("text").is_null());
    }
    checkError(runProgram({"generate", "-m", model, "--prompts", "-"}, "text\n"), "standard input: line 1: ");
  }

  TEST_CASE("--prompts: a byte order mark, CR LF and no last newline change nothing") {
    for (const std::string lines : {"Once\nA\n", "{\"prompt\": \"Once\"}\n{\"ids\": [32]}\n"}) {
      std::string windows = "\xEF\xBB\xBF" + lines.substr(0, lines.size() - 1);
      windows.insert(windows.find('\n'), 1, '\r');
      const auto idsOf = [](const std::string& input) {
        json ids;
        for (const json& line : jsonLines(outputOf({"generate", "--prompts", "-", "-n", "1"}, input)))
          ids.push_back(line.at("prompt_ids"));
        return ids;
      };
      CHECK(idsOf(lines) == json({{1526, 323}, {32}}));
      CHECK(idsOf(windows) == idsOf(lines));
    }
  }

  TEST_CASE("--prompts: an error in any line names it, and nothing is generated") {
    struct Case {
      std::string input;
      std::string expected;
    };
    const std::vector<Case> cases = {
        {"", "it is empty"},
        {"\xEF\xBB\xBF", "it is empty"},
        {std::string("a\nb\0c\n", 6), "line 2: expected text in UTF-8, found the byte 0"},
        {"a\nb\xE9"
         "c\n",
         "line 2: expected text in UTF-8, found the byte 233"},
        {"a\n\xC3", "line 2: expected text in UTF-8, found the byte 195"},
        {std::string("\xFF\xFE"
                     "a\0\n\0",
                     6),
         "it is UTF-16: save it as UTF-8"},
        {std::string("\xFE\xFF\0a\0\n", 6), "it is UTF-16: save it as UTF-8"},
        {std::string("a\0\n\0b\0", 6), "line 1: expected text in UTF-8, found the byte 0"},
        {std::string("{\0\"\0", 4), "line 1: expected text in UTF-8, found the byte 0"},
        {std::string("{\"ids\": [1]}\n{\"ids\": [2]}\0\n", 28), "line 2: expected text in UTF-8, found the byte 0"},
        {"{\"ids\": [1]}\n{\"prompt\": \"\xE9\"}\n", "line 2: expected text in UTF-8, found the byte 233"},
        {"a\n\nb\n", "line 2: expected a prompt, found an empty line"},
        {"a\nb\n\n", "line 3: expected a prompt, found an empty line"},
        {"{\"ids\": [1]}\n{\"ids\": [1, 2048]}\n", "line 2: expected token ids from 0 to 2047, got 2048 at index 1"},
        {"{\"ids\": []}\n", "line 1: expected at least one token id"},
        {"{\"ids\": [1]}\n\n{\"ids\": [2]}\n", "line 2: expected a prompt, found an empty line"},
        {"{\"ids\": [1]}\nplain\n", "line 2: the object: bad JSON"},
        {"{\"ids\": [-1]}\n", "line 1: expected {\"ids\": [1, 2]} or {\"prompt\": \"text\"} and no other keys"},
        {"{\"ids\": [1], \"prompt\": \"a\"}\n", "line 1: expected {\"ids\": [1, 2]}"},
        {"{\"text\": \"a\"}\n", "line 1: expected {\"ids\": [1, 2]}"},
        {"{\"prompt\": 1}\n", "line 1: expected {\"ids\": [1, 2]}"},
        {"{\"ids\": [1]}\n{\"ids\": [" + commaSeparated(Ids(513, 1)) + "]}\n", "line 2: expected at most 512"},
    };
    for (const Case& erroneous : cases) {
      INFO("input: " << erroneous.input);
      checkError(runProgram({"generate", "--prompts", "-"}, erroneous.input), "standard input: " + erroneous.expected);
    }
  }

  TEST_CASE("verify compares every stored type with itself") {
    for (const std::string weights : {"f32", "f16", "bf16", "int8", "int4"}) {
      for (const std::string cache : {"f32", "f16", "bf16", "int8"}) {
        INFO(weights << " " << cache);
        const json result = jsonOf({"verify", "The king", "-n", "8", "--json", "--weights", weights, "--cache", cache});
        CHECK(result.at("steps") == 8);
        CHECK(result.at("differing_bits") == 0);
        CHECK((result.at("max_abs") > 1e-3) ==
              (weights == "bf16" || weights == "int8" || weights == "int4" || cache != "f32"));
      }
    }
  }

  TEST_CASE("--compute int8 is verified like the rest, and for quantized weights only") {
    for (const std::string weights : {"int8", "int4"}) {
      const Words options = {"--weights", weights, "--compute", "int8"};
      const json result = jsonOf(Words{"verify", "The king", "-n", "8", "--json"} + options);
      CHECK(result.at("differing_bits") == 0);
      CHECK(result.at("max_abs") > 1e-3);
      CHECK(!outputOf(Words{"generate", "The king", "-n", "8"} + options).empty());
    }
    checkError(runProgram({"generate", "The king", "--compute", "int8"}),
               "--compute int8: expected --weights int8 or int4, got f32");
  }

  TEST_CASE("bench measures the model and the machine, as JSON") {
    const Words tiny = {"bench",     "-m",        fixturePath("odd-gpt2").string(),
                        "--repeats", "2",         "--prompt-tokens",
                        "5",         "-n",        "4",
                        "--batch",   "3",         "--curve",
                        "-t",        "2",         "--weights",
                        "int8",      "--compute", "int8",
                        "--cache",   "bf16",      "--json"};
    const json result = jsonOf(tiny);
    CHECK(result.at("model") == fixturePath("odd-gpt2").string());
    CHECK(result.at("weights") == "int8");
    CHECK(result.at("compute") == "int8");
    CHECK(result.at("cache") == "bf16");
    const std::vector<std::pair<const char*, int>> counts = {
        {"threads", 2}, {"batch", 3}, {"prompt_tokens", 5}, {"max_tokens", 4}, {"repeats", 2}};
    for (const auto& [key, value] : counts) CHECK(result.at(key) == value);
    for (const char* key :
         {"load_seconds", "weight_bytes", "cache_bytes", "bytes_per_decode_step", "peak_memory_bytes"})
      CHECK_MESSAGE(result.at(key) > 0, key);
    const auto checkFigure = [](const json& figure) {
      CHECK(figure.at("min") > 0);
      CHECK(figure.at("min") <= figure.at("median"));
      CHECK(figure.at("median") <= figure.at("max"));
      CHECK(figure.size() == 3);
    };
    for (const char* key :
         {"prefill_tokens_per_s", "decode_tokens_per_s", "recompute_tokens_per_s", "cached_over_recompute",
          "read_bandwidth_gb_per_s", "fma_peak_gflops", "decode_over_bandwidth", "prefill_over_peak"}) {
      INFO(key);
      checkFigure(result.at(key));
    }
    for (const char* step : {"prefill", "decode"})
      for (const char* part : {"linear", "attention", "unembedding", "rest"})
        checkFigure(result.at("seconds_per_part").at(step).at(part));
    CHECK(result.at("positions").size() == 9);
    CHECK(result.at("positions").front().at("position") == 0);
    CHECK(result.at("positions").back().at("position") == 15);
    for (const json& sample : result.at("positions")) {
      CHECK(sample.at("cached_seconds") > 0);
      CHECK(sample.at("recomputed_seconds") > 0);
    }
  }

  TEST_CASE("bench counts the bytes that a step must read") {
    // Matrices of the embedded model, in bytes of 16 bits: c_attn, c_proj, c_fc and c_proj of 12 layers, and wte.
    const json result = jsonOf({"bench", "-m", fixturePath("tales-gpt2").string(), "--repeats", "1", "--prompt-tokens",
                                "10", "-n", "3", "--weights", "f16", "--cache", "f16", "--batch", "2", "--json"});
    const int weights = 2 * (12 * 12 * 128 * 128 + 2048 * 128);
    const int keys_and_values = 2 * 2 * 12 * 128;
    CHECK(result.at("bytes_per_decode_step") == weights + 2 * 12 * keys_and_values);
    CHECK(!result.contains("positions"));
  }

  TEST_CASE("bench writes a table for people") {
    const std::string text = outputOf({"bench", "-m", fixturePath("odd-gpt2").string(), "--repeats", "1", "-n", "2"});
    for (const char* expected : {"tokens/s", "GB/s", "GFLOP/s", "attention", "peak memory", "median"})
      CHECK_MESSAGE(text.find(expected) != std::string::npos, expected);
  }

  TEST_CASE("bench compares its speeds with those of an earlier run") {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "earlier.json").string();
    const Words bench = {
        "bench", "-m", fixturePath("odd-gpt2").string(), "--prompt-tokens", "5", "-n", "4", "--repeats", "1",
        "-t",    "1"};
    json earlier = jsonOf(bench + Words{"--json"});
    CHECK(!earlier.contains("against"));
    earlier["prefill_tokens_per_s"]["median"] = 1e15;
    earlier["decode_tokens_per_s"]["median"] = 1e-3;
    earlier["decode_gb_per_s"] = "none";
    earlier["fma_peak_gflops"]["median"] = 0;
    earlier.erase("recompute_tokens_per_s");
    writeFile(file, earlier.dump());

    const json now = jsonOf(bench + Words{"--json", "--against", file});
    const json& against = now.at("against");
    const json& ratios = against.at("now_over_earlier");
    for (const auto& [key, median] : {std::pair("prefill_tokens_per_s", 1e15), std::pair("decode_tokens_per_s", 1e-3)})
      CHECK(ratios.at(key) == doctest::Approx(now.at(key).at("median").get<double>() / median));
    for (const char* key : {"recompute_tokens_per_s", "decode_gb_per_s", "fma_peak_gflops", "load_seconds"})
      CHECK_MESSAGE(!ratios.contains(key), key);
    for (const auto& item : ratios.items()) {
      const std::string& key = item.key();
      INFO(key);
      CHECK(std::ranges::count(against.at("fell"), json(key)) == (item.value() < 0.97 ? 1 : 0));
    }
    CHECK(std::ranges::count(against.at("fell"), json("prefill_tokens_per_s")) == 1);

    const std::string text = outputOf(bench + Words{"--against", file});
    CHECK(text.find("against " + file) != std::string::npos);
    CHECK(text.find("\nfell by more than 3 %: prefill_tokens_per_s") != std::string::npos);

    const auto checkRefused = [&](const json& contents, const Words& options, const std::string& expected) {
      writeFile(file, contents.is_string() ? contents.get<std::string>() : contents.dump());
      checkError(runProgram(bench + options + Words{"--against", file}), expected);
    };
    checkRefused(earlier, {"--weights", "int8"},
                 "earlier.json: key 'weights': expected \"int8\" as in this run, got \"f32\"");
    checkRefused(earlier, {"--batch", "2"}, "key 'batch': expected 2 as in this run, got 1");
    for (const char* key : {"model", "weights", "cache", "threads", "batch", "prompt_tokens", "max_tokens"}) {
      json other = earlier;
      other[key] = "other";
      checkRefused(other, {}, std::string("key '") + key + "': expected ");
      other.erase(key);
      checkRefused(other, {}, std::string("key '") + key + "': expected ");
    }
    json other = earlier;
    other["compute"] = "int8";
    checkRefused(other, {}, "key 'compute': expected \"f32\" as in this run, got \"int8\"");
    other.erase("compute");
    writeFile(file, other.dump());
    CHECK(!outputOf(bench + Words{"--against", file}).empty());  // from before there was a choice
    checkRefused(json::array(), {}, "expected an object");
    checkRefused("model, weights f32", {}, "bad JSON");
    checkError(runProgram(bench + Words{"--against", "no-such-file"}), "no-such-file: cannot be read");
  }

  TEST_CASE("verify finds no drift, step by step and as JSON") {
    const std::string report = outputOf({"verify", "Once upon a time", "--max-tokens", "12"});
    CHECK(std::ranges::count(report, '\n') == 13);
    CHECK(report.find("12 steps, 0 differing bits") != std::string::npos);
    for (const Words& prompt : std::vector<Words>{{"Once upon a time"}, {"--ids", "1,2,3"}, {}}) {
      Words arguments = {"verify", "-n", "12", "--json"};
      arguments.insert(arguments.end(), prompt.begin(), prompt.end());
      const json result = jsonOf(arguments);
      CHECK(result.at("steps") == 12);
      CHECK(result.at("differing_bits") == 0);
      CHECK(result.at("max_abs") < 1e-3);
      CHECK(result.at("max_rel") < 1e-2);
      CHECK(result.size() == 4);
    }
  }

  TEST_CASE("verify ends with the context") {
    const json result = jsonOf({"verify", "--json", "-m", fixturePath("odd-gpt2").string(), "--ids", "1,2,3,4"});
    CHECK(result.at("steps") == 13);
  }

  TEST_CASE("tokenize gives the golden ids") {
    for (const json& golden : fixtureJson("tales-gpt2/goldens/tokenizer.json").at("cases")) {
      Words arguments = {"tokenize", "-"};
      if (!golden.at("special").get<bool>()) arguments.push_back("--plain");
      INFO("text: " << golden.at("text"));
      CHECK(outputOf(arguments, golden.at("text")) == commaSeparated(golden.at("ids")) + "\n");
    }
    CHECK(outputOf({"tokenize", "Once upon a time"}) == "1526,323,629,258,535\n");
    CHECK(outputOf({"tokenize", ""}) == "\n");
  }

  TEST_CASE("tokenize there and back keeps any bytes") {
    std::string bytes = "last line\n";
    for (int i = 0; i < 2048; ++i) bytes.insert(bytes.begin(), static_cast<char>(i * i / 3 ^ i));
    REQUIRE(bytes.find('\0') != std::string::npos);
    const std::string ids = outputOf({"tokenize", "-"}, bytes);
    CHECK(outputOf({"tokenize", "--decode", "-"}, ids) == bytes);
    CHECK(outputOf({"tokenize", "--decode", "1526,323"}) == "Once");
  }

  TEST_CASE("tokenize needs the tokenizer's files only") {
    const TemporaryDirectory directory;
    SmallTokenizer().writeVocabularyAndMerges(directory.path());
    CHECK(outputOf({"tokenize", "-m", directory.path().string(), "AB"}) == "65,66\n");
    CHECK(outputOf({"tokenize", "-m", directory.path().string(), "--decode", "65,66"}) == "AB");
  }

  TEST_CASE("info shows config, tensors and sizes") {
    const std::string text = outputOf({"info"});
    for (const char* expected :
         {"h.11.mlp.c_proj.weight", "F16", "[512, 128]", "gelu_new", "2707200", "5414400 bytes", "12288 bytes", "yes"})
      CHECK_MESSAGE(text.find(expected) != std::string::npos, expected);
    CHECK(outputOf({"info", "-m", fixturePath("odd-gpt2-untied").string()}).find("lm_head.weight") !=
          std::string::npos);
  }

  TEST_CASE("help and version go to standard output") {
    for (const Words& arguments : std::vector<Words>{{"--help"}, {"generate", "-h"}, {"verify", "--help"}})
      CHECK(outputOf(arguments).find("Usage: driftless") != std::string::npos);
    CHECK(outputOf({"--version"}).starts_with("driftless "));
  }

  TEST_CASE("errors in the arguments are one line that says what was expected") {
    struct Case {
      Words arguments;
      std::string expected;
    };
    const std::vector<Case> cases = {
        {{}, "subcommand"},
        {{"invent"}, "invent"},
        {{"generate"}, "expected a prompt"},
        {{"generate", ""}, "expected at least one token"},
        {{"generate", "a", "b"}, "not expected: b"},
        {{"generate", "a", "--ids", "1"}, "--ids"},
        {{"generate", "a", "--verbose"}, "--verbose"},
        {{"generate", "a\nb", "c\nd"}, "not expected: c d"},
        {{"generate", "a", "-n"}, "--max-tokens"},
        {{"generate", "a", "-n", "-1"}, "--max-tokens: expected a whole number from 0"},
        {{"generate", "a", "-n", "ten"}, "got ten"},
        {{"generate", "a", "-n", "99999999999999999999"}, "--max-tokens: expected a whole number from 0"},
        {{"generate", "a", "-t", "0"}, "--threads: expected a whole number from 1 to 1024, got 0"},
        {{"generate", "a", "--temperature", "-0.5"}, "--temperature: expected a number of 0 or more"},
        {{"generate", "a", "--temperature", "nan"}, "--temperature: expected a number of 0 or more"},
        {{"generate", "a", "--temperature", "inf"}, "--temperature: expected a number of 0 or more"},
        {{"generate", "a", "--top-k", "1.5"}, "--top-k: expected a whole number"},
        {{"generate", "a", "--top-p", "0"}, "--top-p: expected a number above 0 and up to 1"},
        {{"generate", "a", "--seed", "-1"}, "--seed: expected a whole number"},
        {{"generate", "a", "--seed", "7"}, "--seed has no effect at temperature 0"},
        {{"generate", "a", "--top-k", "40", "--seed", "7"}, "--top-k has no effect at temperature 0"},
        {{"generate", "--prompts", "-", "--top-p", "0.9"}, "--top-p has no effect at temperature 0"},
        {{"generate", "a", "--output", "xml"}, "json"},
        {{"generate", "--ids", ""}, "expected at least one token"},
        {{"generate", "--ids", "1,,2"}, "--ids: expected token ids separated by commas"},
        {{"generate", "--ids", "1 2"}, "--ids: expected token ids separated by commas"},
        {{"generate", "--ids", "1,-2"}, "--ids: expected token ids separated by commas"},
        {{"generate", "--ids", "4294967297"}, "from 0 to 2147483647"},
        {{"generate", "--ids", "1,2048"}, "expected token ids from 0 to 2047, got 2048 at index 1"},
        {{"generate", "--ids", commaSeparated(Ids(513, 1))}, "expected at most 512"},
        {{"generate", "a", "--weights", "q4"}, "--weights: q4 not in {f32,f16,bf16,int8,int4}"},
        {{"generate", "a", "--cache", "int4"}, "--cache: int4 not in {f32,f16,bf16,int8}"},
        {{"generate", "a", "--prompts", "-"}, "excludes --prompts"},
        {{"generate", "--ids", "1", "--prompts", "-"}, "excludes --"},
        {{"generate", "--prompts", "-", "--output", "ids"}, "--prompts writes JSON Lines"},
        {{"generate", "--prompts", "no-such-file"}, "no-such-file: cannot be read"},
        {{"generate", "a", "--batch", "2"}, "--batch requires --prompts"},
        {{"generate", "--prompts", "-", "--batch", "0"}, "--batch: expected a whole number from 1"},
        {{"bench", "--preset", "gpt3"}, "gpt2-xl"},
        {{"bench", "--preset", "gpt2", "--model", "x"}, "excludes"},
        {{"bench", "--model", "no-such-model"}, "no-such-model"},
        {{"bench", "--prompt-tokens", "1000", "-n", "25"},
         "expected at most n_positions, 1024, together, got 1000 and 25"},
        {{"bench", "--batch", "0"}, "--batch: expected a whole number from 1"},
        {{"verify", "a", "-n", "0"}, "--max-tokens: expected a whole number from 1"},
        {{"verify", "--preset", "gpt3"}, "gpt2"},
        {{"verify", "--preset", "gpt2", "--model", "x"}, "excludes"},
        {{"tokenize"}, "--decode"},
        {{"tokenize", "--decode", "x"}, "--decode: expected token ids"},
        {{"tokenize", "--decode", "2048"}, "expected 0 to 2047"},
    };
    for (const Case& erroneous : cases) {
      INFO("arguments: " << json(erroneous.arguments).dump());
      checkError(runProgram(erroneous.arguments), erroneous.expected);
    }
  }

  TEST_CASE("errors in a model's files are one line that names the file") {
    const ModelCopy model("odd-gpt2");
    const auto check = [&](const std::string& expected) {
      checkError(runProgram({"generate", "-m", model.text(), "--ids", "1", "--output", "ids"}), expected);
      checkError(runProgram({"verify", "-m", model.text(), "--ids", "1"}), expected);
      checkError(runProgram({"info", "-m", model.text()}), expected);
    };
    for (const char* command : {"generate", "tokenize"})
      checkError(runProgram({command, "-m", (model.path() / "no\nsuch").string(), "text"}), "no such");

    SmallTokenizer().writeVocabularyAndMerges(model.path());
    writeFile(model.path() / "merges.txt", "#version: 0.2\nx\n");
    checkError(runProgram({"generate", "-m", model.text(), "text"}), "merges.txt");
    const std::string config = readWholeFile(model.path() / "config.json");
    writeFile(model.path() / "config.json", "{\"n_embd\": ");
    check("config.json: bad JSON");
    writeFile(model.path() / "config.json", config);
    const std::filesystem::path weights = model.path() / "model.safetensors";
    std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
    check("model.safetensors");
    std::filesystem::remove(weights);
    check("expected model.safetensors");
  }

  TEST_CASE("an output that cannot be written is an error") {
    if (!std::filesystem::exists("/dev/full")) return;
    for (const Words& arguments : std::vector<Words>{{"generate", "a"},
                                                     {"verify", "a"},
                                                     {"tokenize", "a"},
                                                     {"info"},
                                                     {"--help"},
                                                     {"--version"},
                                                     {"generate", "--help"},
                                                     {"tokenize", "-h"}})
      checkError(runProgram(arguments, "", "/dev/full"), "standard output: cannot be written");
  }
}
