#include <array>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>

#include "commands.hpp"
#include "driftless/checkpoint.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/instruction_set.hpp"
#include "models.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

std::string bytesText(Index bytes) {
  constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < units.size(); ++unit) amount /= 1024;
  std::ostringstream text;
  text << bytes << " bytes";
  if (unit > 0) text << " (" << std::fixed << std::setprecision(1) << amount << " " << units[unit] << ")";
  return text.str();
}

template <class Value>
void writeLine(std::ostream& out, const std::string& name, const Value& value) {
  out << "  " << std::left << std::setw(33) << name << value << "\n";
}

std::string describeTokenizer(const std::string& model) {
  ModelTokenizer tokenizer(model);
  if (!tokenizer.hasFiles()) return "no";
  return tokenizer.find() != nullptr ? "yes" : "no, its files cannot be used: " + tokenizer.whyNot();
}

void describeConfig(const Config& config, std::ostream& out) {
  out << std::boolalpha << "config\n";
  writeLine(out, "vocab_size", config.vocab_size);
  writeLine(out, "n_positions", config.n_positions);
  writeLine(out, "n_embd", config.n_embd);
  writeLine(out, "n_layer", config.n_layer);
  writeLine(out, "n_head", config.n_head);
  writeLine(out, "n_inner", config.innerSize());
  writeLine(out, "activation_function", nameOf(config.activation_function));
  writeLine(out, "layer_norm_epsilon", config.layer_norm_epsilon);
  writeLine(out, "scale_attn_weights", config.scale_attn_weights);
  writeLine(out, "scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx);
}

void describeTensors(const Checkpoint& checkpoint, std::ostream& out) {
  out << "tensors\n";
  for (const CheckpointTensor& stored : checkpoint.tensors())
    out << "  " << std::left << std::setw(28) << stored.name << " " << std::setw(4) << stored.tensor.dtype_name << " "
        << detail::shapeText(stored.tensor.shape) << "\n";
}

void describeSizes(const Checkpoint& checkpoint, std::ostream& out) {
  Index parameters = 0;
  std::size_t bytes_on_disk = 0;
  for (const CheckpointTensor& stored : checkpoint.tensors()) {
    parameters += stored.tensor.view.rows * stored.tensor.view.cols;
    bytes_on_disk += stored.tensor.bytes;
  }
  const Config& config = checkpoint.config();
  const LayerCache<float> layer(config.n_head, config.headSize(), config.n_positions);
  out << "sizes\n";
  writeLine(out, "parameters", parameters);
  writeLine(out, "weights on disk", bytesText(static_cast<Index>(bytes_on_disk)));
  writeLine(out, "weights packed in memory", bytesText(Weights<float>::bytesFor(config, checkpoint.hasLmHead())));
  writeLine(out, "cache for a token", bytesText(config.n_layer * bytesPerPosition(layer)));
  writeLine(out, "cache for the whole context", bytesText(config.n_layer * layer.bytesFor(config.n_positions)));
}

}  // namespace

void InfoCommand::run() const {
  const Checkpoint checkpoint = openModel(model);
  std::ostringstream out;
  out << "model\n";
  writeLine(out, "path", model.path);
  writeLine(out, "tokenizer", describeTokenizer(model.path));
  writeLine(out, "output weights", checkpoint.hasLmHead() ? "lm_head" : "tied to wte");
  writeLine(out, "vector instructions", instructionSet());
  describeConfig(checkpoint.config(), out);
  describeSizes(checkpoint, out);
  describeTensors(checkpoint, out);
  writeOutput(out.str());
}

}  // namespace driftless::cli
