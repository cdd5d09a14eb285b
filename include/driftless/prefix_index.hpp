#pragma once

#include <list>
#include <map>
#include <utility>
#include <vector>

#include "driftless/cache.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/abi.hpp"
#include "driftless/detail/model/page.hpp"
#include "driftless/stored_type.hpp"
#include "driftless/token_ids.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// What sequences have begun with so far, and the keys and values of it, so that what the next one has in common with
/// them need not be computed again. A sequence that goes on from a cache found here has the bits of one computed from
/// its start. Used by one thread at a time; the caches that it returns may be used on others.
template <FloatingScalar Scalar = float>
class PrefixIndex {
 public:
  /// An index of caches that are made for these weights and this stored type, empty as yet. It holds pages of 64
  /// positions that take up to `max_bytes` of memory, whether caches share them or not, and forgets those that were
  /// used least recently when there would be more. Throws ArgumentError if max_bytes is negative, and as ModelCache's
  /// constructor does.
  PrefixIndex(const Weights<Scalar>& weights, StoredType stored, Index max_bytes);

  /// Shares the cache's pages that are full, up to the first position whose id is unknown; the cache stays as it is.
  /// What is known already counts as used. Throws ArgumentError for a cache of another shape or stored type, whose
  /// layers are out of step, or that does not keep all positions. That a cache of the right shape is one of these
  /// weights is for the caller to see to.
  void insert(const ModelCache<Scalar>& cache);

  /// A cache that holds the longest beginning of `ids` that is known, but not their last one, so that there is a step
  /// left to compute logits in. It shares its pages; one of which only a part agrees is copied when it is written into.
  ModelCache<Scalar> find(TokenIds ids);

  /// What its pages take in memory, those included that caches share: at most max_bytes.
  Index bytes() const { return static_cast<Index>(nodes_.size()) * node_bytes_; }

 private:
  /// A page of a tree: which page it follows, 0 for none, and the ids of its positions.
  using Key = std::pair<Index, std::vector<int>>;

  struct Node {
    Index number;                                     ///< from 1 on, never used again
    std::vector<detail::Page> pages;                  ///< of each layer
    typename std::list<const Key*>::iterator recent;  ///< its place in recent_
  };

  /// One below another, from the root on.
  using Path = std::vector<typename std::map<Key, Node>::iterator>;

  void use(const Path& path);

  Config config_;
  ModelCache<Scalar> empty_;
  Index max_bytes_;
  Index node_bytes_;
  Index last_number_ = 0;
  std::map<Key, Node> nodes_;
  std::list<const Key*> recent_;  ///< of all nodes: the most recently used first, and each before those below it
};

}}  // namespace driftless::DRIFTLESS_ABI

#ifndef DRIFTLESS_COMPILED
#include "driftless/detail/model/prefix_index.hpp"
#endif
