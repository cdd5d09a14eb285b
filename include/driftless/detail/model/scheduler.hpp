#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driftless/detail/model/batch.hpp"
#include "driftless/scheduler.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

/// A batch, and the thread that runs it. Other threads leave requests and cancellations, which it takes between steps.
template <class Scalar>
class SchedulerThread {
 public:
  using Id = std::uint64_t;
  using OnResult = typename Scheduler<Scalar>::OnResult;
  using OnSampleToken = typename Scheduler<Scalar>::OnSampleToken;

  SchedulerThread(const Weights<Scalar>& weights, const BatchOptions& options)
      : workspace_(weights.threads), batch_(weights, workspace_, options), thread_([this] { run(); }) {}
  ~SchedulerThread() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    is_changed_.notify_all();
    thread_.join();
  }
  SchedulerThread(const SchedulerThread&) = delete;
  SchedulerThread& operator=(const SchedulerThread&) = delete;

  Id add(Request request, OnResult onResult, OnSampleToken onToken) {
    batch_.check(request);
    auto entry = std::make_unique<Entry>(std::move(request), std::move(onResult));
    Entry& added = *entry;
    const std::lock_guard lock(mutex_);
    const Id id = added.id = next_id_;
    if (onToken)
      added.job.on_token = [id, onToken = std::move(onToken)](std::size_t sample, int token) {
        return onToken(id, sample, token);
      };
    added.job.on_finish = [this, &added](std::size_t sample, Generation&& generation) {
      added.generations[sample] = std::move(generation);
      if (++added.ended == added.generations.size()) ended_.splice(ended_.end(), added.place);
    };
    entries_.emplace(id, std::move(entry));
    added_.splice(added_.end(), added.job.place);
    ++next_id_;
    is_changed_.notify_all();
    return id;
  }

  bool cancel(Id id) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second == nullptr) return false;
    cancelled_.push_back(id);
    is_changed_.notify_all();
    return true;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    const Id end = next_id_;
    is_changed_.wait(lock, [&] { return entries_.empty() || entries_.begin()->first >= end; });
  }

 private:
  /// A request until its result has been told. What its stages take of memory is there from the beginning.
  struct Entry {
    Entry(Request its_request, OnResult its_callback)
        : request(std::move(its_request)), on_result(std::move(its_callback)), generations(job.samples()) {}

    Id id = 0;
    Request request;
    OnResult on_result;
    Job<Scalar> job{request};
    std::vector<Generation> generations;
    std::size_t ended = 0;             ///< of the generations
    std::list<Entry*> place = {this};  ///< among those that have ended, or here before
  };

  void run() {
    for (bool has_work = false; takeChanges(has_work);) {
      has_work = true;
      guard([&] { has_work = batch_.step(); });
      tellEnded();
    }
  }

  /// If memory runs out in what is done for all, all that runs ends with an error.
  template <class Function>
  void guard(const Function& function) {
    const std::string error = errorOf(function);
    if (!error.empty()) batch_.fail(error);
  }

  /// Waits for something to do, and takes it over. False when the scheduler ends, and nothing is left.
  bool takeChanges(bool has_work) {
    std::list<Job<Scalar>*> added;
    std::list<Id> cancelled;
    Id end = 0;  // of requests that are all to be cancelled
    {
      std::unique_lock lock(mutex_);
      is_changed_.wait(lock, [&] { return has_work || is_ending_ || !added_.empty() || !cancelled_.empty(); });
      if (is_ending_ && entries_.empty()) return false;
      added.swap(added_);
      cancelled.swap(cancelled_);
      if (is_ending_) end = next_id_;
    }
    batch_.add(added);
    for (const Id id : cancelled) cancelFrom(id, id + 1);
    for (Id id = 0; id < end;) id = cancelFrom(id, end);
    tellEnded();
    return true;
  }

  /// Ends the first request from an id on, if it is before `end`, and returns the id from which to go on.
  Id cancelFrom(Id first, Id end) {
    Entry* entry = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.lower_bound(first);
      if (found == entries_.end() || found->first >= end) return end;
      entry = found->second.get();
    }
    guard([&] { batch_.cancel(entry->job); });
    return entry->id + 1;
  }

  void tellEnded() {
    while (!ended_.empty()) {
      std::unique_ptr<Entry> entry;
      const Id id = ended_.front()->id;
      {
        const std::lock_guard lock(mutex_);
        entry = std::move(entries_.at(id));
      }
      ended_.pop_front();
      entry->on_result(id, std::move(entry->generations));
      entry.reset();  // what its callbacks hold is let go before anybody is told that it has ended
      const std::lock_guard lock(mutex_);
      entries_.erase(id);
      is_changed_.notify_all();
    }
  }

  Workspace<Scalar> workspace_;
  Batch<Scalar> batch_;
  std::list<Entry*> ended_ = {};  ///< whose results are still to be told; of the scheduler's thread

  std::mutex mutex_ = {};  ///< guards what follows
  std::condition_variable is_changed_ = {};
  std::map<Id, std::unique_ptr<Entry>> entries_ = {};  ///< none while its result is being told
  std::list<Job<Scalar>*> added_ = {};
  std::list<Id> cancelled_ = {};
  Id next_id_ = 0;
  bool is_ending_ = false;

  std::thread thread_;
};

}  // namespace detail

template <FloatingScalar Scalar>
Scheduler<Scalar>::Scheduler(const Weights<Scalar>& weights, const BatchOptions& batch)
    : thread_(std::make_unique<detail::SchedulerThread<Scalar>>(weights, batch)) {}

template <FloatingScalar Scalar>
Scheduler<Scalar>::~Scheduler() = default;

template <FloatingScalar Scalar>
typename Scheduler<Scalar>::Id Scheduler<Scalar>::add(Request request, OnResult onResult, OnSampleToken onToken) {
  return thread_->add(std::move(request), std::move(onResult), std::move(onToken));
}

template <FloatingScalar Scalar>
bool Scheduler<Scalar>::cancel(Id request) {
  return thread_->cancel(request);
}

template <FloatingScalar Scalar>
void Scheduler<Scalar>::wait() {
  thread_->wait();
}

}}  // namespace driftless::DRIFTLESS_ABI
