#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pyvllm_pp/plan.h"
#include "pyvllm_pp/tables.h"
#include "shapes.h"

namespace pyvllm_pp::bench {

/// A batch and the memory behind its views.
class OwnedBatch {
 public:
  /// `first_tokens`: tokens of the first request, which tells two batches of one shape apart.
  OwnedBatch(const Shape& shape, std::int32_t first_tokens);

  [[nodiscard]] BatchView view() const;

 private:
  std::size_t num_reqs_;
  std::vector<std::int32_t> num_scheduled_tokens_;
  std::unique_ptr<bool[]> is_prefilling_;
  std::vector<std::int32_t> query_start_loc_;
  std::vector<std::int32_t> num_computed_tokens_;
  std::vector<std::int32_t> prefill_len_;
  std::vector<std::int64_t> idx_mapping_;
};

/// Planner and table writers of all ranks, with the memory that they write into.
class Core {
 public:
  Core(std::int32_t pcp_size, std::int32_t max_num_reqs);

  /// Plan and tables of one rank: what each process does at a step.
  const Plan& step(const BatchView& batch, std::size_t rank);
  /// The tables of the other ranks too, one after the other.
  const Plan& step_of_all_ranks(const BatchView& batch);

  [[nodiscard]] const TableWriter& writer(std::size_t rank) const { return writers_[rank]; }

 private:
  void write(const Plan& plan, const BatchView& batch, std::size_t rank);

  Planner planner_;
  std::vector<TableWriter> writers_;
  std::vector<std::uint64_t> device_arena_;
  std::vector<std::uint64_t> host_memory_;
};

/// Whether `global[padded_gather_idx]` and `gathered[hidden_restore_idx]` undo each other, each
/// token is written once, and rank's rows cover its tokens.
[[nodiscard]] bool is_right(const Core& core, const Plan& plan, std::size_t rank);

}  // namespace pyvllm_pp::bench
