#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays.h"

/// Kernels on block tables: writes staged on the host, the batch's rows, KV slots of tokens.
/// All throw `std::invalid_argument`, before anything is written, where an index leaves its array.
namespace pyvllm_pp::kernels {

/// Tables of several KV cache groups, known by address as vLLM hands them over: `stride` elements
/// from row to row. How many rows there are is not known here.
struct TablePointers {
  const std::uint64_t* addresses = nullptr;  // [num_groups]
  const std::int64_t* strides = nullptr;     // [num_groups]
  std::int64_t num_groups = 0;

  [[nodiscard]] std::int32_t* row(std::int64_t group, std::int64_t index) const;
};

struct StagedWrites {
  Ints rows;                  // [num_writes]
  Ints starts;                // [num_writes], first column
  Ints cumulative_lens;       // [num_writes], end of each write's contents
  const std::byte* contents;  // all writes, one after the other
  std::int64_t num_contents;
};

/// Writes each run of 4- or 8-byte elements to its row of `output`.
void apply_writes(const StagedWrites& writes, std::int64_t num_writes, std::byte* output,
                  std::int64_t output_size, std::int64_t row_stride, std::int64_t element_bytes);

/// As `apply_writes`, to int32 tables of several groups. `group_ids`: `[num_writes]`.
void apply_group_writes(const StagedWrites& writes, std::int64_t num_writes,
                        const TablePointers& tables, const Ints& group_ids);

struct GatheredTables {
  Ints idx_mapping;      // [num_reqs]
  TablePointers source;  // rows by request slot
  TablePointers target;  // rows by batch row, written; the same strides
  IntRows num_blocks;    // [num_groups, max_num_reqs]
  std::int64_t num_reqs;
  std::int64_t num_rows;  // of the batch with its padding
};

/// Copies each request's blocks to its batch row. Padding rows, and rows without a request, become
/// zeros.
void gather_block_tables(const GatheredTables& in);

struct SlotMappings {
  Ints idx_mapping;             // [num_reqs]
  Ints query_start_loc;         // [num_reqs + 1]
  Ints positions;               // [num_tokens]
  TablePointers tables;         // rows by request slot
  Ints block_sizes;             // [num_groups]
  const bool* mapping_enabled;  // [num_groups]
  const bool* dcp_sharded;      // [num_groups], read with context parallelism only
  IntRows slot_mappings;        // [num_groups, max_num_tokens], written
  std::int64_t max_num_tokens;
  std::int64_t num_reqs;
  std::int64_t cp_rank;
  std::int64_t cp_size;
  std::int64_t cp_interleave;
  std::int64_t pad_slot;
};

/// KV slot of every token; `pad_slot` for tokens of other ranks, of rows without a request, of
/// groups without a mapping, and behind the last token.
void compute_slot_mappings(const SlotMappings& in);

struct LocalSeqLens {
  Ints local;     // [max_num_reqs], written; 0 after the batch's rows
  Ints seq_lens;  // [num_reqs]
  std::int64_t num_reqs;
  std::int64_t max_num_reqs;
  std::int64_t dcp_size;
  std::int64_t dcp_rank;
  std::int64_t interleave;
};

/// How many tokens of each request this DCP rank keeps.
void dcp_local_seq_lens(const LocalSeqLens& in);

}  // namespace pyvllm_pp::kernels
