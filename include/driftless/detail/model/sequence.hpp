#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "driftless/detail/model/beams.hpp"
#include "driftless/detail/model/draft_length.hpp"
#include "driftless/detail/model/logits_check.hpp"
#include "driftless/detail/model/step_plan.hpp"
#include "driftless/detail/model/workspace.hpp"
#include "driftless/request.hpp"
#include "driftless/stop_strings.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A request, and what its samples share.
template <class Scalar>
struct Job {
  explicit Job(const Request& its_request) : request(its_request) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Request& request;
  std::function<bool(std::size_t sample, int id)> on_token = {};             ///< may be empty
  std::function<void(std::size_t sample, Generation generation)> on_finish;  ///< once for each
  std::size_t begun = 0;                                                     ///< samples that have
  std::optional<ModelCache<Scalar>> prompt = {};  ///< all of the prompt but its last token, once one has read it
  Index prompt_bytes = 0;                         ///< reserved for it when the sample that has read it has ended
  std::vector<TokenScore> prompt_scores = {};     ///< by the sample that has
  std::list<Job*> place = {this};  ///< in a queue, or here while it is in none, so that queueing takes no memory
  typename std::list<Job*>::iterator position = place.begin();  ///< in whichever it is

  const GenerateOptions& options() const { return request.options; }
  std::size_t samples() const { return static_cast<std::size_t>(request.options.samples); }

  /// The result of all samples that have not begun.
  void finishRest(const Generation& generation) {
    while (begun < samples()) {
      Generation copy = generation;
      on_finish(begun++, std::move(copy));
    }
  }
};

/// One continuation on its way: its ids, and the cache that it goes on from. Of a beam search, all of them.
template <class Scalar>
class Sequence {
 public:
  /// `ids` begin with those of the positions that the cache holds.
  Sequence(Job<Scalar>& job, std::size_t sample, std::vector<int> ids, std::shared_ptr<ModelCache<Scalar>> cache,
           const Weights<Scalar>& weights)
      : job_(&job),
        sample_(sample),
        ids_(std::move(ids)),
        known_(ids_.size()),
        prompt_tokens_(ids_.size()),
        cache_(std::move(cache)),
        vocab_size_(weights.config.vocab_size),
        engine_(job.options().sampling.seed + sample),
        drafter_(job.options().drafter) {
    const GenerateOptions& options = job.options();
    if (!options.stop_strings.empty()) stop_strings_.emplace(*options.tokenizer, options.stop_strings);
  }

  Job<Scalar>& job() const { return *job_; }
  const ModelCache<Scalar>& cache() const { return search_ ? search_->cache() : *cache_; }
  bool goesOn() const { return goes_on_; }
  std::size_t sample() const { return sample_; }
  /// Whether it has yet to get its first token.
  bool isPrompt() const { return known_ == prompt_tokens_ && !search_; }
  /// How many rows of logits its part of the step has.
  Index wanted() const { return wanted_; }

  /// Adds to a step what it is to run next, of a prompt at most `most` ids. Returns how many ids that is.
  Index plan(Index most, StepPlan<Scalar>& plan) {
    wanted_ = 0;
    if (search_) return wanted_ = search_->plan(plan);
    if (!isPrompt() && !options().use_cache) cache_->reset();
    if (!isPrompt()) draft();
    if (!goes_on_) return 0;
    const Index held = cache_->length();
    const Index left = static_cast<Index>(ids_.size()) - held;
    Index rows = isPrompt() ? (std::min)(left, most) : left;
    if (scoresPrompt()) rows = (std::min)(rows, kScoredRows);
    wanted_ = scoresPrompt() ? rows : rows == left ? drafted() + 1 : 0;
    if (rows == 0) return 0;
    const auto next = std::span(std::as_const(ids_)).subspan(static_cast<std::size_t>(held));
    plan.chunks.push_back({next.first(static_cast<std::size_t>(rows)), cache_.get()});
    plan.wanted.push_back(wanted_);
    return rows;
  }

  /// Takes the logits that were wanted: chooses the next id and, for as long as a guess proves right, the one after it.
  void advance(const MatrixView<Scalar>& logits, LogitsCheck<Scalar>& check, Step<Scalar>& step) {
    if (wanted_ == 0) return;
    if (search_) return search(logits, check, step);
    const Index first = cache_->length() - wanted_;  // the position of the first row
    Index row = 0;
    if (scoresPrompt()) {
      for (; row < wanted_ && first + row + 1 < static_cast<Index>(known_); ++row)
        if (!scorePrompt(rowOf(logits, row), first + row, check)) return;
      if (row == wanted_) return;
    }
    if (isPrompt()) sharePrompt();
    if (options().max_tokens == 0) return finish(FinishReason::length);
    if (options().num_beams > 1) {
      search_.emplace(options(), ids_, std::move(*cache_));
      return search({logits.row(row).data(), 1, logits.cols()}, check, step);
    }
    const Index guesses = drafted();
    Index right = 0;
    const CacheEnd end{*cache_, first, row};
    for (;; ++row, ++right) {
      const std::optional<int> id = choose(rowOf(logits, row), first + row, check, step);
      const bool is_guessed = id && right < guesses && ids_[known_] == *id;
      if (id) accept(*id, is_guessed);
      if (!goes_on_ || !is_guessed) break;
    }
    ids_.resize(known_);
    if (guesses > 0) draft_length_.learn(guesses, right);
  }

  void finish(FinishReason reason, std::string error = {}) {
    if (!goes_on_) return;
    if (reason != FinishReason::error) generation_.prompt_scores = job_->prompt_scores;
    goes_on_ = false;
    generation_.finish_reason = reason;
    generation_.error = std::move(error);
    if (!tell(generation_.output_ids.size())) generation_.finish_reason = FinishReason::callback;
    job_->on_finish(sample_, std::move(generation_));
  }

 private:
  /// Cuts off guesses that have not proved right, also if a callback throws.
  struct CacheEnd {
    ModelCache<Scalar>& cache;
    Index first;
    const Index& row;  ///< the last that was looked at

    ~CacheEnd() { cache.truncate(first + row + 1); }
  };

  /// Whether a policy keeps too much for a sequence that was to go on past the context.
  bool isFull() const { return !CacheAccess::keepsAll(*cache_) && CacheAccess::isFull(*cache_); }
  const GenerateOptions& options() const { return job_->options(); }
  bool scoresPrompt() const { return isPrompt() && sample_ == 0 && options().prompt_log_probabilities; }
  Index drafted() const { return static_cast<Index>(ids_.size() - known_); }

  void search(const MatrixView<Scalar>& logits, LogitsCheck<Scalar>& check, Step<Scalar>& step) {
    if (const std::string fault = search_->advance(logits, check, step); !fault.empty()) {
      finish(FinishReason::error, fault);
      job_->finishRest({.finish_reason = FinishReason::error, .error = fault});
    } else if (!search_->goesOn()) {
      finishSearch(search_->takeFound());
    }
  }

  /// The best are the samples, of which this is the first.
  void finishSearch(std::vector<Generation> found) {
    found.resize((std::min)(found.size(), job_->samples()));
    const std::string shortage = message({"expected ", job_->samples(), " continuations, found ", found.size(),
                                          ": no others have a probability above zero"});
    if (found.empty()) finish(FinishReason::error, shortage);
    for (Generation& generation : found) {
      if (!goes_on_) sample_ = job_->begun++;
      goes_on_ = true;
      told_ = 0;
      generation_ = std::move(generation);
      finish(generation_.finish_reason);
    }
    job_->finishRest({.finish_reason = FinishReason::error, .error = shortage, .prompt_scores = job_->prompt_scores});
  }

  /// Puts guesses after the ids that are known.
  void draft() {
    if (!drafter_) return;
    const Index left = options().max_tokens - static_cast<Index>(generation_.output_ids.size()) - 1;
    const Index room = cache_->capacity() - static_cast<Index>(known_);
    const Index most = draft_length_.next((std::min)({options().draft_tokens, left, room}));
    if (most <= 0) return;
    const std::string error = errorOf([&] {
      for (const int id : drafter_(std::span(std::as_const(ids_)), most)) {
        if (id < 0 || id >= vocab_size_ || drafted() == most) return;
        ids_.push_back(id);
      }
    });
    if (!error.empty()) finish(FinishReason::error, error);
  }

  /// The prompt's cache goes to the other samples, but for the last position, whose logits each of them needs. If
  /// positions have been dropped for that one, they begin from nothing.
  void sharePrompt() {
    if (sample_ > 0 || options().samples == 1 || options().num_beams > 1) return;
    job_->prompt = cache_->clone();
    const bool can_go_on = options().use_cache && CacheAccess::keepsAll(*cache_);
    job_->prompt->truncate(can_go_on ? static_cast<Index>(prompt_tokens_) - 1 : 0);
  }

  bool scorePrompt(std::span<const Scalar> logits, Index position, LogitsCheck<Scalar>& check) {
    const std::string fault = check.faultAt(position, logits);
    if (fault.empty())
      job_->prompt_scores.push_back(scoreOf(LogSoftmax<Scalar>(logits), ids_[static_cast<std::size_t>(position + 1)]));
    else {
      finish(FinishReason::error, fault);
      job_->finishRest({.finish_reason = FinishReason::error, .error = fault});
    }
    return goes_on_;
  }

  TokenScore scoreOf(const LogSoftmax<Scalar>& log_softmax, int id) const {
    const Index top = options().log_probabilities.value_or(0);
    return {log_softmax(id), top > 0 ? log_softmax.top(top) : std::vector<TokenLogProbability>()};
  }

  /// The next id, by the logits of the one before it; nothing if the sequence ends here.
  std::optional<int> choose(std::span<const Scalar> logits, Index position, LogitsCheck<Scalar>& check,
                            Step<Scalar>& step) {
    if (const std::string fault = check.faultAt(position, logits); !fault.empty()) {
      finish(FinishReason::error, fault);
      return std::nullopt;
    }
    const bool must_go_on = static_cast<Index>(generation_.output_ids.size()) < options().min_tokens;
    std::span<const Scalar> allowed = logits;
    if (must_go_on || options().rules != LogitsRules()) {
      step.allowed.makeRoom(static_cast<Index>(logits.size()));
      const std::span<Scalar> changed(step.allowed.data(), logits.size());
      std::copy(logits.begin(), logits.end(), changed.begin());
      applyRules(changed, options().rules, std::span(std::as_const(ids_)).first(known_), prompt_tokens_, step.rules);
      if (must_go_on) suppressTokens(changed, std::span(options().stop_ids));
      if (const std::string fault = faultOf(std::span<const Scalar>(changed)); !fault.empty()) {
        finish(FinishReason::error, message({"the rules leave no token at position ", position, ": ", fault}));
        return std::nullopt;
      }
      allowed = changed;
    }
    const int id = draw(allowed, options().sampling, engine_, step.candidates);
    if (std::find(options().stop_ids.begin(), options().stop_ids.end(), id) != options().stop_ids.end()) {
      finish(FinishReason::stop);
      return std::nullopt;
    }
    if (options().log_probabilities) generation_.scores.push_back(scoreOf(LogSoftmax<Scalar>(logits), id));
    return id;
  }

  /// Makes an id part of the sequence.
  void accept(int id, bool is_guessed) {
    std::vector<int>& output = generation_.output_ids;
    output.push_back(id);
    if (!is_guessed) {
      ids_.resize(known_);
      ids_.push_back(id);
    }
    ++known_;
    if (stop_strings_ && static_cast<Index>(output.size()) < options().min_tokens) {
      stop_strings_->pass(id);
    } else if (stop_strings_ && stop_strings_->push(id)) {
      output = stop_strings_->ids();
      keepScores(stop_strings_->certain());
      return finish(FinishReason::stop);
    }
    if (!tell(stop_strings_ ? stop_strings_->certain() : output.size())) return finish(FinishReason::callback);
    if (static_cast<Index>(output.size()) == options().max_tokens) return finish(FinishReason::length);
    if (static_cast<Index>(known_) > cache_->capacity() || isFull()) return finish(FinishReason::context_full);
  }

  /// Lets the callback see the output's ids up to there. If it refuses one, that is the last of the output.
  bool tell(std::size_t end) {
    for (; told_ < end; ++told_)
      if (job_->on_token && !job_->on_token(sample_, generation_.output_ids[told_])) {
        generation_.output_ids.resize(++told_);
        keepScores(told_);
        return false;
      }
    return true;
  }

  void keepScores(std::size_t most) { generation_.scores.resize((std::min)(generation_.scores.size(), most)); }

  Job<Scalar>* job_;
  std::size_t sample_;
  std::vector<int> ids_;       ///< the prompt, what follows it, and guesses
  std::size_t known_;          ///< how many of them are no guesses
  std::size_t prompt_tokens_;  ///< how many of them came first
  std::shared_ptr<ModelCache<Scalar>> cache_;
  Index vocab_size_;
  std::mt19937_64 engine_;
  Drafter drafter_;
  DraftLength draft_length_ = {};
  std::optional<StopStrings> stop_strings_ = {};
  std::optional<BeamSearch<Scalar>> search_ = {};  ///< once it has begun, it has the cache
  Generation generation_ = {};
  std::size_t told_ = 0;  ///< ids that the callback has seen
  Index wanted_ = 0;      ///< logits in the step under way
  bool goes_on_ = true;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
