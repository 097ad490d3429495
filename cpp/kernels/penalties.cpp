#include <algorithm>
#include <vector>

#include "logits.h"
#include "simd/rows.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kPenalties = "penalties";
constexpr std::string_view kCount = "bincount";

std::int64_t num_rows_of(std::size_t size, std::int64_t stride) {
  return stride == 0 ? 0 : static_cast<std::int64_t>(size) / stride;
}

void check(const Logits& logits, const PenaltyState& in, std::int64_t num_rows) {
  logits.check(kPenalties, num_rows);
  const auto num_slots =
      std::min({size_of(in.repetition), size_of(in.frequency), size_of(in.presence),
                num_rows_of(in.prompt_bits.size(), in.prompt_bits_stride),
                num_rows_of(in.output_counts.size(), in.output_counts_stride)});
  check_below(kPenalties, "idx_mapping", in.idx_mapping, num_rows, num_slots);
  check_range(kPenalties, "output_bin_counts", 0, logits.vocab_size, in.output_counts_stride);
  check_range(kPenalties, "prompt_bin_mask", 0, (logits.vocab_size + 31) / 32,
              in.prompt_bits_stride);
  check_range(kPenalties, "expanded_local_pos", 0, num_rows, in.local_pos.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto position = in.local_pos[row];
    check_range(kPenalties, "token_ids", row - position, position == 0 ? 0 : position + 1,
                std::max(in.token_ids.size(), row));
  }
}

Penalties penalties_of(const PenaltyState& in, std::int64_t slot) {
  return {.repetition = in.repetition[as_size(slot)],
          .frequency = in.frequency[as_size(slot)],
          .presence = in.presence[as_size(slot)],
          .output_counts = in.output_counts.data() + slot * in.output_counts_stride,
          .prompt_bits = in.prompt_bits.data() + slot * in.prompt_bits_stride};
}

/// Counts with the drafts before this row; `counts` is their memory.
void add_drafts(const PenaltyState& in, std::int64_t row, std::int64_t vocab_size,
                Penalties& penalties, std::vector<std::int32_t>& counts) {
  counts.assign(penalties.output_counts, penalties.output_counts + vocab_size);
  for (auto i = row - in.local_pos[row] + 1; i <= row; ++i) {
    const auto token = in.token_ids[i];
    if (token >= 0 && token < vocab_size) {
      ++counts[as_size(token)];
    }
  }
  penalties.output_counts = counts.data();
}

}  // namespace

void apply_penalties(const Logits& logits, const PenaltyState& in, std::int64_t num_rows) {
  check(logits, in, num_rows);
  std::vector<std::int32_t> counts;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot < 0) {
      continue;
    }
    auto penalties = penalties_of(in, slot);
    if (penalties.repetition == 1.0F && penalties.frequency == 0.0F && penalties.presence == 0.0F) {
      continue;
    }
    if (in.local_pos[row] > 0) {
      add_drafts(in, row, logits.vocab_size, penalties, counts);
    }
    logits.visit(row, [&]<typename T>(T* data) {
      row_ops<T>().penalize(data, logits.vocab_size, penalties);
    });
  }
}

namespace {

/// Tokens of a request that are counted: whole blocks, as long as one starts within the prefill.
std::int64_t num_counted(const TokenCounts& in, std::int64_t slot) {
  const auto blocks = (in.prefill_len[slot] + in.block_size - 1) / in.block_size;
  return std::min(blocks, in.num_blocks) * in.block_size;
}

void check(const TokenCounts& in, std::int64_t num_reqs) {
  const auto num_slots = std::min({in.prompt_len.size(), in.prefill_len.size(),
                                   num_rows_of(in.prompt_bits.size(), in.prompt_bits_stride),
                                   num_rows_of(in.output_counts.size(), in.output_counts_stride)});
  check_below(kCount, "idx_mapping", in.idx_mapping, num_reqs, num_slots);
  const auto num_tokens = std::min(in.prompt_bits_stride * 32, in.output_counts_stride);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot < 0) {
      continue;
    }
    const auto count =
        std::min(num_counted(in, slot), std::max(in.prompt_len[slot], in.prefill_len[slot]));
    const auto first = slot * in.all_token_ids.stride;
    check_range(kCount, "all_token_ids", first, count, in.all_token_ids.flat.size());
    for (std::int64_t i = 0; i < count; ++i) {
      check_range(kCount, "the vocabulary", in.all_token_ids.at(slot, i), 1, num_tokens);
    }
  }
}

}  // namespace

void count_tokens(const TokenCounts& in, std::int64_t num_reqs) {
  check(in, num_reqs);
  for (std::int64_t row = 0; row < num_reqs; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot < 0) {
      continue;
    }
    const auto counted = num_counted(in, slot);
    const auto prompt_end = std::min(counted, in.prompt_len[slot]);
    auto* bits = in.prompt_bits.data() + slot * in.prompt_bits_stride;
    for (std::int64_t i = 0; i < prompt_end; ++i) {
      const auto token = in.all_token_ids.at(slot, i);
      const auto bit = 1U << static_cast<std::uint32_t>(token % 32);
      bits[token / 32] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(bits[token / 32]) | bit);
    }
    auto* counts = in.output_counts.data() + slot * in.output_counts_stride;
    for (auto i = in.prompt_len[slot]; i < std::min(counted, in.prefill_len[slot]); ++i) {
      ++counts[in.all_token_ids.at(slot, i)];
    }
  }
}

}  // namespace pyvllm_pp::kernels
