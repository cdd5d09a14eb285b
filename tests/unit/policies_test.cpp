#include "driftless/policies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "driftless/error.hpp"

using namespace driftless;

namespace {

/// A head as a cache would show it: tokens are added one by one, with weights that the test makes up.
class HandMadeHead {
 public:
  explicit HandMadeHead(const CachePolicy& policy) : policy_(policy) {}

  /// The next token, with these weights over what is kept and itself, and this key.
  const std::vector<Index>& add(const std::vector<double>& attention, const RowVector<double>& key) {
    positions_.push_back(next_++);
    keys_.push_back(key);
    notes_.emplace_back(static_cast<std::size_t>(policy_.statistics()), 0.0);
    REQUIRE(attention.size() == positions_.size());
    const Index n = static_cast<Index>(positions_.size());
    Matrix<double> notes(n, policy_.statistics());
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < notes.cols(); ++j)
        notes(i, j) = notes_[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    const auto keys = [&] {
      Matrix<double> matrix(n, key.size());
      for (Index i = 0; i < n; ++i) matrix.row(i) = keys_[static_cast<std::size_t>(i)];
      return matrix;
    };
    CachedHead head{1, 2, positions_, attention, {notes.data(), n, notes.cols()}, keys, keys};
    const auto keep = std::make_unique<bool[]>(positions_.size());
    std::fill_n(keep.get(), n, true);
    policy_.choose(head, {keep.get(), positions_.size()});
    for (Index i = n - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      for (Index j = 0; j < notes.cols(); ++j) notes_[at][static_cast<std::size_t>(j)] = notes(i, j);
      if (keep[at]) continue;
      positions_.erase(positions_.begin() + i);
      keys_.erase(keys_.begin() + i);
      notes_.erase(notes_.begin() + i);
    }
    return positions_;
  }
  /// The same with equal weights and a key of no account.
  const std::vector<Index>& add() {
    return add(std::vector<double>(positions_.size() + 1, 1.0 / static_cast<double>(positions_.size() + 1)),
               RowVector<double>::Ones(2));
  }

 private:
  const CachePolicy& policy_;
  Index next_ = 0;
  std::vector<Index> positions_;
  std::vector<RowVector<double>> keys_;
  std::vector<std::vector<double>> notes_;
};

using Positions = std::vector<Index>;

Positions afterTokens(const CachePolicy& policy, int tokens) {
  HandMadeHead head(policy);
  Positions kept;
  for (int i = 0; i < tokens; ++i) kept = head.add();
  return kept;
}

RowVector<double> key(double x, double y) { return RowVector<double>{{x, y}}; }

std::vector<int> kept(const std::vector<double>& scores, Index budget) {
  std::array<bool, 8> keep{};
  keep.fill(true);
  keepLargest(scores, budget, std::span(keep).first(scores.size()));
  std::vector<int> indices;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (keep[i]) indices.push_back(static_cast<int>(i));
  return indices;
}

}  // namespace

TEST_CASE("policies: the largest scores are kept, of equal ones the later") {
  using Indices = std::vector<int>;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  CHECK(kept({3, 1, 2}, 2) == Indices{0, 2});
  CHECK(kept({3, 1, 2}, 3) == Indices{0, 1, 2});
  CHECK(kept({3, 1, 2}, 9) == Indices{0, 1, 2});
  CHECK(kept({3, 1, 2}, 0).empty());
  CHECK(kept({}, 0).empty());
  CHECK(kept({1, 1, 1, 1}, 2) == Indices{2, 3});
  CHECK(kept({2, 1, 1, 1}, 2) == Indices{0, 3});
  CHECK(kept({kNan, -kInfinity, 0, kNan, -1}, 2) == Indices{2, 4});
  CHECK(kept({kInfinity, kNan, 5}, 2) == Indices{0, 2});
  CHECK_THROWS_WITH_AS(kept({1}, -1), "keepLargest: expected a budget of 0 or more, got -1", ArgumentError);
  std::array<bool, 2> keep{};
  CHECK_THROWS_WITH_AS(keepLargest(std::vector<double>{1}, 1, keep),
                       "keepLargest: expected as many scores as positions, 2, got 1", ArgumentError);
}

TEST_CASE("policies: those that look at positions alone") {
  CHECK(afterTokens(KeepAll(), 4) == Positions{0, 1, 2, 3});
  CHECK(afterTokens(SlidingWindow(3), 2) == Positions{0, 1});
  CHECK(afterTokens(SlidingWindow(3), 9) == Positions{6, 7, 8});
  CHECK(afterTokens(AttentionSinks(5, 2), 5) == Positions{0, 1, 2, 3, 4});
  CHECK(afterTokens(AttentionSinks(5, 2), 9) == Positions{0, 1, 6, 7, 8});
  CHECK(afterTokens(AttentionSinks(6), 9) == Positions{0, 1, 2, 3, 7, 8});
  CHECK(afterTokens(AttentionSinks(1, 0), 9) == Positions{8});
}

TEST_CASE("policies: those that look at attention") {
  const HeavyHitters hitters(3, 1);
  HandMadeHead sums(hitters);
  sums.add({1}, key(0, 0));
  sums.add({0.25, 0.75}, key(0, 0));
  sums.add({0.25, 0.5, 0.25}, key(0, 0));
  // 0 has 1.5 + 0.25, 1 has 1.25, 2 has 0.25 + 0.5; 3 has nothing, and is recent.
  CHECK(sums.add({0.25, 0, 0.5, 0.25}, key(0, 0)) == Positions{0, 1, 3});
  // 1 has 1.25 against 0.25 + 1 of 3, which is the later.
  CHECK(sums.add({0, 0, 1, 0}, key(0, 0)) == Positions{0, 3, 4});
  CHECK(afterTokens(HeavyHitters(4), 9) == afterTokens(HeavyHitters(4, 2), 9));
  CHECK(afterTokens(HeavyHitters(2, 2), 9) == Positions{7, 8});

  const Tova tova(2);
  HandMadeHead last(tova);
  last.add({1}, key(0, 0));
  last.add({0.5, 0.5}, key(0, 0));
  CHECK(last.add({0.5, 0.25, 0.25}, key(0, 0)) == Positions{0, 2});
  CHECK(last.add({0.5, 0.4, 0.1}, key(0, 0)) == Positions{0, 2});

  // Only the last two tokens count: position 0 has had the most before.
  const SnapKv narrow(3, 2, 1);
  HandMadeHead votes(narrow);
  votes.add({1}, key(0, 0));
  votes.add({1, 0}, key(0, 0));
  votes.add({0.25, 0.5, 0.25}, key(0, 0));
  CHECK(votes.add({0, 0.25, 0.5, 0.25}, key(0, 0)) == Positions{1, 2, 3});
  // By itself position 1 has the least; but it has neighbours on both sides.
  const SnapKv pooled(3, 1, 3);
  HandMadeHead neighbours(pooled);
  neighbours.add({1}, key(0, 0));
  neighbours.add({0.5, 0.5}, key(0, 0));
  neighbours.add({0.25, 0.5, 0.25}, key(0, 0));
  CHECK(neighbours.add({0.375, 0.125, 0.5, 0}, key(0, 0)) == Positions{1, 2, 3});
  CHECK(afterTokens(SnapKv(2, 2), 9) == Positions{7, 8});
}

TEST_CASE("policies: those that look at keys") {
  const KeyNorm norm(2);
  HandMadeHead norms(norm);
  norms.add({1}, key(3, 4));
  norms.add({0, 1}, key(0, -2));
  CHECK(norms.add({0, 0, 1}, key(3, 3)) == Positions{1, 2});
  CHECK(norms.add({0, 0, 1}, key(9, 9)) == Positions{1, 2});

  const KeyDiff diff(2);
  HandMadeHead directions(diff);
  directions.add({1}, key(1, 0));
  directions.add({0, 1}, key(0, 1e-3));
  // Two of three point to the right, and the longer is not the more alike.
  CHECK(directions.add({0, 0, 1}, key(100, 1)) == Positions{0, 1});
  CHECK(directions.add({0, 0, 1}, key(0, 0)) == Positions{1, 3});  // no direction: like nothing
}

TEST_CASE("policies: random positions are the same again, and all of them come up") {
  const Positions some = afterTokens(RandomPositions(3), 40);
  CHECK(some.size() == 3);
  CHECK(afterTokens(RandomPositions(3), 40) == some);
  CHECK(afterTokens(RandomPositions(3, 1), 40) != some);
  std::vector<int> times(8, 0);
  for (std::uint64_t seed = 0; seed < 4000; ++seed)
    for (const Index position : afterTokens(RandomPositions(2, seed), 8)) ++times[static_cast<std::size_t>(position)];
  // 1000 are expected of each, with a standard deviation of 27.
  for (const int count : times) CHECK(std::abs(count - 1000) < 140);
}

TEST_CASE("policies: numbers that make no sense are refused by name") {
  CHECK_THROWS_WITH_AS(SlidingWindow(0), "expected a budget of at least 1, got 0", ArgumentError);
  CHECK_THROWS_WITH_AS(AttentionSinks(-1), "expected a budget of at least 1, got -1", ArgumentError);
  CHECK_THROWS_WITH_AS(AttentionSinks(4), "expected sinks from 0 to 3 in a budget of 4, got 4", ArgumentError);
  CHECK_THROWS_WITH_AS(AttentionSinks(4, -1), "expected sinks from 0 to 3 in a budget of 4, got -1", ArgumentError);
  CHECK_THROWS_AS(HeavyHitters(0), ArgumentError);
  CHECK_THROWS_WITH_AS(HeavyHitters(3, 4), "expected recent from 0 to 3 in a budget of 3, got 4", ArgumentError);
  CHECK_THROWS_AS(Tova(0), ArgumentError);
  CHECK_THROWS_WITH_AS(SnapKv(8), "expected window from 1 to 8 in a budget of 8, got 16", ArgumentError);
  CHECK_THROWS_WITH_AS(SnapKv(8, 0), "expected window from 1 to 8 in a budget of 8, got 0", ArgumentError);
  CHECK_THROWS_WITH_AS(SnapKv(8, 4, 4), "expected pooling to be an odd number from 1 on, got 4", ArgumentError);
  CHECK_THROWS_AS(SnapKv(8, 4, -1), ArgumentError);
  CHECK_THROWS_AS(KeyNorm(0), ArgumentError);
  CHECK_THROWS_AS(KeyDiff(0), ArgumentError);
  CHECK_THROWS_AS(RandomPositions(0), ArgumentError);
}
