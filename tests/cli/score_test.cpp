#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/fixtures.hpp"
#include "support/program_output.hpp"
#include "support/temporary_directory.hpp"

// `score` and `rank` as a person runs them.

using namespace driftless::test;
using nlohmann::json;

namespace {

void checkClose(const json& actual, const json& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    CHECK(actual[i].get<double>() == doctest::Approx(expected[i].get<double>()).epsilon(1e-3));
}

const std::string kModel = fixturePath("odd-gpt2-untied").string();

}  // namespace

TEST_CASE("score: the held-out tale, as text, file, ids and standard input") {
  const json& golden = fixtureJson("tales-gpt2/goldens/perplexity.json");
  const std::string text = golden.at("text");
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "tale.txt").string();
  writeFile(file, text);
  const json score = jsonOf({"score", text, "--json"});
  CHECK(score.at("ids") == golden.at("ids"));
  CHECK(score.at("tokens") == golden.at("count"));
  CHECK(score.at("perplexity").get<double>() == doctest::Approx(golden.at("perplexity").get<double>()).epsilon(1e-5));
  CHECK(score.at("mean").get<double>() == doctest::Approx(-golden.at("mean_nll").get<double>()).epsilon(1e-5));
  CHECK(score.at("log_probabilities").size() == golden.at("count"));
  const auto bytes = score.at("bytes").get<std::size_t>();
  CHECK(bytes == text.size() - std::string("There").size());  // the first token is not scored
  CHECK(score.at("bits_per_byte").get<double>() ==
        doctest::Approx(-score.at("log_probability").get<double>() / std::log(2.0) / static_cast<double>(bytes)));
  CHECK_FALSE(score.contains("top"));
  CHECK_FALSE(score.contains("id"));
  CHECK(jsonOf({"score", "--file", file, "--json"}) == score);
  CHECK(jsonOf({"score", "--ids", commaSeparated(golden.at("ids")), "--json"}) == score);
  CHECK(jsonOf({"score", "-", "--json"}, text + "\n") == score);
  CHECK(jsonOf({"score", text, "--json", "-t", "1"}) == score);
}

TEST_CASE("score: longer texts in windows, as transformers has them") {
  const json& golden = fixtureJson("scores.json");
  for (const json& one : golden.at("cases")) {
    const json score = jsonOf({"score", "-m", fixturePath(one.at("model")).string(), "--ids", "-", "--json",
                               "--max-length", one.at("max_length").dump(), "--stride", one.at("stride").dump()},
                              commaSeparated(golden.at("ids").at(one.at("model").get<std::string>())));
    checkClose(score.at("log_probabilities"), one.at("log_probabilities"));
  }
}

TEST_CASE("score: a table, with the tokens too") {
  CHECK(outputOf({"score", "The king had a"})
            .starts_with("tokens  log-probability  per token  bits/byte  perplexity\n"
                         "     3"));
  const std::string table = outputOf({"score", "The king\n", "--tokens"});
  CHECK(table.starts_with("         -  \"The\"\n"));
  CHECK(table.find("  \" king\"\n") != std::string::npos);
  CHECK(table.find("  \"\\n\"\n") != std::string::npos);
  // Without a tokenizer, ids stand for themselves, and there are no bytes.
  const std::string ids = outputOf({"score", "-m", kModel, "--ids", "3,5", "--tokens"});
  CHECK(ids.starts_with("         -  3\n"));
  CHECK(ids.find("          -") != std::string::npos);
  // A single token has nothing before it.
  CHECK(outputOf({"score", "-m", kModel, "--ids", "3"})
            .ends_with("\n     0           0.0000          -          -           -\n"));
  CHECK(jsonOf({"score", "-m", kModel, "--ids", "3", "--json"}).at("perplexity").is_null());
}

TEST_CASE("score: lines of text and of JSON") {
  const json expected = jsonOf({"score", "The king had a", "--json"});
  const json other = jsonOf({"score", "Once upon", "--json"});
  CHECK(jsonLinesOf({"score", "--lines", "-", "--json"}, "The king had a\r\nOnce upon\n") ==
        std::vector<json>{expected, other});
  std::vector<json> named =
      jsonLinesOf({"score", "--lines", "-", "--json"},
                  "{\"id\": \"a \\\"b\\\"\", \"text\": \"The king had a\"}\n{\"ids\": " + other.at("ids").dump() +
                      ", \"id\": 7}\n{\"text\": \"Once upon\"}");
  REQUIRE(named.size() == 3);
  CHECK(named[0].at("id") == "a \"b\"");
  CHECK(named[1].at("id") == 7);
  CHECK(named[2] == other);
  named[0].erase("id");
  named[1].erase("id");
  CHECK(named[0] == expected);
  CHECK(named[1] == other);

  const std::string table = outputOf({"score", "--lines", "-"},
                                     "{\"id\": \"first\", \"text\": \"The king had a\"}\n{\"text\": \"Once upon\"}\n");
  CHECK(std::ranges::count(table, '\n') == 4);
  CHECK(table.find("  \"first\"\n") != std::string::npos);
  CHECK(table.find("  2\n     5 ") != std::string::npos);  // 3 and 2 tokens
  CHECK(table.ends_with("  all\n"));
}

TEST_CASE("score: the likeliest tokens in each one's place") {
  const json score = jsonOf({"score", "The king had a", "--json", "--top", "3"});
  REQUIRE(score.at("top").size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const json& top = score.at("top")[i];
    REQUIRE(top.size() == 3);
    CHECK(top[0].at("log_probability") >= top[1].at("log_probability"));
    CHECK(top[0].at("text").is_string());
    for (const json& token : top)
      if (token.at("id") == score.at("ids")[i + 1])
        CHECK(token.at("log_probability") == score.at("log_probabilities")[i]);
  }
}

TEST_CASE("score: what is wrong is named, and nothing is written") {
  checkRefused({"score"}, "expected a text: TEXT, - for standard input, --ids, --file or --lines");
  checkRefused({"score", ""}, "expected at least one token, found an empty text");
  checkRefused({"score", "--file", "/nowhere/at all"}, "/nowhere/at all: cannot be read");
  checkRefused({"score", "a", "--lines", "b"}, "excludes");
  checkRefused({"score", "a b", "--top", "3"}, "--json");
  checkRefused({"score", "a b", "--stride", "0"}, "--stride");
  checkRefused({"score", "a b", "--stride", "512"},
               "expected a stride from 1 to 511, one less than max_length, got 512");
  checkRefused({"score", "a b", "--max-length", "513"},
               "expected a max_length from 2 to 512, which is n_positions, got 513");
  checkRefused({"score", "-m", kModel, "--ids", "1,259"}, "expected token ids from 0 to 258, got 259 at index 1");
  checkRefused({"score", "-m", kModel, "text"}, "no tokenizer files");
  const auto refusesLine = [](const std::string& line, const std::string& expected) {
    checkRefused({"score", "-m", kModel, "--lines", "-"}, "standard input: line 2: " + expected,
                 "{\"ids\": [1, 2]}\n" + line + "\n");
  };
  refusesLine("", "expected a text, found an empty line");
  refusesLine("{\"ids\": [1, 300]}", "expected token ids from 0 to 258, got 300 at index 1");
  refusesLine("{\"ids\": []}", "expected at least one token id, got none");
  refusesLine("{\"text\": \"a\"}", "the model has no tokenizer files");
  for (const char* line :
       {"{\"ids\": [1, 2], \"id\": null}", "{\"ids\": [1, 2], \"id\": 1.5}", "{\"id\": 1}", "{}", "[1]",
        "{\"ids\": [1], \"text\": \"a\"}", "{\"ids\": [1], \"max\": 2}", "{\"ids\": 1}", "{\"text\": 1}"})
    refusesLine(line, "expected {\"text\": \"text\"} or {\"ids\": [1, 2]}");
  refusesLine("{\"ids\": [1, 2]", "");
}

TEST_CASE("rank: the likeliest first, with the log-probabilities of transformers") {
  const json& golden = fixtureJson("scores.json");
  Words arguments = {"rank", golden.at("prompt"), "--json"};
  for (const json& one : golden.at("continuations")) arguments.push_back(one.at("text"));
  const json ranked = jsonOf(arguments);
  CHECK(ranked.at("prompt_ids") == golden.at("prompt_ids"));
  const json& candidates = ranked.at("candidates");
  REQUIRE(candidates.size() == golden.at("continuations").size());
  double shares = 0, before = 0;
  for (const json& candidate : candidates) {
    const json& expected = golden.at("continuations").at(candidate.at("index").get<std::size_t>());
    CHECK(candidate.at("text") == expected.at("text"));
    CHECK(candidate.at("ids") == expected.at("ids"));
    checkClose(candidate.at("log_probabilities"), expected.at("log_probabilities"));
    const double total = candidate.at("log_probability");
    CHECK(total <= before);
    before = total;
    shares += candidate.at("share").get<double>();
  }
  CHECK(shares == doctest::Approx(1));
  CHECK(candidates[0].at("text") == " the");

  arguments.insert(arguments.end(), {"--by", "mean"});
  const json by_mean = jsonOf(arguments).at("candidates");
  for (std::size_t i = 1; i < by_mean.size(); ++i) CHECK(by_mean[i - 1].at("mean") >= by_mean[i].at("mean"));
  CHECK(by_mean[0].at("text") == " very beautiful.");
}

TEST_CASE("rank: candidates from a file, and a table") {
  const std::string table = outputOf({"rank", "The king had a", " window", " daughter"});
  CHECK(table.starts_with("log-probability  per token  tokens    share  candidate\n"));
  CHECK(table.ends_with("%  \" window\"\n"));
  CHECK(outputOf({"rank", "The king had a", "--candidates", "-"}, " window\n daughter\n") == table);
  const json ranked = jsonOf({"rank", "-m", kModel, "--ids", "1,2,3", "--candidates", "-", "--json"},
                             "{\"id\": \"x\", \"ids\": [4]}\n{\"ids\": [5, 6]}\n");
  CHECK(ranked.at("candidates").size() == 2);
  for (const json& candidate : ranked.at("candidates")) {
    CHECK(candidate.at("text").is_null());
    CHECK(candidate.contains("id") == (candidate.at("index") == 0));
  }
  CHECK(jsonOf({"rank", "a", "++", "--json"}).at("candidates")[0].at("text") == "++");
  CHECK(jsonOf({"rank", "a", "[b,c]", "--json"}).at("candidates")[0].at("text") == "[b,c]");
  checkRefused({"rank", "a", "b", "-m", "++"}, "++: expected a model");
}

TEST_CASE("rank: what is wrong is named, and nothing is written") {
  checkRefused({"rank"}, "expected a prompt");
  checkRefused({"rank", "The king"}, "expected candidates: CANDIDATE..., or a file of them, --candidates");
  checkRefused({"rank", "The king", "a", "--candidates", "b"}, "excludes");
  checkRefused({"rank", "The king", "a", "--by", "luck"}, "--by");
  checkRefused({"rank", "", "a"}, "expected at least one token, found an empty text");
  checkRefused({"rank", "The king", "a", ""}, "candidate 2: expected at least one token id, got none");
  checkRefused({"rank", "-m", kModel, "--ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "--candidates", "-"},
               "line 1: expected at most 0 tokens after the prompt's 17 (n_positions is 16), got 1",
               "{\"ids\": [1]}\n");
  checkRefused({"rank", "-m", kModel, "--ids", "1,2,3", "--candidates", "-"},
               "standard input: line 2: expected at most 13 tokens after the prompt's 3 (n_positions is 16), got 14",
               "{\"ids\": [1]}\n{\"ids\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14]}\n");
  checkRefused({"rank", "-m", kModel, "--ids", "1,2,3", "--candidates", "-"},
               "standard input: line 1: expected token ids from 0 to 258, got 259 at index 0", "{\"ids\": [259]}\n");
}
