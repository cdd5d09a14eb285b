// Included by model_float.cpp and model_double.cpp: everything that steps are made of, for one Scalar.

#include "driftless/detail/model/capture.hpp"
#include "driftless/detail/model/generate.hpp"
#include "driftless/detail/model/model_drafter.hpp"
#include "driftless/detail/model/prefix_index.hpp"
#include "driftless/detail/model/scheduler.hpp"
#include "driftless/detail/model/weights.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI {

template class detail::PackedMatrix<Scalar>;
template struct Weights<Scalar>;
template class LayerCache<Scalar>;
template class ModelCache<Scalar>;
template class PrefixIndex<Scalar>;
template class Workspace<Scalar>;

template Matrix<Scalar> layerNorm(const Matrix<Scalar>&, const LayerNorm<Scalar>&);
template Matrix<Scalar> attnStep(const Matrix<Scalar>&, const Attention<Scalar>&, LayerCache<Scalar>&);
template Matrix<Scalar> mlp(const Matrix<Scalar>&, const Mlp<Scalar>&);
template Matrix<Scalar> blockStep(const Matrix<Scalar>&, const Block<Scalar>&, LayerCache<Scalar>&);
template RowVector<Scalar> embedToken(int, Index, const Weights<Scalar>&);
template Matrix<Scalar> unembed(const Matrix<Scalar>&, const Weights<Scalar>&);

template const WorkspaceVector<Scalar>& prefill(TokenIds, const Weights<Scalar>&, ModelCache<Scalar>&,
                                                Workspace<Scalar>&, const Observer<Scalar>&);
template MatrixView<Scalar> prefill(const std::vector<Chunk<Scalar>>&, const Weights<Scalar>&, Workspace<Scalar>&,
                                    const Observer<Scalar>&);
template Matrix<Scalar> prefillLogits(TokenIds, const Weights<Scalar>&, ModelCache<Scalar>&,
                                      Workspace<Scalar>&, const Observer<Scalar>&);
template const WorkspaceVector<Scalar>& decodeStep(int, Index, const Weights<Scalar>&, ModelCache<Scalar>&,
                                                   Workspace<Scalar>&, const Observer<Scalar>&);
template MatrixView<Scalar> decodeStep(TokenIds, std::span<const Index>, const Weights<Scalar>&,
                                       const std::vector<ModelCache<Scalar>*>&, Workspace<Scalar>&,
                                       const Observer<Scalar>&);

template class Captured<Scalar>;
template Captured<Scalar> capture(Points, TokenIds, const Weights<Scalar>&, ModelCache<Scalar>&, Workspace<Scalar>&,
                                  const Observer<Scalar>&);

template void checkLogits(const Eigen::Ref<const RowVector<Scalar>>&, Index, const Weights<Scalar>&);
template std::vector<Generation> generateTokens(std::span<const Request>, const Weights<Scalar>&, Workspace<Scalar>&,
                                                const BatchOptions&, const OnToken&, const OnFinish&);
template std::vector<Generation> generateTokens(Prompts, const GenerateOptions&, const Weights<Scalar>&,
                                                Workspace<Scalar>&, const BatchOptions&, const OnToken&,
                                                const OnFinish&);
template std::vector<Generation> generateTokens(Prompts, const GenerateOptions&, const Weights<Scalar>&, const OnToken&,
                                                const OnFinish&);
template Generation generateTokens(TokenIds, const GenerateOptions&, const Weights<Scalar>&, ModelCache<Scalar>&,
                                   Workspace<Scalar>&, const std::function<bool(int)>&);
template Generation generateTokens(TokenIds, const GenerateOptions&, const Weights<Scalar>&,
                                   const std::function<bool(int)>&);
template Drafter draftModel(const Weights<Scalar>&);
template class Scheduler<Scalar>;

}}  // namespace driftless::DRIFTLESS_ABI
