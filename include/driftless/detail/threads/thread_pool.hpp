#pragma once

#include <Eigen/Core>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driftless/detail/abi.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Fork and join for loops of independent tasks. A join costs about a microsecond while the workers are awake: they
/// spin for a moment between loops, because a decode step has dozens of them, and then sleep. Which thread runs a task
/// is left to chance; what a task computes must not depend on it.
class ThreadPool {
 public:
  /// The caller's thread and threads - 1 of its own. Throws std::system_error if they cannot be created.
  explicit ThreadPool(int threads) : ThreadPool() {  // a constructed object: its destructor joins those that started
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    unclaimed_.store(kStop);
    unclaimed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(index, thread) once for each index in [0, count), and returns when all are done. `thread` numbers the
  /// calling thread and the workers from 0 to threads() - 1. A call from within a task, or while another thread has the
  /// pool, runs its tasks alone on thread 0. If tasks throw, one of the exceptions comes out of parallelFor.
  template <class Task>
  void parallelFor(Eigen::Index count, Task&& task) {
    run(count, &task, [](void* erased, Eigen::Index index, int thread) {
      (*static_cast<std::remove_reference_t<Task>*>(erased))(index, thread);
    });
  }

 private:
  using Run = void(void* task, Eigen::Index index, int thread);

  ThreadPool() = default;

  static constexpr int kStop = -1;
  static constexpr int kSpins = 4000;

  void run(Eigen::Index count, void* task, Run* run_task) {
    if (count <= 1 || workers_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
      for (Eigen::Index index = 0; index < count; ++index) run_task(task, index, 0);
      return;
    }
    count_ = static_cast<int>(count);
    task_ = task;
    run_ = run_task;
    unfinished_.store(count_, std::memory_order_relaxed);
    unclaimed_.store(count_);
    unclaimed_.notify_all();
    runClaimedTasks(0);
    for (int left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) waitForChange(unfinished_, left);
    const std::exception_ptr error = std::exchange(error_, nullptr);
    busy_.store(false, std::memory_order_release);
    if (error) std::rethrow_exception(error);
  }

  static void waitForChange(const std::atomic<int>& value, int old) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value.load(std::memory_order_relaxed) != old) return;
      pause();
    }
    value.wait(old, std::memory_order_acquire);
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
  }

  void work(int thread) {
    for (;;) {
      waitForChange(unclaimed_, 0);
      if (unclaimed_.load(std::memory_order_acquire) == kStop) return;
      runClaimedTasks(thread);
    }
  }

  /// count_, task_ and run_ may be read once a task has been claimed: they can't change before it is finished.
  void runClaimedTasks(int thread) {
    int left = unclaimed_.load(std::memory_order_relaxed);
    while (left > 0) {
      if (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) continue;
#ifdef DRIFTLESS_NO_EXCEPTIONS
      run_(task_, count_ - left, thread);
#else
      try {
        run_(task_, count_ - left, thread);
      } catch (...) {
        const std::scoped_lock lock(error_mutex_);
        error_ = std::current_exception();
      }
#endif
      if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
      left = unclaimed_.load(std::memory_order_relaxed);
    }
  }

  std::vector<std::thread> workers_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::atomic<bool> busy_ = false;
  int count_ = 0;
  void* task_ = nullptr;
  Run* run_ = nullptr;
  alignas(64) std::atomic<int> unclaimed_ = 0;
  alignas(64) std::atomic<int> unfinished_ = 0;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
