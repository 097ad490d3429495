#include <algorithm>
#include <cstdint>

#include "pyvllm_pp/tables.h"

/// The rows that sampling reads, each request's last token: which rank packs which of them.
namespace pyvllm_pp {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

/// A request without tokens reads the row before its own, the first ones the batch's last row:
/// what indexing the restored rows with its last token's number, one too small, comes to.
void fill_empty_requests(std::span<const std::int32_t> num_scheduled_tokens,
                         std::span<std::int64_t> restore_idx) {
  const auto has_tokens = [](std::int32_t count) { return count > 0; };
  const auto last =
      std::ranges::find_if(num_scheduled_tokens.rbegin(), num_scheduled_tokens.rend(), has_tokens);
  const auto num_until_last = static_cast<std::size_t>(num_scheduled_tokens.rend() - last);
  std::int64_t row = num_until_last == 0 ? 0 : restore_idx[num_until_last - 1];
  for (std::size_t req = 0; req < restore_idx.size(); ++req) {
    if (num_scheduled_tokens[req] > 0) {
      row = restore_idx[req];
    } else {
      restore_idx[req] = row;
    }
  }
}

}  // namespace

void TableWriter::write_selected(const Plan& plan, const BatchView& batch) {
  std::ranges::fill(device_.selected_local_idx, 0);
  std::int64_t num_packed = 0;
  for (std::int32_t rank = 0; rank < config_.pcp_size; ++rank) {
    std::int32_t num_own = 0;
    for (const auto& segment : plan.segments(rank)) {
      const auto req = index(segment.req_idx);
      const bool has_last_token =
          segment.token_start + segment.num_tokens == batch.query_start_loc[req + 1];
      if (!has_last_token || (rank != 0 && plan.is_replicated(segment.req_idx))) {
        continue;
      }
      if (rank == rank_) {
        device_.selected_local_idx[index(num_own)] = segment.local_start + segment.num_tokens - 1;
      }
      device_.selected_restore_idx[req] = num_packed++;
      ++num_own;
    }
    num_selected_rows_[index(rank)] = num_own;
  }
  fill_empty_requests(batch.scheduled.num_scheduled_tokens, device_.selected_restore_idx);
}

}  // namespace pyvllm_pp
