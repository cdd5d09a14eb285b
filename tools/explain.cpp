#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/argmax.hpp"
#include "driftless/block.hpp"
#include "driftless/capture.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/file_replacement.hpp"
#include "driftless/detail/kernels/shapes.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/text/utf8.hpp"
#include "driftless/error.hpp"
#include "driftless/forward.hpp"
#include "driftless/generate.hpp"
#include "driftless/log_probabilities.hpp"
#include "driftless/observer.hpp"
#include "driftless/scoring.hpp"
#include "explain_page.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "stopwatch.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr Index kLensTop = 5;       // tokens that are told after each layer
constexpr Index kFirstNumbers = 6;  // that are told of each vector

/// A text, and what it was run with.
struct Explained {
  const Weights<float>& weights;
  ModelCache<float>& cache;
  Workspace<float>& workspace;
  std::size_t prompt_tokens;
  std::vector<int> ids;  ///< given and generated

  Index tokens() const { return static_cast<Index>(ids.size()); }
};

/// The same in the shortest form, as a float has it; null if it is not finite.
Json jsonNumber(float number) { return std::isfinite(number) ? Json::parse(detail::message({number})) : Json(); }

bool isUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const detail::Utf8Unit unit = detail::readUtf8(bytes);
    if (unit.state != detail::Utf8State::valid) return false;
    bytes.remove_prefix(unit.size);
  }
  return true;
}

/// A token's text; its bytes if they are no text by themselves; null if it has none.
Json pageToken(int id, const Tokenizer* tokenizer) {
  const std::optional<std::string> text = textOf({id}, tokenizer);
  if (!text) return Json();
  if (isUtf8(*text)) return Json(*text);
  Json bytes = Json::array();
  for (const char byte : *text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

/// Texts of all ids that a page mentions, each once.
class Vocabulary {
 public:
  explicit Vocabulary(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  int mention(int id) {
    const std::string key = std::to_string(id);
    if (!texts_.contains(key)) texts_[key] = pageToken(id, tokenizer_);
    return id;
  }
  const Json& texts() const { return texts_; }

 private:
  const Tokenizer* tokenizer_;
  Json texts_ = Json::object();
};

std::string modelName(const std::string& path) {
  std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();  // there was a slash at the end
  return detail::pathText(normal.filename());
}

Json modelJson(const ModelOptions& model, const Config& config) {
  return {{"name", modelName(model.path)},
          {"n_layer", config.n_layer},
          {"n_head", config.n_head},
          {"n_embd", config.n_embd},
          {"n_inner", config.innerSize()},
          {"n_positions", config.n_positions},
          {"vocab_size", config.vocab_size},
          {"activation", nameOf(config.activation_function)},
          {"weights", model.weights},
          {"compute", model.compute},
          {"cache", model.cache}};
}

/// Of every layer and head, row by row, what each token gives to those up to itself, in thousandths.
Json attentionJson(const Captured<float>& captured, const Config& config, Index tokens) {
  Json layers = Json::array();
  for (Index layer = 0; layer < config.n_layer; ++layer) {
    Json& heads = layers.emplace_back(Json::array());
    for (Index head = 0; head < config.n_head; ++head) {
      const Matrix<float>& pattern = captured.at(Point::pattern, layer, head);
      Json& weights = heads.emplace_back(Json::array());
      for (Index row = 0; row < tokens; ++row)
        for (Index column = 0; column <= row; ++column) weights.push_back(std::lround(1000 * pattern(row, column)));
    }
  }
  return layers;
}

/// In hundredths of a percent.
long share(double log_probability) { return std::lround(10000 * std::exp(log_probability)); }

/// What the unembedding makes of the residual stream at one place: for each token, the likeliest tokens after it, and
/// the rank of the one that does come.
Json lensPlaceJson(const Matrix<float>& residual, const Explained& text, Vocabulary& vocabulary) {
  const Matrix<float> logits = unembed(layerNorm(residual, text.weights.ln_f), text.weights);
  Json tokens = Json::array();
  for (Index t = 0; t < text.tokens(); ++t) {
    const auto row = logits.row(t);
    Json& token = tokens.emplace_back(Json::object());
    Json& top = token["top"] = Json::array();
    for (const TokenLogProbability& one : topLogProbabilities(row, kLensTop))
      top.push_back({vocabulary.mention(one.id), share(one.log_probability)});
    token["next"] = nullptr;
    if (t + 1 == text.tokens()) continue;
    const int next = text.ids[static_cast<std::size_t>(t) + 1];
    token["next"] = {(row.array() > row[next]).count() + 1, share(logProbability(row, next))};
  }
  return tokens;
}

Json lensJson(const Captured<float>& captured, const Explained& text, Vocabulary& vocabulary) {
  Json places = Json::array({lensPlaceJson(captured.at(Point::resid_pre, 0), text, vocabulary)});
  for (Index layer = 0; layer < text.weights.config.n_layer; ++layer)
    places.push_back(lensPlaceJson(captured.at(Point::resid_post, layer), text, vocabulary));
  return places;
}

/// The steps that the text has been generated by: the last token is not run, for nobody asks what follows it.
Json cacheJson(const Explained& text) {
  const LayerCache<float>& layer = text.cache.layer(0);
  Json steps = Json::array();
  const auto add = [&](std::size_t first, std::size_t tokens) {
    steps.push_back(
        {{"first", first}, {"tokens", tokens}, {"layer_bytes", layer.bytesFor(static_cast<Index>(first + tokens))}});
  };
  add(0, text.prompt_tokens);
  for (std::size_t t = text.prompt_tokens; t + 1 < text.ids.size(); ++t) add(t, 1);
  return {{"page_positions", detail::kPanelWidth},
          {"position_bytes", bytesPerPosition(layer)},
          {"steps", std::move(steps)}};
}

/// Runs the last token again, after those before it, and notes the first numbers at every point. Returns the likeliest
/// token after it.
int walkLast(Explained& text, Json& points) {
  Observer<float> observer;
  observer.points = Points::all();
  observer.visit = [&](PointValues<float>& at) {
    Json point{{"point", pointName(at.point, at.layer)}, {"layer", nullptr}, {"head", nullptr}};
    if (isInLayer(at.point)) point["layer"] = at.layer;
    if (isOfHead(at.point)) point["head"] = at.head;
    point["shape"] = {at.values.rows(), at.values.cols()};
    Json& first = point["first"] = Json::array();
    for (Index i = 0; i < std::min(kFirstNumbers, at.values.cols()); ++i) first.push_back(jsonNumber(at.values(0, i)));
    points.push_back(std::move(point));
  };
  const Index last = text.tokens() - 1;
  text.cache.truncate(last);
  return argmax(decodeStep(text.ids.back(), last, text.weights, text.cache, text.workspace, observer));
}

/// What the page shows.
Json explanation(const ModelOptions& model, Explained& text, const Tokenizer* tokenizer) {
  const Config& config = text.weights.config;
  Vocabulary vocabulary(tokenizer);
  for (const int id : text.ids) vocabulary.mention(id);
  Json log_probabilities = Json::array({Json()});
  for (const double one : scoreTokens(text.ids, text.weights, text.cache, text.workspace).log_probabilities)
    log_probabilities.push_back(one);  // nlohmann/json writes null for one that is not finite

  const Captured<float> captured = capture({Point::resid_pre, Point::pattern, Point::resid_post}, text.ids,
                                           text.weights, text.cache, text.workspace);
  Json lens = lensJson(captured, text, vocabulary);
  Json points = Json::array();
  const int next = vocabulary.mention(walkLast(text, points));

  return {{"version", version()},
          {"model", modelJson(model, config)},
          {"prompt_tokens", text.prompt_tokens},
          {"ids", text.ids},
          {"next", next},
          {"tokens", vocabulary.texts()},
          {"log_probabilities", std::move(log_probabilities)},
          {"attention", attentionJson(captured, config, text.tokens())},
          {"lens", std::move(lens)},
          {"cache", cacheJson(text)},
          {"walk", std::move(points)}};
}

/// As it can be within an element `script`, which `</script` or `<!--` in a token must not end.
std::string scriptJson(const Json& object) {
  const std::string json = object.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string text;
  for (const char character : json) {
    if (character == '<')
      text += "\\u003c";
    else
      text += character;
  }
  return text;
}

std::string pageText(const Json& object) {
  std::string page;
  for (const std::string_view piece : kPageBefore) page += piece;
  page += scriptJson(object);
  for (const std::string_view piece : kPageAfter) page += piece;
  return page;
}

}  // namespace

void ExplainCommand::run() const {
  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer tokenizer(model.path);
  std::vector<int> ids = encodePrompt(prompt, tokenizer);
  checkIds(ids, weights.config);
  const auto asked = static_cast<std::size_t>(max_tokens);
  if (ids.size() > kMostExplainedTokens || asked > kMostExplainedTokens - ids.size())
    throw ArgumentError("expected at most " + std::to_string(kMostExplainedTokens) + " tokens on a page, got " +
                        std::to_string(ids.size()) + " and --max-tokens " + std::to_string(asked));
  const Stopwatch watch;
  ModelCache<float> cache = std::move(emptyCaches(model, weights, 1).front());
  Workspace<float> workspace(weights.threads);
  Explained text{weights, cache, workspace, ids.size(), ids};
  GenerateOptions options;
  // Of the last token, too, the page shows what is computed: it needs a position.
  options.max_tokens = std::clamp(weights.config.n_positions - text.tokens(), Index{0}, static_cast<Index>(asked));
  const Generation generation = generateTokens(ids, options, weights, cache, workspace);
  text.ids.insert(text.ids.end(), generation.output_ids.begin(), generation.output_ids.end());

  const std::string html = pageText(explanation(model, text, tokenizer.find()));
  if (output == "-") {
    writeOutput(html);
  } else {
    detail::FileReplacement file(output);
    file.write(std::as_bytes(std::span(html)));
    file.commit();
  }
  std::cerr << "explained " << text.tokens() << " tokens, " << generation.output_ids.size() << " of them generated  "
            << html.size() << " bytes  " << std::fixed << std::setprecision(3) << watch.seconds() << " s" << std::endl;
}

}  // namespace driftless::cli
