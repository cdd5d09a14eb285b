#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/json.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/error.hpp"
#include "driftless/scheduler.hpp"
#include "models.hpp"
#include "progress.hpp"
#include "prompts.hpp"
#include "requests.hpp"
#include "results.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

/// Lines that have been read and are not done, with those between them that are: what a job holds in memory, and how
/// far the order of results can differ from that of requests.
constexpr std::size_t kWindow = 1024;

/// Levels of a result: choices, one of them, its log-probabilities, a token's, its likeliest tokens, one of them.
constexpr std::size_t kResultDepth = 16;

constexpr Index kMib = Index{1} << 20;

using Json = nlohmann::ordered_json;

/// A line of the input without its end.
struct InputLine {
  std::size_t number;  ///< from 1
  std::string text;
  std::uintmax_t bytes;  ///< with its end
};

/// The lines of the input that are requests: none of the empty ones.
class Input {
 public:
  explicit Input(const std::string& path) : name_(promptsName(path)), reader_(path) {}

  const std::string& name() const { return name_; }

  std::optional<InputLine> next() {
    if (!put_back_.empty()) {
      InputLine line = std::move(put_back_.front());
      put_back_.pop_front();
      return line;
    }
    while (const std::optional<std::string> read = reader_.next()) {
      ++number_;
      std::string_view text = *read;
      if (number_ == 1) text = detail::skipByteOrderMark(text, name_);
      while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
      if (text.find_first_not_of(" \t\r") != std::string_view::npos)
        return InputLine{number_, std::string(text), read->size()};
    }
    return std::nullopt;
  }

  /// These come next, in this order.
  void putBack(std::deque<InputLine> lines) { put_back_ = std::move(lines); }

 private:
  std::string name_;
  LineReader reader_;
  std::size_t number_ = 0;
  std::deque<InputLine> put_back_;
};

/// What is done, of all runs of a job.
struct Tally {
  std::size_t requests = 0;
  std::size_t tokens = 0;
  std::uintmax_t input_bytes = 0;
  std::size_t failures = 0;
  std::size_t first_failure = 0;  ///< its line's number
  std::string first_error;

  /// An empty error is none.
  void add(std::size_t number, std::uintmax_t bytes, const std::string& error) {
    ++requests;
    input_bytes += bytes;
    if (error.empty()) return;
    if (++failures > 1 && number > first_failure) return;
    first_failure = number;
    first_error = error;
  }
};

/// A result's id and error, which may be empty. Throws FileError for a line that is no result.
std::pair<Json, std::string> readResult(std::string_view line, const std::string& name) {
  const detail::JsonDocument document(line, name, kResultDepth);
  const detail::JsonValue result = detail::JsonValue(document).object();
  if (!result["id"].is(detail::JsonKind::string) && !result["id"].number()) result["id"].fail("a string or a number");
  return {document.root.at("id"), result["error"].isThere() ? result["error"].string() : ""};
}

/// What of a job is in its output.
struct Resumption {
  Tally done;
  std::uintmax_t bytes = 0;  ///< of the output's complete lines
};

/// Finds the request of every result. Of the requests up to the last of these, those that have no result come next from
/// `input`. Throws FileError if there is a result that an earlier run on this input would not have written there.
Resumption resume(Input& input, const std::string& output, bool is_unordered) {
  struct Waiting {
    InputLine line;
    Json id;
  };
  const std::size_t most = is_unordered ? kWindow : 1;
  std::deque<Waiting> waiting;
  Resumption resumption;
  LineReader results(output);
  for (std::size_t number = 1; const std::optional<std::string> result = results.next(); ++number) {
    const std::string name = output + ": line " + std::to_string(number);
    if (!result->ends_with('\n')) {  // cut short when the job was killed, or the disk was full
      constexpr std::string_view kStart = "{\"id\":";
      if (!result->starts_with(kStart.substr(0, result->size())))
        throw FileError(name + ": expected the start of a result, found " + detail::quotedName(*result));
      break;
    }
    const auto [id, error] = readResult(*result, name);
    const auto isRequest = [&id = id](const Waiting& request) { return request.id == id; };
    auto request = std::ranges::find_if(waiting, isRequest);
    while (request == waiting.end() && waiting.size() < most) {
      std::optional<InputLine> line = input.next();
      if (!line) break;
      const Json line_id = RequestLine(line->text, line->number).id();
      waiting.push_back({std::move(*line), line_id});
      request = std::ranges::find_if(waiting.end() - 1, waiting.end(), isRequest);
    }
    if (request == waiting.end()) {
      const std::string expected = waiting.empty() ? "no more results, as " + input.name() + " has no more requests"
                                   : is_unordered  ? "the id of a request of " + input.name() + " that has none yet"
                                                   : "the id of line " + std::to_string(waiting.front().line.number) +
                                                        " of " + input.name() + ", " + waiting.front().id.dump();
      throw FileError(name + ": expected " + expected + ", found the id " + id.dump());
    }
    resumption.done.add(request->line.number, request->line.bytes, error);
    resumption.bytes += result->size();
    waiting.erase(request);
  }
  std::deque<InputLine> left;
  for (Waiting& request : waiting) left.push_back(std::move(request.line));
  input.putBack(std::move(left));
  return resumption;
}

/// Writes results as soon as they may be.
class ResultWriter {
 public:
  /// `input_bytes` is the input's size, if it is known.
  ResultWriter(OutputFile& file, bool is_unordered, Tally done, std::optional<std::uintmax_t> input_bytes,
               bool writes_output)
      : file_(file),
        is_unordered_(is_unordered),
        tally_(std::move(done)),
        input_bytes_(input_bytes),
        progress_("requests", writes_output) {
    showProgress();
  }

  /// Announces a request, of which the next ones must wait. Waits for room. Throws what writing has thrown.
  void begin(const InputLine& line, const Json& id) {
    std::unique_lock lock(mutex_);
    // Of two requests with the same id that run at the same time, one could not tell later which result is whose.
    const auto isTaken = [&](const Pending& other) { return is_unordered_ && !other.is_done && other.id == id; };
    waitUntil(lock, [&] { return pending_.size() < kWindow && std::ranges::none_of(pending_, isTaken); });
    pending_.push_back({line.number, line.bytes, id});
  }

  /// Takes the result of a request: its line in the output, and its error, if there is one. Writes it, and whatever
  /// waited for it. From any thread, and throws nothing: what goes wrong is thrown by the others.
  void finish(std::size_t number, std::size_t tokens, const std::string& error,
              const std::function<std::string()>& makeLine) noexcept {
    const std::scoped_lock lock(mutex_);
    if (failure_) return;
    try {
      Pending& done = *std::ranges::find(pending_, number, &Pending::number);
      done.is_done = true;
      done.result = makeLine();
      if (is_unordered_) file_.write(std::exchange(done.result, {}));
      tally_.tokens += tokens;
      tally_.add(number, done.bytes, error);
      for (; !pending_.empty() && pending_.front().is_done; pending_.pop_front())
        if (!is_unordered_) file_.write(pending_.front().result);
      showProgress();
    } catch (...) {
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  /// Waits until everything is written. Throws what writing has thrown.
  Tally wait() {
    std::unique_lock lock(mutex_);
    waitUntil(lock, [&] { return pending_.empty(); });
    return tally_;
  }

 private:
  struct Pending {
    std::size_t number;
    std::uintmax_t bytes;
    Json id;
    bool is_done = false;
    std::string result = {};
  };

  template <class Condition>
  void waitUntil(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    changed_.wait(lock, [&] { return failure_ || condition(); });
    if (failure_) std::rethrow_exception(failure_);
  }

  void showProgress() {
    std::optional<double> share;
    if (input_bytes_)
      share = std::min(1.0, static_cast<double>(tally_.input_bytes) / static_cast<double>(*input_bytes_));
    progress_.show(tally_.requests, tally_.tokens, share);
  }

  OutputFile& file_;
  bool is_unordered_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;  ///< in the order of the input, from the first that is not done or written
  Tally tally_;
  std::optional<std::uintmax_t> input_bytes_;
  Progress progress_;
  std::exception_ptr failure_;
};

/// The bytes of a regular file with something in it.
std::optional<std::uintmax_t> sizeOf(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size =
      std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path, error) : 0;
  return error || size == 0 ? std::nullopt : std::optional(size);
}

/// Before anything is changed.
Resumption checkOutput(const BatchCommand& command, Input& input, const OutputFile& file) {
  if (file.size() == 0) return {};
  std::error_code error;
  if (std::filesystem::equivalent(command.input, command.output, error))
    throw ArgumentError(command.output + ": expected another file for the results than for the requests");
  if (command.resumes) return resume(input, command.output, command.is_unordered);
  if (!command.overwrites)
    throw ArgumentError(command.output + ": there is something in it: expected --resume to go on, or --overwrite");
  return {};
}

}  // namespace

std::string BatchCommand::run() const {
  if (output == "-" && (resumes || overwrites))
    throw ArgumentError(std::string(resumes ? "--resume" : "--overwrite") + ": expected a file, -o OUT, got " +
                        "standard output");
  Input requests(input);
  OutputFile file(output);
  const Resumption resumption = checkOutput(*this, requests, file);

  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer tokenizer(model.path);
  const GenerateOptions defaults = generateOptions(generation, model, weights, tokenizer);
  const Tokenizer* const decoder = findForJson(tokenizer);
  if (file.size() > resumption.bytes) file.truncate(resumption.bytes);

  ResultWriter writer(file, is_unordered, resumption.done, sizeOf(input), output == "-");
  BatchOptions options = batchOptions(model, batch);
  if (cache_mib) options.cache_bytes = *cache_mib * kMib;
  options.prefix_bytes = prefix_cache_mib * kMib;
  Scheduler<float> scheduler(weights, options);
  while (const std::optional<InputLine> line = requests.next()) {
    const RequestLine parsed(line->text, line->number);
    const std::size_t number = line->number;
    const Json id = parsed.id();
    writer.begin(*line, id);
    try {
      const Request request = parsed.request(defaults, tokenizer);
      scheduler.add(request, [&writer, number, id, request, decoder](Scheduler<float>::Id,
                                                                     const std::vector<Generation>& generations) {
        // The job has ended by an error, and the scheduler with it.
        if (std::ranges::count(generations, FinishReason::cancelled, &Generation::finish_reason) > 0) return;
        writer.finish(number, countTokens(generations), firstError(generations),
                      [&] { return resultLine(id, request, generations, decoder); });
      });
    } catch (const Error& error) {
      writer.finish(number, 0, error.what(), [&] { return errorLine(id, error.what()); });
    }
  }
  const Tally tally = writer.wait();
  if (tally.failures == 0) return "";
  return requests.name() + ": line " + std::to_string(tally.first_failure) + ": " + tally.first_error + "; in all, " +
         std::to_string(tally.failures) + " of " + std::to_string(tally.requests) + " requests failed";
}

}  // namespace driftless::cli
