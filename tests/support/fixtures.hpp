#pragma once

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "driftless/checkpoint.hpp"
#include "driftless/parameters.hpp"

/// The committed models under fixtures/ and the goldens that scripts/make_goldens.py computed from them.
namespace driftless::test {

/// The smallest first, so that a mistake shows first where there is least to look at.
inline const std::vector<std::string> kFixtureModels = {"odd-gpt2", "odd-gpt2-untied", "odd-gpt2-ties", "tales-gpt2"};

inline std::filesystem::path fixturePath(const std::string& name) {
  return std::filesystem::path(DRIFTLESS_FIXTURES_DIR) / name;
}

/// A JSON file under fixtures/, read once.
inline const nlohmann::json& fixtureJson(const std::string& name) {
  static std::map<std::string, nlohmann::json> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  std::ifstream file(fixturePath(name));
  if (!file) throw std::runtime_error(fixturePath(name).string() + ": cannot be opened");
  return loaded.emplace(name, nlohmann::json::parse(file)).first->second;
}

/// A model under fixtures/, read once: for one name, always the same object.
inline const Parameters<float>& fixtureParameters(const std::string& name) {
  static std::map<std::string, Parameters<float>> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(name, loadParameters<float>(fixturePath(name))).first->second;
}

inline RowVector<double> toVector(const nlohmann::json& numbers) {
  RowVector<double> vector(static_cast<Index>(numbers.size()));
  for (Index i = 0; i < vector.size(); ++i) vector[i] = numbers.at(static_cast<std::size_t>(i)).get<double>();
  return vector;
}

/// The floats whose bits are given, in eight hexadecimal digits each.
inline RowVector<float> floatsOf(const std::string& bits) {
  RowVector<float> vector(static_cast<Index>(bits.size() / 8));
  for (Index i = 0; i < vector.size(); ++i) {
    const std::string digits = bits.substr(static_cast<std::size_t>(8 * i), 8);
    vector[i] = std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16)));
  }
  return vector;
}

inline Matrix<double> toMatrix(const nlohmann::json& rows) {
  Matrix<double> matrix(static_cast<Index>(rows.size()), static_cast<Index>(rows.at(0).size()));
  for (Index row = 0; row < matrix.rows(); ++row) matrix.row(row) = toVector(rows.at(static_cast<std::size_t>(row)));
  return matrix;
}

/// The goldens of one kind: a file of their own for the embedded model, a key of the one file for the others.
inline const nlohmann::json& goldens(const std::string& model, const std::string& file, const std::string& key) {
  if (model == "tales-gpt2") return fixtureJson(model + "/goldens/" + file).at("cases");
  return fixtureJson(model + "/goldens.json").at(key);
}

/// Model, case and length, for messages.
inline std::string caseName(const std::string& model, const nlohmann::json& json) {
  const std::string name = json.contains("name") ? ", " + json.at("name").get<std::string>() : "";
  return model + name + ", prompt of " + std::to_string(json.at("prompt_ids").size()) + " tokens";
}

struct LogitsCase {
  std::string name;
  std::vector<int> prompt_ids;
  RowVector<double> prefill_logits;  ///< [V] after the prompt
  std::optional<int> next_id;        ///< absent if the prompt fills the context
  RowVector<double> decode_logits;   ///< [V] after next_id
};

inline std::vector<LogitsCase> logitsCases(const std::string& model) {
  std::vector<LogitsCase> cases;
  for (const nlohmann::json& json : goldens(model, "logits.json", "cases")) {
    LogitsCase logits_case{caseName(model, json), json.at("prompt_ids"), toVector(json.at("prefill_logits")), {}, {}};
    if (!json.at("next_id").is_null()) {
      logits_case.next_id = json.at("next_id").get<int>();
      logits_case.decode_logits = toVector(json.at("decode_logits"));
    }
    cases.push_back(std::move(logits_case));
  }
  return cases;
}

struct GreedyCase {
  std::string name;
  std::vector<int> prompt_ids;
  Index max_tokens;
  std::vector<int> output_ids;
};

inline std::vector<GreedyCase> greedyCases(const std::string& model) {
  std::vector<GreedyCase> cases;
  for (const nlohmann::json& json : goldens(model, "greedy.json", "greedy"))
    cases.push_back({caseName(model, json), json.at("prompt_ids"), json.at("max_tokens"), json.at("output_ids")});
  return cases;
}

/// A prompt with the key and value rows [T, C] that it leaves in some layers, and its last logits [V].
struct RowsCase {
  struct Layer {
    Index layer;
    Matrix<double> keys;
    Matrix<double> values;
  };
  std::vector<int> ids;
  std::vector<Layer> layers;
  RowVector<double> last_logits;
};

inline RowsCase rowsCase(const std::string& model) {
  if (model == "tales-gpt2") {
    const nlohmann::json& json = fixtureJson(model + "/goldens/layers.json");
    RowsCase rows{json.at("ids"), {}, toVector(json.at("logits_last"))};
    for (const auto& [layer, tensors] : json.at("layers").items())
      rows.layers.push_back({std::stoi(layer), toMatrix(tensors.at("k")), toMatrix(tensors.at("v"))});
    return rows;
  }
  const nlohmann::json& json = fixtureJson(model + "/goldens.json").at("rows");
  RowsCase rows{json.at("ids"), {}, toVector(json.at("logits").back())};
  for (const nlohmann::json& tensors : json.at("layers"))
    rows.layers.push_back(
        {static_cast<Index>(rows.layers.size()), toMatrix(tensors.at("k")), toMatrix(tensors.at("v"))});
  return rows;
}

}  // namespace driftless::test
