// Prints one hash over the bits of all logits that a few models give: the number that must be the same from every
// compiler, optimisation level and vector width. On the way, each token is also run by other routes; a bit that differs
// between routes ends the program with status 1.
//
// logits_hash odd        models of awkward shapes with random weights
// logits_hash quantized  the same with weights of 8 and of 4 bits, caches of 8, and products in whole numbers
// logits_hash DIRECTORY  a 64-token greedy generation by the checkpoint there

#include <bit>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "driftless/driftless.hpp"

namespace {

using driftless::Activation, driftless::ComputeType, driftless::Config, driftless::Index, driftless::LoadOptions,
    driftless::ModelCache, driftless::RowVector, driftless::StoredType, driftless::Weights, driftless::Workspace;

/// FNV-1a over the bits of numbers, low byte first.
class BitHash {
 public:
  template <class Scalar>
  void add(const RowVector<Scalar>& numbers) {
    using Bits = std::conditional_t<sizeof(Scalar) == 8, std::uint64_t, std::uint32_t>;
    for (const Scalar number : numbers) {
      const Bits bits = std::bit_cast<Bits>(number);
      for (std::size_t byte = 0; byte < sizeof(Bits); ++byte)
        hash_ = (hash_ ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

template <class Scalar>
void expectSameBits(const RowVector<Scalar>& a, const RowVector<Scalar>& b, const std::string& what) {
  if (a.size() != b.size() || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(Scalar)) != 0)
    throw std::runtime_error("bits differ: " + what);
}

/// Feeds ids one by one, hashing all logits, and checks them against a single prefill and one in pieces of five.
template <class Scalar>
void hashSequence(const std::vector<int>& ids, const Weights<Scalar>& weights, BitHash& hash,
                  StoredType cache = StoredType::full) {
  ModelCache<Scalar> decoded(weights, cache), whole(weights, cache), pieces(weights, cache);
  Workspace<Scalar> workspace;
  const auto all = prefillLogits(std::span<const int>(ids), weights, whole);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const RowVector<Scalar> logits = decodeStep(ids[i], static_cast<Index>(i), weights, decoded, workspace);
    hash.add(logits);
    expectSameBits<Scalar>(logits, all.row(static_cast<Index>(i)), "decode against prefill at " + std::to_string(i));
    if (i % 5 == 4)
      expectSameBits<Scalar>(logits, prefill(std::span(ids).subspan(i - 4, 5), weights, pieces),
                             "decode against prefill in pieces at " + std::to_string(i));
  }
}

template <class Scalar>
void hashRandomModel(const Config& config, bool has_lm_head, BitHash& hash, const LoadOptions& options = {},
                     StoredType cache = StoredType::full) {
  auto parameters = driftless::randomParameters<Scalar>(config, 1, has_lm_head);
  // Weights large enough that scores and activations leave the flat middle of exp and GELU.
  forEachTensor(parameters, [](const std::string& name, auto& tensor, Index, Index) {
    if (name.find("ln_") == std::string::npos) tensor *= Scalar(16);
  });
  std::vector<int> ids;
  for (Index i = 0; i < config.n_positions; ++i) ids.push_back(static_cast<int>(i * 37 % config.vocab_size));
  hashSequence(ids, Weights<Scalar>(parameters, options), hash, cache);
}

Config shape(Index C, Index H, Index n_inner, Index V, Index N, Activation activation) {
  Config config;
  config.n_embd = C;
  config.n_head = H;
  config.n_inner = n_inner;
  config.vocab_size = V;
  config.n_positions = N;
  config.n_layer = 3;
  config.activation_function = activation;
  return config;
}

void hashOddModels(BitHash& hash) {
  hashRandomModel<float>(shape(20, 5, 12, 259, 16, Activation::gelu_new), false, hash);
  hashRandomModel<float>(shape(48, 3, 100, 77, 70, Activation::gelu), true, hash);
  hashRandomModel<float>(shape(33, 1, 65, 131, 17, Activation::silu), false, hash);
  hashRandomModel<float>(shape(130, 2, 7, 64, 135, Activation::tanh), true, hash);
  hashRandomModel<double>(shape(20, 5, 12, 259, 16, Activation::gelu_new), false, hash);
  hashRandomModel<double>(shape(36, 2, 17, 50, 66, Activation::gelu), true, hash);
}

void hashQuantizedModels(BitHash& hash) {
  for (const LoadOptions& options :
       {LoadOptions{.stored = StoredType::int8, .compute = ComputeType::int8}, LoadOptions{.stored = StoredType::int4},
        LoadOptions{.stored = StoredType::int4, .compute = ComputeType::int8}}) {
    hashRandomModel<float>(shape(20, 5, 12, 259, 16, Activation::gelu_new), false, hash, options, StoredType::int8);
    hashRandomModel<float>(shape(130, 2, 71, 77, 40, Activation::gelu_new), true, hash, options, StoredType::int8);
    hashRandomModel<double>(shape(36, 2, 17, 50, 66, Activation::gelu), true, hash, options, StoredType::int8);
  }
}

void hashGeneration(const std::string& directory, BitHash& hash) {
  const Weights<float> weights = driftless::loadWeights(directory);
  std::vector<int> ids = {1, 2, 3, 4, 5};
  const std::vector<int> generated = driftless::generateTokens(ids, 64, weights);
  ids.insert(ids.end(), generated.begin(), generated.end());
  hashSequence(ids, weights, hash);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("expected one argument: odd, quantized, or a checkpoint's directory");
  BitHash hash;
  if (std::string(argv[1]) == "odd")
    hashOddModels(hash);
  else if (std::string(argv[1]) == "quantized")
    hashQuantizedModels(hash);
  else
    hashGeneration(argv[1], hash);
  std::cout << std::hex << hash.value() << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
