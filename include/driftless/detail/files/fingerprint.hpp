#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "driftless/detail/files/checksum.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// Adds up a model's tensors as they are stored.
template <class Scalar>
class Fingerprint {
 public:
  void add(const AlignedBuffer<Scalar>& vector, Index, Index cols) { addNumbers(vector.data(), cols); }
  void add(const PaddedRows<Scalar>& matrix, Index rows, Index cols) {
    for (Index row = 0; row < rows; ++row) addNumbers(matrix.row(row), cols);
  }
  void add(const Embedding<Scalar>& embedding, Index rows, Index cols) { add(embedding.columns, cols, rows); }
  void add(const PackedMatrix<Scalar>& matrix, Index, Index) {
    for (Index panel = 0; panel < matrix.panels(); ++panel) addPanel(matrix, panel);
    if (matrix.scales() != nullptr) addNumbers(matrix.scales(), roundUpToLanes(matrix.out()));
  }
  void add(std::uint64_t word) { checksum_.add(word); }

  std::uint64_t sum() const { return checksum_.sum(); }

 private:
  template <class Number>
  void addNumbers(const Number* numbers, Index count) {
    checksum_.add(numbers, static_cast<std::size_t>(count), sizeof(Number));
  }

  void addPanel(const PackedMatrix<Scalar>& matrix, Index index) {
    const std::byte* const panel = matrix.panel(index);
    const Index width = matrix.panelWidth(index);
    const Index bytes = width * columnBytes<Scalar>(matrix.in(), matrix.stored(), matrix.compute());
    switch (packingOf(matrix.stored(), matrix.compute())) {
      case Packing::int8_quads:
        return addNumbers(panel, bytes);
      case Packing::int4_groups:
        for (Index group = 0; group < bytes; group += kInt4GroupBytes * width) {
          addNumbers(reinterpret_cast<const Eigen::half*>(panel + group), width);
          const Index scale_bytes = width * Index{sizeof(Eigen::half)};
          addNumbers(panel + group + scale_bytes, kInt4GroupBytes * width - scale_bytes);
        }
        return;
      case Packing::elements:
        return withElement<Scalar>(matrix.stored(), [&]<class Element>(std::type_identity<Element>) {
          addNumbers(reinterpret_cast<const Element*>(panel), matrix.in() * width);
        });
    }
  }

  Checksum checksum_;
};

/// Tells models apart that could compute other bits: their shapes, numbers, stored and compute types.
template <class Scalar>
std::uint64_t fingerprint(const Weights<Scalar>& weights) {
  Fingerprint<Scalar> fingerprint;
  const Config& config = weights.config;
  for (const Index size :
       {config.vocab_size, config.n_positions, config.n_embd, config.n_layer, config.n_head, config.innerSize(),
        static_cast<Index>(config.activation_function), Index{config.scale_attn_weights},
        Index{config.scale_attn_by_inverse_layer_idx}, Index{weights.lm_head.has_value()},
        static_cast<Index>(weights.stored), static_cast<Index>(weights.compute), Index{sizeof(Scalar)}})
    fingerprint.add(static_cast<std::uint64_t>(size));
  fingerprint.add(std::bit_cast<std::uint64_t>(config.layer_norm_epsilon));
  forEachTensor(weights, [&](const std::string&, const auto& tensor, Index rows, Index cols) {
    fingerprint.add(tensor, rows, cols);
  });
  return fingerprint.sum();
}

}}}  // namespace driftless::DRIFTLESS_ABI::detail
