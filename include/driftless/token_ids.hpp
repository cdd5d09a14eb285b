#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

/// Elements in somebody else's memory, for the length of a call: a span that braces can be given for too.
template <class T>
struct ArgumentSpan : std::span<const T> {
  using std::span<const T>::span;
  /// The elements of another span.
  ArgumentSpan(std::span<const T> elements) : std::span<const T>(elements) {}  // NOLINT(google-explicit-constructor)
  /// Those in braces, which live until the end of the call: not for an object with a name.
  ArgumentSpan(std::initializer_list<T> elements) : std::span<const T>(elements.begin(), elements.size()) {}
};

/// The token ids of one sequence: `prefill(ids, ...)`, `prefill({1, 2, 3}, ...)`.
using TokenIds = ArgumentSpan<int>;

/// The token ids of several prompts.
using Prompts = ArgumentSpan<std::vector<int>>;

}}  // namespace driftless::DRIFTLESS_ABI
