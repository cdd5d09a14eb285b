#include "driftless/checkpoint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/checkpoint_writer.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temporary_directory.hpp"

using doctest::Contains;
using driftless::ArgumentError;
using driftless::Checkpoint;
using driftless::ConfigError;
using driftless::DType;
using driftless::FileError;
using driftless::Index;
using driftless::Parameters;
using namespace driftless::test;

namespace {

using Tensors = std::vector<WrittenTensor>;

/// A checkpoint of these tensors, opened.
Checkpoint openWritten(const Tensors& tensors, const std::string& config_members = "") {
  const TemporaryDirectory directory;
  writeCheckpoint(directory.path(), tensors, configJson({}, config_members));
  return Checkpoint(directory.path());
}

WrittenTensor& find(Tensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
  REQUIRE(found != tensors.end());
  return *found;
}

Tensors without(Tensors tensors, const std::string& name) {
  std::erase_if(tensors, [&](const WrittenTensor& tensor) { return tensor.name == name; });
  return tensors;
}

Tensors with(Tensors tensors, const WrittenTensor& tensor) {
  tensors.push_back(tensor);
  return tensors;
}

/// A copy of wte under the name of the output weights.
WrittenTensor tiedLmHead() {
  WrittenTensor lm_head = gpt2Tensors({}).front();
  lm_head.name = "lm_head.weight";
  return lm_head;
}

WrittenTensor ownLmHead() { return f32Tensor("lm_head.weight", {259, 20}, 4711); }

/// Element `index` of F32 data.
float f32At(const std::string& bytes, std::size_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

void requireSame(const driftless::TensorView& tensor, const std::string& bytes) {
  REQUIRE(static_cast<std::size_t>(tensor.rows * tensor.cols) * 4 == bytes.size());
  CHECK(std::memcmp(tensor.data, bytes.data(), bytes.size()) == 0);
}

}  // namespace

static_assert(!std::is_copy_constructible_v<Checkpoint> && std::is_move_constructible_v<Checkpoint>);

TEST_CASE("checkpoint: an odd model is opened whole from a directory and from its file") {
  const TemporaryDirectory directory;
  Tensors tensors = gpt2Tensors({});
  writeCheckpoint(directory.path(), tensors, configJson({}));
  for (const std::filesystem::path& path : {directory.path(), directory.path() / "model.safetensors"}) {
    const Checkpoint checkpoint(path);
    CHECK(checkpoint.config().n_embd == 20);
    CHECK(checkpoint.config().innerSize() == 12);
    CHECK_FALSE(checkpoint.hasLmHead());
    REQUIRE(checkpoint.tensors().size() == 28);
    CHECK(checkpoint.tensors().front().name == "wte.weight");
    CHECK(checkpoint.tensors().front().tensor.shape == std::vector<Index>{259, 20});
    CHECK(checkpoint.tensors().front().tensor.bytes == 259 * 20 * 4);
    CHECK(checkpoint.tensors().back().name == "ln_f.bias");
    for (const WrittenTensor& tensor : tensors) requireSame(checkpoint.tensor(tensor.name), tensor.bytes);
    CHECK_THROWS_WITH_AS(checkpoint.tensor("h.2.ln_1.bias"), Contains("no tensor \"h.2.ln_1.bias\""), ArgumentError);
    CHECK_THROWS_AS(checkpoint.tensor("transformer.wte.weight"), ArgumentError);
  }
}

TEST_CASE("checkpoint: parameters are the file's values in their places") {
  const TemporaryDirectory directory;
  Tensors tensors = gpt2Tensors({});
  writeCheckpoint(directory.path(), tensors, configJson({}));
  const Parameters<float> parameters = driftless::loadParameters(directory.path());
  REQUIRE(parameters.h.size() == 2);
  CHECK_FALSE(parameters.lm_head.has_value());
  CHECK(parameters.wte.rows() == 259);
  CHECK(parameters.wte.cols() == 20);
  CHECK(parameters.wte(258, 19) == f32At(find(tensors, "wte.weight").bytes, 259 * 20 - 1));
  CHECK(parameters.wpe(3, 7) == f32At(find(tensors, "wpe.weight").bytes, 3 * 20 + 7));
  const auto& block = parameters.h[1];
  CHECK(block.attn.c_attn.weight.cols() == 60);
  CHECK(block.attn.c_attn.weight(2, 45) == f32At(find(tensors, "h.1.attn.c_attn.weight").bytes, 2 * 60 + 45));
  CHECK(block.attn.c_attn.bias(59) == f32At(find(tensors, "h.1.attn.c_attn.bias").bytes, 59));
  CHECK(block.attn.c_proj.weight(1, 0) == f32At(find(tensors, "h.1.attn.c_proj.weight").bytes, 20));
  CHECK(block.mlp.c_fc.weight(19, 11) == f32At(find(tensors, "h.1.mlp.c_fc.weight").bytes, 239));
  CHECK(block.mlp.c_proj.weight(11, 19) == f32At(find(tensors, "h.1.mlp.c_proj.weight").bytes, 239));
  CHECK(block.ln_2.bias(4) == f32At(find(tensors, "h.1.ln_2.bias").bytes, 4));
  CHECK(parameters.ln_f.weight(0) == f32At(find(tensors, "ln_f.weight").bytes, 0));

  const Parameters<double> precise = driftless::loadParameters<double>(directory.path());
  CHECK(precise.wte == parameters.wte.cast<double>());
}

TEST_CASE("checkpoint: half and bfloat16 and double elements have the values that their bits stand for") {
  const TemporaryDirectory directory;
  Tensors tensors = gpt2Tensors({});
  const auto replaceWith = [&](const std::string& name, const std::string& dtype, std::string bytes, std::size_t size) {
    WrittenTensor& tensor = find(tensors, name);
    bytes.resize(size * 20, '\0');
    tensor.dtype = dtype;
    tensor.bytes = bytes;
  };
  // F16: 1, -2, 65504, 2^-24 (the smallest), 1/3, infinity, -0.
  replaceWith("ln_f.weight", "F16", std::string("\x00\x3c\x00\xc0\xff\x7b\x01\x00\x55\x35\x00\x7c\x00\x80", 14), 2);
  // BF16: 1, -2, 3.140625, the largest, 2^-133 (the smallest), NaN.
  replaceWith("ln_f.bias", "BF16", std::string("\x80\x3f\x00\xc0\x49\x40\x7f\x7f\x01\x00\xc0\x7f", 12), 2);
  // F64: 1, -0.1, 1 + 2^-52.
  replaceWith("h.0.ln_1.bias", "F64",
              std::string("\0\0\0\0\0\0\xf0\x3f\x9a\x99\x99\x99\x99\x99\xb9\xbf\1\0\0\0\0\0\xf0\x3f", 24), 8);
  // F32: 1, pi as a float, the smallest.
  replaceWith("h.0.ln_1.weight", "F32", std::string("\0\0\x80\x3f\xdb\x0f\x49\x40\1\0\0\0", 12), 4);
  writeCheckpoint(directory.path(), tensors, configJson({}));

  const Parameters<float> parameters = driftless::loadParameters<float>(directory.path());
  const auto& half = parameters.ln_f.weight;
  CHECK(half(0) == 1.0f);
  CHECK(half(1) == -2.0f);
  CHECK(half(2) == 65504.0f);
  CHECK(half(3) == 0x1p-24f);
  CHECK(half(4) == 0x1.554p-2f);
  CHECK(half(5) == std::numeric_limits<float>::infinity());
  CHECK((half(6) == 0.0f && std::signbit(half(6))));
  const auto& brain = parameters.ln_f.bias;
  CHECK(brain(0) == 1.0f);
  CHECK(brain(1) == -2.0f);
  CHECK(brain(2) == 3.140625f);
  CHECK(brain(3) == 0x1.fep127f);
  CHECK(brain(4) == 0x1p-133f);
  CHECK(std::isnan(brain(5)));
  CHECK(parameters.h[0].ln_1.bias(1) == -0.1f);
  CHECK(parameters.h[0].ln_1.weight(1) == 3.14159274101257324f);
  CHECK(parameters.h[0].ln_1.weight(2) == 0x1p-149f);

  const Parameters<double> precise = driftless::loadParameters<double>(directory.path());
  CHECK(precise.h[0].ln_1.bias(0) == 1.0);
  CHECK(precise.h[0].ln_1.bias(1) == -0.1);
  CHECK(precise.h[0].ln_1.bias(2) == 0x1.0000000000001p0);
  CHECK(precise.ln_f.weight(4) == 0x1.554p-2);
  CHECK(precise.ln_f.bias(2) == 3.140625);
}

TEST_CASE("checkpoint: weights with NaN are loaded") {
  const TemporaryDirectory directory;
  Tensors tensors = gpt2Tensors({});
  find(tensors, "wpe.weight").bytes.replace(4, 4, std::string("\0\0\xc0\x7f", 4));
  writeCheckpoint(directory.path(), tensors, configJson({}));
  CHECK(std::isnan(driftless::loadParameters(directory.path()).wpe(0, 1)));
}

TEST_CASE("checkpoint: tensors without data alignment are read") {
  const TemporaryDirectory directory;
  Tensors tensors{{"h.0.attn.masked_bias", "U8", {}, "x"}};
  for (const WrittenTensor& tensor : gpt2Tensors({})) tensors.push_back(tensor);
  writeCheckpoint(directory.path(), tensors, configJson({}));
  CHECK(driftless::loadParameters(directory.path()).wte(1, 1) == f32At(tensors[1].bytes, 21));
}

TEST_CASE("checkpoint: names may all carry the prefix but not some of them") {
  const Checkpoint prefixed = openWritten(gpt2Tensors({}, "transformer."));
  requireSame(prefixed.tensor("wte.weight"), gpt2Tensors({}).front().bytes);
  CHECK(openWritten(with(gpt2Tensors({}, "transformer."), ownLmHead())).hasLmHead());

  Tensors mixed = gpt2Tensors({}, "transformer.");
  find(mixed, "transformer.ln_f.bias").name = "ln_f.bias";
  CHECK_THROWS_WITH_AS(openWritten(mixed),
                       Contains("tensor ln_f.bias of shape [20], found none of that name but \"ln_f.bias\""),
                       FileError);
  const Tensors twice = with(gpt2Tensors({}), f32Tensor("transformer.ln_f.bias", {20}, 1));
  CHECK_THROWS_WITH_AS(openWritten(twice), Contains("tensor \"transformer.ln_f.bias\" is not one of"), FileError);
  const Tensors prefixed_lm_head =
      with(gpt2Tensors({}, "transformer."), f32Tensor("transformer.lm_head.weight", {259, 20}, 1));
  CHECK_THROWS_WITH_AS(openWritten(prefixed_lm_head), Contains("tensor \"transformer.lm_head.weight\" is not one of"),
                       FileError);
}

TEST_CASE("checkpoint: buffers of attention masks are ignored whatever their type and shape") {
  for (const std::string& prefix : {std::string(), std::string("transformer.")}) {
    Tensors tensors = gpt2Tensors({}, prefix);
    tensors.push_back({prefix + "h.0.attn.bias", "BOOL", {1, 1, 16, 16}, std::string(256, '\1')});
    tensors.push_back({prefix + "h.1.attn.bias", "exotic", {3}, "12345"});
    tensors.push_back({prefix + "h.0.attn.masked_bias", "F32", {}, f32Bytes({-1e4f})});
    const Checkpoint checkpoint = openWritten(tensors);
    CHECK(checkpoint.tensors().size() == 28);
    CHECK_THROWS_AS(checkpoint.tensor("h.0.attn.bias"), ArgumentError);
  }
}

TEST_CASE("checkpoint: a tensor that the model does not have is refused by name") {
  for (const std::string& name :
       std::vector<std::string>{"score.weight", "h.2.ln_1.weight", "h.2.attn.bias", "h.0.crossattention.c_attn.weight",
                                "h.00.ln_1.bias", "h.0.attn.c_attn.weight.q", "", "lm_head.bias"}) {
    CAPTURE(name);
    const std::string expected = "model.safetensors: tensor \"" + name + "\" is not one of a GPT-2 with n_layer = 2";
    CHECK_THROWS_WITH_AS(openWritten(with(gpt2Tensors({}), f32Tensor(name, {20}, 1))), Contains(expected.c_str()),
                         FileError);
  }
}

TEST_CASE("checkpoint: every tensor that is missing is named") {
  for (const WrittenTensor& tensor : gpt2Tensors({})) {
    CAPTURE(tensor.name);
    const std::string expected = "model.safetensors: expected tensor " + tensor.name + " of shape [";
    CHECK_THROWS_WITH_AS(openWritten(without(gpt2Tensors({}), tensor.name)), Contains(expected.c_str()), FileError);
  }
}

TEST_CASE("checkpoint: a wrong shape or type is refused with both") {
  const auto openWith = [](const WrittenTensor& tensor) {
    Tensors tensors = gpt2Tensors({});
    find(tensors, tensor.name) = tensor;
    return openWritten(tensors);
  };
  CHECK_THROWS_WITH_AS(openWith(f32Tensor("wpe.weight", {17, 20}, 1)),
                       Contains("model.safetensors: tensor \"wpe.weight\": expected shape [16, 20], found [17, 20]"),
                       FileError);
  CHECK_THROWS_WITH_AS(openWith(f32Tensor("h.1.ln_1.bias", {1, 20}, 1)), Contains("expected shape [20], found [1, 20]"),
                       FileError);
  CHECK_THROWS_WITH_AS(openWith(f32Tensor("wte.weight", {259 * 20}, 1)),
                       Contains("expected shape [259, 20], found [5180]"), FileError);
  CHECK_THROWS_WITH_AS(openWith(f32Tensor("wte.weight", {259, 20, 1}, 1)), Contains("found [259, 20, 1]"), FileError);
  CHECK_THROWS_WITH_AS(openWith({"ln_f.bias", "I32", {20}, std::string(80, '\0')}),
                       Contains("tensor \"ln_f.bias\": expected dtype F64, F32, F16 or BF16, found \"I32\""),
                       FileError);
  CHECK_THROWS_WITH_AS(openWith({"ln_f.bias", "F31", {20}, std::string(80, '\0')}), Contains("found \"F31\""),
                       FileError);
}

TEST_CASE("checkpoint: transposed linear weights are recognised") {
  const std::pair<std::string, std::vector<std::int64_t>> cases[] = {
      {"h.0.attn.c_attn.weight", {60, 20}}, {"h.1.mlp.c_fc.weight", {12, 20}}, {"h.1.mlp.c_proj.weight", {20, 12}}};
  for (const auto& each : cases) {
    const auto& name = each.first;
    const auto& shape = each.second;
    CAPTURE(name);
    Tensors tensors = gpt2Tensors({});
    find(tensors, name) = f32Tensor(name, shape, 1);
    CHECK_THROWS_WITH_AS(openWritten(tensors), Contains("looks like a transposed nn.Linear export"), FileError);
  }
  Tensors tensors = gpt2Tensors({});
  find(tensors, "h.0.attn.c_attn.weight") = f32Tensor("h.0.attn.c_attn.weight", {60, 20}, 1);
  CHECK_THROWS_WITH_AS(openWritten(tensors), Contains("expected shape [20, 60], found [60, 20]: it looks like"),
                       FileError);
}

TEST_CASE("checkpoint: the output weights are tied or untied as file and config say") {
  const std::string tie = R"("tie_word_embeddings":true)";
  const std::string untie = R"("tie_word_embeddings":false)";
  const Tensors bare = gpt2Tensors({});
  CHECK_FALSE(openWritten(bare).hasLmHead());
  CHECK_FALSE(openWritten(bare, tie).hasLmHead());
  CHECK_FALSE(openWritten(with(bare, tiedLmHead()), tie).hasLmHead());
  CHECK(openWritten(with(bare, tiedLmHead()), tie).tensors().size() == 28);
  for (const std::string& members : {std::string(), untie}) {
    const Checkpoint checkpoint = openWritten(with(bare, ownLmHead()), members);
    CHECK(checkpoint.hasLmHead());
    CHECK(checkpoint.tensors().back().name == "lm_head.weight");
    requireSame(checkpoint.tensor("lm_head.weight"), ownLmHead().bytes);
    CHECK(openWritten(with(bare, tiedLmHead()), members).hasLmHead());
  }
  CHECK_THROWS_WITH_AS(openWritten(bare, untie), Contains("expected tensor lm_head.weight"), FileError);
  CHECK_THROWS_WITH_AS(openWritten(with(bare, ownLmHead()), tie),
                       Contains("\"lm_head.weight\": expected a copy of wte.weight"), FileError);
  CHECK_THROWS_WITH_AS(openWritten(with(bare, f32Tensor("lm_head.weight", {260, 20}, 1))),
                       Contains("expected shape [259, 20], found [260, 20]"), FileError);
}

TEST_CASE("checkpoint: lm_head.weight stands for wte unless they are untied, as save_model of safetensors leaves it") {
  const Tensors saved = without(with(gpt2Tensors({}, "transformer."), tiedLmHead()), "transformer.wte.weight");
  for (const std::string members : {"", R"("tie_word_embeddings":true)"}) {
    const Checkpoint checkpoint = openWritten(saved, members);
    CHECK_FALSE(checkpoint.hasLmHead());
    requireSame(checkpoint.tensor("wte.weight"), tiedLmHead().bytes);
  }
  CHECK_THROWS_WITH_AS(openWritten(saved, R"("tie_word_embeddings":false)"), Contains("expected tensor wte.weight"),
                       FileError);
}

TEST_CASE("checkpoint: a prefix that all tensors share is a wrapper's") {
  for (const std::string wrapper : {"_orig_mod.", "module.", "module._orig_mod.", "gpt.decoder."})
    for (const std::string base : {"", "transformer."}) {
      CAPTURE(wrapper + base);
      const Tensors tied = gpt2Tensors({}, wrapper + base);
      requireSame(openWritten(tied).tensor("wte.weight"), gpt2Tensors({}).front().bytes);
      WrittenTensor lm_head = ownLmHead();
      lm_head.name = wrapper + lm_head.name;
      CHECK(openWritten(with(tied, lm_head)).hasLmHead());
      CHECK_THROWS_WITH_AS(openWritten(with(tied, ownLmHead())), Contains("tensor \"lm_head.weight\" is not one of"),
                           FileError);
    }
  Tensors other = gpt2Tensors({}, "model.");
  for (WrittenTensor& tensor : other)
    if (tensor.name.ends_with("h.1.ln_2.bias")) tensor.name = "module.h.1.ln_2.bias";
  CHECK_THROWS_WITH_AS(openWritten(other),
                       Contains("tensor h.1.ln_2.bias of shape [20], found none of that name but "
                                "\"module.h.1.ln_2.bias\""),
                       FileError);
}

TEST_CASE("checkpoint: a missing tensor's error names what is there") {
  CHECK_THROWS_WITH_AS(
      openWritten({f32Tensor("encoder.weight", {2}, 1)}),
      Contains("expected tensor wte.weight of shape [259, 20], found none of that name; the first name "
               "is \"encoder.weight\""),
      FileError);
}

TEST_CASE("checkpoint: further heads are ignored on request, and named") {
  const Tensors tensors = with(with(gpt2Tensors({}, "transformer."), f32Tensor("v_head.summary.weight", {1, 20}, 1)),
                               f32Tensor("score.weight", {2, 20}, 1));
  const TemporaryDirectory directory;
  writeCheckpoint(directory.path(), tensors, configJson({}));
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("is not one of a GPT-2"), FileError);
  const Checkpoint checkpoint(directory.path(), {.ignores_extra = true});
  REQUIRE(checkpoint.ignored().size() == 2);
  CHECK(checkpoint.ignored()[0].ends_with("model.safetensors: tensor \"score.weight\""));
  CHECK(checkpoint.ignored()[1].ends_with("model.safetensors: tensor \"v_head.summary.weight\""));
  CHECK_NOTHROW(driftless::loadWeights(directory.path(), {.checkpoint = {.ignores_extra = true}}));
  CHECK_NOTHROW(driftless::loadParameters(directory.path(), {.ignores_extra = true}));
}

TEST_CASE("checkpoint: what is finite in the file is finite in memory, or an error that names the tensor") {
  for (const WrittenTensor& victim : gpt2Tensors({})) {
    CAPTURE(victim.name);
    Tensors tensors = gpt2Tensors({});
    WrittenTensor& tensor = find(tensors, victim.name);
    std::vector<double> numbers(tensor.bytes.size() / 4, 0.5);
    numbers.back() = 1e300;
    tensor.dtype = "F64";
    tensor.bytes.assign(reinterpret_cast<const char*>(numbers.data()), 8 * numbers.size());
    const TemporaryDirectory directory;
    writeCheckpoint(directory.path(), tensors, configJson({}));
    const std::string expected = "model.safetensors: tensor \"" + victim.name + "\": expected numbers that ";
    using driftless::StoredType;
    for (const StoredType type :
         {StoredType::full, StoredType::f16, StoredType::bf16, StoredType::int8, StoredType::int4})
      CHECK_THROWS_WITH_AS(driftless::loadWeights(directory.path(), {.stored = type}), Contains(expected.c_str()),
                           ArgumentError);
    CHECK_THROWS_WITH_AS(driftless::loadParameters(directory.path()), Contains("float can hold, found 1e+300 at ["),
                         ArgumentError);
    CHECK_NOTHROW(driftless::loadParameters<double>(directory.path()));
  }
}

TEST_CASE("checkpoint: untied output weights are loaded as parameters") {
  const TemporaryDirectory directory;
  writeCheckpoint(directory.path(), with(gpt2Tensors({}), ownLmHead()), configJson({}));
  const Parameters<float> parameters = driftless::loadParameters(directory.path());
  REQUIRE(parameters.lm_head.has_value());
  CHECK((*parameters.lm_head)(1, 0) == f32At(ownLmHead().bytes, 20));
}

namespace {

/// A checkpoint in two shards: the first `split` tensors, and the others.
class ShardedCheckpoint {
 public:
  explicit ShardedCheckpoint(std::size_t split = 9) {
    const Tensors tensors = gpt2Tensors({});
    const auto middle = tensors.begin() + static_cast<std::ptrdiff_t>(split);
    writeShard(kFirst, Tensors(tensors.begin(), middle));
    writeShard(kSecond, Tensors(middle, tensors.end()));
    writeFile(path() / "config.json", configJson({}));
  }

  const std::filesystem::path& path() const { return directory_.path(); }

  void writeShard(const std::string& file, const Tensors& tensors) {
    writeFile(path() / file, safetensorsFile(tensors));
    for (const WrittenTensor& tensor : tensors) entries_.emplace_back(tensor.name, file);
  }

  void writeIndex() const {
    std::string map;
    for (const auto& [name, file] : entries_) map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + file + "\"";
    writeFile(path() / "model.safetensors.index.json", R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
  }

  Checkpoint open() const {
    writeIndex();
    return Checkpoint(path());
  }

  std::vector<std::pair<std::string, std::string>>& entries() { return entries_; }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";

 private:
  TemporaryDirectory directory_;
  std::vector<std::pair<std::string, std::string>> entries_;
};

}  // namespace

TEST_CASE("checkpoint: shards are opened through their index") {
  for (const std::size_t split : {std::size_t{1}, std::size_t{9}, std::size_t{27}}) {
    const Checkpoint checkpoint = ShardedCheckpoint(split).open();
    CHECK(checkpoint.tensors().size() == 28);
    for (const WrittenTensor& tensor : gpt2Tensors({})) requireSame(checkpoint.tensor(tensor.name), tensor.bytes);
  }
}

TEST_CASE("checkpoint: an index and its shards must list the same tensors") {
  SUBCASE("a tensor listed in the wrong shard") {
    ShardedCheckpoint checkpoint;
    checkpoint.entries().back().second = ShardedCheckpoint::kFirst;
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("expected tensor \"ln_f.bias\" in"), FileError);
  }
  SUBCASE("a tensor listed in a later shard") {
    ShardedCheckpoint checkpoint;
    checkpoint.entries().front().second = ShardedCheckpoint::kSecond;
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("00001-of-00002.safetensors: holds tensor \"wte.weight\""),
                         FileError);
  }
  SUBCASE("a tensor listed and nowhere") {
    ShardedCheckpoint checkpoint;
    checkpoint.entries().emplace_back("more", ShardedCheckpoint::kFirst);
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("expected tensor \"more\" in"), FileError);
  }
  SUBCASE("a tensor not listed") {
    ShardedCheckpoint checkpoint;
    checkpoint.entries().pop_back();
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("holds tensor \"ln_f.bias\""), FileError);
  }
  SUBCASE("a tensor in two shards") {
    ShardedCheckpoint checkpoint;
    checkpoint.writeShard("third.safetensors", {f32Tensor("h.0.attn.bias", {1}, 1), gpt2Tensors({}).front()});
    checkpoint.entries().pop_back();
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("third.safetensors: holds tensor \"wte.weight\""), FileError);
  }
  SUBCASE("a shard that is missing") {
    const ShardedCheckpoint checkpoint;
    std::filesystem::remove(checkpoint.path() / ShardedCheckpoint::kSecond);
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("00002-of-00002.safetensors: cannot be read"), FileError);
  }
  SUBCASE("a shard opened by itself") {
    const ShardedCheckpoint checkpoint;
    CHECK_THROWS_WITH_AS(Checkpoint(checkpoint.path() / ShardedCheckpoint::kFirst), Contains("expected tensor h.0."),
                         FileError);
  }
}

TEST_CASE("checkpoint: an index cannot name files elsewhere") {
  ShardedCheckpoint checkpoint;
  std::filesystem::create_directory(checkpoint.path() / "sub");
  std::filesystem::copy(checkpoint.path() / ShardedCheckpoint::kFirst, checkpoint.path() / "sub/x.safetensors");
  for (const std::string& file :
       std::vector<std::string>{"../x.safetensors", "sub/x.safetensors", "./x.safetensors", "/x.safetensors",
                                "sub\\\\x.safetensors", "C:x.safetensors", "..", ".", "", "config.json",
                                "x.safetensors\\u0000", "x\\u0000.safetensors", "x\\n.safetensors"}) {
    CAPTURE(file);
    checkpoint.entries().front().second = file;
    CHECK_THROWS_WITH_AS(checkpoint.open(), Contains("expected the name of a .safetensors file in the same directory"),
                         FileError);
  }
}

TEST_CASE("checkpoint: a malformed index is refused") {
  const ShardedCheckpoint checkpoint;
  for (const std::string& text :
       std::vector<std::string>{"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"wte.weight":1}})",
                                R"({"weight_map":{"wte.weight":null}})", R"({"weight_map":{}})",
                                R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})",
                                "{\"weight_map\":" + std::string(1'000'000, '[')}) {
    CAPTURE(text.substr(0, 100));
    writeFile(checkpoint.path() / "model.safetensors.index.json", text);
    CHECK_THROWS_AS(Checkpoint(checkpoint.path()), FileError);
  }
}

TEST_CASE("checkpoint: a place without a usable model says what is needed") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path() / "nowhere"), Contains("nowhere: expected a model"), FileError);
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("expected model.safetensors or"), FileError);
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("index.json, found neither"), FileError);
  writeFile(directory.path() / "model.safetensors", safetensorsFile(gpt2Tensors({})));
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("config.json: cannot be read"), FileError);
  writeFile(directory.path() / "config.json", R"({"model_type":"llama"})");
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("model_type"), ConfigError);
}

TEST_CASE("checkpoint: a file of another program's is told by its contents, with the command that converts it") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "a model";
  const auto found = [&](const std::string& contents, const std::string& kind) {
    CAPTURE(kind);
    writeFile(file, contents);
    const std::string expected =
        file.string() + ": expected a directory or a .safetensors file beside its config.json" + kind;
    CHECK_THROWS_WITH_AS(Checkpoint{file}, expected.c_str(), FileError);
  };
  const std::string command = "; convert it first: scripts/convert.py " + file.string() + " DIR";
  const std::string table_magic = "\x57\xfb\x80\x8b\x24\x75\x47\xdb";
  found("GGUF", ", found a GGUF file" + command);
  found("GGUF\3" + std::string(1'000'000, '\xff'), ", found a GGUF file" + command);
  found("PK\3\4", ", found a PyTorch file" + command);
  found("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", ", found a PyTorch file" + command);
  found("\xc6\xd7\x34\x01\3", ", found an llm.c checkpoint" + command);
  found(table_magic, ", found the index of a TensorFlow checkpoint" + command);
  found(std::string(100, '\0') + table_magic, ", found the index of a TensorFlow checkpoint" + command);
  for (const std::string& other :
       {std::string(), std::string("G"), std::string("GGU\0F", 5), "gguf" + table_magic + "\n",
        "PK\5\6" + std::string(18, '\0'), "\x80\x02}q\0." + std::string(50, 'x')})
    found(other, "");
}

TEST_CASE("checkpoint: a directory of another program's is told by names, with the command that converts it") {
  for (const std::string name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "ckpt.pt", "model.pt",
                                 "model.ckpt.index", "any name.gguf"}) {
    const TemporaryDirectory directory;
    CAPTURE(name);
    writeFile(directory.path() / name, "");
    writeFile(directory.path() / "config.json", "{}");
    const std::string expected = directory.path().string() +
                                 ": expected model.safetensors or model.safetensors.index.json, found only " + name +
                                 "; convert it first: scripts/convert.py " + directory.path().string() + " DIR";
    CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), expected.c_str(), FileError);
    writeFile(directory.path() / "model.safetensors", "");
    CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), doctest::Contains("config.json"), driftless::Error);
  }
  const TemporaryDirectory directory;
  writeFile(directory.path() / "\x1b[31m`evil`.gguf", "");
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("found only \\u001b[31m`evil`.gguf; convert"), FileError);
}

TEST_CASE("checkpoint: a TensorFlow checkpoint is named by what its files' names begin with") {
  const TemporaryDirectory directory;
  const std::filesystem::path prefix = directory.path() / "model.ckpt";
  writeFile(directory.path() / "model.ckpt.index", "\x57\xfb\x80\x8b\x24\x75\x47\xdb");
  const std::string name = prefix.string();
  const std::string expected = name + ": expected a model, found " + name +
                               ".index, the index of a TensorFlow checkpoint; convert it first: scripts/convert.py " +
                               name + " DIR";
  CHECK_THROWS_WITH_AS(Checkpoint{prefix}, expected.c_str(), FileError);
}

TEST_CASE("checkpoint: a config for another size is told by the first tensor that differs") {
  const TemporaryDirectory directory;
  const auto openAs = [&](const CheckpointShape& shape) {
    writeCheckpoint(directory.path(), gpt2Tensors({}), configJson(shape));
    return Checkpoint(directory.path());
  };
  CHECK_NOTHROW(openAs({}));
  CHECK_THROWS_WITH_AS(openAs({.L = 3}), Contains("expected tensor h.2.ln_1.weight of shape [20]"), FileError);
  CHECK_THROWS_WITH_AS(openAs({.L = 1}), Contains("tensor \"h.1.attn.c_attn.bias\" is not one of"), FileError);
  CHECK_THROWS_WITH_AS(openAs({.V = 260}), Contains("expected shape [260, 20], found [259, 20]"), FileError);
}

TEST_CASE("checkpoint: a model of size one in every direction is opened") {
  const TemporaryDirectory directory;
  const CheckpointShape shape{.V = 1, .N = 1, .C = 1, .L = 1, .H = 1, .n_inner = 1};
  const Tensors tensors = gpt2Tensors(shape);
  writeCheckpoint(directory.path(), tensors, configJson(shape));
  CHECK(driftless::loadParameters(directory.path()).wpe(0, 0) == f32At(tensors[1].bytes, 0));
}

TEST_CASE("checkpoint: the embedded model is read") {
  const std::filesystem::path path = DRIFTLESS_FIXTURES_DIR "/tales-gpt2";
  const Checkpoint checkpoint(path);
  CHECK(checkpoint.tensors().size() == 148);
  CHECK_FALSE(checkpoint.hasLmHead());
  CHECK(checkpoint.tensor("wte.weight").dtype == DType::F16);
  // Decoded from the file's bytes by another program.
  const Parameters<double> parameters = driftless::loadParameters<double>(path);
  CHECK(parameters.wte(0, 0) == -0x1.108p-3);
  CHECK(parameters.wte(3, 7) == 0x1.a78p-6);
  CHECK(parameters.wpe(511, 127) == 0x1.54cp-8);
  CHECK(parameters.h[0].attn.c_attn.weight(1, 2) == -0x1.fdp-5);
  CHECK(parameters.h[11].mlp.c_proj.bias(127) == -0x1.2acp-5);
  CHECK(parameters.ln_f.weight(5) == 0x1.23cp+1);
}
