#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <set>
#include <span>
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
inline constexpr std::size_t kEnoughResults = 3;
inline constexpr std::size_t kMostResults = 8;

/// The small models take a second; nobody waits for minutes until the larger one has been tried with every pair.
inline constexpr std::chrono::seconds kLongestSearch{5};

inline std::ptrdiff_t firstDifference(const std::vector<int>& a, const std::vector<int>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// As many ids as tell enough, since what comes after that costs time to compute again.
inline std::ptrdiff_t tellingCount(const std::vector<int>& wrong, const std::vector<int>& right) {
  return firstDifference(wrong, right) + kMostTellingIds;
}

inline std::vector<int> firstOf(const std::vector<int>& ids, std::ptrdiff_t count) {
  return {ids.begin(), ids.begin() + std::min(std::ssize(ids), count)};
}

inline bool isNear(const Matrix<float>& a, const Matrix<float>& b, double share) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return false;
  // The infinities of a mask have no difference, nor has what is not a number.
  const bool is_same = std::memcmp(a.data(), b.data(), sizeof(float) * static_cast<std::size_t>(a.size())) == 0;
  return is_same || findWorst(a, b).share <= share;
}

inline bool agree(const Matrix<float>& a, const Matrix<float>& b) { return isNear(a, b, kShareOfTolerance); }
inline bool agree(const std::vector<int>& a, const std::vector<int>& b) { return a == b; }
/// The logits tell enough; another implementation's cache may hold keys and values in another way.
inline bool agree(const adapters::Prefilled& a, const adapters::Prefilled& b) { return agree(a.logits, b.logits); }

/// Keys and values count where nothing else is wrong.
inline bool agreeInAll(const adapters::Prefilled& a, const adapters::Prefilled& b) {
  const auto agreeByLayer = [](const std::vector<Matrix<float>>& left, const std::vector<Matrix<float>>& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](const auto& x, const auto& y) { return agree(x, y); });
  };
  return agree(a, b) && agreeByLayer(a.keys, b.keys) && agreeByLayer(a.values, b.values);
}
template <class A, class B>
bool agreeInAll(const A& a, const B& b) {
  return agree(a, b);
}

/// Why a wrong result is not enough to recognise a mistake by it; nothing if it is.
inline std::string whyNotTelling(const std::vector<int>& wrong, const std::vector<int>& right) {
  const std::ptrdiff_t same = firstDifference(wrong, right);
  const bool is_of_other_length = same == std::ssize(wrong) || same == std::ssize(right);
  if (is_of_other_length || std::ssize(wrong) >= same + kFewestTellingIds) return "";
  return "there are too few wrong ids to tell by";
}
inline std::string whyNotTelling(const Matrix<float>& wrong, const Matrix<float>&) {
  if (!wrong.hasNaN()) return "";
  return "the results are not numbers (NaN), which is what softmax gives for a row that sees nothing, not even itself";
}
inline std::string whyNotTelling(const adapters::Prefilled& wrong, const adapters::Prefilled&) {
  return whyNotTelling(wrong.logits, wrong.logits);
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

/// The position that the graded code has told last, if any, for messages.
inline std::string reachedPosition() {
  return adapters::position < 0 ? "" : ", at position " + std::to_string(adapters::position);
}

/// Calls what is graded, `what` being the case in words. If it throws or crashes, the report says so, and how far it
/// came.
template <class Call>
auto graded(const std::string& what, Call call) {
  adapters::position = -1;
  INFO("in: ", what, reachedPosition());
  return call();
}

/// Collects the wrong results of a test case and, at its end, names the known mistake, or else the two, that would have
/// given all of them. Declare it before the hint. It computes nothing as long as all is right.
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

  /// What to call if `actual`, which call() gave, turns out to be wrong, `what` being the case in words:
  /// resultOf(mistakes) is what an implementation gives that has just these. Calls after the first do nothing. Refers
  /// to `actual` and keeps a copy of resultOf.
  template <class Actual, class Call, class ResultOf>
  auto of(const std::string& what, const Actual& actual, Call call, ResultOf resultOf) {
    return [this, what, &actual, call, resultOf, is_considered = false]() mutable {
      if (!std::exchange(is_considered, true)) consider(what, actual, call, resultOf);
    };
  }

  /// The same for a resultOf that asks a PlainModel.
  template <class Actual, class Call, class ResultOf>
  auto of(const std::string& what, const Parameters<float>& parameters, const Actual& actual, Call call,
          ResultOf resultOf) {
    return of(what, actual, call, [&parameters, resultOf](planted::Mistakes mistakes) {
      return resultOf(PlainModel(parameters, mistakes));
    });
  }

  /// Checks that call() gives again what it gave before.
  template <class Call, class Actual>
  void checkRepeats(const std::string& what, Call call, const Actual& actual) {
    const bool repeats = repeatsItself(call, actual);
    if (!repeats) {
      if (first_.empty()) first_ = what;
      is_left_over_ = true;
    }
    CHECK_MESSAGE(repeats, what, ": the same call does not give the same when it is made again");
  }

 private:
  bool isSettled() const {
    return is_left_over_ || fits_.size() >= kMostResults || (suspects_.size() == 1 && fits_.size() >= kEnoughResults);
  }

  template <class Call, class Actual>
  static bool repeatsItself(const Call& call, const Actual& actual) {
    try {
      return agreeInAll(call(), actual);
    } catch (const std::exception&) {
      return false;
    }
  }

  template <class Actual, class Call, class ResultOf>
  void consider(const std::string& what, const Actual& wrong, const Call& call, const ResultOf& resultOf) {
    if (isSettled()) return;
    const auto right = resultOf({});
    if (first_.empty()) {
      first_ = what + partingOf(wrong, right);
      is_left_over_ = !repeatsItself(call, wrong);
      if (is_left_over_) return;
    }
    why_not_telling_ = agreeInAll(wrong, right) ? "the results are right to within a tenth of what is allowed"
                                                : whyNotTelling(wrong, right);
    if (!why_not_telling_.empty()) return;
    const bool is_right = agree(wrong, right);  // as far as agree looks
    fits_.push_back([wrong, resultOf, is_right](planted::Mistakes mistakes) {
      return is_right ? agreeInAll(wrong, resultOf(mistakes)) : agree(wrong, resultOf(mistakes));
    });
    std::erase_if(suspects_, [&](const planted::KnownMistake* known) { return !fits_.back()({known->mistake}); });
  }

  /// Whether the mistakes give all results so far.
  bool explain(planted::Mistakes mistakes) const {
    return std::all_of(fits_.begin(), fits_.end(), [&](const auto& fits) { return fits(mistakes); });
  }

  std::string text() {
    const std::string end = ". Things part first in: " + first_;
    if (is_left_over_)
      return "diagnosis: " + nameOf(planted::Mistake::left_over_from_earlier_call) + ". " +
             explanationOf(planted::Mistake::left_over_from_earlier_call) + end;
    if (fits_.empty()) return "no diagnosis: " + why_not_telling_ + end;
    std::vector<planted::Mistakes> found;
    for (const planted::KnownMistake* known : suspects_) found.push_back({known->mistake});
    if (found.empty()) found = pairs();
    if (found.empty()) return "diagnosis: none, no known mistake gives these results, nor were two found that do" + end;
    std::string names, explanations;
    for (const planted::Mistakes& mistakes : found) {
      named_.insert(mistakes.first);
      names += (names.empty() ? "" : " or ") + nameOf(mistakes.first);
      explanations += (explanations.empty() ? "" : "; and also when ") + explanationOf(mistakes.first);
      if (mistakes.second == planted::Mistake::none) continue;
      named_.insert(mistakes.second);
      names += " and " + nameOf(mistakes.second);
      explanations += ", and besides, " + explanationOf(mistakes.second);
    }
    return "diagnosis: " + names + ". " +
           (fits_.size() == 1 ? "The wrong result is"
                              : "The first " + std::to_string(fits_.size()) + " wrong results are") +
           " what comes out when " + explanations +
           (found.size() > 1 ? ". The results do not tell which of these it is" : "") + end;
  }

  /// Two mistakes at once that explain the results. There are thousands of pairs, so those are tried first of which one
  /// has been named in an earlier test case, and if all were tried in vain once, none is again.
  std::vector<planted::Mistakes> pairs() const {
    static bool is_in_vain = false;
    const auto deadline = std::chrono::steady_clock::now() + kLongestSearch;
    std::vector<planted::Mistakes> found;
    const auto tryWith = [&](planted::Mistake first, auto seconds) {
      for (const planted::KnownMistake& second : seconds)
        if (std::chrono::steady_clock::now() < deadline && explain({first, second.mistake}))
          found.push_back({first, second.mistake});
    };
    const std::span known(planted::kKnownMistakes);
    for (auto named = named_.begin(); named != named_.end(); ++named) {
      std::vector<planted::KnownMistake> others;  // each pair once
      std::copy_if(known.begin(), known.end(), std::back_inserter(others), [&](const planted::KnownMistake& other) {
        return std::find(named_.begin(), std::next(named), other.mistake) == std::next(named);
      });
      tryWith(*named, others);
    }
    if (!found.empty() || is_in_vain) return found;
    for (std::size_t i = 0; i < known.size(); ++i) tryWith(known[i].mistake, known.subspan(i + 1));
    is_in_vain = found.empty();
    return found;
  }

  static const planted::KnownMistake& entryOf(planted::Mistake mistake) {
    return *std::find_if(std::begin(planted::kKnownMistakes), std::end(planted::kKnownMistakes),
                         [&](const planted::KnownMistake& known) { return known.mistake == mistake; });
  }
  static std::string nameOf(planted::Mistake mistake) { return entryOf(mistake).name; }
  static std::string explanationOf(planted::Mistake mistake) { return entryOf(mistake).explanation; }

  inline static std::set<planted::Mistake> named_;            ///< in any test case so far
  std::vector<const planted::KnownMistake*> suspects_;        ///< that explain by themselves all results so far
  std::vector<std::function<bool(planted::Mistakes)>> fits_;  ///< for each result, whether mistakes give it
  bool is_left_over_ = false;
  std::string first_;
  std::string why_not_telling_;
};

}  // namespace driftless::test
