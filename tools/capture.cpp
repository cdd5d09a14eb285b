#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/files/file_replacement.hpp"
#include "driftless/error.hpp"
#include "driftless/forward.hpp"
#include "driftless/npy.hpp"
#include "driftless/observer.hpp"
#include "models.hpp"
#include "prompts.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kDefaultPoints = {"blocks.*.hook_resid_*", "blocks.*.attn.hook_pattern", "logits"};
const std::string kTokensFile = "tokens.json";

/// Whether a name is what the pattern says, in which * stands for any number of characters.
bool matches(std::string_view pattern, std::string_view name) {
  const std::size_t first = pattern.find('*');
  if (first == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, first))) return false;
  name.remove_prefix(first);
  pattern.remove_prefix(first + 1);
  for (std::size_t next = pattern.find('*'); next != std::string_view::npos; next = pattern.find('*')) {
    const std::size_t at = name.find(pattern.substr(0, next));  // the first place leaves most for what comes after it
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + next);
    pattern.remove_prefix(next + 1);
  }
  return name.ends_with(pattern);
}

using Place = std::pair<Point, Index>;  ///< a point and its layer, 0 for points that are not in a layer

/// All that there are in a model, with their names.
std::map<Place, std::string> allPlaces(const Config& config) {
  std::map<Place, std::string> places;
  for (int number = 0; number < kPoints; ++number) {
    const auto point = static_cast<Point>(number);
    for (Index layer = 0; layer < (isInLayer(point) ? config.n_layer : 1); ++layer)
      places.emplace(Place{point, layer}, pointName(point, layer));
  }
  return places;
}

bool isKnown(const std::string& pattern, const Config& config) {
  return std::ranges::any_of(allPlaces(config), [&](const auto& place) { return matches(pattern, place.second); });
}

[[noreturn]] void refusePattern(const std::string& pattern, const Config& config) {
  const std::string before = "blocks.";
  const std::size_t end = pattern.starts_with(before) ? pattern.find_first_not_of("0123456789", before.size()) : 0;
  if (end > before.size() && end != std::string::npos && isKnown(before + "0" + pattern.substr(end), config))
    throw ArgumentError("--point: expected a layer from 0 to " + std::to_string(config.n_layer - 1) + ", got " +
                        pattern);
  std::string known;
  for (const auto& [place, name] : allPlaces(config)) {
    if (place.second > 0) continue;
    known += known.empty() ? "" : ", ";
    known += isInLayer(place.first) ? "blocks.N" + name.substr(name.find('.', name.find('.') + 1)) : name;
  }
  throw ArgumentError("--point: expected one of " + known + ", with N from 0 to " + std::to_string(config.n_layer - 1) +
                      ", or * for any part of a name, got " + pattern);
}

std::map<Place, std::string> chosenPlaces(const std::vector<std::string>& patterns, const Config& config) {
  std::map<Place, std::string> chosen;
  for (const std::string& pattern : patterns) {
    bool is_known = false;
    for (const auto& [place, name] : allPlaces(config))
      if (matches(pattern, name)) {
        is_known = true;
        chosen.emplace(place, name);
      }
    if (!is_known) refusePattern(pattern, config);
  }
  return chosen;
}

/// The values of a whole text at one place, laid out as TransformerLens has them: [T, width], of heads [T, H, width],
/// over keys [H, T, T].
class PlaceValues {
 public:
  PlaceValues(const PointValues<float>& first, Index n_head, Index T)
      : heads_(isOfHead(first.point) ? n_head : 1),
        T_(T),
        width_(isOverKeys(first.point) ? T : first.values.cols()),
        rows_left_(T * heads_) {
    const float absent = first.point == Point::attn_scores ? -std::numeric_limits<float>::infinity() : 0;
    values_.assign(static_cast<std::size_t>(rows_left_ * width_), absent);
    shape_ = isOverKeys(first.point) ? std::vector{heads_, T, T}
             : isOfHead(first.point) ? std::vector{T, heads_, width_}
                                     : std::vector{T, width_};
  }

  void put(const PointValues<float>& at) {
    for (Index row = 0; row < at.values.rows(); ++row) {
      const Index t = at.position + row;
      const Index place = isOverKeys(at.point) ? at.head * T_ + t : t * heads_ + at.head;
      std::copy_n(at.values.data() + row * at.values.outerStride(), at.values.cols(), values_.begin() + place * width_);
    }
    rows_left_ -= at.values.rows();
  }

  bool isComplete() const { return rows_left_ == 0; }
  const std::vector<float>& values() const { return values_; }
  const std::vector<Index>& shape() const { return shape_; }

 private:
  Index heads_, T_, width_;
  Index rows_left_;  ///< of all heads
  std::vector<Index> shape_;
  std::vector<float> values_;
};

void checkDirectory(const std::filesystem::path& directory, bool overwrites) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(directory, error);
  if (!std::filesystem::exists(status)) return;
  const std::string name = detail::pathText(directory);
  if (!std::filesystem::is_directory(status)) throw FileError(name + ": expected a directory, found a file");
  const bool is_empty = std::filesystem::is_empty(directory, error);
  if (error) throw FileError(name + ": cannot be read: " + error.message());
  if (!is_empty && !overwrites)
    throw FileError(name + ": expected a new or empty directory, or --overwrite, found files in it");
}

}  // namespace

void CaptureCommand::run() const {
  if (!text.text && !text.ids) throw ArgumentError("expected a text: TEXT, - for standard input, or --ids");
  const Weights<float> weights = loadWeights(openModel(model), loadOptions(model));
  ModelTokenizer model_tokenizer(model.path);
  const std::vector<int> ids = encodePrompt(text, model_tokenizer);
  const auto places = chosenPlaces(points.empty() ? kDefaultPoints : points, weights.config);
  const std::filesystem::path directory(output);
  checkDirectory(directory, overwrites);

  const auto T = static_cast<Index>(ids.size());
  std::map<Place, PlaceValues> unfinished;
  Json shapes = Json::object();
  const auto write = [&](const std::string& name, const PlaceValues& values) {
    std::error_code error;
    // Not before there is something to write. What says which files belong together is there when all are.
    if (shapes.empty() && std::filesystem::create_directories(directory, error); error)
      throw FileError(detail::pathText(directory) + ": cannot be created: " + error.message());
    if (shapes.empty()) std::filesystem::remove(directory / kTokensFile, error);
    writeNpy(directory / (name + ".npy"), values.values(), values.shape());
    shapes[name] = values.shape();
  };
  Observer<float> observer;
  for (const auto& [place, name] : places) observer.points.insert(place.first);
  observer.visit = [&](const PointValues<float>& at) {
    const Place place(at.point, at.layer);
    const auto chosen = places.find(place);
    if (chosen == places.end()) return;
    PlaceValues& values = unfinished.try_emplace(place, at, weights.config.n_head, T).first->second;
    values.put(at);
    if (!values.isComplete()) return;
    write(chosen->second, values);
    unfinished.erase(place);
  };
  ModelCache<float> cache = std::move(emptyCaches(model, weights, 1).front());
  if (observer.points.contains(Point::logits))
    prefillLogits(ids, weights, cache, observer);
  else
    prefill(ids, weights, cache, observer);

  const Tokenizer* const tokenizer = model_tokenizer.find();
  Json texts = Json::array();
  for (const int id : ids) {
    const std::optional<std::string> token = textOf({id}, tokenizer);
    texts.push_back(token ? Json(*token) : Json());
  }
  const std::string json = jsonLine({{"ids", ids}, {"texts", texts}, {"points", shapes}});
  detail::FileReplacement file(directory / kTokensFile);
  file.write(std::as_bytes(std::span(json)));
  file.commit();
  std::cerr << "tokens: " << T << ", arrays written to " << output << ": " << shapes.size() << std::endl;
}

}  // namespace driftless::cli
