#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/logarithm.hpp"
#include "driftless/detail/model/logits_check.hpp"
#include "driftless/detail/model/step_plan.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/request.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A beam, the id that it could go on with, and the sum of log-probabilities that it would then have.
struct BeamCandidate {
  double sum;
  std::size_t beam;
  int id;
};

/// The order in which candidates are taken: on ties the lower beam goes first, then the lower id.
inline bool isBetter(const BeamCandidate& a, const BeamCandidate& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
}

/// The best of all candidates that were put in.
class BestCandidates {
 public:
  explicit BestCandidates(std::size_t most) : most_(most) {}

  bool wants(const BeamCandidate& candidate) const {
    return heap_.size() < most_ || isBetter(candidate, heap_.front());
  }

  void put(const BeamCandidate& candidate) {
    if (!wants(candidate)) return;
    if (heap_.size() == most_) {
      std::pop_heap(heap_.begin(), heap_.end(), isBetter);
      heap_.pop_back();
    }
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), isBetter);
  }

  /// The best first.
  std::vector<BeamCandidate> takeSorted() {
    std::sort_heap(heap_.begin(), heap_.end(), isBetter);
    return std::exchange(heap_, {});
  }

 private:
  std::size_t most_;
  std::vector<BeamCandidate> heap_ = {};  ///< the worst in front
};

/// length^penalty, the same bits on every platform, which the standard's pow need not be.
inline double powerOfLength(Index length, double penalty) {
  std::array<double, std::size_t{kLanes}> powers;
  powers.fill(penalty * naturalLogarithm(static_cast<double>(length)));
  kernels<double>().exponentiate(powers.data(), kLanes);
  return powers.front();
}

/// A search for the likeliest continuations of a prompt, as Hugging Face transformers does it. Of all ways to go on
/// from `num_beams` beams by one id, the best that are no stop ids are the next beams. A stop id that is among the
/// `num_beams` best of all ends a continuation, whose score is its sum of log-probabilities by its length, that id
/// included, to the power of length_penalty. Kept are the `num_beams` best of those.
template <class Scalar>
class BeamSearch {
 public:
  /// `ids` are the prompt, whose positions are in the cache.
  BeamSearch(const GenerateOptions& options, std::vector<int> ids, ModelCache<Scalar> cache)
      : options_(&options), prompt_tokens_(ids.size()) {
    const Index room = cache.capacity() - static_cast<Index>(ids.size()) + 1;  // the last id needs no position
    longest_ = (std::min)(options.max_tokens, room);
    beams_.push_back({std::move(ids), {}, std::move(cache), 0});
  }

  bool goesOn() const { return goes_on_; }
  /// Of the best beam.
  const ModelCache<Scalar>& cache() const { return beams_.front().cache; }
  /// When the search has ended: the best first.
  std::vector<Generation> takeFound() { return std::move(found_); }

  /// Adds the last id of each beam to a step. Returns how many there are.
  Index plan(StepPlan<Scalar>& plan) {
    for (Beam& beam : beams_) {
      plan.chunks.push_back({std::span<const int>(beam.ids).last(1), &beam.cache});
      plan.wanted.push_back(1);
    }
    return static_cast<Index>(beams_.size());
  }

  /// Takes the logits [beams, V] after the last ids. Returns what is wrong with them, or nothing.
  std::string advance(const MatrixView<Scalar>& logits, LogitsCheck<Scalar>& check, Step<Scalar>& step) {
    BestCandidates all(beamCount()), unfinished(beamCount());
    std::vector<Row> rows;
    rows.reserve(beams_.size());
    for (std::size_t i = 0; i < beams_.size(); ++i) {
      const std::span<const Scalar> row = rowOf(logits, static_cast<Index>(i));
      if (std::string fault = check.faultAt(beams_[i].cache.length() - 1, row); !fault.empty()) return fault;
      rows.push_back(rowFor(row));
      computeLogProbabilities(rows.back().log_softmax, row.size(), beams_[i], step);
      for (std::size_t id = 0; id < row.size(); ++id) {
        const BeamCandidate candidate{beams_[i].sum + log_probabilities_[id], i, static_cast<int>(id)};
        if (candidate.sum == -std::numeric_limits<double>::infinity()) continue;
        all.put(candidate);
        if (unfinished.wants(candidate) && !isStop(candidate.id)) unfinished.put(candidate);
      }
    }

    ++length_;
    const double divisor = powerOfLength(length_, options_->length_penalty);
    for (const BeamCandidate& candidate : all.takeSorted())
      if (isStop(candidate.id) || length_ == longest_) keep(candidate, candidate.sum / divisor, rows);
    const std::vector<BeamCandidate> next = unfinished.takeSorted();
    const bool is_full = found_.size() == beamCount();
    goes_on_ = length_ < longest_ && !next.empty() &&
               !(is_full && (options_->early_stopping || next.front().sum / divisor <= found_.back().beam_score));
    if (goes_on_) replaceBeams(next, rows);
    return {};
  }

 private:
  struct Beam {
    std::vector<int> ids;            ///< the prompt's and those that follow
    std::vector<TokenScore> scores;  ///< of those that follow, if asked for
    ModelCache<Scalar> cache;        ///< of all but the last id
    double sum;                      ///< of the log-probabilities, after rules
  };

  /// What candidates of one beam have in common.
  struct Row {
    LogSoftmax<Scalar> log_softmax;
    std::vector<TokenLogProbability> top;  ///< if asked for
  };

  Row rowFor(std::span<const Scalar> logits) const {
    Row row{LogSoftmax<Scalar>(logits), {}};
    if (options_->log_probabilities) row.top = row.log_softmax.top(*options_->log_probabilities);
    return row;
  }

  std::size_t beamCount() const { return static_cast<std::size_t>(options_->num_beams); }
  bool isStop(int id) const {
    return std::find(options_->stop_ids.begin(), options_->stop_ids.end(), id) != options_->stop_ids.end();
  }

  /// What rules make of them.
  void computeLogProbabilities(const LogSoftmax<Scalar>& log_softmax, std::size_t count, const Beam& beam,
                               Step<Scalar>& step) {
    log_probabilities_.resize(count);
    for (std::size_t id = 0; id < count; ++id) log_probabilities_[id] = log_softmax(static_cast<int>(id));
    const std::span<double> changed(log_probabilities_);
    applyRules(changed, options_->rules, beam.ids, prompt_tokens_, step.rules);
    if (length_ < options_->min_tokens) suppressTokens(changed, std::span(options_->stop_ids));
  }

  /// A continuation has ended. It goes after those found that are as good.
  void keep(const BeamCandidate& last, double score, const std::vector<Row>& rows) {
    const auto place = std::find_if(found_.begin(), found_.end(),
                                    [&](const Generation& generation) { return generation.beam_score < score; });
    if (place == found_.end() && found_.size() == beamCount()) return;
    const Beam& beam = beams_[last.beam];
    Generation generation;
    generation.output_ids.assign(beam.ids.begin() + static_cast<std::ptrdiff_t>(prompt_tokens_), beam.ids.end());
    generation.scores = beam.scores;
    generation.beam_score = score;
    generation.finish_reason = FinishReason::stop;
    if (!isStop(last.id)) {
      generation.output_ids.push_back(last.id);
      addScore(last, rows[last.beam], generation.scores);
      generation.finish_reason = length_ == options_->max_tokens ? FinishReason::length : FinishReason::context_full;
    }
    found_.insert(place, std::move(generation));
    if (found_.size() > beamCount()) found_.pop_back();
  }

  void replaceBeams(const std::vector<BeamCandidate>& next, const std::vector<Row>& rows) {
    std::vector<std::size_t> uses(beams_.size(), 0);
    for (const BeamCandidate& candidate : next) ++uses[candidate.beam];
    std::vector<Beam> beams;
    for (const BeamCandidate& candidate : next) {
      Beam& from = beams_[candidate.beam];
      if (--uses[candidate.beam] == 0)
        beams.push_back(std::move(from));
      else
        beams.push_back({from.ids, from.scores, from.cache.clone(), 0});
      beams.back().ids.push_back(candidate.id);
      beams.back().sum = candidate.sum;
      addScore(candidate, rows[candidate.beam], beams.back().scores);
    }
    beams_ = std::move(beams);
  }

  void addScore(const BeamCandidate& candidate, const Row& row, std::vector<TokenScore>& scores) const {
    if (options_->log_probabilities) scores.push_back({row.log_softmax(candidate.id), row.top});
  }

  const GenerateOptions* options_;
  std::size_t prompt_tokens_;
  Index longest_;                       ///< ids that a continuation has at most
  Index length_ = 0;                    ///< ids that follow the prompt in each beam
  std::vector<Beam> beams_ = {};        ///< the best first; at most num_beams
  std::vector<Generation> found_ = {};  ///< that have ended, the best first; at most num_beams
  std::vector<double> log_probabilities_ = {};
  bool goes_on_ = true;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
