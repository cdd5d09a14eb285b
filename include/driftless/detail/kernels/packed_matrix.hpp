#pragma once

#include "driftless/compute_type.hpp"
#include "driftless/config.hpp"
#include "driftless/detail/kernels/aligned_buffer.hpp"
#include "driftless/stored_type.hpp"

namespace driftless { inline namespace DRIFTLESS_ABI { namespace detail {

/// A matrix [in, out] cut into panels of columns, each panel stored row after row, so that multiplying streams through
/// memory once. Panels are kPanelWidth columns wide; what is left over is in panels of kLanes columns, the last of them
/// padded with zeros. The numbers are of a stored type that is known at run time, and packed for a way of computing.
template <class Scalar>
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Uninitialised, in memory cut from an arena.
  PackedMatrix(Index in, Index out, StoredType stored, ComputeType compute, Arena& arena);

  /// What it takes up in the arena.
  static Index bytesFor(Index in, Index out, StoredType stored, ComputeType compute);

  Index in() const { return in_; }
  Index out() const { return out_; }
  StoredType stored() const { return stored_; }
  ComputeType compute() const { return compute_; }
  Index bytes() const { return data_.size() + scales_.size() * static_cast<Index>(sizeof(float)); }

  Index panels() const { return widePanels() + (roundUpToLanes(out_) - widePanels() * kPanelWidth) / kLanes; }
  Index panelColumn(Index panel) const {
    return panel < widePanels() ? panel * kPanelWidth : widePanels() * kPanelWidth + (panel - widePanels()) * kLanes;
  }
  Index panelWidth(Index panel) const { return panel < widePanels() ? kPanelWidth : kLanes; }
  const std::byte* panel(Index panel) const { return data_.data() + panelOffset(panel); }

  /// Stores a panel's numbers [in, panelWidth]. False if one of them is beyond what the stored type can hold.
  bool setPanel(Index panel, const Scalar* values);

  /// Scales of the columns, padded to whole lanes; null unless the type has them.
  const float* scales() const { return scales_.data(); }

  /// sums [in] = column + addend [in], by one fused multiply-add per number if the type has scales
  /// of columns.
  void addColumn(Index column, const Scalar* addend, Scalar* sums) const;

 private:
  Index widePanels() const { return roundUpToLanes(out_) / kPanelWidth; }
  Index panelOffset(Index panel) const;

  Index in_ = 0;
  Index out_ = 0;
  StoredType stored_ = StoredType::full;
  ComputeType compute_ = ComputeType::full;
  AlignedBuffer<std::byte> data_;
  AlignedBuffer<float> scales_;
};

}}}  // namespace driftless::DRIFTLESS_ABI::detail
