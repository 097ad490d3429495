#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pyvllm_pp/plan.h"

/// Room 3: the index arrays of one rank for one step, written into reused memory.
///
///   PCP 2, one prompt of 7 tokens [A B C D E F G]:
///     padded gathered:    [A B G _ | C D E F]
///     hidden_restore_idx: [0, 1, 4, 5, 6, 7, 2]      gathered[hidden_restore_idx] == global
///     padded_gather_idx:  [0, 1, 6, 0, 2, 3, 4, 5]   global[padded_gather_idx] == gathered
///
///   Sampling reads each request's last token alone, here G; with each rank's packed rows, rank by
///   rank, in `packed`:
///     num_selected_rows:    [1, 0]
///     selected_local_idx:   [2] on rank 0            local[selected_local_idx] are packed
///     selected_restore_idx: [0]                      packed[selected_restore_idx] == sampled
namespace pyvllm_pp {

/// Arrays that travel to the device in one copy: views into one arena.
struct DeviceTables {
  std::span<std::int64_t> hidden_restore_idx;  // [num_tokens] global -> gathered
  std::span<std::int64_t> padded_gather_idx;   // [pcp_size * padded_num_tokens] gathered -> global
  std::span<std::int64_t> idx_mapping;         // [num_local_reqs] local row -> request slot
  std::span<std::int64_t> selected_local_idx;  // [num_reqs] rows to pack, 0 beyond their number
  std::span<std::int64_t> selected_restore_idx;  // [num_reqs] request -> packed row
  std::span<std::int32_t> query_start_loc;       // [max_local_reqs + 1], padded with the last value
  std::span<std::int32_t> cu_num_logits;         // [num_local_reqs + 1]
  std::span<std::int32_t> logits_indices;        // [padded_num_reqs] each row's last token
  std::span<bool> gathered_kv_write_mask;        // [pcp_size * padded_num_tokens]
  std::span<bool> gathered_is_padding;           // [pcp_size * padded_num_tokens]
  std::size_t num_bytes = 0;                     // used bytes of the arena, from its first
};

/// Arrays that vLLM's local batch keeps on the host: views into memory of the caller.
struct HostTables {
  // Written with the device tables, and valid as long as those are.
  std::span<std::int64_t> req_idx;               // [num_local_reqs] local -> global row
  std::span<std::int64_t> idx_mapping;           // [num_local_reqs]
  std::span<std::int32_t> num_scheduled_tokens;  // [num_local_reqs]
  std::span<std::int32_t> query_start_loc;       // [padded_num_reqs + 1]
  std::span<std::int32_t> cu_num_logits;         // [num_local_reqs + 1]
  // Written at every step: they move with the requests.
  std::span<std::int32_t> start_pos;                    // [num_local_reqs] first position of a row
  std::span<std::int32_t> prefill_len;                  // [num_local_reqs]
  std::span<std::int32_t> num_computed_prefill_tokens;  // [num_local_reqs]
  std::span<std::int32_t> seq_lens_upper_bound;         // [padded_num_reqs]
  std::span<bool> is_prefilling;                        // [padded_num_reqs]
  std::size_t num_bytes = 0;                            // used bytes of the memory, from its first
};

/// A rank's tokens of a step, in the host buffers that the forward reads.
struct LocalTokens {
  std::span<std::int32_t> input_ids;        // [padded_num_tokens], 0 in padding
  std::span<std::int64_t> positions;        // [padded_num_tokens], 0 in padding
  std::span<std::uint8_t> is_padding;       // [padded_num_tokens] 0 or 1
  std::span<std::int32_t> seq_lens;         // [padded_num_reqs] last position plus one
  std::span<std::int32_t> query_start_loc;  // [padded_num_reqs + 1] or longer
};

/// Sizes of one rank's step, known before anything is written.
struct TableSizes {
  friend bool operator==(const TableSizes&, const TableSizes&) = default;

  std::int32_t num_local_reqs;     ///< at least 1: an idle rank has one row of no tokens
  std::int32_t num_local_tokens;   ///< real tokens of this rank
  std::int32_t padded_num_reqs;    ///< rows after graph padding
  std::int32_t padded_num_tokens;  ///< rows of every rank in gathered order
};

/// Graph padding: 0 means none.
struct Padding {
  std::int32_t num_tokens = 0;
  std::int32_t num_reqs = 0;
};

/// Bytes that any step's tables of this configuration fit into. Padded tokens: at most
/// `limits.max_num_tokens` a rank; rows: at most `2 * limits.max_num_reqs`.
[[nodiscard]] std::size_t device_arena_bytes(const PlanConfig& config);
[[nodiscard]] std::size_t host_arena_bytes(const PlanConfig& config);

/// Writes the tables of one rank. Requires a plan made from `batch`.
class TableWriter {
 public:
  /// Throws as `check_config`, and when `rank` is outside `[0, config.pcp_size)`.
  TableWriter(const PlanConfig& config, std::int32_t rank);

  /// Sizes for a plan under a padding. Throws `std::invalid_argument` when the padding is smaller
  /// than the largest rank, or larger than the limits, or the plan is one of other ranks.
  [[nodiscard]] TableSizes sizes(const Plan& plan, const Padding& padding) const;

  /// Bytes that `sizes` needs.
  [[nodiscard]] std::size_t device_bytes(const Plan& plan, const TableSizes& sizes) const;
  [[nodiscard]] std::size_t host_bytes(const TableSizes& sizes) const;

  /// Writes both kinds. `device_arena` and `host_memory` are 8-byte aligned.
  /// Cost: linear in tokens plus rows; no allocation. Throws `std::invalid_argument` before the
  /// first write when batch or sizes are not the plan's or the memory is too small.
  void write(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
             std::span<std::byte> device_arena, std::span<std::byte> host_memory);

  /// Whether the device tables written last are those of this step: the same plan, padding and
  /// request slots. They do not depend on anything else of the batch. False for any batch that is
  /// not the plan's.
  [[nodiscard]] bool is_current(const Plan& plan, const BatchView& batch,
                                const TableSizes& sizes) const;

  /// Writes the host tables of every step alone, where the device tables written last are current;
  /// the other host tables stay where they were written. `host_memory` may be theirs or other
  /// memory. Throws as `write`, and `std::invalid_argument` where they are not.
  void write_host(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                  std::span<std::byte> host_memory);

  /// As `write_host` where the device tables written last are current, otherwise as `write`.
  /// Returns whether it wrote the device tables. Throws as `write`.
  bool update(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
              std::span<std::byte> device_arena, std::span<std::byte> host_memory);

  /// Gathers this rank's tokens of the step written last, where tensors are on the host.
  /// Throws `std::invalid_argument` before the first write when the plan is another step's, the
  /// batch has fewer tokens than the plan, or `local` has other sizes than the step.
  void write_local(const Plan& plan, std::span<const std::int32_t> input_ids,
                   std::span<const std::int64_t> positions, const LocalTokens& local) const;

  [[nodiscard]] const DeviceTables& device() const { return device_; }
  [[nodiscard]] const HostTables& host() const { return host_; }
  /// [pcp_size] rows that each rank packs, for the device tables written last. A row of a
  /// replicated request is rank 0's, as in `hidden_restore_idx`.
  [[nodiscard]] std::span<const std::int32_t> num_selected_rows() const {
    return num_selected_rows_;
  }
  [[nodiscard]] std::int32_t rank() const { return rank_; }

 private:
  void write_all(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                 std::span<std::byte> device_arena, std::span<std::byte> host_memory);
  void write_host_only(const Plan& plan, const BatchView& batch, const TableSizes& sizes,
                       std::span<std::byte> host_memory);
  [[nodiscard]] bool is_written(const Plan& plan, const BatchView& batch,
                                const TableSizes& sizes) const;
  void write_gathered(const Plan& plan, std::int32_t padded_num_tokens);
  void write_selected(const Plan& plan, const BatchView& batch);
  void write_standing_rows(const Plan& plan, const BatchView& batch);
  void write_moving_rows(const Plan& plan, const BatchView& batch);
  void write_device_rows();
  void check(const Plan& plan, const BatchView& batch, const TableSizes& sizes) const;
  void cut_device(const Plan& plan, const TableSizes& sizes, std::span<std::byte> arena);
  void cut_host(const TableSizes& sizes, std::span<std::byte> memory);
  void cut_moving_host(const TableSizes& sizes, std::span<std::byte> memory);
  [[nodiscard]] std::span<const RankSegment> rows(const Plan& plan) const;

  PlanConfig config_;
  std::int32_t rank_;
  DeviceTables device_;
  HostTables host_;
  std::uint64_t written_revision_ = 0;  // plan of the device tables, 0 for none
  TableSizes written_sizes_{};
  std::vector<std::int64_t> written_idx_mapping_;  // [num_local_reqs]
  std::vector<std::int32_t> num_selected_rows_;    // [pcp_size]
};

/// A ring of equal arenas: memory handed out stays untouched for `depth - 1` further steps.
class ArenaRing {
 public:
  /// Owns its memory. Throws `std::invalid_argument` for a depth below 2.
  ArenaRing(std::size_t depth, std::size_t num_bytes);
  /// Uses memory of the caller (pinned, say), one span an arena, all of one size.
  explicit ArenaRing(std::vector<std::span<std::byte>> arenas);

  /// The next arena, the one handed out longest ago.
  std::span<std::byte> next();
  [[nodiscard]] std::size_t depth() const { return arenas_.size(); }
  [[nodiscard]] std::size_t index() const { return index_; }

 private:
  void check() const;

  std::vector<std::uint64_t> memory_;  // 8-byte aligned backing store, empty for foreign memory
  std::vector<std::span<std::byte>> arenas_;
  std::size_t index_ = 0;
};

}  // namespace pyvllm_pp
