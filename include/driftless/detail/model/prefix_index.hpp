#pragma once

#include <algorithm>
#include <iterator>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "driftless/detail/messages.hpp"
#include "driftless/detail/model/cache.hpp"
#include "driftless/error.hpp"
#include "driftless/prefix_index.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template <FloatingScalar Scalar>
PrefixIndex<Scalar>::PrefixIndex(const Weights<Scalar>& weights, StoredType stored, Index max_bytes)
    : config_(weights.config),
      empty_(weights, stored),
      max_bytes_(max_bytes),
      node_bytes_(empty_.layers() * empty_.layer(0).bytesFor(detail::kPage)) {
  if (max_bytes < 0) detail::raise<ArgumentError>({"PrefixIndex: expected max_bytes of 0 or more, got ", max_bytes});
}

template <FloatingScalar Scalar>
void PrefixIndex<Scalar>::insert(const ModelCache<Scalar>& cache) {
  detail::checkCache(cache, config_);
  for (Index layer = 0; layer < cache.layers(); ++layer)
    if (cache.layer(layer).stored() != empty_.layer(layer).stored())
      detail::raise<ArgumentError>({"PrefixIndex: expected a cache stored as ", nameOf(empty_.layer(layer).stored()),
                                    ", got ", nameOf(cache.layer(layer).stored()), " in layer ", layer});
  detail::checkKeepsAll("PrefixIndex", cache);
  const std::vector<int>& ids = cache.ids();
  const Index known = std::find(ids.begin(), ids.end(), -1) - ids.begin();
  Path path;
  for (Index begin = 0; begin + detail::kPage <= known; begin += detail::kPage) {
    Key key{path.empty() ? 0 : path.back()->second.number, {ids.begin() + begin, ids.begin() + begin + detail::kPage}};
    auto node = nodes_.find(key);
    if (node == nodes_.end()) {
      std::list<const Key*> recent(1);
      node = nodes_
                 .emplace(std::move(key),
                          Node{++last_number_, detail::CacheAccess::sharePages(cache, begin), recent.begin()})
                 .first;
      recent.front() = &node->first;
      recent_.splice(recent_.end(), recent);
    }
    path.push_back(node);
  }
  use(path);
  while (bytes() > max_bytes_) {
    nodes_.erase(nodes_.find(*recent_.back()));
    recent_.pop_back();
  }
}

template <FloatingScalar Scalar>
ModelCache<Scalar> PrefixIndex<Scalar>::find(TokenIds ids) {
  ModelCache<Scalar> cache = empty_.clone();
  const Index most = (std::min)(std::ssize(ids) - 1, cache.capacity());
  Path path;
  while (cache.length() < most && cache.length() % detail::kPage == 0) {
    const Key wanted{path.empty() ? 0 : path.back()->second.number,
                     {ids.begin() + cache.length(), ids.begin() + (std::min)(cache.length() + detail::kPage, most)}};
    // In their order, the page that agrees with the most of these ids is next to where they would be themselves.
    const auto next = nodes_.lower_bound(wanted);
    auto best = nodes_.end();
    std::ptrdiff_t agreeing = 0;
    const auto consider = [&](auto node) {
      if (node->first.first != wanted.first) return;
      const auto difference = std::mismatch(wanted.second.begin(), wanted.second.end(), node->first.second.begin());
      if (difference.first - wanted.second.begin() <= agreeing) return;
      agreeing = difference.first - wanted.second.begin();
      best = node;
    };
    if (next != nodes_.end()) consider(next);
    if (next != nodes_.begin()) consider(std::prev(next));
    if (best == nodes_.end()) break;
    detail::CacheAccess::addPages(cache, best->second.pages,
                                  std::span(wanted.second).first(static_cast<std::size_t>(agreeing)));
    path.push_back(best);
  }
  use(path);
  return cache;
}

template <FloatingScalar Scalar>
void PrefixIndex<Scalar>::use(const Path& path) {
  for (auto node = path.rbegin(); node != path.rend(); ++node)
    recent_.splice(recent_.begin(), recent_, (*node)->second.recent);
}

}}  // namespace driftless::DRIFTLESS_ABI
