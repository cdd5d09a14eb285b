#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/argmax.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/text.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/error.hpp"
#include "driftless/forward.hpp"
#include "driftless/log_probabilities.hpp"
#include "models.hpp"
#include "named_policies.hpp"
#include "progress.hpp"
#include "prompts.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Rows of logits that are looked at together: memory does not grow with a window's length times the vocabulary. So
/// many at the end of a window are decoded one by one, and timed.
constexpr std::size_t kRows = 64;

constexpr std::array kStoredNames = {"f16", "bf16", "int8"};

/// One row of the table: a cache that is compared with the full one.
struct StudiedCache {
  std::string name;
  std::optional<double> budget = {};  ///< share of a window's positions

  /// How many positions of a window it keeps.
  std::optional<Index> positions(std::size_t window) const {
    if (!budget) return std::nullopt;
    const double share = *budget * static_cast<double>(window);
    return std::max(Index{1}, static_cast<Index>(std::ceil(share - 1e-9)));  // 0.07 x 100 is a little more than 7
  }
};

/// What comes of it.
struct Findings {
  std::int64_t differing_bits = 0;  ///< from the full cache's logits
  double log_probability = 0;       ///< of all tokens but each window's first
  std::size_t scored = 0;           ///< how many these are
  std::vector<double> divergence;   ///< by position, nats, summed over windows
  std::vector<std::size_t> rows;    ///< by position: how many windows have it
  std::size_t agreeing = 0;         ///< rows with the same likeliest token
  Index bytes = 0;                  ///< at the end of the first window, the longest
  Index full_bytes = 0;             ///< of the full cache there
  std::size_t decoded = 0;          ///< tokens, one by one
  double seconds = 0;               ///< that they took

  /// One row of logits [V] of each, and the token that comes next, if there is one.
  void compare(std::size_t position, std::span<const float> full, std::span<const float> changed,
               std::optional<int> next);

  std::size_t allRows() const {
    std::size_t sum = 0;
    for (const std::size_t count : rows) sum += count;
    return sum;
  }
  double perplexity() const { return std::exp(-log_probability / static_cast<double>(scored)); }
  double meanDivergence() const {
    double sum = 0;
    for (const double one : divergence) sum += one;
    return sum / static_cast<double>(allRows());
  }
  double agreement() const { return static_cast<double>(agreeing) / static_cast<double>(allRows()); }
  double speed() const { return static_cast<double>(decoded) / seconds; }
};

void Findings::compare(std::size_t position, std::span<const float> full, std::span<const float> changed,
                       std::optional<int> next) {
  const auto p = detail::LogSoftmax<float>::checked(full), q = detail::LogSoftmax<float>::checked(changed);
  double sum = 0;
  for (std::size_t id = 0; id < full.size(); ++id) {
    differing_bits += std::popcount(std::bit_cast<std::uint32_t>(full[id]) ^ std::bit_cast<std::uint32_t>(changed[id]));
    const double log_p = p(static_cast<int>(id));
    if (const double probability = std::exp(log_p); probability > 0)
      sum += probability * (log_p - q(static_cast<int>(id)));
  }
  if (position == rows.size()) {
    divergence.push_back(0);
    rows.push_back(0);
  }
  divergence[position] += sum;
  ++rows[position];
  const auto likeliest = [](std::span<const float> logits) {
    return argmax(Eigen::Map<const RowVector<float>>(logits.data(), static_cast<Index>(logits.size())));
  };
  if (likeliest(full) == likeliest(changed)) ++agreeing;
  if (!next) return;
  log_probability += q(*next);
  ++scored;
}

/// A text in windows, each of which begins with an empty cache.
class CacheStudy {
 public:
  CacheStudy(const CacheStudyCommand& command, const Weights<float>& weights, std::vector<int> ids, std::size_t length)
      : model_(command.model), weights_(weights), ids_(std::move(ids)), length_(length) {}

  /// `onTokens` is called with the number of tokens that have been looked at.
  Findings run(const StudiedCache& cache, const std::function<void(std::size_t)>& onTokens) {
    Findings findings;
    for (std::size_t begin = 0; begin < ids_.size(); begin += length_) {
      runWindow(std::span<const int>(ids_).subspan(begin, std::min(length_, ids_.size() - begin)), cache, findings);
      onTokens(std::min(begin + length_, ids_.size()));
    }
    return findings;
  }

 private:
  ModelCache<float> emptyCache(const StudiedCache& cache, std::size_t window) const {
    ModelOptions options = model_;
    if (const auto positions = cache.positions(window)) {
      options.policy = cache.name;
      options.cache_budget = *positions;
    } else if (cache.name != "full") {
      options.cache = cache.name;
    }
    return std::move(emptyCaches(options, weights_, 1).front());
  }

  void runWindow(std::span<const int> window, const StudiedCache& cache, Findings& findings) {
    ModelCache<float> full = emptyCache({"full"}, window.size()), changed = emptyCache(cache, window.size());
    const std::size_t read = window.size() - std::min(kRows, window.size());
    for (std::size_t t = 0; t < window.size();) {
      const std::size_t rows = t < read ? std::min(kRows, read - t) : window.size() - t;
      const std::span<const int> some = window.subspan(t, rows);
      const Matrix<float> expected = prefillLogits(some, weights_, full, workspace_);
      const Matrix<float> actual =
          t < read ? prefillLogits(some, weights_, changed, workspace_) : decode(some, changed, findings);
      for (Index row = 0; row < expected.rows(); ++row, ++t)
        findings.compare(t, rowOf(expected, row), rowOf(actual, row),
                         t + 1 < window.size() ? std::optional(window[t + 1]) : std::nullopt);
    }
    if (findings.bytes > 0) return;
    findings.bytes = changed.bytes();
    findings.full_bytes = full.bytes();
  }

  Matrix<float> decode(std::span<const int> ids, ModelCache<float>& cache, Findings& findings) {
    Matrix<float> logits(static_cast<Index>(ids.size()), weights_.config.vocab_size);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Stopwatch watch;
      const auto& next = decodeStep(ids[i], cache.length(), weights_, cache, workspace_);
      findings.seconds += watch.seconds();
      logits.row(static_cast<Index>(i)) = next;
    }
    findings.decoded += ids.size();
    return logits;
  }

  static std::span<const float> rowOf(const Matrix<float>& logits, Index row) {
    return {logits.row(row).data(), static_cast<std::size_t>(logits.cols())};
  }

  const ModelOptions& model_;
  const Weights<float>& weights_;
  std::vector<int> ids_;
  std::size_t length_;
  Workspace<float> workspace_ = Workspace<float>(weights_.threads);
};

/// The full cache first, then what the command names, policies by budgets. Throws ArgumentError for an unknown name.
std::vector<StudiedCache> cachesOf(const CacheStudyCommand& command) {
  const std::vector<NamedPolicy> policies = namedPolicies();
  std::vector<std::string> names = command.policies;
  if (names.empty()) {
    for (const NamedPolicy& policy : policies) names.push_back(policy.name);
    names.insert(names.end(), kStoredNames.begin(), kStoredNames.end());
  }
  std::vector<StudiedCache> caches = {{"full"}};
  for (const std::string& name : names) {
    if (name == "full") continue;
    if (std::ranges::find(kStoredNames, name) != kStoredNames.end()) {
      caches.push_back({name});
      continue;
    }
    if (std::ranges::find(policies, name, &NamedPolicy::name) == policies.end())
      throw ArgumentError("--policy: expected one of " + policyNames() + ", full, f16, bf16, int8, got " +
                          detail::quotedName(name));
    for (const double budget : command.budgets) caches.push_back({name, budget});
  }
  return caches;
}

std::vector<int> readIdsOf(const CacheStudyCommand& command, ModelTokenizer& tokenizer, const Config& config) {
  std::vector<int> ids;
  if (command.file) {
    const std::string bytes = *command.file == "-" ? readInput() : readFile(*command.file);
    const std::string_view text = detail::readText(bytes, promptsName(*command.file));
    ids = tokenizer.require("expected --ids 1,2,3, got text").encode(text);
  } else if (command.ids) {
    ids = readIds("--ids", *command.ids);
  } else {
    throw ArgumentError("expected a text: --text FILE or --ids");
  }
  checkIds(ids, config);
  if (ids.size() < 2) throw ArgumentError("expected a text of at least 2 tokens, got " + std::to_string(ids.size()));
  return ids;
}

const std::string kStudyHeading =
    "policy        budget      bytes  of full  perplexity  KL, nats  agreement  differing bits  tokens/s\n";

std::string row(const StudiedCache& cache, const Findings& findings) {
  std::ostringstream out;
  out << std::left << std::setw(12) << cache.name << std::right << std::setw(8)
      << (cache.budget ? detail::message({*cache.budget}) : "-") << std::setw(11) << findings.bytes << std::fixed
      << std::setprecision(1) << std::setw(7)
      << 100.0 * static_cast<double>(findings.bytes) / static_cast<double>(findings.full_bytes) << " %"
      << std::setprecision(4) << std::setw(12) << findings.perplexity() << std::defaultfloat << std::setprecision(3)
      << std::setw(10) << findings.meanDivergence() << std::fixed << std::setprecision(2) << std::setw(9)
      << 100 * findings.agreement() << " %" << std::setw(16) << findings.differing_bits << std::setprecision(1)
      << std::setw(10) << findings.speed() << "\n";
  return out.str();
}

Json json(const StudiedCache& cache, const Findings& findings, std::size_t window) {
  Json by_position = Json::array();
  for (std::size_t t = 0; t < findings.rows.size(); ++t)
    by_position.push_back(findings.divergence[t] / static_cast<double>(findings.rows[t]));
  const std::optional<Index> positions = cache.positions(window);
  return {{"policy", cache.name},
          {"budget", cache.budget ? Json(*cache.budget) : Json()},
          {"positions", positions ? Json(*positions) : Json()},
          {"bytes", findings.bytes},
          {"bytes_share", static_cast<double>(findings.bytes) / static_cast<double>(findings.full_bytes)},
          {"differing_bits", findings.differing_bits},
          {"perplexity", findings.perplexity()},
          {"kl", findings.meanDivergence()},
          {"kl_by_position", std::move(by_position)},
          {"agreement", findings.agreement()},
          {"decode_tokens_per_s", findings.speed()}};
}

}  // namespace

void CacheStudyCommand::run() const {
  const std::vector<StudiedCache> caches = cachesOf(*this);
  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer tokenizer(model.path);
  std::vector<int> text_ids = readIdsOf(*this, tokenizer, weights.config);
  const Index longest = max_length.value_or(weights.config.n_positions);
  if (longest < 2 || longest > weights.config.n_positions)
    throw ArgumentError("--max-length: expected from 2 to " + std::to_string(weights.config.n_positions) +
                        ", which is n_positions, got " + std::to_string(longest));
  const std::size_t tokens = text_ids.size(), window = std::min(tokens, static_cast<std::size_t>(longest));
  CacheStudy study(*this, weights, std::move(text_ids), window);

  Json report{{"model", model.name()},
              {"weights", model.weights},
              {"compute", model.compute},
              {"cache", model.cache},
              {"threads", weights.threads.count()},
              {"tokens", tokens},
              {"window", window},
              {"rows", Json::array()}};
  Progress progress("rows", !is_json);
  if (!is_json) writeOutput(kStudyHeading);
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const auto show = [&](std::size_t seen) {
      const std::size_t done = i * tokens + seen;
      progress.show(i, done, static_cast<double>(done) / static_cast<double>(caches.size() * tokens));
    };
    show(0);
    const Findings findings = study.run(caches[i], show);
    is_json ? report["rows"].push_back(json(caches[i], findings, window)) : writeOutput(row(caches[i], findings));
  }
  progress.clear();
  if (is_json) writeOutput(jsonLine(report));
}

}  // namespace driftless::cli
