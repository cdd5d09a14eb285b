#include "given.hpp"

#include <cmath>
#include <numbers>

#include "adapters.hpp"

// What is declared and explained in given.hpp. Nothing is to be written here.
namespace learner {

namespace {

Row activate(const Row& x, driftless::Activation activation) {
  if (activation == driftless::Activation::gelu)
    return x.unaryExpr([](float value) { return value / 2 * (1 + std::erf(value / std::numbers::sqrt2_v<float>)); });
  if (activation != driftless::Activation::gelu_new)
    throw std::invalid_argument("expected a model with gelu or gelu_new");
  const float slope = std::sqrt(2 / std::numbers::pi_v<float>);
  return x.array() / 2 * (1 + (slope * (x.array() + 0.044715f * x.array().cube())).tanh());
}

}  // namespace

Matrix embed(const Ids& ids, Index first_position, const Parameters& model) {
  adapters::position = first_position;  // for what is said if something throws or crashes after this
  const Index end = first_position + static_cast<Index>(ids.size());
  if (first_position < 0 || end > model.config.n_positions)
    throw std::out_of_range("embed: positions " + std::to_string(first_position) + " to " + std::to_string(end - 1) +
                            ", in a context that has 0 to " + std::to_string(model.config.n_positions - 1));
  Matrix x(static_cast<Index>(ids.size()), model.config.n_embd);
  for (Index t = 0; t < x.rows(); ++t)
    x.row(t) = model.wte.row(ids[static_cast<std::size_t>(t)]) + model.wpe.row(first_position + t);
  return x;
}

Matrix layerNorm(const Matrix& x, const driftless::LayerNormParameters<float>& norm, const Config& config) {
  Matrix y(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    Row row = x.row(t);
    row.array() -= row.mean();
    const float variance = row.squaredNorm() / static_cast<float>(row.size());
    row /= std::sqrt(variance + static_cast<float>(config.layer_norm_epsilon));
    y.row(t) = row.cwiseProduct(norm.weight) + norm.bias;
  }
  return y;
}

Matrix linear(const Matrix& x, const driftless::LinearParameters<float>& layer) {
  Matrix y(x.rows(), layer.weight.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    const Row row = x.row(t);
    const Row product = row * layer.weight;
    y.row(t) = product + layer.bias;
  }
  return y;
}

Matrix mlp(const Matrix& x, const driftless::MlpParameters<float>& mlp, const Config& config) {
  Matrix hidden = linear(x, mlp.c_fc);
  for (Index t = 0; t < hidden.rows(); ++t) hidden.row(t) = activate(hidden.row(t), config.activation_function);
  return linear(hidden, mlp.c_proj);
}

float scoreScale(const Config& config, Index layer) { return static_cast<float>(config.scoreScale(layer)); }

Row softmax(Row scores) {
  if (scores.size() == 0) throw std::invalid_argument("softmax: no scores: the row sees no position, not even its own");
  const float largest = scores.maxCoeff();
  for (float& score : scores) score = std::exp(score - largest);
  return scores / scores.sum();
}

Matrix unembed(const Matrix& x, const Parameters& model) {
  const Matrix& weight = model.lm_head ? *model.lm_head : model.wte;
  Matrix logits(x.rows(), weight.rows());
  for (Index t = 0; t < x.rows(); ++t) {
    const Row row = x.row(t);
    const Row product = row * weight.transpose();
    logits.row(t) = product;
  }
  return logits;
}

}  // namespace learner
