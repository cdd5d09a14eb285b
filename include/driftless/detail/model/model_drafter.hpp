#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "driftless/argmax.hpp"
#include "driftless/detail/model/forward.hpp"
#include "driftless/drafts.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// A smaller model that follows one sequence.
template <class Scalar>
class ModelDrafter {
 public:
  explicit ModelDrafter(const Weights<Scalar>& weights)
      : weights_(&weights), cache_(weights), workspace_(weights.threads) {}
  ModelDrafter(const ModelDrafter& other)
      : weights_(other.weights_), cache_(other.cache_.clone()), workspace_(weights_->threads) {}
  ModelDrafter(ModelDrafter&&) noexcept = default;

  std::vector<int> operator()(TokenIds ids, Index most) {
    const std::vector<int>& held = cache_.ids();
    const auto last = ids.end() - 1;
    cache_.truncate(std::mismatch(held.begin(), held.end(), ids.begin(), last).first - held.begin());
    std::vector<int> next(ids.begin() + cache_.length(), ids.end()), guesses;
    const Index V = weights_->config.vocab_size;
    if (std::any_of(next.begin(), next.end(), [&](int id) { return id < 0 || id >= V; })) return guesses;
    while (static_cast<Index>(guesses.size()) < most &&
           cache_.length() + static_cast<Index>(next.size()) <= cache_.capacity()) {
      const int id = argmax(prefill(next, *weights_, cache_, workspace_));
      guesses.push_back(id);
      next = {id};
    }
    return guesses;
  }

 private:
  const Weights<Scalar>* weights_;
  ModelCache<Scalar> cache_;
  Workspace<Scalar> workspace_;
};

}  // namespace detail

template <FloatingScalar Scalar>
Drafter draftModel(const Weights<Scalar>& weights) {
  return detail::ModelDrafter<Scalar>(weights);
}

}}  // namespace driftless::DRIFTLESS_ABI
