#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "planted/plain_cached.hpp"
#include "support/tolerance.hpp"

/// Finds the mistake that explains wrong results.
namespace driftless::test {

using planted::PlainModel;

/// Results are told apart far more finely than by the stages' tolerance, yet not by what another order of sums changes.
inline constexpr double kShareOfTolerance = 0.1;

/// A continuation may share a few ids with that of a mistake by chance, but this many only if it has the mistake.
inline constexpr std::ptrdiff_t kFewestTellingIds = 4;
inline constexpr std::ptrdiff_t kMostTellingIds = 8;

/// Evidence enough against a single suspect; another wrong result could only tell of a second mistake.
inline constexpr int kEnoughResults = 3;

inline std::ptrdiff_t firstDifference(const std::vector<int>& a, const std::vector<int>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// Wrong ids up to where they have told enough, since what comes after that costs time to compute again.
inline std::vector<int> tellingIds(std::vector<int> wrong, const std::vector<int>& right) {
  wrong.resize(static_cast<std::size_t>(std::min(std::ssize(wrong), firstDifference(wrong, right) + kMostTellingIds)));
  return wrong;
}

inline bool isNear(const Matrix<float>& a, const Matrix<float>& b, double share) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  return a == b || findWorst(a, b).share <= share;  // equal infinities, as in a mask, have no difference
}

inline bool agree(const Matrix<float>& a, const Matrix<float>& b) { return isNear(a, b, kShareOfTolerance); }
inline bool agree(const std::vector<int>& a, const std::vector<int>& b) { return a == b; }
/// The logits tell enough; another implementation's cache may hold keys and values in another way.
inline bool agree(const adapters::Prefilled& a, const adapters::Prefilled& b) { return agree(a.logits, b.logits); }

/// Whether there is enough of a wrong result to recognise a mistake by it.
inline bool isTelling(const std::vector<int>& wrong, const std::vector<int>& right) {
  return std::ssize(wrong) >= firstDifference(wrong, right) + kFewestTellingIds;
}
template <class Wrong, class Right>
bool isTelling(const Wrong&, const Right&) {
  return true;
}

/// Where a result parts from the right one, for messages.
inline std::string partingOf(const Matrix<float>& wrong, const Matrix<float>& right) {
  if (wrong.rows() != right.rows())
    return ", " + std::to_string(wrong.rows()) + " rows instead of " + std::to_string(right.rows());
  for (Index row = 0; row < right.rows(); ++row)
    if (!isNear(wrong.row(row), right.row(row), 1)) return ", row " + std::to_string(row);
  return "";
}
/// One token has but one row of logits; for ids, the check itself says where.
inline std::string partingOf(const RowVector<float>&, const Matrix<float>&) { return ""; }
inline std::string partingOf(const std::vector<int>&, const std::vector<int>&) { return ""; }
inline std::string partingOf(const adapters::Prefilled& wrong, const adapters::Prefilled& right) {
  for (std::size_t layer = 0; layer < std::min(wrong.keys.size(), right.keys.size()); ++layer) {
    const std::string keys = partingOf(wrong.keys[layer], right.keys[layer]);
    const std::string values = partingOf(wrong.values[layer], right.values[layer]);
    if (keys.empty() && values.empty()) continue;
    return ", layer " + std::to_string(layer) + (keys.empty() ? ", values" + values : ", keys" + keys);
  }
  return ", after the last layer's keys and values, which are right";
}

/// Collects the wrong results of a test case and, at its end, names the known mistake that would have given all of
/// them, if there is just one. Declare it before the hint. It computes nothing as long as all is right.
class Diagnosis {
 public:
  Diagnosis() {
    for (const planted::KnownMistake& known : planted::kKnownMistakes) suspects_.push_back(&known);
  }
  Diagnosis(const Diagnosis&) = delete;
  Diagnosis& operator=(const Diagnosis&) = delete;
  ~Diagnosis() {
    if (!first_.empty()) MESSAGE(text());
  }

  /// What to call if `actual` turns out to be wrong, `what` being the case in words: resultOf(mistake) is what an
  /// implementation gives that has this mistake alone. Calls after the first do nothing. Refers to `actual`.
  template <class Actual, class ResultOf>
  auto of(const std::string& what, const Actual& actual, ResultOf resultOf) {
    return [this, what, &actual, resultOf, is_considered = false]() mutable {
      if (!std::exchange(is_considered, true)) consider(what, actual, resultOf);
    };
  }

  /// The same for a resultOf that asks a PlainModel.
  template <class Actual, class ResultOf>
  auto of(const std::string& what, const Parameters<float>& parameters, const Actual& actual, ResultOf resultOf) {
    return of(what, actual,
              [&parameters, resultOf](planted::Mistake mistake) { return resultOf(PlainModel(parameters, mistake)); });
  }

 private:
  bool isSettled() const { return suspects_.empty() || (suspects_.size() == 1 && results_ >= kEnoughResults); }

  template <class Actual, class ResultOf>
  void consider(const std::string& what, const Actual& wrong, const ResultOf& resultOf) {
    if (isSettled()) return;
    const auto right = resultOf(planted::Mistake::none);
    if (first_.empty()) first_ = what + partingOf(wrong, right);
    if (!isTelling(wrong, right)) return;
    ++results_;
    const bool is_right = agree(wrong, right);  // as far as agree looks
    std::erase_if(suspects_, [&](const planted::KnownMistake* known) {
      return is_right || !agree(wrong, resultOf(known->mistake));
    });
  }

  std::string text() const {
    const std::string end = ". Things part first in: " + first_;
    if (results_ == 0) return "diagnosis: none, there are too few wrong ids to tell by" + end;
    if (suspects_.empty()) return "diagnosis: none, no known mistake gives these results by itself" + end;
    std::string names, explanations;
    for (const planted::KnownMistake* known : suspects_) {
      names += (names.empty() ? "" : " or ") + std::string(known->name);
      explanations += (explanations.empty() ? "" : "; and also when ") + std::string(known->explanation);
    }
    return "diagnosis: " + names + ". " +
           (results_ == 1 ? "The wrong result is" : "The first " + std::to_string(results_) + " wrong results are") +
           " what comes out when " + explanations +
           (suspects_.size() > 1 ? ". The results do not tell which of these it is" : "") + end;
  }

  std::vector<const planted::KnownMistake*> suspects_;
  int results_ = 0;
  std::string first_;
};

}  // namespace driftless::test
