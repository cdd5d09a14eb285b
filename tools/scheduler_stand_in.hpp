#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "driftless/forward.hpp"
#include "driftless/generate.hpp"

// What batch.cpp needs of the library's scheduler, until that is there: one request at a time.

namespace driftless::cli {

struct Request {
  std::vector<int> ids;
  GenerateOptions options = {};
};

class Scheduler {
 public:
  using Id = std::uint64_t;
  using OnResult = std::function<void(Id request, std::vector<Generation> generations)>;

  explicit Scheduler(const Weights<float>& weights) : weights_(weights), thread_([this] { run(); }) {}
  ~Scheduler() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Id add(Request request, OnResult onResult) {
    Request check = request;
    check.options.max_tokens = 0;
    const std::vector<std::vector<int>> prompts = {check.ids};
    generateTokens(prompts, check.options, weights_);
    const std::scoped_lock lock(mutex_);
    requests_.emplace_back(std::move(request), std::move(onResult));
    changed_.notify_all();
    return ++added_;
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !requests_.empty(); });
      if (ends_) return;
      auto [request, onResult] = std::move(requests_.front());
      requests_.pop_front();
      lock.unlock();
      const std::vector<std::vector<int>> prompts = {request.ids};
      onResult(0, generateTokens(prompts, request.options, weights_));
    }
  }

  const Weights<float>& weights_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Request, OnResult>> requests_;
  Id added_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace driftless::cli
