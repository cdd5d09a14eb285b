#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "support/fixtures.hpp"
#include "support/program_output.hpp"

// `cache-study`, and `generate` with a policy, as a person runs them.

using namespace driftless::test;
using nlohmann::json;

namespace {

const std::string kModel = fixturePath("odd-gpt2-untied").string();
const std::string kTale = fixturePath("tales-gpt2/goldens/tale.txt").string();

/// What is measured but for the time.
json withoutTimes(json study) {
  study.erase("threads");
  for (json& row : study.at("rows")) row.erase("decode_tokens_per_s");
  return study;
}

/// That a row's cache has the full one's bits.
void checkSameAsFull(const json& row) {
  INFO(row.at("policy") << " " << row.at("budget"));
  CHECK(row.at("differing_bits") == 0);
  CHECK(row.at("kl") == 0);
  for (const json& one : row.at("kl_by_position")) CHECK(one == 0);
  CHECK(row.at("agreement") == 1);
}

}  // namespace

TEST_CASE("cache-study: the first row is the full cache beside itself, and a budget of 1 is no other") {
  const json& golden = fixtureJson("tales-gpt2/goldens/perplexity.json");
  const json study =
      jsonOf({"cache-study", "--text", "-", "--policy", "h2o,f16,window", "--budget", "0.25,0.5,1", "--json"},
             golden.at("text"));
  CHECK(study.at("tokens") == golden.at("ids").size());
  CHECK(study.at("window") == study.at("tokens"));
  const json& rows = study.at("rows");
  REQUIRE(rows.size() == 8);
  CHECK(rows[0].at("policy") == "full");
  CHECK(rows[0].at("bytes_share") == 1);
  CHECK(rows[0].at("perplexity").get<double>() == doctest::Approx(golden.at("perplexity").get<double>()).epsilon(1e-5));
  for (const int row : {0, 3, 7}) checkSameAsFull(rows[static_cast<std::size_t>(row)]);

  for (const int first : {1, 5}) {
    const auto row = [&](int i) { return rows[static_cast<std::size_t>(first + i)]; };
    CHECK(row(0).at("policy") == (first == 1 ? "h2o" : "window"));
    CHECK(row(0).at("positions") == 100);  // a quarter of 400
    CHECK(row(1).at("positions") == 200);
    CHECK(row(2).at("positions") == 400);
    for (const char* less : {"kl", "differing_bits"}) {
      CHECK(row(0).at(less) > row(1).at(less));
      CHECK(row(1).at(less) > row(2).at(less));
    }
    CHECK(row(0).at("agreement") < row(2).at("agreement"));
    CHECK(row(0).at("bytes") < row(1).at("bytes"));
    CHECK(row(1).at("bytes_share") < 0.7);
    // Nothing is dropped before the budget is full.
    CHECK(row(0).at("kl_by_position")[100] == 0);
    CHECK(row(0).at("kl_by_position")[101] > 0);
    const auto by_position = row(0).at("kl_by_position").get<std::vector<double>>();
    CHECK(std::accumulate(by_position.begin(), by_position.end(), 0.0) / 400 ==
          doctest::Approx(row(0).at("kl").get<double>()));
  }
  const json& f16 = rows[4];
  CHECK(f16.at("policy") == "f16");
  CHECK(f16.at("budget").is_null());
  CHECK(f16.at("positions").is_null());
  CHECK(f16.at("bytes_share") == 0.5);
  CHECK(f16.at("kl") > 0);
  CHECK(f16.at("kl") < 1e-4);
}

TEST_CASE("cache-study: windows begin anew, with the perplexity that score finds in them") {
  const std::vector<int> ids = fixtureJson("tales-gpt2/goldens/perplexity.json").at("ids");
  const json study =
      jsonOf({"cache-study", "--ids", commaSeparated(ids), "--max-length", "150", "--policy", "full", "--json"});
  double sum = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += 150) {
    const std::vector<int> window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                  ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 150, ids.size())));
    sum += jsonOf({"score", "--ids", commaSeparated(window), "--json"}).at("log_probability").get<double>();
  }
  REQUIRE(study.at("rows").size() == 1);
  const json& row = study.at("rows")[0];
  CHECK(row.at("perplexity").get<double>() ==
        doctest::Approx(std::exp(-sum / static_cast<double>(ids.size() - 3))).epsilon(1e-9));
  CHECK(row.at("kl_by_position").size() == 150);
  CHECK(study.at("window") == 150);
  checkSameAsFull(row);
}

TEST_CASE("cache-study: all policies and stored types, at all budgets, on any number of threads") {
  const std::string ids = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15";
  const std::vector<std::string> words = {"cache-study", "-m", kModel, "--ids", ids, "--json"};
  const json study = jsonOf(words);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return withoutTimes(jsonOf(more));
  };
  std::vector<std::string> names;
  std::vector<double> budgets;
  std::vector<int> positions;
  for (const json& row : study.at("rows")) {
    if (names.empty() || names.back() != row.at("policy")) names.push_back(row.at("policy"));
    if (row.at("policy") == "snapkv") budgets.push_back(row.at("budget"));
    if (row.at("policy") == "tova") positions.push_back(row.at("positions"));
    if (row.at("policy") == "full" || row.at("budget") == 1) checkSameAsFull(row);
    CHECK(row.at("decode_tokens_per_s") > 0);
  }
  CHECK(names == std::vector<std::string>{"full", "window", "sinks", "h2o", "tova", "snapkv", "keynorm", "keydiff",
                                          "random", "f16", "bf16", "int8"});
  CHECK(budgets == std::vector<double>{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1});
  CHECK(positions == std::vector<int>{2, 3, 5, 6, 8, 9, 11, 12, 14, 15});
  CHECK(with({"-t", "1"}) == withoutTimes(study));
  CHECK(with({"-t", "2", "--budget", "0.1..1"}) == withoutTimes(study));
  CHECK(with({"--weights", "int4", "--cache", "f16"}) != withoutTimes(study));
}

TEST_CASE("cache-study: a table") {
  const std::string out =
      outputOf({"cache-study", "--text", "-", "--policy", "keynorm", "--budget", "0.5"}, "The king had a daughter.\n");
  CHECK(out.starts_with("policy "));
  CHECK(std::ranges::count(out, '\n') == 3);
  CHECK(out.find("\nfull ") != std::string::npos);
  CHECK(out.find("\nkeynorm          0.5 ") != std::string::npos);
}

TEST_CASE("cache-study: what is wrong is named, and nothing is written") {
  const auto refuses = [](std::vector<std::string> words, const std::string& expected) {
    words.insert(words.begin(), "cache-study");
    checkRefused(words, expected);
  };
  refuses({}, "expected a text: --text FILE or --ids");
  refuses({"--text", "/nowhere/at all"}, "/nowhere/at all: cannot be read");
  refuses({"--text", kTale, "--ids", "1,2"}, "excludes");
  refuses({"--text", kTale, "--policy", "window,lru"}, "--policy: expected one of window, sinks, h2o, tova");
  refuses({"--text", kTale, "--policy", "window,lru"}, "random, full, f16, bf16, int8, got \"lru\"");
  refuses({"--text", kTale, "--policy", "window, h2o"}, "got \" h2o\"");
  for (const char* policies : {"", "window,", ",window"}) refuses({"--text", kTale, "--policy", policies}, "got \"\"");
  for (const char* budget : {"0", "-0.5", "1.01", "x", "nan", "0.5,", "", "0.5..", "0.5..0.1", "0.1..2"})
    refuses({"--text", kTale, "--budget", budget},
            "expected numbers above 0 and up to 1, such as 0.1,0.25 or 0.1..1, got " + std::string(budget));
  refuses({"--ids", "3"}, "expected a text of at least 2 tokens, got 1");
  refuses({"-m", kModel, "--ids", "1,259"}, "expected token ids from 0 to 258, got 259 at index 1");
  refuses({"-m", kModel, "--text", kTale}, "no tokenizer files");
  refuses({"--ids", "1,2", "--max-length", "513"},
          "--max-length: expected from 2 to 512, which is n_positions, got 513");
  refuses({"--ids", "1,2", "--max-length", "1"}, "--max-length");
}

TEST_CASE("generate: with a cache policy") {
  const std::vector<std::string> words = {"generate", "Once upon a time", "-n", "30", "--output", "ids"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  const std::string full = outputOf(words);
  CHECK(outputOf(with({"--policy", "tova", "--cache-budget", "100"})) == full);
  const std::string less = outputOf(with({"--policy", "tova", "--cache-budget", "3"}));
  CHECK(less != full);
  CHECK(outputOf(with({"--policy", "tova", "--cache-budget", "3", "--no-cache"})) == less);
  const std::string prompts = R"({"prompt": "Once upon a time"})"
                              "\n"
                              R"({"prompt": "The"})"
                              "\n";
  const std::vector<json> together =
      jsonLinesOf({"generate", "--prompts", "-", "-n", "30", "--policy", "tova", "--cache-budget", "3"}, prompts);
  CHECK(commaSeparated(together.at(0).at("output_ids")) + "\n" == less);

  const std::vector<std::string> on = {"generate", "-m",       kModel,  "--ids",          "5", "-n", "200", "--output",
                                       "json",     "--policy", "sinks", "--cache-budget", "10"};
  CHECK(jsonOf(on).at("finish_reason") == "context_full");
  std::vector<std::string> past = on;
  past.emplace_back("--past-context");
  const json all = jsonOf(past);
  CHECK(all.at("finish_reason") == "length");
  CHECK(all.at("output_ids").size() == 200);
  const auto begun = jsonOf(on).at("output_ids").get<std::vector<int>>();
  CHECK(std::equal(begun.begin(), begun.end(), all.at("output_ids").begin()));
}

TEST_CASE("generate: a cache policy that cannot be is refused by name") {
  checkRefused({"generate", "a", "--policy", "window"}, "--cache-budget");
  checkRefused({"generate", "a", "--cache-budget", "3"}, "--policy");
  checkRefused({"generate", "a", "--past-context"}, "--policy");
  checkRefused({"generate", "a", "--policy", "lru", "--cache-budget", "3"},
               "--policy: expected one of window, sinks, h2o, tova, snapkv, keynorm, keydiff, random, got \"lru\"");
  checkRefused({"generate", "a", "--policy", "window", "--cache-budget", "0"}, "--cache-budget");
  checkRefused({"generate", "a", "--policy", "window", "--cache-budget", "3", "--save-cache", "x"},
               "--save-cache: expected no --policy, got both");
  checkRefused({"generate", "a", "--policy", "window", "--cache-budget", "3", "--prompt-lookup-num-tokens", "3"},
               "drafter: expected a cache that keeps all positions");
}
