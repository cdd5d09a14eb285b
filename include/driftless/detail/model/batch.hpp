#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driftless/detail/model/forward.hpp"
#include "driftless/detail/model/sequence.hpp"
#include "driftless/prefix_index.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

inline void checkBeams(const GenerateOptions& options) {
  if (!(options.length_penalty >= -10 && options.length_penalty <= 10))
    raise<ArgumentError>({"expected a length_penalty from -10 to 10, got ", options.length_penalty});
  if (options.num_beams == 1) return;
  if (options.samples > options.num_beams)
    raise<ArgumentError>({"expected samples of at most num_beams, ", options.num_beams, ", got ", options.samples});
  if (options.sampling.temperature > 0)
    raise<ArgumentError>({"num_beams above 1: expected a temperature of 0, got ", options.sampling.temperature});
  if (!options.stop_strings.empty())
    raise<ArgumentError>({"num_beams above 1: expected no stop_strings, got ", options.stop_strings.size()});
  if (options.drafter) raise<ArgumentError>({"num_beams above 1: expected no drafter, got one"});
  if (!options.use_cache) raise<ArgumentError>({"num_beams above 1: expected use_cache to be true, got false"});
}

inline void checkOptions(const GenerateOptions& options, const Config& config) {
  const auto atLeast = [](const char* name, Index least, Index value) {
    if (value < least) raise<ArgumentError>({"expected ", name, " of ", least, " or more, got ", value});
  };
  const auto isFrom1 = [](const char* name, Index value) {
    constexpr Index kMost = 65536;  // a number that was meant, and results for which there is memory
    if (value < 1 || value > kMost) raise<ArgumentError>({"expected ", name, " from 1 to ", kMost, ", got ", value});
  };
  atLeast("max_tokens", 0, options.max_tokens);
  atLeast("min_tokens", 0, options.min_tokens);
  isFrom1("samples", options.samples);
  isFrom1("num_beams", options.num_beams);
  atLeast("draft_tokens", 0, options.draft_tokens);
  atLeast("log_probabilities", 0, options.log_probabilities.value_or(0));
  checkSampling(options.sampling);
  checkRules(options.rules, config);
  checkBeams(options);
  for (const int id : options.stop_ids)
    if (id < 0 || id >= config.vocab_size)
      raise<ArgumentError>({"stop_ids: expected token ids from 0 to ", config.vocab_size - 1, ", got ", id});
  if (options.stop_strings.empty()) return;
  if (options.tokenizer == nullptr) raise<ArgumentError>({"stop_strings: expected a tokenizer, got none"});
  StopStrings(*options.tokenizer, options.stop_strings);
}

inline void checkBatch(const BatchOptions& options) {
  const auto atLeast = [](const char* name, Index least, Index value) {
    if (value < least) raise<ArgumentError>({"batch: expected ", name, " of ", least, " or more, got ", value});
  };
  atLeast("sequences", 1, options.sequences);
  atLeast("prompt_rows", 1, options.prompt_rows);
  atLeast("cache_bytes", 0, options.cache_bytes);
  atLeast("prefix_bytes", 0, options.prefix_bytes);
  if (options.policy && options.prefix_bytes > 0)
    raise<ArgumentError>({"batch: expected prefix_bytes of 0 with a cache policy, got ", options.prefix_bytes});
}

/// A guess that proves wrong is forgotten, but not what a policy has dropped for it.
template <class Scalar>
void checkDrafter(const GenerateOptions& options, const ModelCache<Scalar>& cache) {
  if (options.drafter) checkKeepsAll("drafter", cache);
}

/// Jobs that wait and sequences that run, a step at a time.
template <class Scalar>
class Batch {
 public:
  /// Throws ArgumentError for bad options.
  Batch(const Weights<Scalar>& weights, Workspace<Scalar>& workspace, const BatchOptions& options)
      : weights_(weights),
        workspace_(workspace),
        options_(options),
        check_(weights),
        empty_(weights, options.cache, options.policy, options.past_context) {
    checkBatch(options);
    if (options.prefix_bytes > 0) prefixes_.emplace(weights, options.cache, options.prefix_bytes);
  }

  /// Throws for a request that cannot be run.
  void check(const Request& request) {
    checkOptions(request.options, weights_.config);
    checkChunk(Chunk<Scalar>{request.ids, &empty_}, weights_);
    checkDrafter(request.options, empty_);
    if (request.options.num_beams > options_.sequences)
      raise<ArgumentError>({"expected num_beams of at most the batch's sequences, ", options_.sequences, ", got ",
                            request.options.num_beams});
    if (const Index bytes = bytesOf(request); bytes > options_.cache_bytes)
      raise<ArgumentError>({"expected a request whose cache takes at most cache_bytes, ", options_.cache_bytes,
                            ", got one of up to ", bytes});
  }

  /// Jobs whose requests have been checked, each in its place. They must outlive their samples.
  void add(std::list<Job<Scalar>*>& jobs) { waiting_.splice(waiting_.end(), jobs); }

  /// Runs a step. False if nothing is left to be run.
  bool step() {
    begin();
    if (running_.empty()) return false;
    advance();
    dropEnded();
    return true;
  }

  /// Ends what runs and what waits of a job.
  void cancel(Job<Scalar>& job) {
    for (Sequence<Scalar>& sequence : running_)
      if (&sequence.job() == &job) sequence.finish(FinishReason::cancelled);
    finishRest(job, {.finish_reason = FinishReason::cancelled});
    dropEnded();
  }

  /// Ends everything that runs with an error.
  void fail(const std::string& error) {
    for (Sequence<Scalar>& sequence : running_) {
      sequence.finish(FinishReason::error, error);
      Job<Scalar>& job = sequence.job();
      if (!isWaiting(job)) finishRest(job, {.finish_reason = FinishReason::error, .error = error});
    }
    dropEnded();
  }

  /// Runs one sample from what a cache holds, to its end.
  void run(Job<Scalar>& job, ModelCache<Scalar>& cache) {
    std::vector<int> ids = cache.ids();
    ids.insert(ids.end(), job.request.ids.begin(), job.request.ids.end());
    const std::shared_ptr<ModelCache<Scalar>> not_owned(std::shared_ptr<void>(), &cache);
    running_.emplace_back(job, job.begun, std::move(ids), not_owned, weights_);
    ++job.begun;
    while (running_.front().goesOn()) advance();
  }

 private:
  /// What a sequence's cache, or those of all its beams, takes at most.
  Index bytesOf(const Request& request) const {
    const LayerCache<Scalar>& layer = empty_.layer(0);
    const Index prompt = (std::min)(layer.capacity(), static_cast<Index>(request.ids.size()));
    const Index positions = prompt + (std::min)(layer.capacity() - prompt, request.options.max_tokens);
    return request.options.num_beams * empty_.layers() * layer.bytesFor(positions);
  }

  static bool isWaiting(const Job<Scalar>& job) { return job.place.empty(); }

  void stopWaiting(Job<Scalar>& job) { job.place.splice(job.place.end(), waiting_, job.position); }

  /// Ends what of a job has not begun.
  void finishRest(Job<Scalar>& job, const Generation& generation) {
    if (isWaiting(job)) stopWaiting(job);
    dropPrompt(job);
    job.finishRest(generation);
  }

  void dropPrompt(Job<Scalar>& job) {
    job.prompt.reset();
    reserved_ -= std::exchange(job.prompt_bytes, 0);
  }

  /// Lets jobs begin for which there is room, in their order. One that cannot, for want of memory, ends.
  void begin() {
    while (!waiting_.empty()) {
      Job<Scalar>& job = *waiting_.front();
      if (job.options().num_beams > options_.sequences - sequences_) return;
      if (bytesOf(job.request) > options_.cache_bytes - reserved_ && !running_.empty()) return;
      if (job.options().max_tokens == 0 && !job.options().prompt_log_probabilities) {
        finishRest(job, {});
        continue;
      }
      const std::string error = errorOf([&] { begin(job); });
      if (!error.empty()) finishRest(job, {.finish_reason = FinishReason::error, .error = error});
    }
  }

  void begin(Job<Scalar>& job) {
    const std::size_t sample = job.begun;
    auto cache = std::make_shared<ModelCache<Scalar>>(sample == 0 ? startOf(job) : job.prompt->clone());
    running_.emplace_back(job, sample, job.request.ids, std::move(cache), weights_);
    ++job.begun;
    reserved_ += bytesOf(job.request);
    sequences_ += job.options().num_beams;
    // The first sample reads the prompt, and the others follow when it has.
    if (sample > 0 && job.begun < job.samples()) return;
    dropPrompt(job);
    stopWaiting(job);
  }

  /// A cache with as much of a prompt as is known.
  ModelCache<Scalar> startOf(const Job<Scalar>& job) {
    if (!prefixes_ || job.options().prompt_log_probabilities || !job.options().use_cache) return empty_.clone();
    return prefixes_->find(job.request.ids);
  }

  /// Prompts are run in the order in which they joined, so that sequences that get a token come before those that wait
  /// for one. While nobody has a token yet, whole prompts are read with the fewest steps.
  void advance() {
    plan_.chunks.clear();
    plan_.wanted.clear();
    const bool nobody_waits = std::all_of(running_.begin(), running_.end(), std::mem_fn(&Sequence<Scalar>::isPrompt));
    Index prompt_rows = nobody_waits ? (std::numeric_limits<Index>::max)() : options_.prompt_rows;
    for (Sequence<Scalar>& sequence : running_) {
      const bool is_prompt = sequence.isPrompt();
      const Index rows = sequence.plan(prompt_rows, plan_);
      if (is_prompt) prompt_rows -= rows;
    }
    const MatrixView<Scalar> logits = lastLogits(std::span<const Chunk<Scalar>>(plan_.chunks),
                                                 std::span<const Index>(plan_.wanted), weights_, workspace_, {});
    Index row = 0;
    for (Sequence<Scalar>& sequence : running_) {
      const bool was_prompt = sequence.isPrompt();
      const Index wanted = sequence.wanted();
      if (wanted == 0) continue;
      sequence.advance({logits.row(row).data(), wanted, logits.cols()}, check_, workspace_.step());
      row += wanted;
      if (was_prompt) sharePrompt(sequence);
    }
  }

  /// What has been read of a prompt is there for other prompts and, when that is all of it, for its other samples.
  void sharePrompt(const Sequence<Scalar>& sequence) {
    if (prefixes_) prefixes_->insert(sequence.cache());
    Job<Scalar>& job = sequence.job();
    if (sequence.sample() == 0 && job.prompt) waiting_.splice(waiting_.begin(), job.place);
  }

  void dropEnded() {
    for (const Sequence<Scalar>& sequence : running_) {
      if (sequence.goesOn()) continue;
      Job<Scalar>& job = sequence.job();
      // What the first has read of a prompt stays in memory for the others.
      if (sequence.sample() == 0 && job.prompt)
        job.prompt_bytes = bytesOf(job.request);
      else
        reserved_ -= bytesOf(job.request);
      sequences_ -= job.options().num_beams;
    }
    std::erase_if(running_, [](const Sequence<Scalar>& sequence) { return !sequence.goesOn(); });
  }

  const Weights<Scalar>& weights_;
  Workspace<Scalar>& workspace_;
  BatchOptions options_;
  LogitsCheck<Scalar> check_;
  ModelCache<Scalar> empty_;  ///< whose shape others have
  std::optional<PrefixIndex<Scalar>> prefixes_ = {};
  std::list<Job<Scalar>*> waiting_ = {};
  std::vector<Sequence<Scalar>> running_ = {};
  StepPlan<Scalar> plan_ = {};
  Index sequences_ = 0;  ///< that run, each beam being one
  Index reserved_ = 0;   ///< bytes that the caches of what runs can take
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
