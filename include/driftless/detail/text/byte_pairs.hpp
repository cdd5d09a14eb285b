#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// What a pair of neighbouring tokens becomes. The lower rank goes first.
struct Merge {
  std::size_t rank;
  int id;
};

class MergeTable {
 public:
  /// False if the pair has a merge already.
  bool insert(int left, int right, Merge merge) { return merges_.emplace(key(left, right), merge).second; }

  /// Null if the pair does not merge.
  const Merge* find(int left, int right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

 private:
  static std::uint64_t key(int left, int right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
  }

  std::unordered_map<std::uint64_t, Merge> merges_;
};

/// Byte-pair encoding of one word after another, in the original's order: the pair of lowest rank, all its occurrences
/// from left to right, and only then another look at the ranks. Takes O(n log n) for a word of n bytes: the tokens are
/// a linked list, and the pairs that can merge are a heap. Only the memory is shared between words.
class WordMerger {
 public:
  /// `byte_ids` holds the token of every single byte. Both arguments must outlive the merger.
  WordMerger(const MergeTable& merges, const std::array<int, 256>& byte_ids) : merges_(merges), byte_ids_(byte_ids) {}

  /// Appends the tokens of `word` to `ids`.
  void encode(std::string_view word, std::vector<int>& ids) {
    start(word);
    while (!candidates_.empty()) mergeLowestRank();
    for (std::size_t at = 0; at < symbols_.size(); at = symbols_[at].next) ids.push_back(symbols_[at].id);
  }

 private:
  /// A token of the word, at the place of its first byte. For the last one, `next` is the size of the word.
  struct Symbol {
    int id;  ///< kAbsorbed once it is part of the symbol before it
    std::size_t previous;
    std::size_t next;
  };

  /// The pair of the symbol at `left` and the one after it had a merge of this rank when it was found.
  struct Candidate {
    std::size_t rank;
    std::size_t left;

    friend auto operator<=>(const Candidate&, const Candidate&) = default;
  };

  static constexpr int kAbsorbed = -1;

  void start(std::string_view word) {
    symbols_.clear();
    for (std::size_t at = 0; at < word.size(); ++at) {
      symbols_.push_back({byte_ids_[static_cast<unsigned char>(word[at])], at - 1, at + 1});
    }
    for (std::size_t at = 0; at < symbols_.size(); ++at) propose(at);
  }

  const Merge* mergeAt(std::size_t left) const {
    const Symbol& symbol = symbols_[left];
    if (symbol.id == kAbsorbed || symbol.next == symbols_.size()) return nullptr;
    return merges_.find(symbol.id, symbols_[symbol.next].id);
  }

  void propose(std::size_t left) {
    const Merge* merge = mergeAt(left);
    if (merge == nullptr) return;
    candidates_.push_back({merge->rank, left});
    std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
  }

  Candidate popCandidate() {
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    const Candidate candidate = candidates_.back();
    candidates_.pop_back();
    return candidate;
  }

  void mergeLowestRank() {
    const std::size_t rank = candidates_.front().rank;
    merged_.clear();
    while (!candidates_.empty() && candidates_.front().rank == rank) {
      const std::size_t left = popCandidate().left;
      const Merge* merge = mergeAt(left);
      if (merge == nullptr || merge->rank != rank) continue;  // a neighbour has changed since it was found
      absorbNext(left, merge->id);
      merged_.push_back(left);
    }
    // Only now: a new pair may have a lower rank than this one, in an unusual table.
    for (const std::size_t left : merged_) {
      if (left > 0) propose(symbols_[left].previous);
      propose(left);
    }
  }

  void absorbNext(std::size_t left, int id) {
    Symbol& symbol = symbols_[left];
    Symbol& absorbed = symbols_[symbol.next];
    symbol.id = id;
    symbol.next = absorbed.next;
    absorbed.id = kAbsorbed;
    if (symbol.next < symbols_.size()) symbols_[symbol.next].previous = left;
  }

  const MergeTable& merges_;
  const std::array<int, 256>& byte_ids_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> merged_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
