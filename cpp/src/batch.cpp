#include "pyvllm_pp/batch.h"

#include <limits>
#include <utility>

#include "pyvllm_pp/error.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "batch";

void check_length(std::string_view name, std::size_t length, std::size_t expected) {
  if (length != expected) {
    fail(kRoom, name, " has ", length, " entries, expected ", expected, ", one a request");
  }
}

void check_context(std::size_t i, std::int32_t num_computed, std::int32_t num_scheduled) {
  if (num_computed < 0) {
    fail(kRoom, "num_computed_tokens[", i, "] is ", num_computed, ", expected 0 or more");
  }
  const auto seq_len = std::int64_t{num_computed} + num_scheduled;
  if (seq_len > std::numeric_limits<std::int32_t>::max()) {
    fail(kRoom, "num_computed_tokens[", i, "] + num_scheduled_tokens[", i, "] is ", seq_len,
         ", expected at most ", std::numeric_limits<std::int32_t>::max());
  }
}

std::uint32_t bits(std::int32_t value) { return static_cast<std::uint32_t>(value); }

/// Whether every request is as `check_batch` wants it: one pass without a branch, for the compiler
/// to make vectors of. Which one is wrong, and how, is looked for only where one is.
bool are_requests_right(const BatchView& batch) {
  const auto num_scheduled = batch.scheduled.num_scheduled_tokens;
  const auto query_start_loc = batch.query_start_loc;
  const auto num_computed = batch.num_computed_tokens;
  const auto prefill_len = batch.prefill_len;
  // The highest bit of `signs` is set by a value below 0, or a context that no int32 holds.
  std::uint32_t signs = 0;
  std::uint32_t differences = bits(query_start_loc[0]);
  for (std::size_t i = 0; i < num_scheduled.size(); ++i) {
    differences |=
        (bits(query_start_loc[i + 1]) - bits(query_start_loc[i])) ^ bits(num_scheduled[i]);
    signs |= bits(num_computed[i]) | bits(prefill_len[i]) |
             (bits(num_computed[i]) + bits(num_scheduled[i]));
  }
  return differences == 0 && (signs >> 31U) == 0;
}

}  // namespace

std::int32_t check_scheduled(const ScheduledView& scheduled, const BatchLimits& limits) {
  const auto num_reqs = scheduled.num_scheduled_tokens.size();
  check_length("is_prefilling", scheduled.is_prefilling.size(), num_reqs);
  if (std::cmp_greater(num_reqs, limits.max_num_reqs)) {
    fail(kRoom, num_reqs, " requests scheduled, the buffers hold ", limits.max_num_reqs);
  }
  std::int64_t num_tokens = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    const auto count = scheduled.num_scheduled_tokens[i];
    if (count < 0) {
      fail(kRoom, "num_scheduled_tokens[", i, "] is ", count, ", expected 0 or more");
    }
    num_tokens += count;
  }
  if (num_tokens > limits.max_num_tokens) {
    fail(kRoom, num_tokens, " tokens scheduled, the buffers hold ", limits.max_num_tokens);
  }
  if (!scheduled.num_computed_tokens.empty()) {
    check_length("num_computed_tokens", scheduled.num_computed_tokens.size(), num_reqs);
    for (std::size_t i = 0; i < num_reqs; ++i) {
      check_context(i, scheduled.num_computed_tokens[i], scheduled.num_scheduled_tokens[i]);
    }
  }
  return static_cast<std::int32_t>(num_tokens);
}

void check_batch(const BatchView& batch, const BatchLimits& limits) {
  check_scheduled(batch.scheduled, limits);
  const auto num_scheduled = batch.scheduled.num_scheduled_tokens;
  const auto num_reqs = num_scheduled.size();
  check_length("num_computed_tokens", batch.num_computed_tokens.size(), num_reqs);
  check_length("prefill_len", batch.prefill_len.size(), num_reqs);
  check_length("idx_mapping", batch.idx_mapping.size(), num_reqs);
  if (batch.query_start_loc.size() < num_reqs + 1) {
    fail(kRoom, "query_start_loc has ", batch.query_start_loc.size(),
         " entries, expected at least ", num_reqs + 1);
  }
  if (are_requests_right(batch)) {
    return;
  }
  std::int32_t start = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    if (batch.query_start_loc[i] != start) {
      fail(kRoom, "query_start_loc[", i, "] is ", batch.query_start_loc[i], ", expected ", start,
           ", the sum of num_scheduled_tokens before it");
    }
    check_context(i, batch.num_computed_tokens[i], num_scheduled[i]);
    if (batch.prefill_len[i] < 0) {
      fail(kRoom, "prefill_len[", i, "] is ", batch.prefill_len[i], ", expected 0 or more");
    }
    start += num_scheduled[i];
  }
  if (batch.query_start_loc[num_reqs] != start) {
    fail(kRoom, "query_start_loc[", num_reqs, "] is ", batch.query_start_loc[num_reqs],
         ", expected ", start, ", the sum of num_scheduled_tokens");
  }
}

}  // namespace pyvllm_pp
