#include "model.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>

#include "driftless/checkpoint.hpp"
#include "sizes.hpp"

namespace driftless::cli {
namespace {

template <class Stored, class CacheStored>
class TypedModel final : public Model {
 public:
  explicit TypedModel(Weights<float, Stored> weights) : weights_(std::move(weights)) {}

  const Config& config() const override { return weights_.config; }

  Sizes sizes() const override {
    Sizes sizes{bytesOf(weights_), bytesOf(weights_.head()), 0, cacheBytesPerToken<CacheStored>(config())};
    for (const auto& block : weights_.h)
      for (const auto* linear : {&block.attn.c_attn, &block.attn.c_proj, &block.mlp.c_fc, &block.mlp.c_proj})
        sizes.step_weights += bytesOf(linear->weight);
    for (const auto& cache : caches_) sizes.caches += bytesOf(cache);
    return sizes;
  }

  void setSequences(std::size_t count) override {
    caches_.clear();
    while (caches_.size() < count) caches_.emplace_back(weights_);
  }
  Index length(std::size_t sequence) const override { return caches_.at(sequence).length(); }
  void truncate(std::size_t sequence, Index length) override { caches_.at(sequence).truncate(length); }

  const Matrix<float>& step(const std::vector<Input>& inputs, const Observer& observer) override {
    std::vector<Chunk<float, CacheStored>> chunks;
    for (const Input& input : inputs) chunks.push_back({input.ids, &caches_.at(input.sequence)});
    return prefill(chunks, weights_, [&](Part part) {
      if (observer) observer(part);
    });
  }

  std::vector<Generation> generate(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                   const OnToken& onToken) override {
    return generateTokens(prompts, options, weights_, caches_, onToken);
  }

  void checkPrompt(std::span<const int> ids) override {
    detail::checkChunk(Chunk<float, CacheStored>{ids, &caches_.at(0)}, weights_);
  }

 private:
  Weights<float, Stored> weights_;
  std::vector<ModelCache<float, CacheStored>> caches_;
};

template <class Visit>
auto withFloatType(const std::string& name, Visit visit) {
  if (name == "f16") return visit(std::type_identity<Eigen::half>());
  if (name == "bf16") return visit(std::type_identity<Eigen::bfloat16>());
  return visit(std::type_identity<float>());
}

template <class Visit>
auto withWeightType(const std::string& name, Visit visit) {
  return name == "int8" ? visit(std::type_identity<std::int8_t>()) : withFloatType(name, visit);
}

/// The one place where names become types: a model with the weights that pack.operator()<Stored>() returns.
template <class Pack>
std::unique_ptr<Model> makeModel(const StoredTypes& types, Pack pack) {
  return withWeightType(types.weights, [&]<class Stored>(std::type_identity<Stored>) {
    return withFloatType(types.cache, [&]<class CacheStored>(std::type_identity<CacheStored>) {
      return std::unique_ptr<Model>(
          std::make_unique<TypedModel<Stored, CacheStored>>(pack.template operator()<Stored>()));
    });
  });
}

}  // namespace

std::unique_ptr<Model> loadModel(const std::string& path, const StoredTypes& types, const Threads& threads) {
  return makeModel(types, [&]<class Stored>() { return loadWeights<float, Stored>(path, threads); });
}

std::unique_ptr<Model> packModel(const Config& config, const std::function<TensorView(const std::string&)>& source,
                                 const StoredTypes& types, const Threads& threads) {
  return makeModel(types, [&]<class Stored>() { return Weights<float, Stored>(config, false, source, threads); });
}

std::unique_ptr<Model> packModel(const Parameters<float>& parameters, const StoredTypes& types,
                                 const Threads& threads) {
  return makeModel(types, [&]<class Stored>() { return Weights<float, Stored>(parameters, threads); });
}

}  // namespace driftless::cli
