#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "driftless/detail/kernels/kernels.hpp"
#include "driftless/detail/kernels/lanes.hpp"
#include "driftless/detail/messages.hpp"
#include "driftless/detail/stored/elements.hpp"
#include "driftless/detail/stored/range.hpp"
#include "driftless/detail/threads/thread_pool.hpp"
#include "driftless/error.hpp"
#include "driftless/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

namespace detail {

template <class Scalar>
PackedMatrix<Scalar>::PackedMatrix(Index in, Index out, StoredType stored, ComputeType compute, Arena& arena)
    : in_(in),
      out_(out),
      stored_(stored),
      compute_(compute),
      data_(roundUpToLanes(out) * columnBytes<Scalar>(in, stored, compute), arena) {
  if (hasColumnScales(stored)) scales_ = AlignedBuffer<float>(roundUpToLanes(out), arena);
}

template <class Scalar>
Index PackedMatrix<Scalar>::bytesFor(Index in, Index out, StoredType stored, ComputeType compute) {
  return Arena::bytesFor<std::byte>(roundUpToLanes(out) * columnBytes<Scalar>(in, stored, compute)) +
         (hasColumnScales(stored) ? Arena::bytesFor<float>(roundUpToLanes(out)) : 0);
}

template <class Scalar>
Index PackedMatrix<Scalar>::panelOffset(Index panel) const {
  return panelColumn(panel) * columnBytes<Scalar>(in_, stored_, compute_);
}

template <class Scalar>
bool PackedMatrix<Scalar>::setPanel(Index panel, const Scalar* values) {
  float* const scales = scales_.data() != nullptr ? scales_.data() + panelColumn(panel) : nullptr;
  return kernels<Scalar>().store_panel(values, in_, panelWidth(panel), stored_, compute_,
                                       data_.data() + panelOffset(panel), scales);
}

template <class Scalar>
void PackedMatrix<Scalar>::addColumn(Index column, const Scalar* addend, Scalar* sums) const {
  const Index width = column < widePanels() * kPanelWidth ? kPanelWidth : kLanes;
  const Index first = column / width * width, in_panel = column - first;
  const std::byte* const panel = data_.data() + first * columnBytes<Scalar>(in_, stored_, compute_);
  const auto addEach = [&](auto numberAt) {
    for (Index i = 0; i < in_; ++i) {
      const Scalar number = static_cast<Scalar>(numberAt(i));
      sums[i] = scales() != nullptr ? fusedMultiplyAdd(number, static_cast<Scalar>(scales()[column]), addend[i])
                                    : number + addend[i];
    }
  };
  switch (packingOf(stored_, compute_)) {
    case Packing::int8_quads:
      return addEach([=](Index row) { return int8QuadAt(panel, width, row, in_panel); });
    case Packing::int4_groups:
      return addEach([=](Index row) { return int4At(panel, width, row, in_panel); });
    case Packing::elements:
      return withElement<Scalar>(stored_, [&]<class Element>(std::type_identity<Element>) {
        const Element* const elements = reinterpret_cast<const Element*>(panel) + in_panel;
        addEach([=](Index row) { return elements[row * width]; });
      });
  }
}

/// Where the tensors of a model are packed.
template <class Scalar>
struct Packer {
  StoredType stored;
  ComputeType compute;
  ThreadPool& pool;
  Arena& arena;
  /// Of each thread, for a panel's numbers.
  std::vector<AlignedBuffer<Scalar>> rooms =
      std::vector<AlignedBuffer<Scalar>>(static_cast<std::size_t>(pool.threads()));

  void pack(const TensorView& tensor, AlignedBuffer<Scalar>& vector) {
    vector = AlignedBuffer<Scalar>(roundUpToLanes(tensor.cols), arena);
    std::fill_n(vector.data(), vector.size(), Scalar(0));
    if (!readElements(tensor, 0, 0, tensor.cols, vector.data())) raiseBeyondType<Scalar>(tensor, StoredType::full);
  }

  void pack(const TensorView& tensor, PaddedRows<Scalar>& matrix) {
    matrix.resize(tensor.rows, tensor.cols);
    bool fits = true;
    for (Index row = 0; row < tensor.rows; ++row)
      fits = readElements(tensor, row, 0, tensor.cols, matrix.row(row)) && fits;
    if (!fits) raiseBeyondType<Scalar>(tensor, StoredType::full);
  }

  void pack(const TensorView& tensor, PackedMatrix<Scalar>& matrix) {
    matrix = PackedMatrix<Scalar>(tensor.rows, tensor.cols, stored, compute, arena);
    packPanels(tensor, matrix, [&](Index column, Index count, Index width, Scalar* numbers) {
      bool fits = true;
      for (Index row = 0; row < tensor.rows; ++row)
        fits = readElements(tensor, row, column, count, numbers + row * width) && fits;
      return fits;
    });
  }

  void pack(const TensorView& tensor, Embedding<Scalar>& embedding) {
    embedding.columns = PackedMatrix<Scalar>(tensor.cols, tensor.rows, stored, compute, arena);
    packPanels(tensor, embedding.columns, [&](Index token, Index count, Index width, Scalar* numbers) {
      // Some tokens at a time: whole rows are read, whole cache lines are written, and in between they stay near.
      Matrix<Scalar> rows(kLanes, tensor.cols);
      Eigen::Map<Matrix<Scalar>> columns(numbers, tensor.cols, width);
      bool fits = true;
      for (Index first = 0; first < count; first += kLanes) {
        const Index some = (std::min)(kLanes, count - first);
        for (Index i = 0; i < some; ++i)
          fits = readElements(tensor, token + first + i, 0, tensor.cols, rows.row(i).data()) && fits;
        columns.middleCols(first, some) = rows.topRows(some).transpose();
      }
      return fits;
    });
  }

  /// Fills a matrix panel by panel: read(column, count, width, numbers) writes the numbers of columns [column, column +
  /// count) to numbers [in, width], which are zero if that is not all of the width, and returns whether they fit
  /// Scalar.
  template <class Read>
  void packPanels(const TensorView& tensor, PackedMatrix<Scalar>& matrix, Read read) {
    std::atomic<bool> fits = true;
    pool.parallelFor(matrix.panels(), [&](Index panel, int thread) {
      const Index column = matrix.panelColumn(panel), width = matrix.panelWidth(panel);
      const Index count = (std::min)(width, matrix.out() - column);
      AlignedBuffer<Scalar>& numbers = rooms[static_cast<std::size_t>(thread)];
      numbers.makeRoom(matrix.in() * width);
      if (count < width) std::fill_n(numbers.data(), matrix.in() * width, Scalar(0));
      const bool fits_scalar = read(column, count, width, numbers.data());
      if (!matrix.setPanel(panel, numbers.data()) || !fits_scalar) fits = false;
    });
    if (!fits) raiseBeyondType<Scalar>(tensor, stored);
  }
};

/// What a model's tensors take in memory.
struct WeightBytes {
  Index arena = 0;
  Index own = 0;  ///< of memory of their own

  template <class Scalar>
  void add(const PackedMatrix<Scalar>&, Index rows, Index cols, StoredType stored, ComputeType compute) {
    arena += PackedMatrix<Scalar>::bytesFor(rows, cols, stored, compute);
  }
  template <class Scalar>
  void add(const Embedding<Scalar>&, Index rows, Index cols, StoredType stored, ComputeType compute) {
    arena += PackedMatrix<Scalar>::bytesFor(cols, rows, stored, compute);
  }
  template <class Scalar>
  void add(const AlignedBuffer<Scalar>&, Index, Index cols, StoredType, ComputeType) {
    arena += Arena::bytesFor<Scalar>(roundUpToLanes(cols));
  }
  template <class Scalar>
  void add(const PaddedRows<Scalar>&, Index rows, Index cols, StoredType, ComputeType) {
    own += rows * roundUpToLanes(cols) * static_cast<Index>(sizeof(Scalar));
  }
};

template <class Scalar>
WeightBytes weightBytes(const Weights<Scalar>& weights) {
  WeightBytes bytes;
  forEachTensor(weights, [&](const std::string&, const auto& tensor, Index rows, Index cols) {
    bytes.add(tensor, rows, cols, weights.stored, weights.compute);
  });
  return bytes;
}

/// Throws ArgumentError where products cannot be computed in a type.
inline void checkCompute(const Config& config, StoredType stored, ComputeType compute) {
  if (compute == ComputeType::full) return;
  if (!isQuantized(stored))
    raise<ArgumentError>({"to compute in int8, expected weights stored as int8 or int4, got ", nameOf(stored)});
  // So many products of two numbers up to 127 surely fit into 31 bits, also where 128 is added to one of them.
  constexpr Index kMostInputs = Index{1} << 16;
  const auto check = [](const char* name, Index size) {
    if (size > kMostInputs)
      raise<ArgumentError>({"to compute in int8, expected ", name, " up to ", kMostInputs, ", got ", size});
  };
  check("n_embd", config.n_embd);
  check("n_inner", config.innerSize());
}

/// Views of the parameters' own memory, by name.
template <class Scalar>
std::map<std::string, TensorView> viewsOf(const Parameters<Scalar>& parameters) {
  checkParameters(parameters);
  std::map<std::string, TensorView> views;
  forEachTensor(parameters, [&](const std::string& name, const auto& tensor, Index rows, Index cols) {
    views[name] = {std::is_same_v<Scalar, double> ? DType::F64 : DType::F32, rows, cols,
                   reinterpret_cast<const std::byte*>(tensor.data()), name};
  });
  return views;
}

}  // namespace detail

template <FloatingScalar Scalar>
Weights<Scalar>::Weights(const Config& model_config, bool has_lm_head, LoadOptions options)
    : config(model_config), stored(options.stored), compute(options.compute), threads(std::move(options.threads)) {
  checkConfig(config);
  detail::checkCompute(config, stored, compute);
  h.resize(static_cast<std::size_t>(config.n_layer));
  if (has_lm_head) lm_head.emplace();
}

template <FloatingScalar Scalar>
Index Weights<Scalar>::bytesFor(const Config& config, bool has_lm_head, StoredType stored, ComputeType compute) {
  const detail::WeightBytes bytes =
      detail::weightBytes(Weights(config, has_lm_head, {.stored = stored, .compute = compute, .threads = Threads(1)}));
  return bytes.arena + bytes.own;
}

template <FloatingScalar Scalar>
Weights<Scalar>::Weights(const Config& model_config, bool has_lm_head, const TensorSource& source, LoadOptions options)
    : Weights(model_config, has_lm_head, std::move(options)) {
  detail::Arena arena(detail::weightBytes(*this).arena);
  detail::Packer<Scalar> packer{stored, compute, threads.pool(), arena};
  forEachTensor(*this, [&](const std::string& name, auto& tensor, Index rows, Index cols) {
    TensorView view = source(name);
    if (view.place.empty()) view.place = name;
    if (view.rows != rows || view.cols != cols)
      detail::raise<ArgumentError>({name, ": expected shape ", detail::shapeText({rows, cols}), ", got ",
                                    detail::shapeText({view.rows, view.cols})});
    if (view.dtype == DType::other || view.data == nullptr)
      detail::raise<ArgumentError>(
          {name, ": expected numbers of dtype F64, F32, F16 or BF16, got ", view.data == nullptr ? "none" : "other"});
    packer.pack(view, tensor);
  });

  const auto describe = [&](LayerNorm<Scalar>& norm) {
    norm.width = config.n_embd;
    norm.epsilon = static_cast<Scalar>(config.layer_norm_epsilon);
  };
  describe(ln_f);
  for (std::size_t layer = 0; layer < h.size(); ++layer) {
    Block<Scalar>& block = h[layer];
    describe(block.ln_1);
    describe(block.ln_2);
    block.attn.score_scale = static_cast<Scalar>(config.scoreScale(static_cast<Index>(layer)));
    block.attn.n_head = config.n_head;
    block.mlp.activation_function = config.activation_function;
  }
}

template <FloatingScalar Scalar>
Weights<Scalar>::Weights(const Parameters<Scalar>& parameters, LoadOptions options)
    : Weights(
          parameters.config, parameters.lm_head.has_value(),
          [views = detail::viewsOf(parameters)](const std::string& name) { return views.at(name); },
          std::move(options)) {}

}}  // namespace driftless::DRIFTLESS_ABI
