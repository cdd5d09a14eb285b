#include "driftless/capture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "driftless/checkpoint.hpp"
#include "support/checkpoint_writer.hpp"
#include "support/fixtures.hpp"
#include "support/program_output.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"
#include "support/whole_file.hpp"

// `capture` as a person runs it.

using namespace driftless;
using namespace driftless::test;
using nlohmann::json;

namespace {

/// The numbers of a .npy file, which must say that it has this shape, as Python writes it.
std::vector<float> numbersOf(const std::filesystem::path& path, const std::string& shape) {
  INFO(path.string());
  const std::string bytes = readWholeFile(path);
  REQUIRE(bytes.size() > 128);
  CHECK(bytes.substr(0, 128).find("f4', 'fortran_order': False, 'shape': " + shape + ", }") != std::string::npos);
  std::vector<float> numbers((bytes.size() - 128) / sizeof(float));
  std::memcpy(numbers.data(), bytes.data() + 128, numbers.size() * sizeof(float));
  return numbers;
}

std::vector<std::string> namesIn(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

const std::string kOdd = fixturePath("odd-gpt2").string();

}  // namespace

TEST_CASE("capture: every point of every layer, in the layout of TransformerLens, with NumPy's numbers") {
  const TemporaryDirectory directory;
  const json& golden = fixtureJson("points.json").at("models").at(0);
  REQUIRE(golden.at("model") == "odd-gpt2");
  REQUIRE(golden.at("rows") == json({0, 1, 2}));  // all of them, and all columns
  const std::filesystem::path out = directory.path() / "new" / "run";
  outputOf({"capture", "-m", kOdd, "--ids", commaSeparated(golden.at("ids")), "--point", "*", "-o", out.string()});
  const std::size_t T = 3, H = 5;
  CHECK(namesIn(out).size() == 3 * 16 + 4 + 1);
  for (const json& point : golden.at("points")) {
    const std::string name = point.at("name");
    const std::size_t head = point.at("head");
    INFO(name << ", head " << head);
    const bool is_over_keys = name.ends_with("pattern") || name.ends_with("scores");
    const bool is_of_heads = name.find("attn.hook_") != std::string::npos;
    const std::size_t width = point.at("values").back().size();
    const std::string shape = is_over_keys  ? "(5, 3, 3)"
                              : is_of_heads ? "(3, 5, " + std::to_string(width) + ")"
                                            : "(3, " + std::to_string(width) + ")";
    const std::vector<float> numbers = numbersOf(out / (name + ".npy"), shape);
    REQUIRE(numbers.size() == T * width * (is_of_heads ? H : 1));
    for (std::size_t t = 0; t < T; ++t) {
      const json& expected = point.at("values")[t];
      const std::size_t row = is_over_keys ? head * T + t : is_of_heads ? t * H + head : t;
      const RowVector<float> actual =
          Eigen::Map<const RowVector<float>>(numbers.data() + row * width, static_cast<Index>(width));
      checkClose(actual.head(static_cast<Index>(expected.size())), toVector(expected), "row " + std::to_string(t));
      const float absent = name.ends_with("scores") ? -std::numeric_limits<float>::infinity() : 0;
      for (Index key = static_cast<Index>(expected.size()); key < actual.size(); ++key) CHECK(actual[key] == absent);
    }
  }
  const json tokens = json::parse(readWholeFile(out / "tokens.json"));
  CHECK(tokens.at("ids") == golden.at("ids"));
  CHECK(tokens.at("texts") == json({nullptr, nullptr, nullptr}));
  CHECK(tokens.at("points").size() == 3 * 16 + 4);
  CHECK(tokens.at("points").at("blocks.2.attn.hook_pattern") == json({5, 3, 3}));
  CHECK(tokens.at("points").at("logits") == json({3, 259}));
}

TEST_CASE("capture: residual streams, patterns and logits of a text if nothing else is asked for") {
  const TemporaryDirectory directory;
  const std::string out = directory.path().string();  // which is there, and empty
  outputOf({"capture", "The king\xE2\x80\x94", "-o", out});
  CHECK(namesIn(out).size() == 12 * 4 + 1 + 1);
  const json tokens = json::parse(readWholeFile(directory.path() / "tokens.json"));
  CHECK(tokens.at("texts")[0] == "The");
  CHECK(tokens.at("texts")[1] == " king");
  CHECK(tokens.at("texts").size() == tokens.at("ids").size());
  CHECK(tokens.at("points").contains("blocks.11.hook_resid_mid"));
  // Standard input, other threads and types: files of the same names, which are not replaced unasked.
  const std::string before = readWholeFile(directory.path() / "logits.npy");
  checkRefused({"capture", "-", "-o", out}, "expected a new or empty directory, or --overwrite", "The king");
  CHECK(readWholeFile(directory.path() / "logits.npy") == before);
  outputOf({"capture", "-", "-o", out, "--overwrite", "-t", "1"}, "The king\xE2\x80\x94\n");
  CHECK(readWholeFile(directory.path() / "logits.npy") == before);
  outputOf({"capture", "-", "-o", out, "--overwrite", "--weights", "int8", "--point", "logits"},
           "The king\xE2\x80\x94");
  CHECK(readWholeFile(directory.path() / "logits.npy") != before);
  CHECK(json::parse(readWholeFile(directory.path() / "tokens.json")).at("points").size() == 1);
}

TEST_CASE("capture: the points that names and patterns say") {
  const auto captured = [](const Words& points) {
    const TemporaryDirectory directory;
    Words arguments = {"capture", "-m", kOdd, "--ids", "1,2", "-o", directory.path().string()};
    for (const std::string& point : points) arguments.insert(arguments.end(), {"--point", point});
    outputOf(arguments);
    std::vector<std::string> names = namesIn(directory.path());
    std::erase(names, "tokens.json");
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(captured({"blocks.1.attn.hook_q"}) == Names{"blocks.1.attn.hook_q.npy"});
  CHECK(captured({"blocks.*.attn.hook_z"}) ==
        Names{"blocks.0.attn.hook_z.npy", "blocks.1.attn.hook_z.npy", "blocks.2.attn.hook_z.npy"});
  CHECK(captured({"hook_*"}) == Names{"hook_embed.npy", "hook_pos_embed.npy"});
  CHECK(captured({"*0*ln*", "logits", "log*"}) ==
        Names{"blocks.0.ln1.hook_normalized.npy", "blocks.0.ln2.hook_normalized.npy", "logits.npy"});
  CHECK(captured({"*.hook_*_post"}).size() == 3);
  CHECK(captured({"**"}).size() == 3 * 16 + 4);
}

TEST_CASE("capture: a text that is computed in two pieces is one array") {
  const TemporaryDirectory directory;
  const CheckpointShape shape{.V = 11, .N = 600, .C = 8, .L = 2, .H = 2, .n_inner = 8};
  writeCheckpoint(directory.path(), gpt2Tensors(shape), configJson(shape));
  const std::vector<int> ids(520, 7);
  const std::filesystem::path out = directory.path() / "run";
  outputOf({"capture", "-m", directory.path().string(), "--ids", commaSeparated(ids), "--point", "blocks.1.*", "-o",
            out.string()});
  const Weights<float> weights = loadWeights(directory.path());
  const Captured<float> captured = capture({Point::pattern, Point::resid_post}, ids, weights);
  const auto hasNumbers = [](const std::vector<float>& numbers, std::size_t first, const Matrix<float>& expected) {
    return std::memcmp(numbers.data() + first, expected.data(),
                       static_cast<std::size_t>(expected.size()) * sizeof(float)) == 0;
  };
  CHECK(hasNumbers(numbersOf(out / "blocks.1.hook_resid_post.npy", "(520, 8)"), 0, captured.at(Point::resid_post, 1)));
  const std::vector<float> pattern = numbersOf(out / "blocks.1.attn.hook_pattern.npy", "(2, 520, 520)");
  CHECK(hasNumbers(pattern, 0, captured.at(Point::pattern, 1, 0)));
  CHECK(hasNumbers(pattern, 520 * 520, captured.at(Point::pattern, 1, 1)));
}

TEST_CASE("capture: what is wrong is named, and nothing is written") {
  const TemporaryDirectory directory;
  const std::string out = (directory.path() / "out").string();
  checkRefused({"capture", "The king"}, "--output");
  checkRefused({"capture", "-o", out}, "expected a text: TEXT, - for standard input, or --ids");
  checkRefused({"capture", "a", "--ids", "1", "-o", out}, "excludes");
  checkRefused({"capture", "", "-o", out}, "expected at least one token, found an empty text");
  checkRefused({"capture", "-", "-o", out}, "expected at least one token, found an empty text", "\n");
  checkRefused({"explain", "", "-o", out}, "expected at least one token, found an empty text");
  for (const std::string point : {"blocks.12.attn.hook_z", "blocks.12.*", "blocks.4294967296.hook_resid_pre"})
    checkRefused({"capture", "The king", "--point", point, "-o", out},
                 "--point: expected a layer from 0 to 11, got " + point);
  checkRefused({"capture", "The king", "-o", ""}, "cannot be created");
  checkRefused(
      {"capture", "The king", "--point", "blocks.1.hook_resid", "-o", out},
      "--point: expected one of hook_embed, hook_pos_embed, blocks.N.hook_resid_pre, "
      "blocks.N.ln1.hook_normalized, blocks.N.attn.hook_q, blocks.N.attn.hook_k, blocks.N.attn.hook_v, "
      "blocks.N.attn.hook_attn_scores, blocks.N.attn.hook_pattern, blocks.N.attn.hook_z, "
      "blocks.N.attn.hook_result, blocks.N.hook_attn_out, blocks.N.hook_resid_mid, "
      "blocks.N.ln2.hook_normalized, blocks.N.mlp.hook_pre, blocks.N.mlp.hook_post, blocks.N.hook_mlp_out, "
      "blocks.N.hook_resid_post, ln_final.hook_normalized, logits, with N from 0 to 11, or * for any part of a "
      "name, got blocks.1.hook_resid");
  checkRefused({"capture", "The king", "--point", "logits", "--point", "*.hook_pre_*", "-o", out}, "got *.hook_pre_*");
  checkRefused({"capture", "-m", kOdd, "--ids", "1,259", "-o", out}, "expected token ids from 0 to 258, got 259");
  checkRefused({"capture", "-m", kOdd, "--ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "-o", out}, "n_positions");
  CHECK_FALSE(std::filesystem::exists(out));
  writeFile(out, "a file");
  checkRefused({"capture", "The king", "-o", out}, "expected a directory, found a file");
}
