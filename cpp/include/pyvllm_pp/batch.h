#pragma once

#include <cstdint>
#include <span>

/// Room 1: the scheduled batch in GLOBAL request order, as vLLM's runner holds it on the host.
///
/// Views only: nothing here owns memory, and nothing is kept beyond the call that takes a view.
namespace pyvllm_pp {

/// What the scheduler decided. Enough to make a plan.
struct ScheduledView {
  std::span<const std::int32_t> num_scheduled_tokens;  // [num_reqs]
  std::span<const bool> is_prefilling;                 // [num_reqs]
  // [num_reqs] for `balanced`, or left out, which GCC accepts with an initializer alone.
  std::span<const std::int32_t> num_computed_tokens = {};  // NOLINT(*-redundant-member-init)
};

/// All host arrays of one global batch (the `*_np` arrays of vLLM's `InputBatch`).
struct BatchView {
  ScheduledView scheduled;
  std::span<const std::int32_t> query_start_loc;      // [num_reqs + 1] or longer (graph padding)
  std::span<const std::int32_t> num_computed_tokens;  // [num_reqs]
  std::span<const std::int32_t> prefill_len;          // [num_reqs]
  std::span<const std::int64_t> idx_mapping;          // [num_reqs] batch row -> request slot
};

/// The largest batch that the runner's buffers hold.
struct BatchLimits {
  std::int32_t max_num_reqs;
  std::int32_t max_num_tokens;
};

/// Checks lengths, signs and limits, of contexts too where given; returns the number of scheduled
/// tokens.
/// Cost: one pass over the requests. Throws `std::invalid_argument`.
std::int32_t check_scheduled(const ScheduledView& scheduled, const BatchLimits& limits);

/// Checks that every array covers the same requests, that `query_start_loc` is the running sum
/// of `num_scheduled_tokens`, and that lengths are 0 or more and fit in an int32.
/// Throws `std::invalid_argument`.
void check_batch(const BatchView& batch, const BatchLimits& limits);

}  // namespace pyvllm_pp
