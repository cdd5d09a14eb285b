#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <map>
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
    const std::lock_guard lock(mutex_);
    const Id id = next_id_++;
    Entry& added = *entry;
    if (onToken)
      added.job.on_token = [id, onToken = std::move(onToken)](std::size_t sample, int token) {
        return onToken(id, sample, token);
      };
    added.job.on_finish = [this, id, &added](std::size_t sample, const Generation& generation) {
      added.generations[sample] = generation;
      if (++added.ended == added.generations.size()) ended_.push_back(id);
    };
    entries_.emplace(id, std::move(entry));
    added_.push_back(id);
    is_changed_.notify_all();
    return id;
  }

  bool cancel(Id id) {
    const std::lock_guard lock(mutex_);
    if (!entries_.contains(id)) return false;
    cancelled_.push_back(id);
    is_changed_.notify_all();
    return true;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    is_changed_.wait(lock, [&] { return entries_.empty(); });
  }

 private:
  /// A request until its result has been told.
  struct Entry {
    Entry(Request its_request, OnResult its_callback)
        : request(std::move(its_request)), on_result(std::move(its_callback)), generations(job.samples()) {}

    Request request;
    OnResult on_result;
    Job<Scalar> job{request};
    std::vector<Generation> generations;
    std::size_t ended = 0;
  };

  void run() {
    for (bool has_work = false; takeChanges(has_work);) {
      has_work = step();
      tellEnded();
    }
  }

  /// Waits for something to do, and takes it over. False when the scheduler ends.
  bool takeChanges(bool has_work) {
    std::vector<Job<Scalar>*> added, cancelled;
    bool goes_on = true;
    {
      std::unique_lock lock(mutex_);
      is_changed_.wait(lock, [&] { return has_work || is_ending_ || !added_.empty() || !cancelled_.empty(); });
      goes_on = !is_ending_;
      if (is_ending_)
        for (const auto& [id, entry] : entries_) cancelled_.push_back(id);
      for (const Id id : std::exchange(added_, {})) added.push_back(&entries_.at(id)->job);
      for (const Id id : std::exchange(cancelled_, {}))
        if (const auto found = entries_.find(id); found != entries_.end()) cancelled.push_back(&found->second->job);
    }
    for (Job<Scalar>* const job : added) batch_.add(*job);
    for (Job<Scalar>* const job : cancelled) batch_.cancel(*job);
    tellEnded();
    return goes_on;
  }

  bool step() {
#ifdef DRIFTLESS_NO_EXCEPTIONS
    return batch_.step();
#else
    try {
      return batch_.step();
    } catch (const std::exception& error) {  // no memory, most likely
      batch_.fail(error.what());
      return true;
    }
#endif
  }

  void tellEnded() {
    for (const Id id : std::exchange(ended_, {})) {
      std::unique_ptr<Entry> entry;
      {
        const std::lock_guard lock(mutex_);
        entry = std::move(entries_.at(id));
      }
      entry->on_result(id, std::move(entry->generations));
      const std::lock_guard lock(mutex_);
      entries_.erase(id);
      is_changed_.notify_all();
    }
  }

  Workspace<Scalar> workspace_;
  Batch<Scalar> batch_;
  std::vector<Id> ended_ = {};  ///< whose results are still to be told; of the scheduler's thread

  std::mutex mutex_ = {};  ///< guards what follows
  std::condition_variable is_changed_ = {};
  std::map<Id, std::unique_ptr<Entry>> entries_ = {};
  std::vector<Id> added_ = {};
  std::vector<Id> cancelled_ = {};
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
