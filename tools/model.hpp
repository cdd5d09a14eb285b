#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driftless/generate.hpp"
#include "driftless/parameters.hpp"
#include "driftless/tensor.hpp"
#include "driftless/threads.hpp"
#include "stored_types.hpp"

namespace driftless::cli {

/// A model and the caches of some sequences, whatever they are stored as.
class Model {
 public:
  /// Ids that one of the sequences goes on with.
  struct Input {
    std::size_t sequence;
    std::span<const int> ids;
  };
  using Observer = std::function<void(Part)>;

  struct Sizes {
    Index weights;         ///< bytes, all of them
    Index step_weights;    ///< bytes of the matrices that every step reads
    Index caches;          ///< bytes, of all sequences
    Index cache_position;  ///< bytes of one position in one sequence
  };

  virtual ~Model() = default;

  virtual const Config& config() const = 0;
  virtual Sizes sizes() const = 0;

  /// Sets how many sequences there are, all of them empty; none at first.
  virtual void setSequences(std::size_t count) = 0;
  virtual Index length(std::size_t sequence) const = 0;
  virtual void truncate(std::size_t sequence, Index length) = 0;

  /// As driftless::prefill: logits [B, V], row b of what follows inputs[b].
  virtual const Matrix<float>& step(const std::vector<Input>& inputs, const Observer& observer = {}) = 0;

  /// As driftless::generateTokens, with as many prompts at a time as there are sequences.
  virtual std::vector<Generation> generate(const std::vector<std::vector<int>>& prompts, const GenerateOptions& options,
                                           const OnToken& onToken) = 0;

  /// Throws as `generate` does for ids that no sequence can begin with. There must be a sequence, the first of them
  /// empty.
  virtual void checkPrompt(std::span<const int> ids) = 0;
};

/// As driftless::loadWeights.
std::unique_ptr<Model> loadModel(const std::string& path, const StoredTypes& types, const Threads& threads);

/// A model with tied head from tensors by name.
std::unique_ptr<Model> packModel(const Config& config, const std::function<TensorView(const std::string&)>& source,
                                 const StoredTypes& types, const Threads& threads);

std::unique_ptr<Model> packModel(const Parameters<float>& parameters, const StoredTypes& types, const Threads& threads);

}  // namespace driftless::cli
