#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/safetensors_writer.hpp"

/// Small GPT-2 checkpoints for tests, written without the library.
namespace driftless::test {

/// The sizes of a small model, odd on purpose: none is a multiple of a SIMD packet.
struct CheckpointShape {
  std::int64_t V = 259;
  std::int64_t N = 16;
  std::int64_t C = 20;
  std::int64_t L = 2;
  std::int64_t H = 5;
  std::int64_t n_inner = 12;
};

inline std::string configJson(const CheckpointShape& shape, const std::string& further_members = "") {
  const auto member = [](const std::string& key, std::int64_t value) {
    return ",\"" + key + "\":" + std::to_string(value);
  };
  return R"({"model_type":"gpt2")" + member("vocab_size", shape.V) + member("n_positions", shape.N) +
         member("n_embd", shape.C) + member("n_layer", shape.L) + member("n_head", shape.H) +
         member("n_inner", shape.n_inner) + (further_members.empty() ? "" : "," + further_members) + "}";
}

/// An F32 tensor of small numbers that follow from `seed`, all different from one another in their neighbourhood.
inline WrittenTensor f32Tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t seed) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) count *= dimension;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    number = static_cast<float>(seed >> 8) / 16777216.0f - 0.5f;
  }
  return {name, "F32", shape, f32Bytes(numbers)};
}

/// Every tensor of a GPT-2 with tied output weights, `prefix` before each name.
inline std::vector<WrittenTensor> gpt2Tensors(const CheckpointShape& shape, const std::string& prefix = "") {
  std::vector<WrittenTensor> tensors;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& dimensions) {
    tensors.push_back(f32Tensor(prefix + name, dimensions, static_cast<std::uint32_t>(tensors.size())));
  };
  add("wte.weight", {shape.V, shape.C});
  add("wpe.weight", {shape.N, shape.C});
  for (std::int64_t layer = 0; layer < shape.L; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    add(h + ".ln_1.weight", {shape.C});
    add(h + ".ln_1.bias", {shape.C});
    add(h + ".attn.c_attn.weight", {shape.C, 3 * shape.C});
    add(h + ".attn.c_attn.bias", {3 * shape.C});
    add(h + ".attn.c_proj.weight", {shape.C, shape.C});
    add(h + ".attn.c_proj.bias", {shape.C});
    add(h + ".ln_2.weight", {shape.C});
    add(h + ".ln_2.bias", {shape.C});
    add(h + ".mlp.c_fc.weight", {shape.C, shape.n_inner});
    add(h + ".mlp.c_fc.bias", {shape.n_inner});
    add(h + ".mlp.c_proj.weight", {shape.n_inner, shape.C});
    add(h + ".mlp.c_proj.bias", {shape.C});
  }
  add("ln_f.weight", {shape.C});
  add("ln_f.bias", {shape.C});
  return tensors;
}

inline void writeCheckpoint(const std::filesystem::path& directory, const std::vector<WrittenTensor>& tensors,
                            const std::string& config) {
  writeFile(directory / "config.json", config);
  writeFile(directory / "model.safetensors", safetensorsFile(tensors));
}

}  // namespace driftless::test
