#include "driftless/config.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/safetensors_writer.hpp"
#include "support/temporary_directory.hpp"

using doctest::Contains;
using driftless::Activation;
using driftless::ArgumentError;
using driftless::Config;
using driftless::ConfigError;
using driftless::FileError;
using namespace driftless::test;

namespace {

Config readText(const std::string& text) {
  const TemporaryDirectory directory;
  writeFile(directory.path() / "config.json", text);
  return driftless::readConfig(directory.path() / "config.json");
}

const std::string kRequired = R"("vocab_size":100,"n_positions":32,"n_embd":24,"n_layer":2,"n_head":4)";

/// A sound config with these members added.
Config readWith(const std::string& members) { return readText("{" + kRequired + "," + members + "}"); }

}  // namespace

TEST_CASE("config: the sizes are read and everything else has Hugging Face's default") {
  const Config config = readText("{" + kRequired + "}");
  CHECK(config.vocab_size == 100);
  CHECK(config.n_positions == 32);
  CHECK(config.n_embd == 24);
  CHECK(config.n_layer == 2);
  CHECK(config.n_head == 4);
  CHECK_FALSE(config.n_inner);
  CHECK(config.innerSize() == 96);
  CHECK(config.activation_function == Activation::gelu_new);
  CHECK(config.layer_norm_epsilon == 1e-5);
  CHECK(config.scale_attn_weights);
  CHECK_FALSE(config.scale_attn_by_inverse_layer_idx);
}

TEST_CASE("config: every key that changes the mathematics is honoured") {
  CHECK(readWith(R"("n_inner":12)").n_inner == 12);
  CHECK(readWith(R"("n_inner":null)").innerSize() == 96);
  CHECK(readWith(R"("n_inner":96)") == readWith(R"("n_inner":null)"));
  CHECK_FALSE(readWith(R"("n_inner":95)") == readWith(R"("n_inner":null)"));
  CHECK(readWith(R"("layer_norm_epsilon":0.001)").layer_norm_epsilon == 0.001);
  CHECK(readWith(R"("layer_norm_epsilon":1)").layer_norm_epsilon == 1.0);
  CHECK_FALSE(readWith(R"("scale_attn_weights":false)").scale_attn_weights);
  CHECK(readWith(R"("scale_attn_by_inverse_layer_idx":true)").scale_attn_by_inverse_layer_idx);
  CHECK(readWith(R"("reorder_and_upcast_attn":true)") == readWith(R"("reorder_and_upcast_attn":false)"));

  const std::pair<std::string, Activation> activations[] = {
      {"gelu", Activation::gelu},          {"gelu_new", Activation::gelu_new},
      {"gelu_fast", Activation::gelu_new}, {"gelu_pytorch_tanh", Activation::gelu_new},
      {"relu", Activation::relu},          {"silu", Activation::silu},
      {"swish", Activation::silu},         {"tanh", Activation::tanh},
  };
  for (const auto& each : activations) {
    const auto& name = each.first;
    const auto& activation = each.second;
    CAPTURE(name);
    CHECK(readWith(R"("activation_function":")" + name + "\"").activation_function == activation);
  }
}

TEST_CASE("config: keys of training and generation and unknown ones do nothing") {
  const Config plain = readText("{" + kRequired + "}");
  for (const std::string& members : std::vector<std::string>{
           R"("model_type":"gpt2")", R"("architectures":["GPT2LMHeadModel"])", R"("architectures":null)",
           R"("attn_pdrop":0.1,"resid_pdrop":0.1,"embd_pdrop":0.1,"initializer_range":0.02)",
           R"("bos_token_id":1,"eos_token_id":1,"pad_token_id":null,"use_cache":true)",
           R"("summary_type":"cls_index","summary_activation":null,"summary_use_proj":true)",
           R"("task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}})",
           R"("torch_dtype":"float16","transformers_version":"4.40.0","_name_or_path":"x","_num_labels":1)",
           R"("id2label":{"0":"LABEL_0"},"label2id":{"LABEL_0":0},"gradient_checkpointing":false)",
           R"("tie_word_embeddings":true)", R"("tie_word_embeddings":false)", R"("add_cross_attention":false)",
           R"("is_encoder_decoder":false)", R"("pruned_heads":{})", R"("quantization_config":null)",
           R"("my_own_key":[1,2,3])"}) {
    CAPTURE(members);
    CHECK(readWith(members) == plain);
  }
}

TEST_CASE("config: an activation has the names that transformers gives it") {
  const std::pair<std::string, Activation> names[] = {{"gelu", Activation::gelu},
                                                      {"gelu_python", Activation::gelu},
                                                      {"gelu_new", Activation::gelu_new},
                                                      {"gelu_fast", Activation::gelu_new},
                                                      {"gelu_accurate", Activation::gelu_new},
                                                      {"gelu_pytorch_tanh", Activation::gelu_new},
                                                      {"gelu_python_tanh", Activation::gelu_new},
                                                      {"swish", Activation::silu}};
  for (const auto& each : names) {
    CAPTURE(each.first);
    CHECK(readWith(R"("activation_function":")" + each.first + '"').activation_function == each.second);
  }
}

TEST_CASE("config: other spellings of a size are taken and must agree") {
  CHECK(readText(R"({"vocab_size":100,"n_ctx":32,"n_embd":24,"n_layer":2,"n_head":4})").n_positions == 32);
  const Config config = readText(R"({"vocab_size":100,"max_position_embeddings":32,"hidden_size":24,
                                     "num_hidden_layers":2,"num_attention_heads":4})");
  CHECK(config == readText("{" + kRequired + "}"));
  CHECK_NOTHROW(readWith(R"("n_ctx":32,"max_position_embeddings":32,"hidden_size":24)"));
  // transformers (5.0, GPT2Config) knows no n_ctx.
  for (const std::string ignored : {R"("n_ctx":64)", R"("n_ctx":null)"}) CHECK(readWith(ignored).n_positions == 32);

  CHECK_THROWS_WITH_AS(readWith(R"("max_position_embeddings":33)"), Contains("max_position_embeddings: expected 32"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(readWith(R"("hidden_size":25)"), Contains("hidden_size: expected 24"), ConfigError);
  CHECK_THROWS_WITH_AS(readWith(R"("num_attention_heads":3)"), Contains("num_attention_heads: expected 4"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(readWith(R"("num_hidden_layers":3)"), Contains("num_hidden_layers: expected 2"), ConfigError);
}

TEST_CASE("config: a size that is missing is named") {
  const std::pair<std::string, std::string> cases[] = {
      {"vocab_size", R"({"n_positions":32,"n_embd":24,"n_layer":2,"n_head":4})"},
      {"n_positions", R"({"vocab_size":100,"n_embd":24,"n_layer":2,"n_head":4})"},
      {"n_embd", R"({"vocab_size":100,"n_positions":32,"n_layer":2,"n_head":4})"},
      {"n_layer", R"({"vocab_size":100,"n_positions":32,"n_embd":24,"n_head":4})"},
      {"n_head", R"({"vocab_size":100,"n_positions":32,"n_embd":24,"n_layer":2})"},
  };
  for (const auto& each : cases) {
    const auto& key = each.first;
    const auto& text = each.second;
    const std::string expected = "config.json: " + key + ": expected a whole number from 1 to";
    CAPTURE(key);
    CHECK_THROWS_WITH_AS(readText(text), Contains(expected.c_str()), ConfigError);
    CHECK_THROWS_WITH_AS(readText(text), Contains("found no such key"), ConfigError);
  }
}

TEST_CASE("config: what is not supported is refused by key with expected and actual value") {
  const std::pair<std::string, std::string> cases[] = {
      {R"("model_type":"llama")", "model_type: expected \"gpt2\", found \"llama\""},
      {R"("model_type":null)", "model_type: expected \"gpt2\", found null"},
      {R"("architectures":["GPTNeoForCausalLM"])", "architectures: expected an array of names that begin with GPT2"},
      {R"("architectures":"GPT2LMHeadModel")", "architectures: expected"},
      {R"("activation_function":"quick_gelu")",
       "activation_function: expected one of gelu, gelu_python, gelu_new, gelu_fast, gelu_accurate, gelu_pytorch_tanh, "
       "gelu_python_tanh, relu, silu, swish, tanh, "
       "found \"quick_gelu\""},
      {R"("activation_function":null)", "activation_function: expected one of"},
      {R"("add_cross_attention":true)", "add_cross_attention: expected false, found true"},
      {R"("add_cross_attention":0)", "add_cross_attention: expected true or false, found 0"},
      {R"("is_encoder_decoder":true)", "is_encoder_decoder: expected false, found true"},
      {R"("pruned_heads":{"0":[1]})", "pruned_heads: expected nothing, found {\"0\":[1]}"},
      {R"("quantization_config":{"bits":4})", "quantization_config: expected nothing"},
      {R"("auto_map":{"AutoModel":"x.Y"})", "auto_map: expected nothing"},
      {R"("tie_word_embeddings":null)", "tie_word_embeddings: expected true or false, found null"},
      {R"("tie_word_embeddings":"false")", "tie_word_embeddings: expected true or false, found \"false\""},
      {R"("scale_attn_weights":null)", "scale_attn_weights: expected true or false"},
      {R"("scale_attn_weights":1)", "scale_attn_weights: expected true or false, found 1"},
      {R"("scale_attn_by_inverse_layer_idx":"true")", "scale_attn_by_inverse_layer_idx: expected true or false"},
      {R"("reorder_and_upcast_attn":1)", "reorder_and_upcast_attn: expected true or false, found 1"},
      {R"("layer_norm_epsilon":0)", "layer_norm_epsilon: expected a positive, finite number, found 0"},
      {R"("layer_norm_epsilon":-1e-5)", "layer_norm_epsilon: expected a positive, finite number, found -1e-05"},
      {R"("layer_norm_epsilon":1e-300)", "layer_norm_epsilon: expected a positive, finite number"},
      {R"("layer_norm_epsilon":1e300)", "layer_norm_epsilon: expected a positive, finite number"},
      {R"("layer_norm_epsilon":"1e-5")", "layer_norm_epsilon: expected a positive, finite number, found \"1e-5\""},
      {R"("layer_norm_epsilon":null)", "layer_norm_epsilon: expected a positive, finite number, found null"},
      {R"("n_inner":0)", "n_inner: expected a whole number from 1 to"},
      {R"("n_inner":-12)", "n_inner: expected a whole number from 1 to"},
      {R"("n_inner":12.5)", "n_inner: expected a whole number from 1 to"},
      {R"("n_inner":"12")", "n_inner: expected a whole number from 1 to"},
  };
  for (const auto& each : cases) {
    const auto& member = each.first;
    const auto& expected = each.second;
    CAPTURE(member);
    const std::string text = "config.json: " + expected;
    CHECK_THROWS_WITH_AS(readWith(member), Contains(text.c_str()), ConfigError);
  }
}

TEST_CASE("config: sizes out of range are refused") {
  const auto read = [](const std::string& key, const std::string& value) {
    std::string text = "{" + kRequired + "}";
    const std::size_t begin = text.find("\"" + key + "\":") + key.size() + 3;
    return readText(text.replace(begin, text.find_first_of(",}", begin) - begin, value));
  };
  for (const std::string& key : std::vector<std::string>{"vocab_size", "n_positions", "n_embd", "n_layer", "n_head"}) {
    for (const std::string& value :
         std::vector<std::string>{"0", "-1", "-0", "1.0", "1e1", "\"8\"", "true", "null", "[]", "{}", "16777217",
                                  "2147483648", "9223372036854775808", "18446744073709551616", "1e30"}) {
      CAPTURE(key);
      CAPTURE(value);
      CHECK_THROWS_AS(read(key, value), ConfigError);
    }
  }
  CHECK_THROWS_WITH_AS(read("n_head", "5"), Contains("n_head: expected a divisor of n_embd, 24, found 5"), ConfigError);
  CHECK(read("n_head", "24").headSize() == 1);
}

TEST_CASE("config: the largest sizes taken do not overflow the cache's size in bytes") {
  const auto read = [](const std::string& V, const std::string& N, const std::string& C, const std::string& L) {
    return readText("{\"vocab_size\":" + V + ",\"n_positions\":" + N + ",\"n_embd\":" + C + ",\"n_layer\":" + L +
                    ",\"n_head\":1}");
  };
  const Config largest = read("16777216", "1048576", "1048576", "4096");
  const long double bytes = 2.0L * static_cast<long double>(largest.n_layer) *
                            static_cast<long double>(largest.n_positions) * static_cast<long double>(largest.n_embd) *
                            sizeof(double);
  CHECK(bytes < static_cast<long double>(std::numeric_limits<driftless::Index>::max()));
  CHECK_THROWS_AS(read("16777217", "1048576", "1048576", "4096"), ConfigError);
  CHECK_THROWS_AS(read("16777216", "1048577", "1048576", "4096"), ConfigError);
  CHECK_THROWS_AS(read("16777216", "1048576", "1048577", "4096"), ConfigError);
  CHECK_THROWS_AS(read("16777216", "1048576", "1048576", "4097"), ConfigError);
}

TEST_CASE("config: a key one typing error away from a mathematical one is refused") {
  const std::pair<std::string, std::string> cases[] = {
      {"n_iner", "n_inner"},
      {"n_innner", "n_inner"},
      {"n_inenr", "n_inner"},
      {"n_layers", "n_layer"},
      {"N_inner", "n_inner"},
      {"layer_norm_epsilom", "layer_norm_epsilon"},
      {"scale_atn_weights", "scale_attn_weights"},
      {"activation_functions", "activation_function"},
  };
  for (const auto& each : cases) {
    const auto& written = each.first;
    const auto& meant = each.second;
    CAPTURE(written);
    const std::string text = "config.json: unknown key \"" + written + "\": expected " + meant;
    CHECK_THROWS_WITH_AS(readWith("\"" + written + "\":1"), Contains(text.c_str()), ConfigError);
  }
  CHECK_NOTHROW(readWith(R"("inner":1,"layers":1,"":1,"n":1)"));
}

TEST_CASE("config: files that are not a JSON object are refused as damaged") {
  for (const std::string& text : std::vector<std::string>{
           "", "{", "[]", "12", "null", "{\"n_embd\":}", "{'n_embd':1}", "{" + kRequired + "} x",
           "{" + kRequired + "}" + std::string("\0", 1), "{" + kRequired + ",}", "{\"\xff\":1}",
           "{" + kRequired + ",\"n_embd\":24}", "{" + kRequired + ",\"x\":1e400}", "<html></html>"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(readText(text), FileError);
  }
  CHECK_THROWS_WITH_AS(readText("{" + kRequired + ",\"n_head\":8}"), Contains("\"n_head\" stands twice"), FileError);
  CHECK_THROWS_AS(readText("{\"x\":" + std::string(10'000'000, '[')), FileError);
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH_AS(driftless::readConfig(directory.path() / "config.json"), Contains("config.json: cannot be read"),
                       FileError);
}

TEST_CASE("config: the embedded model's is read") {
  const Config config = driftless::readConfig(DRIFTLESS_FIXTURES_DIR "/tales-gpt2/config.json");
  CHECK(config.vocab_size == 2048);
  CHECK(config.n_positions == 512);
  CHECK(config.n_embd == 128);
  CHECK(config.n_layer == 12);
  CHECK(config.n_head == 4);
  CHECK(config.innerSize() == 512);
}

TEST_CASE("config: the scale of the scores follows from head size and layer") {
  Config config = readWith(R"("n_inner":12)");  // D = 6
  CHECK(config.scoreScale(1) == 1 / std::sqrt(6.0));
  config.scale_attn_by_inverse_layer_idx = true;
  CHECK(config.scoreScale(0) == 1 / std::sqrt(6.0));
  CHECK(config.scoreScale(1) == 1 / std::sqrt(6.0) / 2);
  config.scale_attn_weights = false;
  CHECK(config.scoreScale(2) == 1 / 3.0);
}

TEST_CASE("config: ids are checked against the vocabulary") {
  Config config;
  config.vocab_size = 259;
  CHECK_NOTHROW(driftless::checkIds(std::array{0, 258}, config));
  CHECK_THROWS_WITH_AS(driftless::checkIds({}, config), "expected at least one token id, got none", ArgumentError);
  CHECK_THROWS_WITH_AS(driftless::checkIds(std::array{0, 1, 259}, config),
                       "expected token ids from 0 to 258, got 259 at index 2", ArgumentError);
  CHECK_THROWS_WITH_AS(driftless::checkIds(std::array{-1}, config),
                       "expected token ids from 0 to 258, got -1 at index 0", ArgumentError);
}

TEST_CASE("config: an activation has the name that config.json gives it") {
  for (const std::string name : {"gelu", "gelu_new", "relu", "silu", "tanh"}) {
    CHECK(driftless::nameOf(readWith(R"("activation_function":")" + name + "\"").activation_function) == name);
  }
}

TEST_CASE("readEosIds: one id or a list, of generation_config.json or else of config.json") {
  const TemporaryDirectory directory;
  const std::filesystem::path config = directory.path() / "config.json";
  const std::filesystem::path generation = directory.path() / "generation_config.json";
  const auto idsOf = [&] { return driftless::readEosIds(directory.path()); };
  const auto check = [&](const std::string& members, const std::vector<int>& ids) {
    writeFile(config, "{" + kRequired + members + "}");
    CHECK(idsOf() == ids);
  };
  check("", {});
  check(R"(,"eos_token_id":null)", {});
  check(R"(,"eos_token_id":[])", {});
  check(R"(,"eos_token_id":[4,99,0])", {4, 99, 0});
  check(R"(,"eos_token_id":7)", {7});
  for (const char* silent : {"{}", R"({"eos_token_id":null})", R"({"eos_token_id":[]})"}) {
    writeFile(generation, silent);
    CHECK(idsOf() == std::vector<int>{7});
  }
  writeFile(generation, R"({"eos_token_id":[1,2],"max_length":20})");
  CHECK(idsOf() == std::vector<int>{1, 2});
  CHECK(driftless::readEosIds(directory.path() / "model.safetensors") == std::vector<int>{1, 2});
  for (const char* bad : {"100", "-1", "1.5", "4294967297", "\"1\"", "true", "{}", "[1,null]", "[[1]]", "[1,100]"}) {
    INFO(bad);
    writeFile(generation, std::string(R"({"eos_token_id":)") + bad + "}");
    CHECK_THROWS_WITH_AS(
        idsOf(), (generation.string() + ": eos_token_id: expected token ids from 0 to 99, found " + bad).c_str(),
        ConfigError);
  }
  for (const char* damaged : {"", "[]", "{\"eos_token_id\":1"}) {
    writeFile(generation, damaged);
    CHECK_THROWS_WITH_AS(idsOf(), Contains("generation_config.json"), FileError);
  }
  CHECK_THROWS_WITH_AS(driftless::readEosIds(directory.path() / "none"), Contains("config.json"), FileError);
}
